"""``zkgroup delete-group --pattern`` over groups that access lists keep from being read or deleted, on real servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from cli import run
from guarded_changes import P
from hidden_groups import AUTH, CLOSED
from lines import names

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.changes import backup
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import OPEN, Acl, Create, Ensure, Exists, Failure, Stat
from zkgroup.sandbox.local_cluster import Sandbox

OURS = "ours:secret"
READABLE = Acl("world", "anyone", 1)
#: Shown to us without its digest, so that no backup can hold it.
HIDDEN = (*CLOSED, READABLE)
#: The list is shown, and we may do all but delete what is below.
LASTING = (Acl("world", "anyone", 31 & ~8),)


@pytest.fixture
def ours(cluster: Sandbox, tmp_path: Path) -> tuple[str, ...]:
    """How the command line names the server and who we are: nobody whom a list knows."""
    file = tmp_path / "auth"
    file.write_text(f"{OURS}\n")
    file.chmod(0o600)
    return "-z", cluster.connect, "--zookeeper-auth-file", str(file)


@pytest.fixture
def owner(cluster: Sandbox) -> Iterator[Registry]:
    """Who the lists are for."""
    with Registry(ZooKeeperSettings(cluster.connect, connect_timeout=20.0, auth=(AUTH,)), 20.0) as session:
        yield session


def make(owner: Registry, group: str, lists: Mapping[str, tuple[Acl, ...]]) -> None:
    """A group that rests, with an offset; ``lists``: of nodes, by their paths below the group's, that are not open."""
    root = znodes.group(group)
    owner.write(Ensure(znodes.consumers()))
    for path in ("", "/ids", "/owners", "/offsets", "/offsets/t", "/offsets/t/0"):
        made = owner.write(Create(root + path, b"", acl=lists.get(path, OPEN)))
        assert not isinstance(made, Failure), (path, made)


def there(registry: Registry, groups: list[str]) -> list[bool]:
    found = registry.read([Exists(znodes.group(group)) for group in groups])
    return [isinstance(one, Stat) for one in found]


def test_what_is_hidden_of_some_groups_keeps_no_other(
    owner: Registry, unique: Callable[[str], str], ours: tuple[str, ...], tmp_path: Path
) -> None:
    """Lists that are not reported, nodes that cannot be read, and the lack of the permission to delete: the plan names
    each of which no backup can be made, --execute deletes the others and ends with 5; the backup has what went."""
    stem = unique("pat")
    groups = [f"{stem}-{number}" for number in range(6)]
    plain, listless, closed, lasting, above, last = groups
    make(owner, plain, {})
    make(owner, listless, {"/owners": HIDDEN})
    make(owner, closed, {"/offsets/t/0": CLOSED})
    make(owner, lasting, {"/offsets": LASTING})
    make(owner, above, {"": HIDDEN})
    make(owner, last, {})
    args = ("delete-group", "--pattern", f"{stem}-*", *ours)
    reasons = {
        listless: znodes.owners(listless),
        closed: znodes.offset(closed, P("t", 0)),
        above: znodes.group(above),
    }

    plan = run(*args, "--output", "json")
    assert plan.returncode == 0, plan.stderr
    rows = {row["group"]: row for row in json.loads(plan.stdout)}
    assert [(group, row["action"]) for group, row in rows.items()] == [
        (group, "keep" if group in reasons else "delete") for group in groups
    ]
    assert all(names(rows[group]["note"], path) for group, path in reasons.items())
    facts = [fact for group, path in reasons.items() for fact in (group, path)]
    assert names(plan.stderr, "warning", "--execute", 3, 6, *facts)
    for left in (f"{listless}, {above}", closed):  # a remedy of their own
        assert [names(line, "warning", left) for line in plan.stderr.splitlines()].count(True) >= 1
    assert there(owner, groups) == [True] * 6

    file = tmp_path / "backup.json"
    done = run(*args, "--execute", "--backup", str(file), "--output", "json")
    assert done.returncode == 5, done.stderr
    assert there(owner, groups) == [False, True, True, True, True, False]
    assert names(done.stderr, 2, "ZooKeeper")
    end = done.stderr.splitlines()[-1]
    assert names(end, 4, 6, "ZooKeeper")
    assert all(names(end, group, path) for group, path in reasons.items())
    assert names(end, lasting, znodes.offset_topic(lasting, "t"))
    assert {node.path.split("/")[2] for node in backup.read(file).nodes} == {plain, lasting, last}


def test_where_all_are_hidden_nothing_is_written(
    owner: Registry, unique: Callable[[str], str], ours: tuple[str, ...], tmp_path: Path
) -> None:
    """No backup of nothing: exit 5 with the reason; the plan alone is exit 0."""
    stem, file = unique("pat"), tmp_path / "backup.json"
    make(owner, f"{stem}-1", {"": HIDDEN})
    args = ("delete-group", "--pattern", f"{stem}-*", *ours)
    plan, done = run(*args), run(*args, "--execute", "--backup", str(file))
    facts = (1, 1, f"{stem}-1", znodes.group(f"{stem}-1"))
    assert (plan.returncode, names(plan.stderr, "warning", "--execute", *facts)) == (0, True), plan.stderr
    assert (done.returncode, names(done.stderr.splitlines()[-1], *facts)) == (5, True), done.stderr
    assert not file.exists()
    assert there(owner, [f"{stem}-1"]) == [True]


def test_what_is_kept_anyway_needs_no_permission(
    owner: Registry, unique: Callable[[str], str], ours: tuple[str, ...]
) -> None:
    """A group that changed too recently is kept for that, whatever may be read of it: no warning, exit 0."""
    stem = unique("pat")
    make(owner, f"{stem}-1", {"": HIDDEN})
    make(owner, f"{stem}-2", {"/offsets": CLOSED})
    args = ("delete-group", "--pattern", f"{stem}-*", *ours, "--older-than", "1h", "--execute", "--output", "json")
    done = run(*args)
    assert [row["action"] for row in json.loads(done.stdout)] == ["keep"] * 2
    assert (done.returncode, stem in done.stderr, "warning" in done.stderr) == (0, False, False), done.stderr
