"""Removing groups, on a real ZooKeeper: what is in use or has changed stays; nothing is lost half-way."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable

import pytest
from guarded_changes import Build, Meddler, P, register, values
from lines import names
from tcp_proxy import TcpProxy

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError, UnreachableError, ZkgroupError
from zkgroup.groups.changes.group_tree import read_tree, read_trees
from zkgroup.groups.changes.node_removals import read_scope, unsubscribe_guard
from zkgroup.groups.changes.plan import StalePlanError, ZnodeRemoval
from zkgroup.groups.changes.preconditions import GroupActiveError
from zkgroup.groups.changes.znode_deletion import remove_empty_group, remove_groups, remove_nodes
from zkgroup.groups.partition_scope import parse_scope
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import (
    Acl,
    Acls,
    Children,
    Code,
    Create,
    Delete,
    Ensure,
    Exists,
    Failure,
    GetAcl,
    Op,
    Result,
    SetData,
    Stat,
)
from zkgroup.protocol.znodes import Registration, encode_registration
from zkgroup.sandbox.local_cluster import Sandbox


def exists(registry: Registry, group: str) -> bool:
    return isinstance(registry.read([Exists(znodes.group(group))])[0], Stat)


def many(count: int) -> dict[P, int]:
    return {P("t", number): number for number in range(count)}


def test_a_group_goes_with_all_that_is_below_it(registry: Registry, make_group: Build) -> None:
    """Foreign nodes, persistent owners and an export's nodes included, in one transaction."""
    group = make_group({P("t", 0): 5, P("é u", 1): 6})
    for path in ("/owners/t", "/zkgroup/export", "/foreign/deep/er"):
        registry.write(Ensure(znodes.group(group) + path))
    registry.write(Create(znodes.owner(group, P("t", 0)), b"stale-0"))
    with Meddler(registry.settings, lambda n: None) as meddler:
        assert remove_nodes(meddler, ZnodeRemoval(read_tree(registry, group))) == 15
        assert meddler.transactions == 1
    assert not exists(registry, group)
    assert remove_nodes(registry, ZnodeRemoval(read_tree(registry, group))) == 0


@pytest.mark.parametrize("ids", [True, False])
def test_a_member_that_comes_last_wins(registry: Registry, second: Registry, make_group: Build, ids: bool) -> None:
    """It registers between the last snapshot and the transaction: the group stays as it was, to the last node."""
    group = make_group({P("t", 0): 5, P("u", 1): 6}, ids=ids)
    tree = read_tree(registry, group)
    with (
        Meddler(registry.settings, lambda n: register(second, group) if n == 1 else None) as meddler,
        pytest.raises(GroupActiveError) as refused,
    ):
        remove_nodes(meddler, ZnodeRemoval(tree))
    assert refused.value.members == (f"{group}_m",)
    assert values(registry, group, P("t", 0), P("u", 1)) == [5, 6]
    assert {node.path for node in read_tree(registry, group).nodes} - {node.path for node in tree.nodes} <= {
        znodes.ids(group),
        znodes.member_id(group, f"{group}_m"),
    }


@pytest.mark.parametrize("what", ["member", "offset", "owner"])
def test_an_empty_group_is_not_taken_from_who_comes_last(
    registry: Registry, second: Registry, make_group: Build, what: str
) -> None:
    """It registers, commits or claims between the snapshot and the transaction; afterwards too. Else all nodes go."""
    group = make_group()
    for path in (znodes.owner_topic(group, "t"), znodes.offset_topic(group, "t")):
        registry.write(Ensure(path))

    def come(number: int) -> None:
        if what == "member":
            register(second, group)
        elif what == "offset":
            second.write(Create(znodes.offset(group, P("t", 0)), b"5"))
        else:
            second.write(Create(znodes.owner(group, P("t", 0)), b"m-0", ephemeral=True))

    with Meddler(registry.settings, come) as meddler:
        assert not remove_empty_group(meddler, group)
        assert meddler.transactions == 1
        assert not remove_empty_group(meddler, group)
        assert meddler.transactions == 1
    assert len(read_tree(registry, group).nodes) == 7
    empty = make_group()
    assert remove_empty_group(registry, empty)
    assert not exists(registry, empty)


