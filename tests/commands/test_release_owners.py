"""``zkgroup release-owners`` on a real ZooKeeper."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli import run
from writing import REGISTRATION, Build, Meddler, P, register

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError
from zkgroup.groups.changes.node_removals import plan_release
from zkgroup.groups.changes.znode_deletion import remove_nodes
from zkgroup.groups.partition_scope import parse_scope
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Create, Delete, Ensure, Failure, Get, Node
from zkgroup.sandbox.local_cluster import Sandbox


def own(session: Registry, group: str, partition: int, owner: str, *, ephemeral: bool = False, topic: str = "t") -> str:
    path = znodes.owner(group, P(topic, partition))
    session.write(Ensure(znodes.owner_topic(group, topic)))
    made = session.write(Create(path, owner.encode(), ephemeral=ephemeral))
    assert not isinstance(made, Failure), made
    return path


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
    assert "claims it again when the group rebalances" in rows[1]["note"]
    assert (plan.returncode, plan.stderr) == (
        0, "zkgroup: nothing was changed: this is the plan, --execute does it\n",
    )  # fmt: skip
    assert None not in there(registry, gone, claimed)
    backup = tmp_path / "backup.json"
    done = run(*args, "--execute", "--backup", str(backup))
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith(f"zkgroup: 2 nodes of group {group} removed\n")
    assert there(registry, gone, claimed, kept) == [None, None, b"old-0"]
    assert there(registry, held) == [f"{group}_m-0".encode()]
    undo = ("delete-group", "--undo", str(backup), "--execute", "-z", cluster.connect)
    refused = run(*undo)
    assert (refused.returncode, "is active: member" in refused.stderr) == (5, True)
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
    assert f"release-owners {group} --member stale --execute" in blocked.stderr
    backup = tmp_path / "backup.json"
    args = ("release-owners", group, "--member", "stale", "-z", cluster.connect)
    live = own(second, group, 0, "stale-0", ephemeral=True)
    alive = run(*args, "--execute")
    assert alive.returncode == 5
    assert "member stale is alive: it owns t-0 in session 0x" in alive.stderr
    second.write(Delete(live))
    odd = f"{znodes.owner_topic(group, 't')}/odd"
    assert second.write(Create(odd, b"stale-0", ephemeral=True)) is None
    assert f"member stale is alive: it owns {odd} in session 0x" in run(*args, "--execute").stderr
    second.write(Delete(odd))
    done = run(*args, "--execute", "--backup", str(backup))
    assert (done.returncode, there(registry, path)) == (0, [None]), done.stderr
    wrong = run("reset-offsets", group, "--undo", str(backup), "-z", cluster.connect)
    assert (wrong.returncode, f"delete-group {group} --undo" in wrong.stderr) == (2, True)
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
    named = f"1 node of another client is deleted, too: {below}\n"
    assert named in run(*args).stderr
    done = run(*args, "--execute", "--backup", str(backup))
    assert (done.returncode, named in done.stderr) == (0, True), done.stderr
    assert done.stderr.endswith(f"zkgroup: 2 nodes of group {group} removed\n")
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
    ("options", "code", "said"),
    [
        (("--topic", "t:1"), 5, "owns t-1 in session 0x"),
        (("--topic", "t:0-1"), 5, "owns t-1 in session 0x"),
        (("--topic", "t:7"), 4, "has no owner node of t there that outlives its session"),
        (("--topic", "typo"), 4, "has no owner node of typo"),
        (("--topic", "tt"), 4, "there that outlives its session: did you mean t?"),
        (("--member", "{group}_n"), 4, "did you mean {group}_m?"),
        (("--member", "typo"), 4, "has no member typo: it has {group}_m"),
        (("--member", "{group}_m"), 5, "is owned by session 0x"),
        ((), 2, "no owner and no member is given"),
    ],
)
def test_what_is_not_released(
    cluster: Sandbox,
    registry: Registry,
    second: Registry,
    make_group: Build,
    options: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    """What a session owns, and what is not there: nothing is changed."""
    group = make_group()
    register(second, group)
    lasting, held = own(registry, group, 0, "old-0"), own(second, group, 1, "live-0", ephemeral=True)
    words = [option.format(group=group) for option in options]
    result = run("release-owners", group, *words, "--execute", "-z", cluster.connect)
    assert (result.returncode, result.stdout) == (code, ""), result.stderr
    assert said.format(group=group) in result.stderr
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
        with pytest.raises(RefusedError, match=rf"a session owns {path}"):
            remove_nodes(meddled, plan.removal)
    assert there(registry, path) == [b"new-0"]


def test_many_owners_go_in_pieces(registry: Registry, make_group: Build) -> None:
    """More than one transaction takes."""
    group = make_group()
    paths = [own(registry, group, number, "old-0") for number in range(30)]
    _, plan = plan_release(registry, group, parse_scope(["t"]), ())
    assert remove_nodes(registry, plan.removal, transaction_bytes=2000) == 30
    assert set(there(registry, *paths)) == {None}
