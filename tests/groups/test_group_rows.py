"""Rows made of snapshots."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lines import names

from zkgroup.clients.kafka.responses import CoordinatorGroup, CoordinatorMember, Half, KafkaOffset
from zkgroup.errors import Notice, Remedy
from zkgroup.groups.group_model import GroupMember, GroupPartition, GroupSnapshot, NodeProblem, StoredOffset
from zkgroup.groups.snapshot.snapshot_defects import notes, ownership_defects, shared_warnings
from zkgroup.groups.snapshot.table_rows import group_row, member_rows, only_topics, owner_rows, partition_rows
from zkgroup.protocol.names import TopicPartition, session_text
from zkgroup.protocol.znodes import Registration

A, B = "g_a", "g_b"


def stored(offset: int | None, error: str | None = None) -> StoredOffset:
    return StoredOffset(offset, 0, 1, 2, 1000, error)


def member(name: str = A, **topics: int) -> GroupMember:
    return GroupMember(name, "box", 7, 5, Registration("static", topics, 5), topics)


def snapshot(*partitions: GroupPartition, members: tuple[GroupMember, ...] = (), **more: object) -> GroupSnapshot:
    subscribed = frozenset(topic for one in members for topic in one.streams)
    return replace(GroupSnapshot("g", members, partitions, subscribed), **more)  # type: ignore[arg-type]


def test_lag_is_summed_where_it_is_known() -> None:
    """A part of the whole is not given as the whole: an end or an offset that is not known, an offset beyond the end,
    or messages with nothing committed, make it a lower bound; what is empty, or gone, does not."""
    partitions = [
        GroupPartition("t", 0, stored=stored(3), log_end=10),
        GroupPartition("t", 1, stored=stored(12), log_end=10),
        GroupPartition("t", 2, log_end=10),
        GroupPartition("t", 3, stored=stored(3)),
        GroupPartition("u", 0, stored=stored(None, "bad"), log_end=10),
    ]
    row = group_row(snapshot(*partitions))
    assert (row.topics, row.partitions, row.lag, row.lag_at_least, row.lag_unknown) == (2, 5, None, 7, 4)
    whole = [
        partitions[0],
        GroupPartition("t", 2, log_start=10, log_end=10),
        GroupPartition("t", 9, stored=stored(3), exists=False),
    ]
    row = group_row(snapshot(*whole))
    assert (row.lag, row.lag_at_least, row.lag_unknown) == (7, 7, 0)
    gone = group_row(snapshot(whole[2]))
    assert (gone.lag, gone.lag_at_least, gone.lag_unknown) == (0, 0, 0), "no message waits in what does not exist"
    emptied = group_row(snapshot(whole[1]))
    assert (emptied.lag, emptied.lag_at_least, emptied.lag_unknown) == (0, 0, 0)
    assert group_row(snapshot()).lag is None, "there is nothing that could lag"
    row = group_row(snapshot(*partitions[1:]))
    assert (row.lag, row.lag_at_least, row.lag_unknown) == (None, None, 4)
    emptied = group_row(snapshot(GroupPartition("t", 0, stored=stored(500), log_start=0, log_end=0)))
    assert (emptied.lag, emptied.lag_at_least, emptied.lag_unknown) == (None, None, 1)
    assert group_row(snapshot(GroupPartition("t", 0, stored=stored(10), log_end=10))).lag == 0


def test_a_topic_that_is_only_subscribed_to_counts() -> None:
    """It concerns the group, though it has no partitions."""
    assert group_row(snapshot(members=(member(t=1, never=1),))).topics == 2


def test_members_of_every_kind() -> None:
    """A filter shows its expression, a broken registration nothing; members in Kafka follow, with what they hold."""
    filtering = replace(
        member(B), registration=Registration("white_list", {"t.*": 3}), streams={"t1": 3, "t2": 3}, session_id=0
    )
    broken = GroupMember("g_c", None, 8, 5, error="is no JSON")
    kafka = CoordinatorMember("k-1", "k", "", (TopicPartition("u", 1), TopicPartition("t", 0)))
    partitions = [GroupPartition("t", n, owner=f"{A}-{n}", member=A, stream=n) for n in range(2)]
    coordinator = CoordinatorGroup("Stable", members=(kafka,))
    rows = member_rows(snapshot(*partitions, members=(member(t=2, u=1), filtering, broken), coordinator=coordinator))
    assert [(r.member, r.subscription, r.pattern, r.streams, r.owned, r.session_id) for r in rows] == [
        (A, {"t": 2, "u": 1}, "static", 3, 2, 7),
        (B, {"t.*": 3}, "white_list", 3, 0, None),
        ("g_c", None, None, None, 0, 8),
        ("k-1", ["t", "u"], None, None, 2, None),
    ]
    assert rows[3].host is None


@pytest.mark.parametrize(
    ("store", "committed", "at"), [("zookeeper", [4, 9, None], [1000, 1000, None]), ("kafka", [6, 8, 1], [None] * 3),
                                   ("both", [6, 9, 1], [None, 1000, None])]
)  # fmt: skip
def test_the_offset_of_a_store(store: str, committed: list[int | None], at: list[int | None]) -> None:
    """committed_at is reported where the offset is ZooKeeper's; topics of the other store alone are left out."""
    partitions = [
        GroupPartition("t", 0, stored=stored(4), kafka=KafkaOffset(6), log_end=10),
        GroupPartition("t", 1, stored=stored(9), kafka=KafkaOffset(8), log_end=10),
        GroupPartition("t", 2, kafka=KafkaOffset(1), log_end=10),
    ]
    rows = partition_rows(snapshot(*partitions, members=(member(t=1),)), store)  # type: ignore[arg-type]
    assert [row.committed for row in rows] == committed
    assert [row.committed_at for row in rows] == at
    assert [row.lag for row in rows] == [None if c is None else 10 - c for c in committed]
    elsewhere = GroupPartition("u", 0, kafka=KafkaOffset(1), log_end=10)
    alone = partition_rows(snapshot(*partitions, elsewhere), store)  # type: ignore[arg-type]
    assert [row.topic for row in alone] == ["t"] * 3 + ["u"] * (store != "zookeeper")


