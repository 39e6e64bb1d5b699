"""Copying and deleting groups in both stores, and what comes in between. Real servers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from group_changes import Manager
from group_nodes import joined
from guarded_changes import Build, Meddler, P, register, values
from lines import names

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.clients.kafka.group_coordinator import Coordinators
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import NotFoundError, RefusedError, UnreachableError, UsageError, VerificationError
from zkgroup.groups.changes.plan import StalePlanError
from zkgroup.groups.changes.preconditions import GroupActiveError
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Create, Delete, Ensure, Exists, SetData


@pytest.fixture
def manager(registry: Registry, kafka: KafkaSettings) -> Manager:
    return Manager(registry, lambda: kafka, 20.0)


def nowhere() -> KafkaSettings:
    return KafkaSettings("127.0.0.1:1")


def test_a_member_that_comes_between_copy_and_deletion(
    registry: Registry, second: Registry, make_group: Build, unique: Callable[[str], str]
) -> None:
    """A rename stops there: the old group is whole, the new one has its copy, nothing is lost."""
    group, other = make_group({P("t", 0): 5}), unique("renamed")
    with Meddler(registry.settings, lambda n: register(second, group) if n == 2 else None) as meddler:
        manager = Manager(meddler, nowhere, 1.0)
        source = manager.find(group, "zookeeper")
        plan = manager.plan_copy(source, other, store="zookeeper")
        manager.copy(plan)
        manager.verify_copy(plan)
        with pytest.raises(GroupActiveError) as refused:
            manager.delete(source)
    assert refused.value.members == (f"{group}_m",)
    assert values(registry, group, P("t", 0)) == values(registry, other, P("t", 0)) == [5]


def test_an_offset_that_moves_after_it_was_copied(
    registry: Registry, second: Registry, make_group: Build, unique: Callable[[str], str]
) -> None:
    """The old group, which knows better, is not deleted; and a copy that somebody moves is found by reading back."""
    group, other = make_group({P("t", 0): 5}), unique("renamed")
    manager = Manager(registry, nowhere, 1.0)
    source = manager.find(group, "zookeeper")
    plan = manager.plan_copy(source, other, store="zookeeper")
    manager.copy(plan)
    second.write(SetData(znodes.offset(group, P("t", 0)), b"6"))
    with pytest.raises(StalePlanError, match=znodes.offset(group, P("t", 0))):
        manager.delete(source)
    assert values(registry, group, P("t", 0)) == [6]
    second.write(SetData(znodes.offset(other, P("t", 0)), b"1"))
    with pytest.raises(VerificationError, match=r"t-0\b.*\bzookeeper\b.*\b1\b.*\b5\b"):
        manager.verify_copy(plan)


def test_the_other_group_changes_after_the_plan(registry: Registry, second: Registry, make_group: Build) -> None:
    """An offset that appears there since is not overwritten."""
    group, other = make_group({P("t", 0): 5, P("t", 1): 6}), make_group()
    manager = Manager(registry, nowhere, 1.0)
    plan = manager.plan_copy(manager.find(group, "zookeeper"), other, store="zookeeper")
    second.write(Ensure(znodes.offset_topic(other, "t")))
    second.write(Create(znodes.offset(other, P("t", 1)), b"9"))
    with pytest.raises(StalePlanError, match=r"t-1\b.*\bnone\b.*\b9\b"):
        manager.copy(plan)
    assert values(registry, other, P("t", 0), P("t", 1)) == [None, 9]


def test_members_in_kafka(
    manager: Manager,
    registry: Registry,
    kafka: KafkaSettings,
    make_group: Build,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
    in_kafka: Callable[..., GroupOffsets],
) -> None:
    """They are named; and where they come after the last snapshot, their coordinator itself refuses the deletion."""
    topic, active = make_topic(1), unique("active")
    offsets = in_kafka(active, {P(topic, 0): 6})
    found = manager.find(active, None)
    assert found.stores == ("kafka",)
    manager.refuse_if_active(found)
    source = make_group()
    in_kafka(source, {P(topic, 0): 7})
    plan = manager.plan_copy(manager.find(source, "kafka"), active)
    with joined(kafka, active, [topic]):
        changes = (lambda: manager.refuse_if_active(found), lambda: manager.delete(found), lambda: manager.copy(plan))
        for change in changes:
            with pytest.raises(GroupActiveError, match=rf"\b{active}\b") as refused:
                change()
            assert [name.startswith("tester") for name in refused.value.members] == [True]
        with pytest.raises(RefusedError, match=rf"\b{active}\b"):
            Coordinators(kafka, 20.0).delete(active)
    assert offsets.fetch([P(topic, 0)], 20.0) == {P(topic, 0): 6}


def test_brokers_that_are_away(
    registry: Registry, make_group: Build, make_topic: Callable[..., str], in_kafka: Callable[..., GroupOffsets]
) -> None:
    """What is in ZooKeeper can be changed without them where it is meant by name, or nothing but that is; who does not
    know that Kafka has the other half must not change one."""
    in_kafka(make_group(), {P(make_topic(1), 0): 1})  # from the first commit on there may be groups in Kafka
    group = make_group({P("t", 0): 5})
    manager = Manager(registry, nowhere, 1.0)
    with pytest.raises(UnreachableError, match=rf"\b{group}\b") as refused:
        manager.find(group, None)
    assert names(str(refused.value.remedy), "--store zookeeper")
    found = manager.find(group, None, partly=True)
    assert found.stores == ("zookeeper",)
    assert [names(str(warning), group) for warning in found.warnings] == [True]
    assert manager.find(group, "zookeeper").stores == ("zookeeper",)
    for store in ("kafka", "both"):
        with pytest.raises(UnreachableError):
            manager.find(group, store)  # type: ignore[arg-type]


def test_groups_that_are_not_there(manager: Manager, make_group: Build, unique: Callable[[str], str]) -> None:
    """Not found, with the store that was read; without ZooKeeper only Kafka can be meant."""
    nobody = unique("nobody")
    with pytest.raises(NotFoundError, match=nobody):
        manager.find(nobody, None)
    with pytest.raises(NotFoundError, match="in Kafka"):
        manager.find(make_group({P("t", 0): 5}), "kafka")
    with pytest.raises(UsageError, match="--zookeeper"):
        Manager(None, nowhere, 1.0).find("g", "zookeeper")


def test_a_lock_that_is_gone_does_not_matter(registry: Registry, second: Registry, make_group: Build) -> None:
    """What a killed export has left behind goes with the group; while its lock lives, nothing goes."""
    group = make_group({P("t", 0): 5})
    second.write(Ensure(znodes.export_state(group)))
    second.write(Create(znodes.export_lock(group), b'{"host": "h9", "pid": 7}', ephemeral=True))
    manager = Manager(registry, nowhere, 1.0)
    found = manager.find(group, "zookeeper")
    with pytest.raises(GroupActiveError, match=r"\bh9\b.*\b7\b") as refused:
        manager.delete(found)
    assert refused.value.exporting
    second.write(Delete(znodes.export_lock(group)))
    manager.delete(manager.find(group, "zookeeper"))
    assert registry.read([Exists(znodes.group(group))]) == [None]
