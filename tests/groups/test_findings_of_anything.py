"""Findings of whatever there may be: groups whose parts need not agree with each other in anything."""

from __future__ import annotations

import re
from dataclasses import replace

from diagnosed_groups import DAY, NOW, SECOND, THEN, lines
from hypothesis import given, settings
from hypothesis import strategies as st
from support import scaled

from zkgroup.clients.kafka.responses import CoordinatorGroup, CoordinatorMember, KafkaOffset
from zkgroup.errors import Notice
from zkgroup.groups.assignment.strategy_inference import infer_strategy
from zkgroup.groups.findings.finding_kinds import KINDS, SEVERITIES, Finding
from zkgroup.groups.findings.inspection import diagnose
from zkgroup.groups.group_model import GroupMember, GroupPartition, GroupSnapshot, GroupTopic, NodeProblem, StoredOffset
from zkgroup.groups.snapshot.snapshot_defects import unreadable_ownership
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.znodes import ESCAPED_TWICE, OTHER_NUMBERS, Registration, RegistrationDefect

JUST_NOW = NOW - 3 * SECOND
NAMES = st.sampled_from(["orders", "bills", "__consumer_offsets", "g_a", "a b"])
TIMES = st.none() | st.sampled_from([0, THEN, JUST_NOW, NOW, NOW + DAY, -5])
OFFSETS = st.none() | st.integers(-2, 200)
DATA = st.sampled_from([b"", b"no JSON", b'{"subscription":{}}', b'{"pattern":"static","subscription":{}}'])
MEMBERS = st.builds(
    GroupMember,
    st.sampled_from(["g_a", "g_b", "h:1", "x"]),
    st.none(),
    st.sampled_from([0, 1, 2]),
    TIMES,
    st.none()
    | st.builds(
        Registration,
        st.sampled_from(["static", "white_list"]),
        st.dictionaries(st.sampled_from(["orders", "(", r"\\w", "\ud800"]), st.just(1), min_size=1, max_size=1),
    ),
    st.dictionaries(NAMES, st.integers(1, 3), max_size=2),
    st.none() | st.sampled_from(["is no JSON", "is empty, not JSON", "may not be read"]),
    st.lists(st.sampled_from([ESCAPED_TWICE, OTHER_NUMBERS, RegistrationDefect("no timestamp")]), max_size=2).map(
        tuple
    ),
    DATA,
    TIMES,
    st.sampled_from([0, 5, 9]),
)


def consistent_member(member: GroupMember) -> GroupMember:
    """A filter that cannot be read comes with an error."""
    expressions = member.registration.subscription if member.registration is not None else {}
    unreadable = not expressions.keys().isdisjoint({"(", "\ud800"})
    if unreadable:
        return replace(member, error=member.error or "cannot be read", streams={})
    may_not = member.error == "may not be read"
    return replace(member, is_unreadable=True, registration=None, data=b"", streams={}) if may_not else member


