"""The group's side: what may be exported, and what ZooKeeper reports it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lines import names

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import MalformedZnodeError, NotFoundError, Notice
from zkgroup.export.model.plan_types import ExportPlan
from zkgroup.export.planning.export_plan import make_plan
from zkgroup.export.planning.export_request import EARLIEST
from zkgroup.export.planning.group_state import GroupState
from zkgroup.groups.changes.preconditions import GroupActiveError
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Acl, Create, Ensure, Failure, SetData
from zkgroup.protocol.topic_filter import TopicFilter

Commit = Callable[[str, dict[TopicPartition, int]], None]
Committed = Callable[..., int | None]


@pytest.fixture
def group(registry: Registry, unique: Callable[[str], str]) -> GroupState:
    """A group that nobody knows yet."""
    return GroupState(registry, unique("group"), lambda _: None)


def plan_for(group: GroupState, kafka: KafkaSettings, *topics: str) -> ExportPlan:
    """What an export of these topics would do now."""
    facts = group.facts(group.select_topics(topics, None), kafka, 10, begin=EARLIEST)
    return make_plan(group.group, "/out", facts, on_mismatch="lake")


def test_topics_are_those_named_or_matched_or_with_offsets(
    group: GroupState, make_topic: Callable[..., str], commit: Commit
) -> None:
    """Named and filtered topics need no offsets; without either, the group's offsets tell, and dead topics warn."""
    warnings: list[Notice] = []
    group = GroupState(group._registry, group.group, warnings.append)
    one, two = make_topic(2), make_topic(1)
    with pytest.raises(NotFoundError, match=rf"{group.group}\b"):
        group.select_topics([], None)
    assert group.select_topics([one], None) == {one: (0, 1)}
    assert group.select_topics([], TopicFilter("white_list", f"{one}|{two}")) == {one: (0, 1), two: (0,)}
    commit(group.group, {TopicPartition(two, 0): 0, TopicPartition("dead", 0): 3})
    assert group.select_topics([], None) == {two: (0,)}
    assert [names(str(warning), group.group, "dead") for warning in warnings] == [True]
    with pytest.raises(NotFoundError, match=rf"{group.group}x\b.*{group.group}\b"):
        GroupState(group._registry, f"{group.group}x", warnings.append).select_topics([], None)
    with pytest.raises(NotFoundError, match=r"\bnowhere\b"):
        group.select_topics([one, "nowhere"], None)
    with pytest.raises(NotFoundError, match=rf"{one}x\b.*{one}\b"):
        group.select_topics([f"{one}x"], None)
    with pytest.raises(NotFoundError, match=r"nothing\.\*"):
        group.select_topics([], TopicFilter("white_list", "nothing.*"))


def test_a_live_group_is_refused_by_the_names_of_its_members(group: GroupState, registry: Registry) -> None:
    """Members commit for themselves: an export at the same time would be undone, or undo them."""
    group.refuse_if_active()
    registry.write(Ensure(znodes.ids(group.group)))
    member = f"{group.group}_host-1"
    path = znodes.member_id(group.group, member)
    registry.write(Create(path, b"{}", ephemeral=True))
    with pytest.raises(GroupActiveError) as refused:
        group.refuse_if_active()
    assert refused.value.members == (member,)


def test_an_offset_that_is_no_number_stops_the_export(
    group: GroupState, registry: Registry, kafka: KafkaSettings, make_topic: Callable[..., str]
) -> None:
    """The export does not guess a broken offset: it names the node."""
    topic = make_topic()
    path = znodes.offset(group.group, TopicPartition(topic, 0))
    registry.write(Ensure(path))
    registry.write(SetData(path, b"here"))
    with pytest.raises(MalformedZnodeError, match=path):
        plan_for(group, kafka, topic)


def test_unreadable_zookeeper_is_no_empty_group(group: GroupState) -> None:
    """A node that cannot be read is an error, and is not taken for a node that is not there."""
    from zkgroup.errors import ZkgroupError
    from zkgroup.export.planning import group_state as module
    from zkgroup.protocol.operations import Code

    for code in Code:
        if code is Code.NO_NODE:
            assert module.child_names(Failure(code)) == ()
        else:
            with pytest.raises(ZkgroupError):
                module.child_names(Failure(code))
    path = znodes.offset(group.group, TopicPartition("t", 0))
    assert module.read_committed(group._registry, group.group, [TopicPartition("t", 0)]) == {}
    closed = Acl("digest", "app:B6mHBfPTG7OxD/NTlRVOPMWQ4V4=", 31)
    assert group._registry.write(Ensure(znodes.offset_topic(group.group, "t"))) is None
    assert group._registry.write(Create(path, b"6", acl=(closed,))) is None
    with pytest.raises(ZkgroupError, match=rf"\bt-0\b.*{group.group}\b"):
        module.read_committed(group._registry, group.group, [TopicPartition("t", 0)])
