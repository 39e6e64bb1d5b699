"""``zkgroup release-owners`` on a real ZooKeeper."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli import run
from guarded_changes import REGISTRATION, Build, Meddler, P, register
from lines import names

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError
from zkgroup.groups.changes.node_removals import plan_release
from zkgroup.groups.changes.znode_deletion import remove_nodes
from zkgroup.groups.partition_scope import parse_scope
from zkgroup.protocol import znodes
from zkgroup.protocol.names import session_text
from zkgroup.protocol.operations import Create, Delete, Ensure, Failure, Get, Node
from zkgroup.sandbox.local_cluster import Sandbox


def own(session: Registry, group: str, partition: int, owner: str, *, ephemeral: bool = False, topic: str = "t") -> str:
    path = znodes.owner(group, P(topic, partition))
    session.write(Ensure(znodes.owner_topic(group, topic)))
    made = session.write(Create(path, owner.encode(), ephemeral=ephemeral))
    assert not isinstance(made, Failure), made
    return path


def session_of(registry: Registry, path: str) -> str:
    """The session that owns a node, as messages name it."""
    (node,) = registry.read([Get(path)])
    assert isinstance(node, Node)
    return session_text(node.stat.owner)


def there(registry: Registry, *paths: str) -> list[bytes | None]:
    return [node.data if isinstance(node, Node) else None for node in registry.read([Get(path) for path in paths])]


def test_owners_without_a_session_go_with_members_active(
    cluster: Sandbox, registry: Registry, second: Registry, make_group: Build, tmp_path: Path
) -> None:
    """The plan, the removal, and back again out of the backup; what a session has, and what is not named, stays."""
    group = make_group({P("t", 0): 5})
    register(second, group)
    gone = own(registry, group, 0, "old-0")
    claimed = own(registry, group, 1, f"{group}_m-0")
    kept = own(registry, group, 2, "old-0")
    held = own(second, group, 3, f"{group}_m-0", ephemeral=True)
    args = ("release-owners", group, "--topic", "t:0-1", "-z", cluster.connect)
    plan = run(*args, "--output", "json")
    rows = json.loads(plan.stdout)
    assert [(row["topic"], row["partition"], row["owner"], row["member"]) for row in rows] == [
        ("t", 0, "old-0", None),
        ("t", 1, f"{group}_m-0", f"{group}_m"),
    ]
    assert [row["note"] is None for row in rows] == [True, False], "its member will claim it again"
    assert (plan.returncode, plan.stderr.count("\n"), names(plan.stderr, "--execute")) == (0, 1, True)
    assert None not in there(registry, gone, claimed)
    backup = tmp_path / "backup.json"
    done = run(*args, "--execute", "--backup", str(backup))
    assert (done.returncode, names(done.stderr.splitlines()[-1], 2, group)) == (0, True), done.stderr
    assert there(registry, gone, claimed, kept) == [None, None, b"old-0"]
    assert there(registry, held) == [f"{group}_m-0".encode()]
    undo = ("delete-group", "--undo", str(backup), "--execute", "-z", cluster.connect)
    refused = run(*undo)
    assert (refused.returncode, names(refused.stderr, group, f"{group}_m")) == (5, True)
    second.close()
    undone = run(*undo)
    assert undone.returncode == 0, undone.stderr
    assert there(registry, gone, claimed) == [b"old-0", f"{group}_m-0".encode()]
    whole = run("release-owners", group, "--topic", "t", "--execute", "-z", cluster.connect)
    assert whole.returncode == 0, whole.stderr
    assert there(registry, gone, claimed, kept) == [None, None, None]


def test_a_registration_without_a_session_goes(
    cluster: Sandbox, registry: Registry, second: Registry, make_group: Build, tmp_path: Path
) -> None:
    """It kept other commands from the group, which name this one; it comes back out of the backup alone."""
    group = make_group({P("t", 0): 5})
    path = znodes.member_id(group, "stale")
    registry.write(Create(path, REGISTRATION))
    blocked = run("delete-group", group, "-z", cluster.connect, "--execute")
    assert blocked.returncode == 5
    assert blocked.stderr.endswith(f" zkgroup -z {cluster.connect} release-owners {group} --member stale --execute\n")
    backup = tmp_path / "backup.json"
    args = ("release-owners", group, "--member", "stale", "-z", cluster.connect)
    live = own(second, group, 0, "stale-0", ephemeral=True)
    alive = run(*args, "--execute")
    assert (alive.returncode, names(alive.stderr, "stale", "t-0", session_of(registry, live))) == (5, True)
    second.write(Delete(live))
    odd = f"{znodes.owner_topic(group, 't')}/odd"
    assert second.write(Create(odd, b"stale-0", ephemeral=True)) is None
    alive = run(*args, "--execute")
    assert (alive.returncode, names(alive.stderr, "stale", odd, session_of(registry, odd))) == (5, True)
    second.write(Delete(odd))
    done = run(*args, "--execute", "--backup", str(backup))
    assert (done.returncode, there(registry, path)) == (0, [None]), done.stderr
    wrong = run("reset-offsets", group, "--undo", str(backup), "-z", cluster.connect)
    undo = f" zkgroup -z {cluster.connect} delete-group {group} --undo {backup}\n"
    assert (wrong.returncode, wrong.stderr.endswith(undo)) == (2, True), wrong.stderr
    undone = run("delete-group", group, "--undo", str(backup), "--execute", "-z", cluster.connect)
    assert (undone.returncode, there(registry, path)) == (0, [REGISTRATION]), undone.stderr


@pytest.mark.parametrize("options", [("--topic", "t"), ("--topic", "t:0"), ("--member", "stale")])
def test_what_another_client_keeps_below_them_is_named_counted_and_undone(
    cluster: Sandbox, registry: Registry, make_group: Build, tmp_path: Path, options: tuple[str, str]
) -> None:
    group = make_group({P("t", 0): 5})
    path = znodes.member_id(group, "stale") if "--member" in options else own(registry, group, 0, "old-0")
    if "--member" in options:
        registry.write(Create(path, REGISTRATION))
    below = f"{path}/z"
    registry.write(Create(below, b"z"))
    backup = tmp_path / "backup.json"
    args = ("release-owners", group, *options, "-z", cluster.connect)
    assert names(run(*args).stderr, "warning", 1, below)
    done = run(*args, "--execute", "--backup", str(backup))
    assert (done.returncode, names(done.stderr, "warning", 1, below)) == (0, True), done.stderr
    assert names(done.stderr.splitlines()[-1], 2, group)
    assert there(registry, path, below) == [None, None]
    undone = run("delete-group", group, "--undo", str(backup), "--execute", "-z", cluster.connect)
    assert (undone.returncode, there(registry, below)) == (0, [b"z"]), undone.stderr


def test_an_owner_that_no_partition_has_for_a_name(
    cluster: Sandbox, registry: Registry, second: Registry, make_group: Build, tmp_path: Path
) -> None:
    """It goes with the whole topic, not with partitions; what a session owns stays."""
    group = make_group({P("t", 0): 5})
    registry.write(Ensure(znodes.owner_topic(group, "t")))
    paths = [f"{znodes.owner_topic(group, 't')}/{name}" for name in ("x", "y")]
    registry.write(Create(paths[0], b"old-0"))
    second.write(Create(paths[1], b"live-0", ephemeral=True))
    server, backup = ("-z", cluster.connect), tmp_path / "backup.json"
    assert run("release-owners", group, "--topic", "t:0", *server).returncode == 4
    args = ("release-owners", group, "--topic", "t", *server)
    (row,) = json.loads(run(*args, "--output", "json").stdout)
    assert (row["topic"], row["partition"], row["owner"], paths[0] in row["note"]) == ("t", None, "old-0", True)
    done = run(*args, "--execute", "--backup", str(backup))
    assert (done.returncode, there(registry, *paths)) == (0, [None, b"live-0"]), done.stderr
    second.close()
    undone = run("delete-group", group, "--undo", str(backup), "--execute", *server)
    assert (undone.returncode, there(registry, *paths)) == (0, [b"old-0", None]), undone.stderr


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        (("--topic", "t:1"), 5, ("live-0", "t-1", "{live}")),
        (("--topic", "t:0-1"), 5, ("live-0", "t-1", "{live}")),
        (("--topic", "t:7"), 4, ("{group}", "t", "zkgroup -z {connect} owners {group}")),
        (("--topic", "typo"), 4, ("{group}", "typo", "zkgroup -z {connect} owners {group}")),
        (("--topic", "tt"), 4, ("{group}", "tt", "t")),
        (("--member", "{group}_n"), 4, ("{group}", "{group}_n", "{group}_m")),
        (("--member", "typo"), 4, ("{group}", "typo", "{group}_m")),
        (("--member", "{group}_m"), 5, ("{ids}/{group}_m", "{live}")),
        ((), 2, ("--topic", "--member")),
    ],
)
def test_what_is_not_released(
    cluster: Sandbox,
    registry: Registry,
    second: Registry,
    make_group: Build,
    options: tuple[str, ...],
    code: int,
    facts: tuple[str, ...],
) -> None:
    """What a session owns, and what is not there: nothing is changed."""
    group = make_group()
    register(second, group)
    lasting, held = own(registry, group, 0, "old-0"), own(second, group, 1, "live-0", ephemeral=True)
    known = {"group": group, "connect": cluster.connect, "ids": znodes.ids(group), "live": session_of(registry, held)}
    words = [option.format_map(known) for option in options]
    result = run("release-owners", group, *words, "--execute", "-z", cluster.connect)
    assert (result.returncode, result.stdout) == (code, ""), result.stderr
    assert names(result.stderr, *(fact.format_map(known) for fact in facts)), result.stderr
    assert there(registry, lasting, held) == [b"old-0", b"live-0"]


def test_a_claim_that_takes_the_place_of_a_permanent_node_stays(
    registry: Registry, second: Registry, make_group: Build
) -> None:
    """A member claims the partition just before the transaction, by a node of the same version."""
    group = make_group()
    path = own(registry, group, 0, "old-0")

    def claim(number: int) -> None:
        if number == 1:
            second.write(Delete(path))
            own(second, group, 0, "new-0", ephemeral=True)

    with Meddler(registry.settings, claim) as meddled:
        _, plan = plan_release(meddled, group, parse_scope(["t:0"]), ())
        with pytest.raises(RefusedError) as refused:
            remove_nodes(meddled, plan.removal)
    assert names(str(refused.value), path)
    assert there(registry, path) == [b"new-0"]


def test_many_owners_go_in_pieces(registry: Registry, make_group: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than one transaction takes."""
    monkeypatch.setattr("zkgroup.groups.changes.znode_transactions.MAX_TRANSACTION_BYTES", 2000)
    group = make_group()
    paths = [own(registry, group, number, "old-0") for number in range(30)]
    _, plan = plan_release(registry, group, parse_scope(["t"]), ())
    assert remove_nodes(registry, plan.removal) == 30
    assert set(there(registry, *paths)) == {None}
