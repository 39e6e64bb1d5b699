"""Resets on real servers, of offsets in ZooKeeper and in Kafka alike: between plan, write and verifying, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lines import names
from resets import STORES, TIMEOUT, Kept, Resetter, carry_out, drop_messages, selection
from topic_changes import delete_topic

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import NotFoundError, RefusedError, UsageError, VerificationError
from zkgroup.groups.changes import applier, backup
from zkgroup.groups.changes.change_reports import WriteReport
from zkgroup.groups.changes.plan import StalePlanError
from zkgroup.groups.changes.preconditions import GroupActiveError
from zkgroup.groups.changes.reset_plan import Target
from zkgroup.groups.changes.zookeeper_offset_writer import write_offsets
from zkgroup.groups.group_model import Store
from zkgroup.groups.partition_scope import Selection, parse_scope
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition, spans
from zkgroup.protocol.operations import Ensure, Exists, Op
from zkgroup.sandbox.topic_admin import ProducerRecord, produce

MakeTopic = Callable[..., str]
Fill = Callable[..., list[ProducerRecord]]
P = TopicPartition


@pytest.fixture
def topic(make_topic: MakeTopic, fill: Fill) -> str:
    """A topic of three partitions with 100 messages each."""
    name = make_topic(3)
    fill(name, 300, 3)
    return name


def test_a_reset_and_its_undo(kept: Kept, topic: str, tmp_path: Path) -> None:
    """The plan is written and verified; the undo gives every offset back, as far as the store can forget one."""
    keys = [P(topic, number) for number in range(3)]
    kept.put({keys[0]: 10, keys[1]: 20})
    resetter = kept.resetter()
    plan = resetter.plan(Target("offset", 50), selection(topic), kept.store)
    assert [(row.current, row.target) for row in plan.rows] == [(10, 50), (20, 50), (None, 50)]
    saved = carry_out(resetter, plan, tmp_path / "backup")
    assert kept.get(*keys) == [50, 50, 50]

    undo = resetter.plan_undo(saved)
    assert not undo.refusals
    carry_out(resetter, undo, tmp_path / "again")
    assert kept.get(*keys) == [10, 20, 50 if kept.store == "kafka" else None]
    assert resetter.plan_undo(saved).changes == 0
    carry_out(resetter, resetter.plan_undo(tmp_path / "again"), tmp_path / "third")
    assert kept.get(*keys) == [50, 50, 50]


def test_the_store_is_found(kept: Kept, topic: str) -> None:
    """Without a store named, it is the one where the group has offsets; both if it has some in both."""
    key = P(topic, 1)
    kept.put({key: 10})
    plan = kept.resetter().plan(Target("latest"), Selection())
    assert plan.store == kept.store
    assert [(row.partition, row.current, row.target) for row in plan.rows] == [
        (0, None, 100), (1, 10, 100), (2, None, 100),
    ]  # fmt: skip
    other = Kept(kept.registry, kept.kafka, kept.group, "kafka" if kept.store == "zookeeper" else "zookeeper")
    other.put({key: 30})
    plan = kept.resetter().plan(Target("shift", 5), selection(f"{topic}:1"))
    assert plan.store == "both"
    assert [row.target for row in plan.rows] == [35, 35]


def test_only_where_a_partition_has_an_offset(
    registry: Registry,
    kafka: KafkaSettings,
    unique: Callable[[str], str],
    topic: str,
    fill: Fill,
    make_topic: MakeTopic,
) -> None:
    """Each partition is moved in the stores that have an offset of it; one that has none goes with its topic, or with
    the group. What a group leaves behind in ZooKeeper (ids, owners) is no offset. The other store is for --store."""
    group = unique("mixed")
    in_zookeeper, in_kafka = (Kept(registry, kafka, group, store) for store in STORES)
    registry.write(Ensure(f"{znodes.owners(group)}/{topic}"))
    registry.write(Ensure(znodes.ids(group)))
    in_kafka.put({P(topic, 0): 10, P(topic, 1): 10})

    def stores(*scope: str, store: Store | None = None) -> list[tuple[str, int, str]]:
        plan = in_kafka.resetter().plan(Target("offset", 50), selection(*scope) if scope else Selection(), store)
        new = [row.key for row in plan.rows if row.store == "kafka" and row.current is None]
        warned = [text for text in plan.warnings if names(str(text), "Kafka", spans(new), "--undo")]
        assert len(warned) == bool(new), plan.warnings
        return [(row.topic, row.partition, row.store) for row in plan.rows]

    assert stores() == [(topic, n, "kafka") for n in range(3)]
    pay, new = make_topic(1, "pay"), make_topic(1, "new")
    fill(pay, 60, 1)
    fill(new, 60, 1)
    assert stores(new) == [(new, 0, "kafka")]
    in_zookeeper.put({P(pay, 0): 40})
    assert stores(pay, topic, new) == sorted(
        [(pay, 0, "zookeeper"), (new, 0, "zookeeper"), *((topic, n, "kafka") for n in range(3))]
    )
    assert stores(pay, store="both") == [(pay, 0, "zookeeper"), (pay, 0, "kafka")]
    in_zookeeper.put({P(topic, 1): 12})
    assert [one for one in stores() if one[0] == topic] == [
        (topic, 0, "kafka"), (topic, 1, "zookeeper"), (topic, 1, "kafka"), (topic, 2, "zookeeper"),
    ]  # fmt: skip


def test_a_group_that_becomes_active_is_refused(kept: Kept, topic: str) -> None:
    """A member that comes between plan and write stops it, by its name; nothing is written."""
    key = P(topic, 0)
    kept.put({key: 10})
    resetter = kept.resetter()
    plan = resetter.plan(Target("earliest"), selection(f"{topic}:0"), kept.store)
    with kept.alive(topic) as name:
        for refused in (resetter.check, resetter.write):
            with pytest.raises(GroupActiveError, match=rf"\b{kept.group}\b") as caught:
                refused(plan)
            assert [member.startswith(name) for member in caught.value.members] == [True]
            assert caught.value.exit_code == 5
        assert kept.get(key) == [10]
    resetter.write(plan)
    assert kept.get(key) == [0]


def test_members_in_zookeeper_stop_resets_in_kafka(
    registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str], topic: str
) -> None:
    """Members with offsets.storage=kafka are registered in ZooKeeper alone: a reset in Kafka reads there, too."""
    group = unique("dual")
    in_zookeeper, in_kafka = (Kept(registry, kafka, group, store) for store in STORES)
    in_kafka.put({P(topic, 0): 10})
    with in_zookeeper.alive(topic) as name:
        resetter = in_kafka.resetter()
        plan = resetter.plan(Target("earliest"), selection(topic), "kafka")
        for refused in (resetter.check, resetter.write):
            with pytest.raises(GroupActiveError) as caught:
                refused(plan)
            assert caught.value.members == (name,)
    assert in_kafka.get(P(topic, 0)) == [10]


def test_an_offset_that_moves_meanwhile_is_not_overwritten(kept: Kept, topic: str) -> None:
    """Somebody commits between plan and write: nothing at all is written, and the partition is named."""
    keys = [P(topic, 0), P(topic, 1)]
    kept.put({keys[0]: 10, keys[1]: 20})
    resetter = kept.resetter()
    plan = resetter.plan(Target("earliest"), selection(f"{topic}:0-1"), kept.store)
    kept.put({keys[1]: 21})
    with pytest.raises(StalePlanError, match=rf"\b{keys[1]}\b.*\b20\b.*\b21\b") as caught:
        resetter.write(plan)
    assert caught.value.exit_code == 5
    assert kept.get(*keys) == [10, 21]


def test_what_has_its_target_meanwhile_is_done(kept: Kept, topic: str) -> None:
    """The same reset by somebody else is no conflict: the rest is written."""
    keys = [P(topic, 0), P(topic, 1)]
    kept.put({keys[0]: 10, keys[1]: 20})
    resetter = kept.resetter()
    plan = resetter.plan(Target("earliest"), selection(f"{topic}:0-1"), kept.store)
    kept.put({keys[1]: 0})
    resetter.write(plan)
    assert resetter.verify(plan) == []
    assert kept.get(*keys) == [0, 0]


def test_verifying_sees_what_was_moved_after_the_write(kept: Kept, topic: str) -> None:
    """An offset that is not as planned any more is named, with exit code 6."""
    kept.put({P(topic, 0): 10})
    resetter = kept.resetter()
    plan = resetter.plan(Target("offset", 50), selection(f"{topic}:0"), kept.store)
    resetter.write(plan)
    kept.put({P(topic, 0): 51})
    with pytest.raises(VerificationError, match=rf"\b{topic}-0\b.*\b{kept.store}\b.*\b51\b.*\b50\b") as caught:
        resetter.verify(plan)
    assert caught.value.exit_code == 6


def test_retention_that_passes_the_target_is_seen(kept: Kept, topic: str) -> None:
    """Messages that go between plan and write leave an offset that members would jump from: exit code 6 says so."""
    kept.put({P(topic, 0): 80})
    resetter = kept.resetter()
    plan = resetter.plan(Target("earliest"), selection(f"{topic}:0"), kept.store)
    drop_messages(kept.kafka, P(topic, 0), 40)
    resetter.write(plan)
    with pytest.raises(VerificationError, match=rf"\b{topic}-0\b.*\b40\b.*\b0\b"):
        resetter.verify(plan)
    plan = resetter.plan(Target("earliest"), selection(f"{topic}:0"), kept.store)
    resetter.write(plan)
    assert resetter.verify(plan) == []
    assert kept.get(P(topic, 0)) == [40]


def test_retention_that_passes_a_shift(kept: Kept, topic: str) -> None:
    """Who was shifted already is not shifted once more: the remedy names what retention has passed, and where to."""
    kept.put({P(topic, 0): 60, P(topic, 1): 60})
    resetter = kept.resetter()
    plan = resetter.plan(Target("shift", 10), selection(f"{topic}:0-1"), kept.store)
    drop_messages(kept.kafka, P(topic, 0), 75)
    resetter.write(plan)
    with pytest.raises(VerificationError, match=rf"\b{topic}-0\b.*\b75\b.*\b70\b") as caught:
        resetter.verify(plan)
    assert caught.value.remedy is not None
    assert names(caught.value.remedy.text, "--to-earliest", "--to-latest")
    assert caught.value.remedy.commands == (("offsets", kept.group),)
    carry_on = resetter.plan(Target("earliest"), selection(f"{topic}:0"), kept.store)
    resetter.write(carry_on)
    assert resetter.verify(carry_on) == []
    assert kept.get(P(topic, 0), P(topic, 1)) == [75, 70]


def test_a_shift_that_somebody_overtakes(kept: Kept, topic: str) -> None:
    """What differs after the write is no reason to plan the same again where that would shift what is in place."""
    kept.put({P(topic, 0): 10, P(topic, 1): 10})
    resetter = kept.resetter()
    plan = resetter.plan(Target("shift", 5), selection(f"{topic}:0-1"), kept.store)
    resetter.write(plan)
    kept.put({P(topic, 0): 11})
    with pytest.raises(VerificationError, match=rf"\b{topic}-0\b.*\b11\b.*\b15\b") as caught:
        resetter.verify(plan)
    assert names(str(caught.value.remedy), "--undo")


def test_an_undo_stops_at_what_has_moved_on(kept: Kept, topic: str, tmp_path: Path) -> None:
    """An offset that is neither what the reset wrote nor what was before is a conflict; the others can be undone."""
    keys = [P(topic, number) for number in range(3)]
    kept.put(dict.fromkeys(keys, 10))
    resetter = kept.resetter()
    saved = carry_out(resetter, resetter.plan(Target("latest"), selection(topic), kept.store), tmp_path / "backup")
    kept.put({keys[1]: 99})
    plan = resetter.plan_undo(saved)
    word = "Kafka" if kept.store == "kafka" else "ZooKeeper"
    (refusal,) = plan.refusals
    assert names(refusal.message, keys[1], 99, word, 100)
    plan = resetter.plan_undo(saved, parse_scope([f"{topic}:0,2"]))
    assert not plan.refusals
    resetter.write(plan)
    assert kept.get(*keys) == [10, 99, 10]


def test_undos_go_back_step_by_step(kept: Kept, topic: str) -> None:
    """Two resets, one after the other, undone in the opposite order, then done again: each finds what it left."""
    key = P(topic, 0)
    kept.put({key: 50})
    resetter, saved = kept.resetter(), []
    for target in (10, 20):
        plan = resetter.plan(Target("offset", target), selection(f"{topic}:0"), kept.store)
        saved.append(backup.write(resetter.backup(plan)))
        resetter.write(plan)
    for file, there in ((saved[1], 10), (saved[0], 50)):
        plan = resetter.plan_undo(file)
        assert plan.refusals == ()
        saved.append(backup.write(resetter.backup(plan)))
        resetter.write(plan)
        assert kept.get(key) == [there]
    for file, there in ((saved[3], 10), (saved[2], 20)):
        plan = resetter.plan_undo(file)
        assert plan.refusals == ()
        resetter.write(plan)
        assert kept.get(key) == [there]


def test_a_backup_of_another_group_is_refused(
    kept: Kept, topic: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """An undo is for the group and the cluster that the backup was made of."""
    kept.put({P(topic, 0): 10})
    resetter = kept.resetter()
    plan = resetter.plan(Target("latest"), selection(topic), kept.store)
    path = backup.write(resetter.backup(plan), tmp_path / "backup")
    other = Resetter(kept.registry, lambda: kept.kafka, unique("other"), TIMEOUT)
    with pytest.raises(RefusedError, match=rf"\b{kept.group}\b.*\b{other.group}\b"):
        other.plan_undo(path)
    with pytest.raises(UsageError, match=r"--topic\b.*--store\b"):
        resetter.plan_undo(path, parse_scope(["elsewhere"]))


def test_by_time(kept: Kept, make_topic: MakeTopic) -> None:
    """The brokers find the first message that is not older; after the last one it is the end, before the first the
    start, and an empty partition stays at its end."""
    topic = make_topic(2)
    produce(
        kept.kafka, topic, [ProducerRecord(b"x", None, 0, timestamp_ms=1_600_000_000_000 + i * 1000) for i in range(50)]
    )
    kept.put({P(topic, 0): 5})
    resetter = kept.resetter()
    for millis, expected in ((0, 0), (1_600_000_020_000, 20), (1_600_000_020_001, 21), (1_700_000_000_000, 50)):
        plan = resetter.plan(Target("time", millis), selection(topic), kept.store)
        assert [row.target for row in plan.rows] == [expected, 0]
        assert (plan.rows[0].note is not None) == (expected == 50)


def test_a_new_group(kept: Kept, topic: str, tmp_path: Path) -> None:
    """A group that does not exist is made where partitions are named, with a warning; else it is not found."""
    resetter = kept.resetter()
    with pytest.raises(NotFoundError):
        resetter.plan(Target("latest"), Selection(), kept.store)
    plan = resetter.plan(Target("latest"), selection(f"{topic}:2"), kept.store)
    facts = [(kept.group,), *([("Kafka", f"{topic}-2", "--undo")] if kept.store == "kafka" else [])]
    assert [names(str(text), *one) for text, one in zip(plan.warnings, facts, strict=True)] == [True] * len(facts)
    if kept.store == "zookeeper":  # looking makes nothing
        assert kept.registry.read([Exists(znodes.group(kept.group))]) == [None]
    saved = carry_out(resetter, plan, tmp_path / "backup")
    assert kept.get(P(topic, 2)) == [100]
    if kept.store == "zookeeper":
        undo = resetter.plan_undo(saved)
        resetter.write(undo)
        resetter.verify(undo)


def test_topics_that_are_gone(kept: Kept, topic: str, make_topic: MakeTopic) -> None:
    """Offsets of a deleted topic are left as they are; naming it is an error."""
    gone = make_topic(1)
    kept.put({P(gone, 0): 5, P(topic, 0): 5})
    delete_topic(kept.registry, gone)
    resetter = kept.resetter()
    if kept.store == "zookeeper":  # Kafka forgets offsets of topics that are deleted
        rows = {row.key: row for row in resetter.plan(Target("latest"), Selection(), kept.store).rows}
        assert (rows[P(gone, 0)].target, rows[P(gone, 0)].moves) == (5, False)
        assert rows[P(topic, 0)].target == 100
    with pytest.raises(NotFoundError, match=rf"\b{gone}\b"):
        resetter.plan(Target("latest"), selection(gone), kept.store)
    with pytest.raises(NotFoundError, match=rf"\b{topic}\b.*\b3\b.*\b0\b.*\b2\b"):
        resetter.plan(Target("file", offsets={P(topic, 3): 1}), Selection(listed=frozenset([P(topic, 3)])), kept.store)


def test_partitions_that_are_not_there_are_refused_before_their_offsets_are_asked_for(
    kept: Kept, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many a file names: ZooKeeper is asked for the topic, not for an offset of each."""
    asked: list[Op] = []
    read = kept.registry.read
    monkeypatch.setattr(kept.registry, "read", lambda ops: asked.extend(ops) or read(ops))
    wanted = {P(topic, number): 1 for number in range(20_000)}
    with pytest.raises(NotFoundError, match=rf"\b{topic}\b.*\b3\b.*\b0\b.*\b2\b"):
        kept.resetter().plan(Target("file", offsets=wanted), Selection(listed=frozenset(wanted)), kept.store)
    assert len(asked) < 20


