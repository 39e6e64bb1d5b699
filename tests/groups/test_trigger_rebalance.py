"""Making a group rebalance: what is refused, on real members what comes of it, and that nothing stays behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from lines import names
from members import ReadMember, wait_for_rest
from plans import planned, snapshot
from session_expiry import expire_session

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import Notice, RefusedError, UnreachableError, ZkgroupError
from zkgroup.groups.assignment.assignment_plan import find_misfits
from zkgroup.groups.assignment.strategy_inference import VARIANTS
from zkgroup.groups.assignment.trigger_rebalance import (
    find_objection,
    read_ownership,
    trigger_rebalance,
)
from zkgroup.groups.assignment.what_if import Choice
from zkgroup.groups.group_model import GroupSnapshot
from zkgroup.groups.snapshot.group_reader import read_group
from zkgroup.protocol import znodes
from zkgroup.protocol.assignors import Assignment
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children, Code, Create, Ensure, Failure
from zkgroup.protocol.znodes import Registration, encode_registration
from zkgroup.sandbox.local_cluster import Sandbox

RANGE, NEW, OLD, _ = (Choice(variant) for variant in VARIANTS)
MARK = "_zkgroup-assign-"

# --- what is refused ------------------------------------------------------------------------------------------------

MEMBERS = {"g_a": {"t": 1}, "g_b": {"t": 1}}
PARTITIONS = {"t": range(4)}
PLAN = planned(RANGE.variant, MEMBERS, PARTITIONS)
OWNERS = {pair: str(thread) for pair, thread in PLAN.owners.items()}


def test_nothing_speaks_against_a_healthy_group() -> None:
    """Nor against one with gaps, nor against one whose owners are others than planned."""
    assert find_objection(snapshot(MEMBERS, PARTITIONS, OWNERS), PLAN, None) is None
    assert find_objection(snapshot(MEMBERS, PARTITIONS, {}), PLAN, None) is None
    swapped = dict(zip(OWNERS, reversed(OWNERS.values()), strict=True))
    assert find_objection(snapshot(MEMBERS, PARTITIONS, swapped), PLAN, None) is None


def test_a_group_without_members_cannot_rebalance() -> None:
    """Refused, whatever is planned."""
    assert isinstance(find_objection(snapshot({}, PARTITIONS, {}), PLAN, None), RefusedError)


def test_without_a_broker_nobody_rebalances() -> None:
    """Members keep what they own until a broker is registered: refused at once, with what is to be done about it."""
    alone = replace(snapshot(MEMBERS, PARTITIONS, OWNERS), broker_ids=())
    refused = find_objection(alone, PLAN, None)
    assert isinstance(refused, RefusedError)
    assert refused.remedy is not None


def test_a_registration_that_stops_the_group() -> None:
    """Members release before they fail: refused while something is owned, and allowed when nothing is left to lose."""
    refused = find_objection(snapshot(MEMBERS, PARTITIONS, OWNERS, errors={"g_bad": "no JSON"}), PLAN, None)
    assert isinstance(refused, RefusedError)
    assert names(refused.message, "g_bad", "no JSON")
    assert names(str(refused.remedy), "g_bad")
    assert find_objection(snapshot(MEMBERS, PARTITIONS, {}, errors={"g_bad": "no JSON"}), PLAN, None) is None


def test_a_strategy_that_refuses() -> None:
    """Members of roundrobin up to 0.10.1 would release everything, and get nothing back."""
    refused = find_objection(snapshot(MEMBERS, PARTITIONS, OWNERS), None, Notice("for this reason"))
    assert isinstance(refused, RefusedError)
    assert names(refused.message, "g", "for this reason")
    assert find_objection(snapshot(MEMBERS, PARTITIONS, {}), None, Notice("for this reason")) is None


def test_a_foreign_owner_in_a_share() -> None:
    """A share of which somebody else, who is not registered, owns a part would be lost as a whole."""
    foreign = TopicPartition("t", 1)
    refused = find_objection(snapshot(MEMBERS, PARTITIONS, {**OWNERS, foreign: "g_gone-0"}), PLAN, None)
    assert isinstance(refused, RefusedError)
    assert names(refused.message, "g_a", foreign, "g_gone-0")
    # The one whose share it is has nothing: there is nothing to lose.
    others = {pair: owner for pair, owner in OWNERS.items() if not owner.startswith("g_a")}
    assert find_objection(snapshot(MEMBERS, PARTITIONS, {**others, foreign: "g_gone-0"}), PLAN, None) is None
    # Of a topic that is in nobody's share.
    elsewhere = snapshot(MEMBERS, {**PARTITIONS, "old": [0]}, {**OWNERS, TopicPartition("old", 0): "x"})
    assert find_objection(elsewhere, Assignment(PLAN.owners), None) is None


# --- on real members ------------------------------------------------------------------------------------------------


@pytest.fixture
def ours(cluster: Sandbox) -> Iterator[Registry]:
    """The registry that makes the group rebalance, with a session of its own."""
    with cluster.registry(timeout=10.0) as registry:
        yield registry


def nothing_is_left(registry: Registry, group: str) -> bool:
    """Whether no id node of ours is there."""
    (ids,) = registry.read([Children(znodes.ids(group))])
    return not any(MARK in name for name in ids) if isinstance(ids, tuple) else True


def a_judge(*choices: Choice) -> Callable[[GroupSnapshot], Sequence[str]]:
    return lambda snapshot: find_misfits(snapshot, choices)


@pytest.mark.parametrize(("strategy", "choice"), [("range", RANGE), ("roundrobin", NEW)])
def test_every_member_claims_anew(
    strategy: str,
    choice: Choice,
    cluster: Sandbox,
    registry: Registry,
    ours: Registry,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
) -> None:
    """Both members rebalance, when the node comes and when it goes, to the same owners; the node is gone then."""
    group, topic = unique("triggered"), make_topic(6)
    options = {"partition_assignment_strategy": strategy}
    seen: list[bool] = []

    def judge(snapshot: GroupSnapshot) -> Sequence[str]:
        seen.append(any(MARK in member.member for member in snapshot.members))
        return find_misfits(snapshot, [choice])

    with (
        ReadMember(cluster.connect, group, {topic: 1}, consumer_id="a", **options),
        ReadMember(cluster.connect, group, {topic: 2}, consumer_id="b", **options),
    ):
        wait_for_rest(registry, group, 2, strategy)
        before = read_ownership(registry, group)
        result = trigger_rebalance(ours, group, judge)
        after = read_ownership(registry, group)
        assert (result.defects, result.still, result.answered) == ((), (), True)
        assert {member.member for member in result.snapshot.members} == {f"{group}_a", f"{group}_b"}
        assert seen[0]
        assert not seen[-1]
        assert nothing_is_left(registry, group)
        owners = {path: owner for path, (owner, _) in before.claims.items()}
        assert {path: owner for path, (owner, _) in after.claims.items()} == owners
        assert all(after.claims[path][1] > made for path, (_, made) in before.claims.items())


def test_owners_of_another_strategy_are_found_wrong(
    cluster: Sandbox, registry: Registry, ours: Registry, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """Range members are not the plan of roundrobin: what differs is said, and nothing is left behind."""
    group, topic = unique("triggered"), make_topic(6)
    with (
        ReadMember(cluster.connect, group, {topic: 1}, consumer_id="a"),
        ReadMember(cluster.connect, group, {topic: 1}, consumer_id="b"),
    ):
        wait_for_rest(registry, group, 2)
        result = trigger_rebalance(ours, group, a_judge(NEW), timeout=3.0)
        assert len(result.defects) == 2  # aaabbb, not ababab
        assert f"{topic}-1: owned by {group}_a-0, planned for {group}_b" in result.defects
        assert result.still == ()
        assert nothing_is_left(registry, group)


class Deaf:
    """A group whose one member owns its share and hears nothing."""

    def __init__(self, settings: Registry, group: str, topic: str) -> None:
        self.registry = Registry(settings.settings, 10.0)
        self.registry.__enter__()
        self.group, self.member = group, f"{group}_deaf"
        write = self.registry.write
        for path in (znodes.ids(group), znodes.owner_topic(group, topic)):
            assert write(Ensure(path)) is None
        data = encode_registration(Registration("static", {topic: 1}, 1411294187842))
        node = znodes.member_id(group, self.member)
        assert not isinstance(write(Create(node, data, ephemeral=True)), Failure)
        for number in range(2):
            path = znodes.owner(group, TopicPartition(topic, number))
            assert not isinstance(write(Create(path, f"{self.member}-0".encode(), ephemeral=True)), Failure)


@pytest.fixture
def deaf(registry: Registry, make_topic: Callable[..., str], unique: Callable[[str], str]) -> Iterator[Deaf]:
    member = Deaf(registry, unique("deaf"), make_topic(2))
    yield member
    member.registry.close()


def test_a_member_that_does_not_rebalance_is_named(deaf: Deaf, registry: Registry, ours: Registry) -> None:
    """Its owners are the plan, but it has not claimed them anew."""
    result = trigger_rebalance(ours, deaf.group, a_judge(RANGE), timeout=2.0)
    assert (result.defects, result.still, result.answered) == ((), (deaf.member,), False)
    assert nothing_is_left(registry, deaf.group)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_whatever_interrupts_nothing_is_left(
    error: type[BaseException], deaf: Deaf, registry: Registry, ours: Registry
) -> None:
    """The node is deleted at once, while the session lives on."""

    def judge(snapshot: GroupSnapshot) -> Sequence[str]:
        assert any(MARK in member.member for member in snapshot.members)
        raise error

    with pytest.raises(error):
        trigger_rebalance(ours, deaf.group, judge, timeout=2.0)
    assert nothing_is_left(registry, deaf.group)
    assert not ours.is_lost


def test_a_session_that_ends(deaf: Deaf, cluster: Sandbox, registry: Registry, ours: Registry) -> None:
    """The node goes with the session, and the error says that ZooKeeper is out of reach."""

    def judge(snapshot: GroupSnapshot) -> Sequence[str]:
        expire_session(cluster.connect, ours.session_id)
        return []

    with pytest.raises(UnreachableError):
        trigger_rebalance(ours, deaf.group, judge, timeout=2.0)
    assert nothing_is_left(registry, deaf.group)


def test_a_group_that_went_meanwhile(registry: Registry, ours: Registry, unique: Callable[[str], str]) -> None:
    """Without its ids there is nowhere to put a node, and nothing is made."""
    group = unique("gone")
    with pytest.raises(RefusedError, match=group):
        trigger_rebalance(ours, group, a_judge(RANGE))
    (groups,) = registry.read([Children(znodes.consumers())])
    assert isinstance(groups, tuple)
    assert group not in groups


@pytest.mark.parametrize(("code", "error"), [(Code.NO_AUTH, ZkgroupError), (Code.CONNECTION_LOSS, UnreachableError)])
def test_a_node_that_cannot_be_made(
    code: Code, error: type[ZkgroupError], deaf: Deaf, ours: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody rebalances, and it is said why."""
    monkeypatch.setattr(ours, "write", lambda op: Failure(code))
    with pytest.raises(error, match=rf"{deaf.group}.*{code.value}") as caught:
        trigger_rebalance(ours, deaf.group, a_judge(RANGE), timeout=2.0)
    assert type(caught.value) is error


def test_members_that_leave_meanwhile(deaf: Deaf, registry: Registry, ours: Registry) -> None:
    """When all are gone the wait ends, with nobody in the snapshot."""

    def judge(snapshot: GroupSnapshot) -> Sequence[str]:
        deaf.registry.close()
        return find_misfits(snapshot, [RANGE])

    result = trigger_rebalance(ours, deaf.group, judge, timeout=2.0)
    assert result.snapshot.members == ()
    assert result.still == ()
    assert read_group(registry, deaf.group).members == ()
