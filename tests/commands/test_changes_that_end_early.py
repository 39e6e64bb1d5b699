"""Commands that change a group and are interrupted, or met by what somebody has left in it. Real servers."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli import ZKGROUP, environment, run
from guarded_changes import REGISTRATION, Build, P, values
from lines import names
from support import wait_until
from tcp_proxy import TcpProxy

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Create, Delete, Ensure, Exists, SetData
from zkgroup.sandbox.local_cluster import Sandbox

MANY = [P("t", number) for number in range(9_000)]  # three pieces


@pytest.fixture
def proxy(cluster: Sandbox) -> Iterator[TcpProxy]:
    with TcpProxy(cluster.address) as proxy:
        yield proxy


def interrupted(
    proxy: TcpProxy, cluster: Sandbox, has_started: Callable[[], bool], signum: int, *args: str
) -> tuple[int, str]:
    """Run ``zkgroup``, let no answer through once ``has_started``, send the signal, and let answers through again."""
    command = [ZKGROUP, *args, "-z", proxy.address + cluster.chroot, "--store", "zookeeper", "--execute"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        wait_until(lambda: has_started() or process.poll() is not None, 60.0)
        proxy.stall("replies")
        process.send_signal(signum)
        proxy.heal()
        _, message = process.communicate(timeout=60)
    return process.returncode, message


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long)]
)
def test_a_copy_in_pieces_that_is_interrupted(
    cluster: Sandbox, registry: Registry, proxy: TcpProxy, make_group: Build, unique: Callable[[str], str],
    tmp_path: Path, signum: int, code: int,
) -> None:  # fmt: skip
    """It says how many offsets are written, which is how many are there, and how to go on; the code is the signal's."""
    group, other, file = make_group(dict.fromkeys(MANY, 5)), unique("other"), tmp_path / "backup.json"

    def has_started() -> bool:
        return values(registry, other, MANY[0]) == [5]

    returned, message = interrupted(
        proxy, cluster, has_started, signum, "copy-group", group, other, "--backup", str(file)
    )
    assert returned == code, message
    count = sum(value == 5 for value in values(registry, other, *MANY))
    assert 0 < count < len(MANY)
    rest = len(MANY) - count
    facts = (count, f"t-0..{count - 1}", rest, f"t-{count}..{len(MANY) - 1}", file)
    assert names(message.splitlines()[-1], *facts), message


def test_a_rename_that_was_interrupted_in_its_deletion(
    cluster: Sandbox, registry: Registry, make_group: Build, unique: Callable[[str], str]
) -> None:
    """Run again, it goes on: what was copied before is verified with the rest."""
    group, other = make_group({P("t", number): 5 for number in range(3)}), unique("other")
    args = ("rename-group", group, other, "-z", cluster.connect, "--store", "zookeeper", "--execute")
    copied = run("copy-group", group, other, "-z", cluster.connect, "--store", "zookeeper", "--execute")
    assert copied.returncode == 0, copied.stderr
    # What an interrupted rename leaves of the offsets.
    registry.write(Delete(znodes.offset(group, P("t", 2))))
    renamed = run(*args)
    assert renamed.returncode == 0, renamed.stderr
    assert names(renamed.stderr.splitlines()[-1], group, other, 2, group)
    assert registry.read([Exists(znodes.group(group))]) == [None]
    assert values(registry, other, *(P("t", number) for number in range(3))) == [5, 5, 5]


