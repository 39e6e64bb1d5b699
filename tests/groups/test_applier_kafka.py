"""Copying, renaming and deleting offsets that are kept in Kafka: what comes in between is never lost. Real servers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from group_changes import Manager
from guarded_changes import Build, P, register, values
from lines import names

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.clients.kafka.group_coordinator import Coordinators
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import VerificationError
from zkgroup.groups.changes.group_plans import refuse_divergence
from zkgroup.groups.changes.plan import StalePlanError
from zkgroup.groups.changes.preconditions import GroupActiveError
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Delete

Unique = Callable[[str], str]
InKafka = Callable[..., GroupOffsets]


@pytest.fixture
def manager(registry: Registry, kafka: KafkaSettings) -> Manager:
    return Manager(registry, lambda: kafka, 20.0)


@pytest.fixture
def one(make_topic: Callable[..., str]) -> TopicPartition:
    """A partition of its own."""
    return P(make_topic(1), 0)


def committed(manager: Manager, group: str) -> dict[TopicPartition, int | None]:
    """The offsets that Kafka keeps for a group."""
    kafka_group = Coordinators(manager.applier.brokers(), 20.0).read_group(group)
    return {key: kept.offset for key, kept in kafka_group.offsets.items()}


@pytest.mark.parametrize("both", [False, True])
def test_a_commit_after_the_plan_of_a_deletion(
    manager: Manager, make_group: Build, unique: Unique, in_kafka: InKafka, one: TopicPartition, both: bool
) -> None:
    """Nothing is deleted, in neither store: the backup does not have that offset."""
    group = make_group({one: 5}) if both else unique("deleted")
    offsets = in_kafka(group, {one: 10})
    found = manager.find(group, None)
    offsets.commit({one: 77}, 20.0)
    with pytest.raises(StalePlanError, match=rf"\bKafka\b.*\b{one}\b.*\b10\b.*\b77\b"):
        manager.delete(found)
    assert committed(manager, group) == {one: 77}
    if both:
        assert manager.applier.registry is not None
        assert values(manager.applier.registry, group, one) == [5]


def test_a_commit_after_the_plan_of_a_rename(
    manager: Manager, unique: Unique, in_kafka: InKafka, one: TopicPartition
) -> None:
    """Before the copy nothing is done; after it the old group, which knows better, is kept."""
    group, other = unique("old"), unique("new")
    offsets = in_kafka(group, {one: 10})
    source = manager.find(group, None)
    plan = manager.plan_copy(source, other, is_rename=True)
    offsets.commit({one: 77}, 20.0)
    with pytest.raises(StalePlanError, match=rf"\b{one}\b.*\b10\b.*\b77\b"):
        manager.copy(plan)
    assert committed(manager, other) == {}
    offsets.commit({one: 10}, 20.0)
    manager.copy(plan)
    offsets.commit({one: 78}, 20.0)
    with pytest.raises(StalePlanError, match=rf"\b{one}\b.*\b10\b.*\b78\b"):
        manager.delete(source)
    assert (committed(manager, group), committed(manager, other)) == ({one: 78}, {one: 10})


def test_members_in_zookeeper_guard_offsets_in_kafka(
    manager: Manager,
    registry: Registry,
    second: Registry,
    unique: Unique,
    in_kafka: InKafka,
    one: TopicPartition,
) -> None:
    """Members that keep their offsets in Kafka are known by their registration in ZooKeeper alone: once one is there,
    of either group, nothing is written or deleted."""
    group, other = unique("old"), unique("new")
    in_kafka(group, {one: 10})
    in_kafka(other, {one: 50})
    source = manager.find(group, None)
    plan, rename = manager.plan_copy(source, other), manager.plan_copy(source, other, is_rename=True)
    register(second, other)
    with pytest.raises(GroupActiveError) as refused:
        manager.copy(plan)
    assert refused.value.members == (f"{other}_m",)
    second.write(Delete(znodes.member_id(other, f"{other}_m")))
    register(second, group)
    for change in (lambda: manager.copy(rename), lambda: manager.delete(source)):
        with pytest.raises(GroupActiveError) as refused:
            change()
        assert refused.value.members == (f"{group}_m",)
    assert (committed(manager, group), committed(manager, other)) == ({one: 10}, {one: 50})
    manager.copy(plan)  # of a group that is active a copy may be made
    assert committed(manager, other) == {one: 10}


def test_a_member_that_comes_between_both_stores(
    manager: Manager,
    registry: Registry,
    second: Registry,
    make_group: Build,
    in_kafka: InKafka,
    one: TopicPartition,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Deleted in ZooKeeper, and then somebody registers: the offsets in Kafka stay, and it is reported what was
    done."""
    from zkgroup.groups.changes import applier

    group = make_group({one: 5})
    in_kafka(group, {one: 10})
    found = manager.find(group, None)
    remove = applier.remove_nodes

    def then_register(*args: object) -> int:
        count = remove(*args)  # type: ignore[arg-type]
        register(second, group)
        return count

    monkeypatch.setattr(applier, "remove_nodes", then_register)
    with pytest.raises(GroupActiveError, match=r"\bZooKeeper\b") as refused:
        manager.delete(found)
    assert refused.value.members == (f"{group}_m",)
    assert committed(manager, group) == {one: 10}
    assert values(registry, group, one) == [None]