def test_notes_say_alike_things_once() -> None:
    """Partitions with the same trouble share a line, and what a warning says already is not said again."""
    partitions = [GroupPartition("t", n, stored=stored(None, "is empty"), log_error="no leader") for n in range(3)]
    partitions += [GroupPartition("u", 0, error="the owner node is empty", log_error="brokers away")]
    partitions += [GroupPartition("u", n, log_error="a third reason") for n in (1, 2)]
    closed = [StoredOffset(None, -1, 0, 0, 0, "closed to us")] * 12
    partitions += [GroupPartition("w", n, stored=offset) for n, offset in enumerate(closed)]
    partitions += [GroupPartition("v", 0, kafka=KafkaOffset(None, error="not authorised"))]
    away, problem = Notice("log offsets: brokers away", Remedy("start them")), NodeProblem("/x", "is empty")
    group_snapshot = replace(
        snapshot(*partitions, warnings=(away,), problems=(problem,)), unanswered=frozenset({"brokers away"})
    )
    assert list(map(str, notes(group_snapshot))) == [
        "log offsets: brokers away: start them",
        "znode /x is empty",
        "u-0: the owner node is empty",
        "t-0..2: its offset: is empty",
        "w-0..11: its offset: closed to us",
        "v-0: in Kafka: not authorised",
        "t-0..2: no leader",
        "u-1..2: a third reason",
    ]
    assert "v-0" not in "".join(map(str, notes(group_snapshot, "zookeeper")))
    assert "its offset" not in "".join(map(str, notes(group_snapshot, "kafka")))


def test_only_some_topics() -> None:
    """The partitions of the others go; the rest of the snapshot stays."""
    group_snapshot = snapshot(GroupPartition("t", 0), GroupPartition("u", 0), members=(member(t=1, u=1),))
    kept = only_topics(group_snapshot, ["u", "nothing"])
    assert [p.name for p in kept.partitions] == ["u-0"]
    assert (kept.members, kept.subscribed) == (group_snapshot.members, group_snapshot.subscribed)


partitions = st.builds(
    GroupPartition,
    topic=st.sampled_from(["t", "u"]),
    partition=st.integers(0, 3),
    owner=st.none() | st.sampled_from([f"{A}-0", f"{A}-3", "gone-0"]),
    member=st.none() | st.just(A),
    stream=st.none() | st.integers(0, 3),
    exists=st.booleans(),
    stored=st.none() | st.builds(stored, st.none() | st.integers(0, 20)),
    kafka=st.none() | st.builds(KafkaOffset, st.none() | st.integers(0, 20)),
    log_end=st.none() | st.integers(0, 20),
)
shares = st.lists(st.builds(TopicPartition, st.sampled_from(["t", "u"]), st.integers(0, 3)), unique=True).map(tuple)


