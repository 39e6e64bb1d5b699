"""Whole commands over input that means harm: one clear line for a file, and groups shown as far as they make sense."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli import run
from lines import names

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Ensure
from zkgroup.sandbox.local_cluster import Sandbox

#: What a server takes in one request, less the rest of it.
LARGE = 1_040_000

#: What each file has (large ones are made when they are needed), and the facts of what is said of it.
FILES: dict[str, tuple[bytes | Callable[[], bytes], tuple[object, ...]]] = {
    "a binary file": (bytes(range(256)) * 40, ("line",)),
    "half of UTF-16": ("t 0 1\n".encode("utf-16")[:-1], ("UTF-16",)),
    "Latin-1": ("tøpic 0 1\n".encode("latin-1"), ("line 1", 1, "UTF-8")),
    "a zero byte": (b"t 0 1\nt 1 \x002\n", ("line 2",)),
    "a surrogate": (b'{"t\\ud800":{"0":1}}', ("$.t\\ud800.0",)),
    "deep JSON": (b'{"a":' * 200_000, ()),
    "half a file": (b'{"groupid":"g","offsets":{"t":{"0":1', ("line 1", "JSON")),
    "a number of thousands of digits": (b"t 0 " + b"9" * 60_000, ("line 1",)),
    "a hundred megabytes without an end of line": (lambda: b"t" * 100_000_000, ("line 1", "65,536")),
    "a hundred megabytes of columns": (lambda: b"a," * 50_000_000, ("line 1", "65,536")),
    "a hundred megabytes of JSON": (lambda: b'{"t":"' + b"x" * 100_000_000 + b'"}', ()),
    "control characters": (b"t\x1b[31m 0 1\n", ("line 1", "t\\x1b[31m")),
    "more than any offset file": (lambda: b"\n" * ((256 << 20) + 1), ("256 MiB",)),
}


@pytest.mark.parametrize("kind", FILES)
def test_offset_files(cluster: Sandbox, make_group: Callable[..., str], tmp_path: Path, kind: str) -> None:
    """Whatever a file has: exit code 2 and one line that names it and says what is wrong, within half a minute."""
    data, facts = FILES[kind]
    path = tmp_path / "offsets.txt"
    path.write_bytes(data() if callable(data) else data)
    started = time.monotonic()
    ended = run("reset-offsets", make_group(), "--zookeeper", cluster.connect, "--from-file", str(path), timeout=60)
    lines = ended.stderr.splitlines()
    assert (ended.returncode, ended.stdout, len(lines)) == (2, "", 1), ended.stderr[:2000]
    assert names(lines[0], path, *facts), lines[0]
    assert lines[0].isprintable()
    assert len(lines[0]) < 500
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        (b"x = " + b"[" * 100_000, ()),
        (b"\xff\xfeg\0", ("utf-8",)),
        (b"[clusters.x]\nconnect-timeout = " + b"9" * 5000, (4300,)),
        (b'[clusters."a\\nb"]\nzookeper = "h"', ("'zookeper'",)),
        (b"#" * 2_000_000, ("1 MiB",)),
    ],
)
def test_profiles(tmp_path: Path, data: bytes, facts: tuple[object, ...]) -> None:
    """A config.toml that is none is reported in one line."""
    path = tmp_path / "config.toml"
    path.write_bytes(data)
    ended = run("list-groups", "--cluster", "x", env={"ZKGROUP_CONFIG": str(path)})
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1), ended.stderr[:2000]
    assert names(ended.stderr, path, *facts)
    assert len(ended.stderr) < 500


REGISTRATIONS: dict[str, bytes] = {
    "explodes": rb'{"version":1,"subscription":{"(x+x+)+(x+x+)+y|(.*)*\\1z":1},"pattern":"white_list","timestamp":"1"}',
    "large": b'{"version":1,"subscription":{"%s":1},"pattern":"white_list","timestamp":"1"}' % (b"(a*)*|" * 170_000),
    "deep": b'{"pattern":"static","subscription":{"t":' + b"[" * 1020 + b"]" * 1020 + b"}}",
    "deeper": b'{"pattern":' * 90_000,
    "binary": b"\xff\xfe\x00\x01" * (LARGE // 4),
    "many": b'{"version":1,"subscription":{%s},"pattern":"static","timestamp":"1"}'
    % b",".join(b'"topic-%d":1' % n for n in range(1000)),
    "names": rb'{"version":1,"subscription":{"\u001b[31m\u0000\ud800\u2028\n":1},"pattern":"static","timestamp":"1"}',
    "streams": b'{"version":1,"subscription":{"t":2147483647},"pattern":"static","timestamp":"1"}',
}
OFFSETS = [b"9" * LARGE, b"\xff" * LARGE, b"\n" * LARGE, b"5" + b" " * LARGE, "٣".encode(), b"\x00", b"1e3", b"5\n"]


@pytest.fixture
def members(registry: Registry) -> Iterator[Callable[[str, dict[str, bytes]], None]]:
    """Registers members, one session for all, which go with the test."""
    with Registry(registry.settings, 30.0) as session:

        def register(group: str, ids: dict[str, bytes]) -> None:
            parents = session.read([Ensure(znodes.ids(group))])
            made = [session.write(Create(znodes.member_id(group, n), d, ephemeral=True)) for n, d in ids.items()]
            assert not any([*parents, *made]), made

        yield register


COMMANDS = ("inspect-group", "owners", "offsets", "assign", "reset-offsets --all-topics --to-earliest", "delete-group")


@pytest.mark.parametrize("kind", REGISTRATIONS)
def test_registrations(
    cluster: Sandbox, members: Callable[[str, dict[str, bytes]], None], unique: Callable[[str], str], kind: str
) -> None:
    """One registration as large as a server takes it, and as odd as can be: every snapshot ends in time, with a table
    or a line, and never by a surprise."""
    group = unique("hostile")
    members(group, {f"{group}_a": REGISTRATIONS[kind]})
    for command in ("inspect-group", "owners", "assign"):
        check(cluster, command, group)


@pytest.mark.parametrize("command", COMMANDS)
def test_owners_and_offsets(
    cluster: Sandbox, registry: Registry, make_topic: Callable[..., str], unique: Callable[[str], str], command: str
) -> None:
    """Owner and offset nodes that hold a megabyte each, of anything, next to good ones."""
    group, topic = unique("hostile"), make_topic(len(OFFSETS))
    for parent in (znodes.owner_topic(group, topic), znodes.offset_topic(group, topic)):
        assert registry.read([Ensure(parent)]) == [None]
    for number, data in enumerate(OFFSETS):
        partition = TopicPartition(topic, number)
        made = [Create(znodes.offset(group, partition), data), Create(znodes.owner(group, partition), data)]
        assert [registry.write(one) for one in made] == [None, None]
    children = ["9" * 5000, "٣", "-1", "00", "1e3", "\N{SNOWMAN}"]
    odd = [Create(znodes.child(znodes.offset_topic(group, topic), name), b"1") for name in children]
    odd += [Create(znodes.child(znodes.owner_topic(group, topic), name), b"1") for name in children]
    assert not any(registry.write(one) for one in odd)
    check(cluster, command, group)


def check(cluster: Sandbox, command: str, group: str) -> None:
    """A command ends within half a minute, expectedly, and says what a person can read."""
    name, *options = command.split()
    ended = run(name, group, *options, "--zookeeper", cluster.connect, timeout=30)
    assert ended.returncode in (0, 2, 5, 6), ended.stderr[:2000]
    assert "Traceback" not in ended.stderr
    assert all(line.isprintable() for line in (*ended.stdout.splitlines(), *ended.stderr.splitlines()))
    assert len(ended.stdout) + len(ended.stderr) < 300_000, (len(ended.stdout), len(ended.stderr))