def test_both_stores_one_after_the_other(
    registry: Registry,
    kafka: KafkaSettings,
    unique: Callable[[str], str],
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where either has moved nothing is written. ZooKeeper is written first; Kafka only then, and where it has moved
    in between the error says that ZooKeeper is done. The backup undoes both."""
    group = unique("dual")
    in_zookeeper, in_kafka = (Kept(registry, kafka, group, store) for store in STORES)
    key = P(topic, 0)
    in_zookeeper.put({key: 10})
    in_kafka.put({key: 20})
    resetter = in_kafka.resetter()
    plan = resetter.plan(Target("latest"), selection(f"{topic}:0"))
    path = backup.write(resetter.backup(plan), tmp_path / "backup")
    in_kafka.put({key: 30})
    with pytest.raises(StalePlanError, match=rf"\bKafka\b.*\b{key}\b.*\b20\b.*\b30\b"):
        resetter.write(plan)
    assert (in_zookeeper.get(key), in_kafka.get(key)) == ([10], [30])
    in_kafka.put({key: 20})

    def write_and_move(*args: Any, **options: Any) -> WriteReport:
        report = write_offsets(*args, **options)
        in_kafka.put({key: 30})
        return report

    monkeypatch.setattr(applier, "write_offsets", write_and_move)
    with pytest.raises(StalePlanError, match=rf"\bKafka\b.*\b{key}\b.*\b20\b.*\b30\b.*; .*ZooKeeper 1\b"):
        resetter.write(plan)
    monkeypatch.undo()
    assert (in_zookeeper.get(key), in_kafka.get(key)) == ([100], [30])
    (refusal,) = resetter.plan_undo(path).refusals
    assert names(refusal.message, key, 30, "Kafka", 100)
    in_kafka.put({key: 20})
    resetter.write(plan)
    assert resetter.verify(plan) == []
    assert (in_zookeeper.get(key), in_kafka.get(key)) == ([100], [100])
    resetter.write(resetter.plan_undo(path))
    assert (in_zookeeper.get(key), in_kafka.get(key)) == ([10], [20])

    in_zookeeper.put({key: 11})
    plan = resetter.plan(Target("latest"), selection(f"{topic}:0"))
    in_zookeeper.put({key: 12})
    with pytest.raises(StalePlanError, match=rf"\b{key}\b.*\b11\b.*\b12\b"):
        resetter.write(plan)
    assert in_kafka.get(key) == [20]
