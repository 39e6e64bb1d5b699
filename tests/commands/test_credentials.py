"""Groups behind access lists: with credentials everything goes, without them what is missing is said."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli import run
from lines import names

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Acl, Acls, Create, Ensure, Failure, Get, GetAcl, Node
from zkgroup.sandbox.local_cluster import Sandbox

SECRET = "correct horse:battery"
USER = "ops"
_EVERYTHING = 31


@pytest.fixture
def auth_file(tmp_path: Path) -> Path:
    """A file that only its owner may read."""
    path = tmp_path / "credentials"
    path.write_text(f"# the operators'\n\n{USER}:{SECRET}\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def closed(cluster: Sandbox, registry: Registry, unique: Callable[[str], str]) -> Iterator[Callable[[str], str]]:
    """``closed(topic)``: a group with an offset (5) of partition 0, that only the operators may see or change."""
    digest = base64.b64encode(hashlib.sha1(f"{USER}:{SECRET}".encode()).digest()).decode()
    acl = (Acl("digest", f"{USER}:{digest}", _EVERYTHING),)

    def make(topic: str) -> str:
        group = unique("closed")
        assert not isinstance(registry.write(Ensure(znodes.consumers())), Failure)
        offset = znodes.offset(group, TopicPartition(topic, 0))
        above = [znodes.group(group), znodes.ids(group), znodes.owners(group), znodes.offsets(group)]
        nodes = [Create(path, acl=acl) for path in [*above, znodes.offset_topic(group, topic)]]
        with Registry(ZooKeeperSettings(cluster.connect, auth=(("digest", f"{USER}:{SECRET}"),)), 30.0) as owner:
            assert not any(owner.read([*nodes, Create(offset, b"5", acl=acl)]))
        return group

    return make


def test_credentials_open_a_group(
    cluster: Sandbox,
    closed: Callable[[str], str],
    make_topic: Callable[..., str],
    fill: Callable[..., object],
    auth_file: Path,
    tmp_path: Path,
) -> None:
    """From a flag, the environment and a profile alike a group can be read, moved and consumed in; its access
    lists are as they were, and the password is shown nowhere."""
    topic = make_topic(1)
    fill(topic, 8)
    group = closed(topic)
    config = tmp_path / "config.toml"
    config.write_text(f'[clusters.c]\nzookeeper = "{cluster.connect}"\nzookeeper-auth-file = "{auth_file}"\n')
    flag = ("-z", cluster.connect, "--zookeeper-auth-file", str(auth_file))
    by_environment = {"ZKGROUP_ZOOKEEPER": cluster.connect, "ZKGROUP_ZOOKEEPER_AUTH_FILE": str(auth_file)}
    for args, env in ((flag, {}), ((), by_environment), (("-c", "c"), {"ZKGROUP_CONFIG": str(config)})):
        found = run("offsets", group, *args, "--output", "json", env=env)
        assert found.returncode == 0, found.stderr
        assert [row["committed"] for row in json.loads(found.stdout)] == [5]
    inspected = run("inspect-group", group, "--verify", *flag, "-vv")
    assert inspected.returncode in (0, 6), inspected.stderr
    moved = run("reset-offsets", group, "--topic", topic, "--to-offset", "6", "--execute", *flag)
    assert moved.returncode == 0, moved.stderr
    read = run("consume", topic, "--group", group, "--until-end", *flag, "-vv")
    assert (read.returncode, read.stdout) == (0, "m000006\nm000007\n"), read.stderr
    credentials = (("digest", f"{USER}:{SECRET}"),)
    with Registry(ZooKeeperSettings(cluster.connect, auth=credentials), 30.0) as owner:
        offset = znodes.offset(group, TopicPartition(topic, 0))
        node, *lists = owner.read([Get(offset), GetAcl(offset), GetAcl(znodes.ids(group))])
    assert isinstance(node, Node)
    assert node.data == b"8"
    assert all(isinstance(found, Acls) and [acl.scheme for acl in found.acl] == ["digest"] for found in lists)
    for result in (inspected, moved, read):
        assert SECRET not in result.stdout + result.stderr
        assert "battery" not in result.stdout + result.stderr


def test_without_credentials_nothing_is_done(
    cluster: Sandbox, closed: Callable[[str], str], make_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Without them, or with those of somebody else, a change is refused and says why."""
    group = closed(make_topic(1))
    other = tmp_path / "others"
    other.write_text("digest intern:guess\n")
    other.chmod(0o600)
    for args in ((), ("--zookeeper-auth-file", str(other))):
        result = run("delete-group", group, "--execute", "-z", cluster.connect, *args)
        assert (result.returncode != 0, result.stdout) == (True, "")
        assert names(result.stderr, f"/consumers/{group}")
        assert result.stderr.count("\n") == 1
        assert "guess" not in result.stderr


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, None),
        ("", None),
        ("# nothing\n", None),
        ("hunter2\n", 1),
        ("ok:ok\nx:\n", 2),
        ("sasl hunter2:hunter2\n", 1),
        (b"\xff\xfe\n", 1),
        ("u:hunter2" + "x" * 70_000, 1),
    ],
)
def test_a_malformed_auth_file(tmp_path: Path, content: str | bytes | None, line: int | None) -> None:
    """One line that names the file and the line, and shows nothing of what is in it; exit code 2."""
    path = tmp_path / "credentials"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    result = run("owners", "g", "-z", "127.0.0.1:1", "--zookeeper-auth-file", str(path))
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert names(result.stderr, "--zookeeper-auth-file", *(() if line is None else (f"line {line}",)), path)
    assert "hunter2" not in result.stderr


def test_a_file_that_others_may_read(tmp_path: Path) -> None:
    """That is a warning: the command goes on."""
    path = tmp_path / "credentials"
    path.write_text("u:hunter2\n")
    path.chmod(0o644)
    result = run("owners", "g", "-z", "127.0.0.1:1", "--connect-timeout", "0.2", "--zookeeper-auth-file", str(path))
    assert result.returncode == 3
    assert names(result.stderr, "warning", path, "chmod 600")
