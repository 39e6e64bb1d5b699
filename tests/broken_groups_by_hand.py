"""Groups made by hand, each with something wrong, and what is to be found of it; for every kind but growing lag."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from diagnosed_groups import (
    DAY,
    GROUP,
    NOW,
    SECOND,
    THEN,
    filtering,
    findings_of,
    group,
    having,
    healthy,
    inactive,
    kafka,
    member,
    owned,
    raw,
    stored,
    topic,
)

from zkgroup.clients.kafka.responses import CoordinatorGroup, CoordinatorMember
from zkgroup.errors import Notice
from zkgroup.groups.findings.finding_kinds import Finding
from zkgroup.groups.group_model import FaultyBroker, GroupMember, GroupSnapshot, NodeProblem
from zkgroup.protocol.broker_znodes import BrokerFault, Releases
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.znodes import Registration

JUST_NOW = NOW - 3 * SECOND
#: The longest that a healthy group takes, twice over; what is older is no rebalance.
LONG_AGO = NOW - 11 * SECOND

STAMP = b'"timestamp":"1411294187842"'


def in_kafka(*assigned: TopicPartition, state: str = "Stable", **changes: Any) -> CoordinatorGroup:
    members = (CoordinatorMember("m1", "c", "/h", assigned),) if assigned or state != "Empty" else ()
    return replace(CoordinatorGroup(state, "range", members, 1), **changes)


def broken(error: str, **changes: Any) -> GroupMember:
    return replace(member("g_b", {}), registration=None, error=error, streams={}, **changes)


def with_broker(snapshot: GroupSnapshot, fault: BrokerFault) -> GroupSnapshot:
    return replace(snapshot, broker_ids=(1, 2), faulty_brokers=(FaultyBroker("/brokers/ids/2", fault, 10**6),))


def unreadable_filter(expression: str, error: str) -> GroupMember:
    registration = Registration("white_list", {expression: 1}, THEN)
    return replace(member("g_b", {}), registration=registration, error=error, data=b"{}")


TWO = healthy()
ALONE = group([member("g_a", {"orders": 1})], [owned("orders", n) for n in range(2)])
UNREAD = having(ALONE, 1, owner=None, member=None, stream=None, since=None, session_id=None)
GONE = having(inactive(), 1, exists=False, log_start=None, log_end=None, leader=None)

# g_c has a share of another plan, so that g_b cannot have its own.
MIXED = group(
    [member(name, {"orders": 1}) for name in ("g_a", "g_b", "g_c")],
    [owned("orders", n, owner, member=owner and owner[:3]) for n, owner in enumerate(
        ["g_a-0", "g_a-0", "g_c-0", None, None, "g_c-0"])],
)  # fmt: skip

# g_b has not heard that somebody left in transaction 700; g_c has, and g_a cannot have its share.
CLAIMED: dict[str, Any] = {"owner": "g_c-0", "member": "g_c", "stream": 0, "since": THEN, "claimed": 710}
HUNG = replace(
    group(
        [member(name, {"orders": 1}, czxid=300) for name in ("g_a", "g_b", "g_c")],
        [
            owned("orders", 0, "g_b-0", claimed=400), owned("orders", 1, "g_b-0", claimed=400),
            owned("orders", 2, None), owned("orders", 3, "g_c-0", claimed=710),
        ],
    ),
    ids_changed=700,
)  # fmt: skip

# code → (severity, subject, what the message names, the group)
Case = tuple[str, str, tuple[object, ...], GroupSnapshot]
CASES: list[tuple[str, Case]] = [
    ("cluster-without-broker", ("critical", GROUP, (), replace(TWO, broker_ids=()))),
    (
        "stopping-registration",
        ("critical", "g_b", ("'no JSON'",), replace(ALONE, members=(*ALONE.members, broken(
            "is no JSON: starts with 'no JSON'", data=b"no JSON")))),
    ),
    (
        "stopping-registration",
        ("critical", "g_b", ("pattern",), replace(ALONE, members=(*ALONE.members, broken(
            "has no pattern", data=b'{"version":1,"subscription":{"t":1}}')))),
    ),
    (
        "unreadable-filter",
        ("critical", "g_b", ("'(a'", "Java"), replace(ALONE, members=(*ALONE.members, unreadable_filter(
            "(a", "regular expression '(a' is invalid")))),
    ),
    (
        "unreadable-filter",
        ("warning", "g_b", ("'(a*)*b'",), replace(ALONE, members=(*ALONE.members, unreadable_filter(
            "(a*)*b", "regular expression '(a*)*b' takes too much work")))),
    ),
    (
        "unportable-registration",
        ("warning", "g_b", ("0.11",), replace(ALONE, members=(*ALONE.members, raw(
            "g_b", b'{"version":1,"subscription":{},"pattern":"static","timestamp":1411294187842}')))),
    ),
    (
        "unportable-registration",
        ("critical", "g_b", ("null", "1.0", 1), replace(UNREAD, members=(*UNREAD.members, raw(
            "g_b", b'{"version":1,"subscription":{},"pattern":null,' + STAMP + b"}")))),
    ),
    (
        "split-group",
        ("critical", GROUP, (2, "ZooKeeper", 1, "Kafka", 1, "orders-0"), replace(
            TWO, coordinator=in_kafka(TopicPartition("orders", 0)))),
    ),
    ("split-group", ("warning", GROUP, (2, "ZooKeeper", 1, "Kafka"), replace(
        TWO, coordinator=in_kafka(TopicPartition("other", 0))))),
    (
        "subscription-disagreement",
        ("critical", GROUP, ("0.8.2", "0.10.1", "bills", "orders", 2), group(
            [member("g_a", {"orders": 1}), member("g_b", {"bills": 1})],
            [owned("orders", 0, None), owned("bills", 0, None)])),
    ),
    ("partition-without-leader", ("critical", "orders-1", (), having(
        TWO, 1, leader=None, log_start=None, log_end=None, log_error="no broker leads it"))),
    ("partition-without-leader", ("warning", "orders-1", (7,), having(
        inactive(), 1, leader=7, log_start=None, log_end=None, log_error="timed out"))),
    ("partition-without-leader", ("warning", "orders-1", (), replace(having(
        inactive(), 1, leader=None, log_start=None, log_end=None, log_error="no broker leads it"),
        in_zookeeper=False))),
    ("persistent-member", ("critical", "g_a", (), replace(
        ALONE, members=(replace(ALONE.members[0], session_id=0),)))),
    ("persistent-owner", ("critical", "orders-1", ("g_a-0",), having(ALONE, 1, session_id=0))),
    ("partition-without-owner", ("critical", "orders-1", (90,), having(
        UNREAD, 1, stored=stored(10)))),
    ("unresponsive-member", ("critical", "g_b", (2, "1 h", 1), HUNG)),
    ("unresponsive-member", ("warning", "g_b", (2, "1 h"), having(HUNG, 2, **CLAIMED))),
    ("member-without-partitions", ("critical", "g_b", ("1 h", 1), group(
        [member("g_a", {"orders": 1}), member("g_b", {"orders": 1})],
        [owned("orders", 0), owned("orders", 1, None)]))),
    ("owner-without-registration", ("critical", "orders-1", ("0x100",), having(ALONE, 1, owner="g_z-0", member=None))),
    ("owner-without-subscription", ("critical", "bills-0", ("g_a-0",), group(
        ALONE.members, [*ALONE.partitions, owned("bills", 0)]))),
    ("owner-beyond-streams", ("critical", "orders-1", ("g_a-1", 1), having(ALONE, 1, owner="g_a-1", stream=1))),
    ("unreadable-owner", ("critical", "orders-1", ("empty",), having(
        ALONE, 1, owner=None, member=None, error="the owner node is empty"))),
    ("unreadable-offset", ("critical", "orders-1", ("'abc'",), having(
        ALONE, 1, stored=stored(None, error="'abc' is no offset")))),
    ("unreadable-offset", ("critical", "orders-1", ("50",), having(
        ALONE, 1, stored=stored(50, defect="'50\\n' has more than the number 50")))),
    ("recreated-topic", ("critical", "orders", (1, 1, 50), having(
        replace(ALONE, topics={"orders": topic("orders", 2, czxid=400, created_at=THEN)}), 1,
        stored=stored(50, mzxid=300)))),
    ("offset-before-start", ("critical", "orders-1", (3, 10, 7), having(ALONE, 1, stored=stored(3)))),
    ("offset-beyond-end", ("critical", "orders-1", (120, 20, 100), having(ALONE, 1, stored=stored(120)))),
    ("offset-beyond-end", ("critical", "orders-1", (120, "Kafka", 20, 100), having(ALONE, 1, kafka=kafka(120)))),
    ("owner-of-former-session", ("warning", "orders-1", ("0x99",), having(ALONE, 1, session_id=0x99))),
    ("unexplained-owners", ("warning", GROUP, ("range", 1, "g_a", 1, "g_b", 3), having(
        TWO, 1, owner="g_b-0", member="g_b"))),
    ("unexplained-owners", ("critical", GROUP, ("partition-without-owner", "orders-3..4"), MIXED)),
    ("contradicting-offsets", ("warning", "orders-1", (50, "ZooKeeper", 70, "Kafka", 20), having(
        ALONE, 1, kafka=kafka(70)))),
    ("contradicting-offsets", ("info", "orders-1", (50, "ZooKeeper", 30, "Kafka", 20), having(
        ALONE, 1, kafka=kafka(30), stored=stored(50, JUST_NOW)))),
    ("partition-without-offset", ("warning", "orders-1", (90,), having(ALONE, 1, stored=None))),
    ("partition-without-offset", ("info", "orders-1", (), having(
        ALONE, 1, stored=None, log_start=5, log_end=5))),
    ("partition-without-offset", ("warning", "orders-2", (90,), having(
        inactive(3), 2, stored=None))),
    ("partition-without-offset", ("warning", "orders-2", (), having(
        inactive(3), 2, stored=None, log_start=5, log_end=5))),
    ("incompatible-broker", ("critical", "/brokers/ids/2", ("PLAINTEXT", "g_a"), with_broker(
        ALONE, BrokerFault("has no PLAINTEXT endpoint", None, rebalances=True)))),
    ("incompatible-broker", ("info", "/brokers/ids/2", ("0.9", "0.10.1", "g_a"), with_broker(
        ALONE, BrokerFault("has a listener", Releases("0.9", "0.10.1"), rebalances=False)))),
    ("incompatible-broker", ("critical", "/brokers/ids/2", ("0.11", "g_a"), with_broker(
        UNREAD, BrokerFault("has a number", Releases(None, "0.11"), rebalances=False)))),
    ("unregistered-commits", ("info", GROUP, (1, "1.0 s", "0.1 s"), having(
        inactive(), 1, stored=stored(50, NOW - 1000, version=9, mzxid=900, created_at=NOW - 1900)))),
    ("doubly-escaped-filter", ("warning", "g_b", (r"'\\w+'",), replace(
        ALONE, members=(*ALONE.members, filtering("g_b", r"\\w+", {}))))),
    ("doubly-escaped-filter", ("warning", "g_b", (r"'\\w+'",), replace(
        ALONE, existing_topics=("__consumer_offsets", "orders"),
        members=(*ALONE.members, filtering("g_b", r"\\w+", {"orders": 1}, "black_list"))))),
    ("doubly-escaped-filter", ("warning", "g_b", (1,), replace(
        ALONE, existing_topics=("bills", "orders"),
        members=(*ALONE.members, filtering("g_b", r"\\w+|bills", {"orders": 1}, "black_list"))))),
    ("topic-marked-for-deletion", ("warning", "orders", (), replace(
        ALONE, topics={"orders": topic("orders", 2, to_be_deleted=True)}))),
    ("owner-of-missing-partition", ("warning", "bills-0", ("g_a-0",), group(
        [member("g_a", {"orders": 1, "bills": 1})],
        [*ALONE.partitions, owned("bills", 0, exists=False, stored=None, leader=None, log_start=None, log_end=None)]))),
    ("offset-of-missing-topic", ("warning", "orders", (1,), replace(
        GONE, partitions=GONE.partitions[1:], topics={"orders": topic("orders", 0, exists=False)}))),
    ("offset-of-missing-partition", ("warning", "orders-1", ("orders", 1), replace(
        GONE, topics={"orders": topic("orders", 1)}))),
    ("unreadable-node", ("warning", "/consumers/g/offsets/x", (), replace(
        ALONE, problems=(NodeProblem("/consumers/g/offsets/x", "is not named by a partition"),)))),
    ("unreadable-node", ("warning", "/consumers/g/offsets", ("not authorised",), replace(
        ALONE, unreadable={"/consumers/g/offsets": "not authorised"}))),
    ("unreadable-node", ("warning", "/brokers/ids", ("not authorised",), replace(
        ALONE, broker_ids=(), unreadable={"/brokers/ids": "not authorised"}))),
    ("unreadable-node", ("warning", "/brokers/topics", ("not authorised",), replace(
        group([filtering("g_a", "o.*", {})], ALONE.partitions), existing_topics=(),
        unreadable={"/brokers/topics": "not authorised"}))),
    ("unreadable-node", ("info", "/consumers/g", ("not authorised",), replace(
        ALONE, unreadable={"/consumers/g": "not authorised"}))),
    ("unreadable-node", ("warning", "g_b", ("not authorised",), replace(ALONE, members=(*ALONE.members, broken(
        "znode /consumers/g/ids/g_b cannot be read: not authorised", is_unreadable=True))))),
    ("unreadable-node", ("warning", "/brokers/topics/orders", (), replace(
        ALONE,
        topics={"orders": topic(
            "orders", 0, error=NodeProblem("/brokers/topics/orders", "is no JSON"), passed_over=True)}))),
    ("unreadable-node", ("critical", "/brokers/topics/orders", (), replace(
        UNREAD, topics={"orders": topic(
            "orders", 0, error=NodeProblem("/brokers/topics/orders", "is no JSON object", is_malformed=True))}))),
    ("incomplete-snapshot", ("warning", GROUP, ("orders-1", "broker 1 timed out"), having(
        ALONE, 1, log_start=None, log_end=None, log_error="broker 1 timed out"))),
    ("incomplete-snapshot", ("warning", GROUP, ("no answer",), replace(ALONE, warnings=(Notice("no answer"),)))),
    ("registration-defect", ("info", "g_b", (1,), replace(ALONE, members=(*ALONE.members, raw(
        "g_b", b'{"version":2,"subscription":{},"pattern":"static",' + STAMP + b"}"))))),
    ("registration-defect", ("warning", "g_b", (), replace(ALONE, members=(*ALONE.members, raw(
        "g_b", b'{"version":1,"subscription":{"x":1,"y":1},"pattern":"white_list",' + STAMP + b"}", {"orders": 1}))))),
    ("rebalance-in-progress", ("info", GROUP, (1,), having(UNREAD, 0, since=JUST_NOW))),
    ("surplus-streams", ("info", "orders", (3, 2, 1), replace(
        ALONE, members=(member("g_a", {"orders": 3}),)))),
    ("filter-without-topics", ("info", "g_b", ("'x.*'", 1), replace(
        ALONE, members=(*ALONE.members, filtering("g_b", "x.*", {}))))),
    ("filter-without-topics", ("warning", "g_a", ("'x.*'", 1), replace(
        ALONE, members=(filtering("g_a", "x.*", {}),)))),
    ("missing-topic", ("info", "g_a", ("bills",), replace(
        ALONE, members=(member("g_a", {"orders": 1, "bills": 1}),)))),
    ("offset-without-subscriber", ("info", "bills", (1,), group(
        ALONE.members, [*ALONE.partitions, owned("bills", 0, None)]))),
    ("foreign-client", ("info", GROUP, ("h:1",), group(
        [member("h:1", {"orders": 1})],
        [owned("orders", 0, owner="h:1", member="h:1", stream=None)]))),
    ("leftover-group", ("info", "console-consumer-1", ("3 d",), inactive(
        group="console-consumer-1", last_change=NOW - 3 * DAY))),
    ("leftover-group", ("info", GROUP, ("9 d",), group(last_change=NOW - 9 * DAY))),
]  # fmt: skip


def every_finding() -> list[Finding]:
    """All findings of all of these groups, and of those lag that grows."""
    found = [finding for _, case in CASES for finding in findings_of(case[3])]
    before = replace(ALONE, taken_at=NOW - 300 * SECOND)
    return found + findings_of(having(ALONE, 1, log_end=130), before)