def test_an_export_that_is_not_finished(
    cluster: Sandbox, registry: Registry, make_group: Build, unique: Callable[[str], str],
    make_topic: Callable[..., str],
) -> None:  # fmt: skip
    """Every change of the group is refused, with what ends the export; a copy of it warns. The run's node stays as it
    is."""
    topic = make_topic(1)
    group, other = make_group({P(topic, 0): 5}), unique("other")
    pointer = json.dumps({"format": 1, "state": "decided", "run": "R1", "output": "/data/my lake"}).encode()
    registry.write(Ensure(znodes.export_state(group)))
    registry.write(SetData(znodes.export_state(group), pointer))
    server = ("-z", cluster.connect)
    for command in (
        ("delete-group", group, "--store", "zookeeper"),
        ("delete-group", group, "--topic", topic),
        ("rename-group", group, other, "--store", "zookeeper"),
        ("reset-offsets", group, "--topic", topic, "--to-earliest", "--store", "zookeeper"),
        ("unsubscribe", group, "--topic", topic),
        ("copy-group", make_group({P(topic, 0): 7}), group, "--store", "zookeeper", "--overwrite"),
    ):
        refused = run(*command, *server, "--execute")
        assert refused.returncode == 5, (command, refused.stderr)
        status = f"zkgroup -z {cluster.connect} export --group {group} --to '/data/my lake' --status"
        assert names(refused.stderr, group, "decided", "R1", "/data/my lake", "--abandon", status), refused.stderr
    planned = run("rename-group", group, other, *server, "--store", "zookeeper")
    assert (planned.returncode, names(planned.stderr, "warning", "--execute", group, "R1")) == (0, True)
    kept = run("delete-group", "--pattern", group, *server, "--execute", "--output", "json")
    (row,) = json.loads(kept.stdout)
    assert (kept.returncode, row["action"], names(row["note"], group, "decided", "R1")) == (0, "keep", True)
    copied = run("copy-group", group, other, *server, "--store", "zookeeper", "--execute")
    assert (copied.returncode, names(copied.stderr, "warning", group, "decided", "R1")) == (0, True)
    assert values(registry, group, P(topic, 0)) == [5]


def test_a_member_whose_node_stays(cluster: Sandbox, registry: Registry, make_group: Build) -> None:
    """A registration that is not ephemeral is reported as such: stopping clients would not remove it."""
    group = make_group({P("t", 0): 5})
    registry.write(Create(znodes.member_id(group, f"{group}_x"), REGISTRATION))
    refused = run("delete-group", group, "-z", cluster.connect, "--store", "zookeeper", "--execute")
    assert refused.returncode == 5
    release = f"zkgroup -z {cluster.connect} release-owners {group} --member {group}_x --execute"
    assert names(refused.stderr, group, f"/consumers/{group}/ids/{group}_x", release)


def test_an_export_that_is_only_planned_binds_nothing(
    cluster: Sandbox, registry: Registry, make_group: Build, unique: Callable[[str], str],
    make_topic: Callable[..., str],
) -> None:  # fmt: skip
    """It was killed before its decision: the group can be changed, as the next export plans anew. While its lock is
    there it is under way, and nothing can be changed."""
    topic, server = make_topic(1), ("-z", cluster.connect, "--store", "zookeeper", "--execute")
    group, other = make_group({P(topic, 0): 5}), unique("other")
    state, lock = znodes.export_state(group), znodes.export_lock(group)
    registry.write(Ensure(state))
    registry.write(SetData(state, b'{"format":1,"state":"planned","run":"R1","output":"/lake"}'))
    registry.write(Create(lock, b'{"host": "h9", "pid": 7}', ephemeral=True))
    reset = ("reset-offsets", group, "--topic", topic, "--to-earliest", *server)
    refused = run(*reset)
    assert (refused.returncode, names(refused.stderr, "h9", 7)) == (5, True), refused.stderr
    registry.write(Delete(lock))
    ended = subprocess.Popen(["true"])
    ended.wait(30)
    killed = json.dumps({"host": socket.gethostname(), "pid": ended.pid}).encode()
    registry.write(Create(lock, killed, ephemeral=True))
    for command in (
        reset,
        ("unsubscribe", group, "--topic", topic, *server[:2]),
        ("delete-group", group, *server),
        ("rename-group", group, other, *server),
        ("delete-group", "--pattern", group, *server),
    ):
        refused = run(*command)
        assert names(refused.stderr + refused.stdout, socket.gethostname(), ended.pid), (command, refused)
    registry.write(SetData(state, b'{"format":1,"state":"decided","run":"R1","output":"/lake"}'))
    refused = run(*reset)
    assert (refused.returncode, names(refused.stderr, group, "decided", "R1", "--abandon")) == (5, True), refused.stderr
    registry.write(SetData(state, b'{"format":1,"state":"planned","run":"R1","output":"/lake"}'))
    registry.write(Delete(lock))
    assert (run(*reset).returncode, values(registry, group, P(topic, 0))) == (0, [0])
    copied = run("copy-group", group, other, *server)
    assert (copied.returncode, "warning" in copied.stderr) == (0, False)
    for command in (("rename-group", group, unique("renamed"), *server), ("delete-group", other, *server)):
        done = run(*command)
        assert done.returncode == 0, (command, done.stderr)
    assert registry.read([Exists(znodes.group(group))]) == [None]