def test_what_is_committed_while_a_group_is_deleted_is_seen(
    manager: Manager, unique: Unique, in_kafka: InKafka, one: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that is there again right after its deletion is reported: somebody commits for it."""
    group = unique("again")
    offsets = in_kafka(group, {one: 10})
    found = manager.find(group, None)
    delete = Coordinators.delete

    def then_commit(self: Coordinators, name: str) -> None:
        delete(self, name)
        offsets.commit({one: 11}, 20.0)

    monkeypatch.setattr(Coordinators, "delete", then_commit)
    with pytest.raises(VerificationError, match=rf"\b{group}\b.*\bKafka\b.*\b{one}\b"):
        manager.delete(found)


def test_metadata_is_copied(
    manager: Manager, registry: Registry, unique: Unique, in_kafka: InKafka, one: TopicPartition
) -> None:
    """What a member has put next to its offset goes where the offset goes."""
    group, other = unique("old"), unique("new")
    in_kafka(group).commit({one: 10}, 20.0, {one: "a note"})
    source = manager.find(group, None)
    plan = manager.plan_copy(source, other, is_rename=True)
    manager.copy(plan)
    manager.delete(source)
    (kept,) = manager.find(other, "kafka").kept.values()
    assert (kept.offset, kept.metadata) == (10, "a note")


def test_what_the_other_group_has_elsewhere_is_in_the_way(
    manager: Manager,
    make_group: Build,
    make_topic: Callable[..., str],
    in_kafka: Callable[..., GroupOffsets],
    unique: Callable[[str], str],
) -> None:
    """Offsets in ZooKeeper are not copied next to other ones in Kafka without a word, nor the other way round; equal
    ones, and those of a store that is not meant, are no matter."""
    topic = make_topic(2)
    one, two = P(topic, 0), P(topic, 1)
    source, target = make_group({one: 100, two: 7}), unique("other")
    in_kafka(target, {one: 40, two: 7})
    other = manager.snapshot(target, None)
    rows = manager.plan_copy(manager.find(source, None), target).rows
    assert other.stores == ("kafka",)
    refused = refuse_divergence(other, rows, "choose")
    assert refused is not None
    assert names(refused.message, target, one, "Kafka")
    assert str(two) not in refused.message
    other = manager.snapshot(target, "zookeeper")
    rows = manager.plan_copy(manager.find(source, "zookeeper"), target, store="zookeeper").rows
    assert refuse_divergence(other, rows, "choose") is None
    other = manager.snapshot(source, None)
    rows = manager.plan_copy(manager.find(target, None), source).rows
    refused = refuse_divergence(other, rows, "choose")
    assert refused is not None
    assert names(refused.message, source, one, "ZooKeeper")