def test_an_active_group_is_not_deleted(registry: Registry, second: Registry, make_group: Build) -> None:
    """Members are named; and any node that a session owns, wherever it is, means that somebody is there."""
    group = make_group({P("t", 0): 5})
    tree = read_tree(registry, group)
    register(second, group)
    with pytest.raises(GroupActiveError) as refused:
        remove_nodes(registry, ZnodeRemoval(tree))
    assert refused.value.members == (f"{group}_m",)
    second.write(Delete(znodes.member_id(group, f"{group}_m")))
    second.write(Create(f"{znodes.group(group)}/lease", ephemeral=True))
    with pytest.raises(RefusedError, match=f"{znodes.group(group)}/lease"):
        remove_nodes(registry, ZnodeRemoval(read_tree(registry, group)))
    assert values(registry, group, P("t", 0)) == [5]


@pytest.mark.parametrize(
    ("what", "when"),
    [
        ("moved", "before the read"),
        ("moved", "after the read"),
        ("appeared", "before the read"),
        ("appeared", "after the read"),
        # After the snapshot a transaction cannot distinguish it from the node that was there:
        # docs/explanation/safe-changes.md.
        ("recreated", "before the read"),
    ],
)
def test_what_has_changed_stays(registry: Registry, second: Registry, make_group: Build, when: str, what: str) -> None:
    """An offset that was committed, or a node that was made, since the plan: nothing is removed, it is named."""
    group = make_group({P("t", 0): 5, P("t", 1): 6})
    path = znodes.offset(group, P("t", 2 if what == "appeared" else 1))

    def meddle(number: int) -> None:
        if number > 1:
            return
        if what == "moved":
            second.write(SetData(path, b"7"))
            return
        if what == "recreated":
            second.write(Delete(path))
        second.write(Create(path, b"7"))

    tree = read_tree(registry, group)
    if when == "before the read":
        meddle(1)
    with (
        Meddler(registry.settings, meddle if when == "after the read" else lambda n: None) as meddler,
        pytest.raises(StalePlanError, match=path),
    ):
        remove_nodes(meddler, ZnodeRemoval(tree))
    assert values(registry, group, P("t", 0)) == [5]