PARTITIONS = st.builds(
    GroupPartition,
    NAMES,
    st.integers(0, 3),
    owner=st.none() | st.sampled_from(["g_a-0", "zombie", "9" * 20_000]),
    member=st.none() | st.sampled_from(["g_a", "h:1"]),
    stream=st.none() | st.integers(0, 4),
    since=TIMES,
    session_id=st.sampled_from([None, 0, 1, 2]),
    error=st.none() | st.just("is empty"),
    exists=st.booleans(),
    leader=st.sampled_from([None, -1, 1, 9]),
    stored=st.none()
    | st.builds(
        StoredOffset,
        OFFSETS,
        st.integers(0, 3),
        st.integers(0, 9),
        st.integers(0, NOW),
        st.sampled_from([0, THEN, NOW]),
        st.none() | st.just("is no offset"),
        st.none() | st.just("has a blank"),
        st.booleans(),
    ),
    kafka=st.none() | st.builds(KafkaOffset, OFFSETS, error=st.none() | st.just("timed out")),
    log_start=OFFSETS,
    log_end=OFFSETS,
    log_error=st.none() | st.just("timed out"),
    claimed=st.integers(0, 9),
    is_unreadable=st.booleans(),
    leader_unknown=st.booleans(),
)
HIDDEN = st.sampled_from(
    [
        *("/consumers/g", "/consumers/g/ids", "/consumers/g/owners", "/consumers/g/owners/orders"),
        *("/consumers/g/offsets/orders/1", "/brokers/topics", "/brokers/ids", "/brokers/topics/orders"),
    ]
)
TOPICS = st.builds(
    GroupTopic,
    NAMES,
    st.booleans(),
    st.lists(st.integers(0, 5), max_size=4).map(tuple),
    st.integers(0, 9),
    TIMES,
    st.booleans(),
    st.none() | st.just(NodeProblem("/t", "is no JSON")),
    TIMES,
)
COORDINATORS = st.none() | st.builds(
    CoordinatorGroup,
    st.sampled_from(["Stable", "Empty", "PreparingRebalance"]),
    members=st.lists(
        st.builds(
            CoordinatorMember,
            st.just("m"),
            st.just("c"),
            st.just("/h"),
            st.lists(st.builds(TopicPartition, NAMES, st.integers(0, 3)), max_size=3).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
)


@st.composite
def snapshots(draw: st.DrawFn) -> GroupSnapshot:
    """Any group, however little its parts agree."""
    members = {one.member: one for one in map(consistent_member, draw(st.lists(MEMBERS, max_size=3)))}
    partitions = {one.key: one for one in draw(st.lists(PARTITIONS, max_size=6))}
    topics = {one.name: one for one in draw(st.lists(TOPICS, max_size=4))}
    return GroupSnapshot(
        draw(st.sampled_from(["g", "console-consumer-7"])),
        tuple(members.values()),
        tuple(partitions.values()),
        frozenset(name for one in members.values() for name in one.streams),
        tuple(draw(st.lists(st.just(NodeProblem("/x", "is no JSON")), max_size=30))),
        topics,
        draw(st.lists(NAMES, unique=True).map(tuple)),
        draw(st.sampled_from([0, NOW, NOW + 30 * DAY])),
        draw(st.floats(0, 5)),
        draw(st.booleans()),
        last_change=draw(TIMES),
        coordinator=draw(COORDINATORS),
        broker_ids=draw(st.sampled_from([(), (1,)])),
        warnings=draw(st.sampled_from([(), (Notice("no answer"),)])),
        ids_changed=draw(st.sampled_from([0, 5])),
        unreadable=dict.fromkeys(draw(st.lists(HIDDEN, max_size=3)), "not authorised"),
    )


def exists(finding: Finding, snapshot: GroupSnapshot) -> bool:
    """Whether the finding's subject is in the snapshot."""
    named = {snapshot.group, *snapshot.topics, *snapshot.subscribed, *(one.member for one in snapshot.members)}
    named.update(partition.topic for partition in snapshot.partitions)
    known = {partition.key for partition in snapshot.partitions}
    known.update(TopicPartition(name, n) for name, one in snapshot.topics.items() for n in one.partitions)
    if (
        finding.subject in named
        or finding.subject in snapshot.unreadable
        or any(finding.subject == one.path for one in snapshot.problems)
        or any(finding.subject == one.error.path for one in snapshot.topics.values() if one.error is not None)
    ):
        return True
    for part in re.sub(" and [0-9]+ more$", "", finding.subject).split(", "):
        name, _, numbers = part.rpartition("-")
        first, _, last = numbers.partition("..")
        if not {TopicPartition(name, n) for n in range(int(first), int(last or first) + 1)} <= known:
            return False
    return True


@settings(max_examples=scaled(200))
@given(snapshots(), st.none() | snapshots(), st.booleans())
def test_whatever_there_is_can_be_diagnosed(now: GroupSnapshot, before: GroupSnapshot | None, explained: bool) -> None:
    """No snapshot makes it fail; every finding is of a kind and a severity that is declared, about something that is
    there, says something and advises something, but no rebalance that would be refused; the order is by severity, and
    the same for the same snapshot."""
    findings = diagnose(now, infer_strategy(now) if explained else None, before)
    for finding in findings:
        assert finding.severity in KINDS[finding.code].severities
        assert exists(finding, now), finding
        assert 0 < len(finding.message) < 2000
        assert finding.remedy or any(f.code == "unexplained-owners" and f.severity == "critical" for f in findings)
        assert all(line.startswith("zkgroup ") and "\n" not in line for line in lines(finding))
        assert finding.page == ("inspect-group", "--explain", finding.code)
        assert "\n" not in f"{finding.message}{finding.remedy}"
    assert len({(f.code, f.subject, f.message) for f in findings}) == len(findings) or len(now.problems) > 1
    if (
        not any(member.session_id for member in now.members)
        or unreadable_ownership(now)
        or any(m.error and not m.is_unreadable for m in now.members)
        or not (now.broker_ids or now.unreadable)
    ):
        assert not any(re.search("zkgroup assign .*--execute", line) for one in findings for line in lines(one))
    ranks = [SEVERITIES.index(finding.severity) for finding in findings]
    assert ranks == sorted(ranks)
    assert diagnose(now, infer_strategy(now) if explained else None, before) == findings
