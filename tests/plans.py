"""Groups by hand, for tests of what is pure: registries drawn at random, and snapshots of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from zkgroup.groups.assignment.strategy_inference import VARIANTS, Variant
from zkgroup.groups.group_model import GroupMember, GroupPartition, GroupSnapshot, GroupTopic
from zkgroup.protocol.assignors import Assignment, assign
from zkgroup.protocol.names import ConsumerThreadId, TopicPartition, identify_owner
from zkgroup.protocol.znodes import Registration

Members = Mapping[str, Mapping[str, int]]
Partitions = Mapping[str, Sequence[int]]

# "Aa" and "BB" have one hash code, so that whatever is equal in number ties.
TOPICS = ["t", "orders", "Aa", "BB", "a-b"]

members_of_a_group = st.dictionaries(
    st.sampled_from(["g_a", "g_b", "g_c", "g_d", "g_e"]),
    st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 3), max_size=3),
    min_size=1,
)
#: All read the same topics, each member with one number of streams: nobody refuses.
equal_members = st.tuples(
    st.sets(st.sampled_from(TOPICS), min_size=1),
    st.dictionaries(st.sampled_from(["g_a", "g_b", "g_c", "g_d", "g_e"]), st.integers(1, 3), min_size=1),
).map(lambda drawn: {member: dict.fromkeys(drawn[0], streams) for member, streams in drawn[1].items()})
partitions_of_topics = st.fixed_dictionaries({topic: st.integers(0, 9).map(range) for topic in TOPICS})
variants = st.sampled_from(VARIANTS)


def planned(variant: Variant, members: Members, partitions: Partitions) -> Assignment:
    """The plan of a variant."""
    return assign(*variant, members, partitions)


def claims(plan: Assignment | Mapping[TopicPartition, ConsumerThreadId]) -> dict[TopicPartition, GroupPartition]:
    """The live owners of a group that has come to this plan, or to these shares of one."""
    owners = plan.owners if isinstance(plan, Assignment) else plan
    return {key: GroupPartition("", 0, member=member, stream=stream) for key, (member, stream) in owners.items()}


def snapshot(
    members: Members,
    partitions: Partitions,
    owners: Mapping[TopicPartition, str],
    *,
    group: str = "g",
    errors: Mapping[str, str] | None = None,
) -> GroupSnapshot:
    """A group with static subscriptions; ``errors``: members whose registration cannot be read, and why."""
    found = [
        GroupMember(member, None, 1, None, Registration("static", topics, 1), topics)
        for member, topics in members.items()
    ]
    found += [GroupMember(member, None, 1, None, error=error) for member, error in (errors or {}).items()]
    subscribed = frozenset(topic for topics in members.values() for topic in topics)
    wanted = {TopicPartition(topic, number) for topic in subscribed for number in partitions.get(topic, ())}
    rows = []
    for pair in sorted(wanted | owners.keys()):
        owner = owners.get(pair)
        identity = None if owner is None else identify_owner(owner, {*members, *(errors or {})})
        stream = None if identity is None else identity.index
        rows.append(GroupPartition(*pair, owner, identity and identity.consumer_id, stream, exists=pair in wanted))
    topics = {topic: GroupTopic(topic, True, tuple(numbers)) for topic, numbers in partitions.items()}
    known = tuple(partitions)
    return GroupSnapshot(
        group, tuple(found), tuple(rows), subscribed, topics=topics, existing_topics=known, broker_ids=(1,)
    )
