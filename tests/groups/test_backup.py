"""Backup files: written whole, never over another, read back as they were."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import scaled

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.config.setting_files import STATE_VARIABLE
from zkgroup.errors import RefusedError, UsageError, ZkgroupError
from zkgroup.groups.changes import backup
from zkgroup.groups.changes.backup import Backup, SavedNode, SavedOffset
from zkgroup.groups.group_model import Cluster
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import OPEN, Acl

HERE = Cluster("h1:2181,h2:2181/chroot", "abc", (7, 1411294187842))
SAVED = Backup(
    "reset-offsets",
    "g",
    1411294187842,
    HERE,
    (
        SavedOffset("zookeeper", TopicPartition("t", 0), 5, 7),
        SavedOffset("kafka", TopicPartition("t", 1), None, 7, metadata="m"),
        SavedOffset("zookeeper", TopicPartition("t", 1), None, None, raw=b"x"),
    ),
    (
        SavedNode("/consumers/g/ids", b""),
        SavedNode("/consumers/g/foreign", b"\xff\x00", (*OPEN, Acl("digest", "u:h", 1))),
    ),
)

numbers = st.none() | st.integers(0, 2**63 - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
offsets = st.builds(
    SavedOffset,
    st.sampled_from(["zookeeper", "kafka"]),
    st.builds(TopicPartition, text, st.integers(0, 2**31 - 1)),
    numbers,
    numbers,
    st.none() | st.binary(max_size=9),
    text,
    st.none() | st.binary(max_size=9),
)
nodes = st.builds(SavedNode, text, st.binary(max_size=9), st.sampled_from([OPEN, (), (Acl("x509", "CN=a", 5),)]))
clusters = st.builds(
    Cluster, text, st.none() | text, st.none() | st.tuples(st.integers(0, 2**62), st.integers(0, 2**42))
)
backups = st.builds(
    Backup, st.just("delete-group"), text, st.integers(0, 2**41), clusters,
    st.lists(offsets, max_size=3, unique_by=lambda one: (one.store, one.partition)).map(tuple),
    st.lists(nodes, max_size=3).map(tuple),
)  # fmt: skip


@given(backups)
@settings(max_examples=scaled(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_is_read(tmp_path: Path, saved: Backup) -> None:
    """Any offsets, any data of nodes, any names come back as they were."""
    path = tmp_path / "backup.json"
    path.unlink(missing_ok=True)
    assert backup.read(backup.write(saved, path)) == saved


def test_what_was_tampered_with(tmp_path: Path) -> None:
    """A partition that is there twice in one store, or a node that is none of the group's, is refused, exit code 2:
    which of them should count is anybody's guess."""
    twice = replace(SAVED, offsets=(*SAVED.offsets, SavedOffset("zookeeper", TopicPartition("t", 0), 1, 7)))
    path = backup.write(twice, tmp_path / "twice")
    with pytest.raises(UsageError, match=rf"{path}\b.*\bt-0\b.*\bzookeeper\b"):
        backup.read(path)
    for foreign in ("/brokers/ids/9", "/consumers/other/ids", "/consumers/gg"):
        path = backup.write(replace(SAVED, nodes=(SavedNode(foreign, b""),)), tmp_path / foreign.replace("/", "-"))
        with pytest.raises(UsageError, match=rf"{path}\b.*'{foreign}'"):
            backup.check_fits(backup.read(path), HERE, "g", path)
    backup.check_fits(SAVED, HERE, "g", path)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"nodes": (SavedNode("/consumers/g/ids/g_x", b"{}"),)}, "'/consumers/g/ids/g_x'"),
        ({"nodes": (SavedNode("/consumers/g/../h", b""),)}, r"'\.\.'"),
        ({"offsets": (SavedOffset("zookeeper", TopicPartition("../../brokers", 0), 5, 7),)}, r"'\.\./\.\./brokers'"),
    ],
)
def test_what_no_deletion_has_removed(tmp_path: Path, change: dict[str, Any], wrong: str) -> None:
    """A member that would be planted for good, a way out of the group, a topic that is a path: the file is named, and
    how to go on."""
    path = tmp_path / "b.json"
    for offsets in (SAVED.offsets, ()):
        malformed = replace(SAVED, offsets=offsets)
        malformed = replace(malformed, **change)
        with pytest.raises(UsageError, match=rf"{path}\b.*{wrong}"):
            backup.check_nodes(malformed, path)


@pytest.mark.parametrize(
    ("acl", "place"),
    [("x", ""), ([{"scheme": "world", "id": "anyone"}], "[0]"), ([1], "[0]"), ({}, "")],
)
def test_a_malformed_access_list(tmp_path: Path, acl: object, place: str) -> None:
    """The message has the path of what is wrong."""
    path = backup.write(SAVED, tmp_path / "b.json")
    found = json.loads(path.read_text())
    found["change"]["nodes"][0]["acl"] = acl
    path.write_text(json.dumps(found))
    with pytest.raises(UsageError, match=rf"`\$\.change\.nodes\[0\]\.acl{re.escape(place)}`"):
        backup.read(path)


@pytest.mark.parametrize("permissions", [-1, 32, 1 << 40])
def test_permissions_that_no_access_list_can_have(tmp_path: Path, permissions: int) -> None:
    """They are refused as the rest of the file is, before a request that no server takes."""
    acl = (Acl("world", "anyone", permissions),)
    path = backup.write(replace(SAVED, nodes=(SavedNode("/consumers/g", b"", acl),)), tmp_path / "b.json")
    with pytest.raises(UsageError, match=rf"{path}\b.*'/consumers/g'"):
        backup.read(path)