def test_many_nodes_go_in_pieces(registry: Registry, make_group: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deepest first, ids and the group last; the guard's own traces do not get in its way."""
    monkeypatch.setattr("zkgroup.groups.changes.znode_transactions.MAX_TRANSACTION_BYTES", 4 << 10)
    group = make_group(many(300))
    with Meddler(registry.settings, lambda n: None) as meddler:
        assert remove_nodes(meddler, ZnodeRemoval(read_tree(registry, group))) == 304
        assert meddler.transactions > 5
    assert not exists(registry, group)


def test_pieces_are_put_back_when_a_member_comes(
    registry: Registry, second: Registry, make_group: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What had been removed before is recreated, with its data and access lists; what the member has committed by
    then is kept."""
    monkeypatch.setattr("zkgroup.groups.changes.znode_transactions.MAX_TRANSACTION_BYTES", 2 << 10)
    group = make_group(many(100))
    acl = (Acl("world", "anyone", 31), Acl("digest", "u:h", 1))
    special = znodes.offset(group, P("special", 0))
    registry.write(Ensure(znodes.offset_topic(group, "special")))
    registry.write(Create(special, b"77", acl=acl))
    tree = read_tree(registry, group)
    taken = znodes.offset(group, P("t", 0))

    def come(number: int) -> None:
        if number == 3:
            register(second, group)
            assert not isinstance(second.write(Create(taken, b"1000")), Failure), "it was removed before"

    with (
        Meddler(registry.settings, come) as meddler,
        pytest.raises(GroupActiveError) as refused,
    ):
        remove_nodes(meddler, ZnodeRemoval(tree))
    assert refused.value.members == (f"{group}_m",)
    assert values(registry, group, *many(100)) == [1000, *range(1, 100)]
    assert values(registry, group, P("special", 0)) == [77]
    assert registry.read([GetAcl(special)]) == [Acls(acl)]


@pytest.mark.parametrize("lost", ["requests", "replies"])
def test_a_connection_lost_at_the_removal(registry: Registry, cluster: Sandbox, make_group: Build, lost: str) -> None:
    """Whether the request or only its answer was lost is found out, and the group is gone in the end."""
    group = make_group({P("t", 0): 5})
    with TcpProxy(cluster.address) as proxy:

        def trouble(number: int) -> None:
            if number == 1:
                proxy.stall(lost)
                threading.Timer(0.3, lambda: (proxy.drop(), proxy.heal())).start()

        settings = ZooKeeperSettings(proxy.address + cluster.chroot, connect_timeout=20.0)
        with Meddler(settings, trouble) as meddler:
            assert remove_nodes(meddler, ZnodeRemoval(read_tree(registry, group))) == 5
            assert meddler.transactions == (2 if lost == "requests" else 1)
    assert not exists(registry, group)


@pytest.mark.parametrize("ids", [True, False])
def test_any_race_with_a_registration_has_one_winner(
    registry: Registry, second: Registry, make_group: Build, ids: bool
) -> None:
    """Many times over, at any moment: the member finds the group with all its offsets, or none of it, and is
    registered in the end either way."""
    outcomes = {"removed": 0, "refused": 0}
    chance, delay = random.Random(11), 0.004
    for _ in range(60):
        group = make_group(many(10), ids=ids)
        tree = read_tree(registry, group)
        found: list[list[int | None]] = []

        def come(group: str = group, delay: float = delay, found: list[list[int | None]] = found) -> None:
            threading.Event().wait(delay)
            while True:  # as the Scala consumer does: parents are recreated if they have gone meanwhile
                second.write(Ensure(znodes.ids(group)))
                path = znodes.member_id(group, f"{group}_m")
                if not isinstance(second.write(Create(path, b"x", ephemeral=True)), Failure):
                    break
            found.append(values(second, group, *many(10)))

        member = threading.Thread(target=come)
        member.start()
        try:
            remove_nodes(registry, ZnodeRemoval(tree))
            result = "removed"
        except ZkgroupError:
            result = "refused"
        member.join(30)
        expected = [None] * 10 if result == "removed" else list(range(10))
        assert found == [expected]
        assert values(registry, group, *many(10)) == expected
        outcomes[result] += 1
        delay *= chance.uniform(0.6, 1.0) if result == "removed" else chance.uniform(1.0, 1.7)
    assert min(outcomes.values()) > 0, f"no race: {outcomes}"


def test_many_groups_go_at_one_go_each_checked_by_itself(
    registry: Registry, second: Registry, make_group: Build
) -> None:
    """Hundreds in a few rounds; one that came alive and one that was written to stay, and say why."""
    groups = [make_group({P("t", 0): 5}) for _ in range(300)]
    trees = read_trees(registry, {group: [znodes.group(group)] for group in groups})
    register(second, groups[7])
    second.write(SetData(znodes.offset(groups[11], P("t", 0)), b"6"))
    registry.write(Delete(znodes.offset(groups[13], P("t", 0))))
    outcome = remove_groups(registry, trees.values())
    failed = {group: type(error) for group, error in outcome.items() if error is not None}
    assert failed == {groups[7]: GroupActiveError, groups[11]: StalePlanError}
    assert [group for group in groups if exists(registry, group)] == [groups[7], groups[11]]


@pytest.mark.parametrize("answer", [Failure(Code.NO_AUTH), UnreachableError("no answer")])
def test_what_cannot_be_put_back_is_counted(
    answer: Failure | UnreachableError, registry: Registry, second: Registry, make_group: Build,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """ZooKeeper refuses it, or is away: it is said how many nodes are gone, and why, or which."""
    monkeypatch.setattr("zkgroup.groups.changes.znode_transactions.MAX_TRANSACTION_BYTES", 2 << 10)
    group = make_group(many(50))

    class Broken(Meddler):
        def read(self, ops: Iterable[Op]) -> list[Result]:
            asked = list(ops)
            if not asked or not all(isinstance(op, Create) for op in asked):
                return super().read(asked)
            if isinstance(answer, UnreachableError):
                raise answer
            return [answer] * len(asked)

    with (
        Broken(registry.settings, lambda n: register(second, group) if n == 3 else None) as broken,
        pytest.raises(GroupActiveError) as refused,
    ):
        remove_nodes(broken, ZnodeRemoval(read_tree(registry, group)))
    gone = values(registry, group, *many(50)).count(None)
    why = "no answer" if isinstance(answer, UnreachableError) else znodes.offset_topic(group, "t")
    assert names(refused.value.message, gone)
    assert why in refused.value.message


# --- unsubscribing --------------------------------------------------------------------------------------------------


@pytest.fixture
def reader(second: Registry) -> Callable[..., str]:
    """``reader(group, topic)``: a member of the group that subscribes to this topic alone."""

    def join(group: str, topic: str, name: str = "r") -> str:
        path = znodes.member_id(group, f"{group}_{name}")
        data = encode_registration(Registration("static", {topic: 1}, 1411294187842))
        second.write(Ensure(znodes.ids(group)))
        assert not isinstance(second.write(Create(path, data, ephemeral=True)), Failure)
        return path

    return join


def unsubscribe(looking: Registry, removing: Registry, group: str, *topics: str) -> int:
    scope = parse_scope(topics)
    tree, roots = read_scope(looking, group, scope)
    guard = unsubscribe_guard(group, scope.topics)
    return remove_nodes(removing, ZnodeRemoval(tree, roots=roots, guarding=guard, check_after=True))


def test_an_unread_topic_goes_with_members_active(
    registry: Registry, make_group: Build, reader: Callable[..., str]
) -> None:
    """Members of other topics are let be; offsets and left owners of the topic go, the others' stay."""
    group = make_group({P("old", 0): 5, P("old", 1): 6, P("live", 0): 7})
    registry.write(Ensure(znodes.owner_topic(group, "old")))
    registry.write(Create(znodes.owner(group, P("old", 1)), b"stale"))
    reader(group, "live")
    assert unsubscribe(registry, registry, group, "old") == 5
    assert registry.read([Children(znodes.offsets(group)), Children(znodes.owners(group))]) == [("live",), ()]
    assert values(registry, group, P("live", 0)) == [7]


def test_some_partitions_of_a_topic(registry: Registry, make_group: Build) -> None:
    """Only those that are named go."""
    group = make_group(many(6))
    assert unsubscribe(registry, registry, group, "t:1,3-4") == 3
    assert values(registry, group, *many(6)) == [0, None, 2, None, None, 5]


@pytest.mark.parametrize("how", ["static", "filter", "unreadable", "owner"])
def test_a_topic_that_somebody_reads_stays(
    registry: Registry, second: Registry, make_group: Build, make_topic: Callable[..., str], how: str
) -> None:
    """By name, by a filter, in a way that nobody can tell, or by a claim alone: refused, and nothing changes."""
    topic = make_topic(1)
    group = make_group({P(topic, 0): 5})
    registration = {
        "static": encode_registration(Registration("static", {topic: 1}, 1)),
        "filter": encode_registration(Registration("white_list", {topic[:4] + ".*": 1}, 1)),
        "unreadable": b"no JSON",
        "owner": encode_registration(Registration("static", {"other": 1}, 1)),
    }[how]
    second.write(Create(znodes.member_id(group, "m"), registration, ephemeral=True))
    if how == "owner":
        second.write(Ensure(znodes.owner_topic(group, topic)))
        second.write(Create(znodes.owner(group, P(topic, 0)), b"m-0", ephemeral=True))
    facts = {"unreadable": r"\bm\b", "owner": rf"\bm-0\b.*{znodes.owner(group, P(topic, 0))}"}
    with pytest.raises(RefusedError, match=facts.get(how, rf"\bm\b.*\b{topic}\b")):
        unsubscribe(registry, registry, group, topic)
    assert values(registry, group, P(topic, 0)) == [5]


def test_a_topic_stays_while_an_export_runs(
    registry: Registry, second: Registry, make_group: Build, reader: Callable[..., str]
) -> None:
    """It may read any topic: refused, though the members do not read this one."""
    group = make_group({P("old", 0): 5})
    reader(group, "live")
    second.write(Ensure(znodes.export_state(group)))
    assert not isinstance(second.write(Create(znodes.export_lock(group), b"", ephemeral=True)), Failure)
    with pytest.raises(GroupActiveError) as refused:
        unsubscribe(registry, registry, group, "old")
    assert refused.value.exporting
    assert values(registry, group, P("old", 0)) == [5]


def test_a_filter_where_topics_may_not_be_listed(registry: Registry, second: Registry, make_group: Build) -> None:
    """Which topics it takes is unknown: refused, and nothing changes."""
    group = make_group({P("t", 0): 5})
    data = encode_registration(Registration("white_list", {".*": 1}, 1))
    second.write(Create(znodes.member_id(group, "m"), data, ephemeral=True))

    class Blind(Registry):
        def read(self, ops: Iterable[Op]) -> list[Result]:
            asked = list(ops)
            hidden, found = Children(znodes.topics()).path, super().read(asked)
            return [Failure(Code.NO_AUTH) if op.path == hidden else one for op, one in zip(asked, found, strict=True)]

    with Blind(registry.settings, 30.0) as blind, pytest.raises(RefusedError, match=r"\bm\b"):
        unsubscribe(registry, blind, group, "t")
    assert values(registry, group, P("t", 0)) == [5]


@pytest.mark.parametrize("owners", ["missing", "empty", "of others"])
def test_a_claim_after_the_last_read_stops_it(
    registry: Registry, second: Registry, make_group: Build, reader: Callable[..., str], owners: str
) -> None:
    """A member that subscribes and claims at once, before the transaction, keeps its offsets."""
    group = make_group({P("old", 0): 5})
    reader(group, "live", "other")
    if owners != "missing":
        registry.write(Ensure(znodes.owner_topic(group, "old" if owners == "empty" else "live")))

    def come(number: int) -> None:
        if number == 1:
            reader(group, "old")
            second.write(Ensure(znodes.owner_topic(group, "old")))
            second.write(Create(znodes.owner(group, P("old", 0)), b"r-0", ephemeral=True))

    with (
        Meddler(registry.settings, come) as meddler,
        pytest.raises(RefusedError, match=rf"\b{group}_r\b.*\bold\b"),
    ):
        unsubscribe(registry, meddler, group, "old")
    assert values(registry, group, P("old", 0)) == [5]


def test_who_subscribes_unnoticed_gets_the_offsets_back(
    registry: Registry, make_group: Build, reader: Callable[..., str]
) -> None:
    """A member that has subscribed and owns nothing yet is seen by the snapshot afterwards: all is put back."""
    group = make_group({P("old", 0): 5, P("old", 1): 6})
    reader(group, "live", "other")
    with (
        Meddler(registry.settings, lambda n: reader(group, "old")) as meddler,
        pytest.raises(RefusedError, match=rf"\b{group}_r\b.*\bold\b.*; 3\b"),
    ):
        unsubscribe(registry, meddler, group, "old")
    assert values(registry, group, P("old", 0), P("old", 1)) == [5, 6]