@given(
    st.lists(partitions, unique_by=lambda p: p.key, max_size=8),
    st.booleans(),
    st.none() | st.lists(shares, max_size=2),
)
def test_every_owner_has_its_row(
    found: list[GroupPartition], live: bool, in_kafka: list[tuple[TopicPartition, ...]] | None
) -> None:
    """Each owner node and each share in Kafka is shown, nothing twice in one store, and judging never fails."""
    coordinator = None
    if in_kafka is not None:
        members = tuple(CoordinatorMember(f"k-{n}", "k", "h", share) for n, share in enumerate(in_kafka))
        coordinator = CoordinatorGroup("Stable", members=members)
    keys = {p.key for p in found}
    found += [GroupPartition(*key) for share in in_kafka or () for key in dict.fromkeys(share) if key not in keys]
    unique = {p.key: p for p in found}
    found = [unique[key] for key in sorted(unique)]
    group_snapshot = snapshot(*found, members=(member(t=2),) if live else (), coordinator=coordinator)
    if not live:
        group_snapshot = replace(
            group_snapshot, partitions=tuple(replace(p, member=None) for p in group_snapshot.partitions)
        )
    rows = owner_rows(group_snapshot)
    placed = [(row.topic, row.partition, row.store) for row in rows]
    assert len(set(placed)) == len(placed)
    assert {(row.topic, row.partition, row.owner) for row in rows if row.store == "zookeeper" and row.owner} == {
        (p.topic, p.partition, p.owner) for p in group_snapshot.partitions if p.owner
    }
    held = {key for share in in_kafka or () for key in share}
    assert {(row.topic, row.partition) for row in rows if row.store == "kafka"} == held
    assert isinstance(ownership_defects(group_snapshot), list)
    for store in ("zookeeper", "kafka", "both"):
        rows_of_store = partition_rows(group_snapshot, store)  # type: ignore[arg-type]
        assert {(row.topic, row.partition) for row in rows_of_store} >= {
            p.key for p in group_snapshot.partitions if p.owner
        }


def test_very_many_partitions_are_counted() -> None:
    """Neighbours stand together, however many; of those that do not, the first are named and all are counted."""
    every = [GroupPartition("t", number, log_error="no answer") for number in range(10_000)]
    assert notes(snapshot(*every)) == [Notice("t-0..9999: no answer")]
    (line,) = notes(snapshot(*every[::2]))
    assert len(str(line)) < 300
    assert names(str(line), "t-0", "t-8", 4995, "no answer")


def test_what_is_not_known_of_many_groups_is_reported_once() -> None:
    """One line for each cause, with the first few groups and how many there are; a single one is named, as it is, and
    other warnings come once."""
    silent, away = "no answer within 5 s", "Broker: Coordinator not available"
    message: list[tuple[str, dict[Half, str]]] = [
        *((f"g{n}", {"members": silent, "offsets": silent}) for n in range(7)),
        ("half", {"offsets": silent}),
        ("a: b", {"members": away, "offsets": away}),
        ("two", {"members": away, "offsets": silent}),
    ]
    snapshots = [
        replace(snapshot(), group=name, warnings=(Notice("all"),), kafka_failures=untold) for name, untold in message
    ]
    facts = [
        ("all",),
        ("members", "offsets", 7, "g0, g1, g2, g3, g4", 2, silent),
        ("offsets", 2, "half, two", silent),
        ("members", "offsets", "a: b", away),
        ("members", "two", away),
    ]
    warnings = [str(warning) for warning in shared_warnings(snapshots)]
    assert [names(text, *one) for text, one in zip(warnings, facts, strict=True)] == [True] * 5
    assert ["members" in text for text in warnings] == [False, True, False, True, True]
    assert shared_warnings([snapshot()]) == []


def test_a_session_in_words() -> None:
    """As ZooKeeper's log has it, also where the number is negative, as the id of a server above 127 makes it."""
    assert [session_text(number) for number in (0x10000DA808D0003, -1, -(2**63), 0)] == [
        "0x10000da808d0003",
        "0xffffffffffffffff",
        "0x8000000000000000",
        "0x0",
    ]