def test_a_backup_that_does_not_tell_its_cluster(tmp_path: Path) -> None:
    """Taken for the cluster at the same address; refused at any other."""
    nameless = replace(SAVED, cluster=Cluster(HERE.connect))
    backup.check_fits(nameless, HERE, "g", tmp_path)
    with pytest.raises(RefusedError, match=rf"{tmp_path}\b.*{HERE.connect}.*\bother:1\b"):
        backup.check_fits(nameless, Cluster("other:1", "abc"), "g", tmp_path)


def test_a_backup_is_private_and_in_the_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mode 0600 under any umask, a name that says when and what, two at the same time together."""
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path))
    before = os.umask(0)
    try:
        first, second = backup.write(SAVED), backup.write(SAVED)
    finally:
        os.umask(before)
    assert first == tmp_path / "backups" / "20140921T100947Z-reset-offsets-g.json"
    assert second == tmp_path / "backups" / "20140921T100947Z-reset-offsets-g-1.json"
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    assert stat.S_IMODE(first.parent.stat().st_mode) == 0o700
    assert sorted(first.parent.iterdir()) == sorted([first, second])
    assert backup.read(first) == SAVED


@pytest.mark.parametrize("group", ["..", "a/../../b", "é\x1b[31m", "x" * 400])
def test_a_hostile_group_stays_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str) -> None:
    """Whatever a group is called, its backup is a file of the backups' folder."""
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path))
    path = backup.write(replace(SAVED, group=group))
    assert path.parent.resolve() == (tmp_path / "backups").resolve()
    assert path.name.isprintable()
    assert backup.read(path).group == group


def test_no_file_is_ever_replaced(tmp_path: Path) -> None:
    """The file that is there may be the only copy of what a first attempt found: exit code 5."""
    path = tmp_path / "mine.json"
    path.write_text("precious")
    with pytest.raises(RefusedError, match=str(path)):
        backup.write(SAVED, path)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    """One error that names the file, and no rest of a file."""
    with pytest.raises(ZkgroupError, match=r"/no/backup\.json: No such file"):
        backup.write(SAVED, tmp_path / "no" / "backup.json")


def test_where_the_state_folder_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names it, and how to choose another."""
    (tmp_path / "file").touch()
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(ZkgroupError, match=str(tmp_path / "file")) as caught:
        backup.write(SAVED)
    assert STATE_VARIABLE in str(caught.value.remedy)


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backup is whole, its owner's alone, and replaces nothing there, too."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    path = backup.write(SAVED, tmp_path / "b.json")
    assert backup.read(path) == SAVED
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(RefusedError, match=str(path)):
        backup.write(SAVED, path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "Input data was truncated"),
        (b" \n", "Input data was truncated"),
        (b"\xff\xfe", r"JSON is malformed: invalid character \(byte 0\)"),
        (b'{"zkgroup_backup": 2,', "Input data was truncated"),
        (b"[1]", "Expected `object`, got `array`"),
        (b"{}", "Object missing required field `zkgroup_backup`"),
        (b'{"zkgroup_backup": 1}', r"Invalid enum value 1 - at `\$.zkgroup_backup`"),
        (b'{"zkgroup_backup": true}', r"Expected `int`, got `bool` - at `\$.zkgroup_backup`"),
        (b'{"zkgroup_backup": 2}', "Object missing required field `change`"),
        (b'{"zkgroup_backup": 2, "change": {}}', r"Object missing required field `command` - at `\$.change`"),
    ],
)
def test_what_is_no_backup(tmp_path: Path, content: bytes, why: str) -> None:
    """A usage error, exit code 2, that names the file and what is wrong."""
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=f"{path}.*{why}"):
        backup.read(path)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("before", -1, "Expected `int` >= 0"),
        ("written", "7", "got `str`"),
        ("partition", ["t", True], "got `bool`"),
        ("store", "disk", "Invalid enum value 'disk'"),
        ("partition", [None, 0], "got `null`"),
        ("before", 2**63, "Expected `int` <= 9223372036854775807"),
    ],
)
def test_a_malformed_backup(tmp_path: Path, key: str, value: object, why: str) -> None:
    """Wrong values are found before anything is undone with them."""
    path = backup.write(SAVED, tmp_path / "b.json")
    found = json.loads(path.read_text())
    found["change"]["offsets"][0][key] = value
    path.write_text(json.dumps(found))
    with pytest.raises(UsageError, match=rf"{why}.* - at `\$\.change\.offsets\[0\]\.{key}(\[.\])?`"):
        backup.read(path)


def test_a_backup_fits_its_own_group_and_cluster(tmp_path: Path) -> None:
    """By Kafka's id, else by the registry's creation, else by the address; another group or cluster is refused."""
    path = tmp_path / "b.json"
    backup.check_fits(SAVED, Cluster("other:1", "abc", None), "g", path)
    backup.check_fits(SAVED, Cluster("other:1", None, HERE.created), "g", path)
    backup.check_fits(SAVED, Cluster(HERE.connect), "g", path)
    for other in (Cluster(HERE.connect, "xyz", HERE.created), Cluster(HERE.connect, None, (1, 2)), Cluster("other:1")):
        with pytest.raises(RefusedError, match=rf"{path}\b.*{HERE.connect}"):
            backup.check_fits(SAVED, other, "g", path)
    with pytest.raises(RefusedError, match=r"\bg\b.*\bh\b"):
        backup.check_fits(SAVED, HERE, "h", path)


def test_the_cluster_of_a_registry(registry: Registry, unique: Callable[[str], str]) -> None:
    """A real cluster has an id and a registry that was made at some time."""
    found = backup.read_cluster(registry)
    assert found.connect == registry.settings.hosts
    assert found.id
    assert found.created
    assert found.is_same(found)
