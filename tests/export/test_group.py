"""The group's side: what may be exported, the lock, and a commit that never writes over anybody."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support import wait_until
from tcp_proxy import TcpProxy

from zkgroup.errors import MalformedZnodeError, NotFoundError, RefusedError
from zkgroup.export.group import ExportGroup
from zkgroup.export.plan import ExportPlan, make_plan
from zkgroup.protocol import znodes
from zkgroup.protocol.filters import TopicFilter
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import Children, Create, Ensure, Exists, Failure, SetData
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.servers.kafka import KafkaSettings
from zkgroup.servers.registry import Registry
from zkgroup.servers.zookeeper import ZooKeeperSettings

Commit = Callable[[str, dict[TopicPartition, int]], None]
Committed = Callable[..., int | None]


@pytest.fixture
def group(registry: Registry, unique: Callable[[str], str]) -> ExportGroup:
    """A group that nobody knows yet."""
    return ExportGroup(registry, unique("group"), lambda _: None)


def plan_for(group: ExportGroup, kafka: KafkaSettings, *topics: str) -> ExportPlan:
    """What an export of these topics would do now."""
    return make_plan(
        group.group, group.facts(group.select_topics(topics, None), kafka, 10), begin="earliest", skip_lost=True
    )


def test_topics_are_those_named_or_matched_or_with_offsets(
    group: ExportGroup, make_topic: Callable[..., str], commit: Commit
) -> None:
    """Named and filtered topics need no offsets; without either, the group's offsets tell, and dead topics warn."""
    told: list[str] = []
    group = ExportGroup(group._registry, group.group, told.append)
    one, two = make_topic(2), make_topic(1)
    with pytest.raises(NotFoundError, match="has no committed offsets"):
        group.select_topics([], None)
    assert group.select_topics([one], None) == {one: (0, 1)}
    assert group.select_topics([], TopicFilter("white_list", f"{one}|{two}")) == {one: (0, 1), two: (0,)}
    commit(group.group, {TopicPartition(two, 0): 0, TopicPartition("dead", 0): 3})
    assert group.select_topics([], None) == {two: (0,)}
    assert told == [f"group {group.group} has offsets of topic dead, which does not exist: it is left out"]
    with pytest.raises(NotFoundError, match="no topic nowhere"):
        group.select_topics([one, "nowhere"], None)
    with pytest.raises(NotFoundError, match="no topic matches"):
        group.select_topics([], TopicFilter("white_list", "nothing.*"))


def test_a_live_group_is_refused_by_the_names_of_its_members(group: ExportGroup, registry: Registry) -> None:
    """Members commit for themselves: an export beside them would be undone, or undo them."""
    group.refuse_if_live()
    registry.write(Ensure(znodes.ids(group.group)))
    member = f"{group.group}_host-1"
    path = znodes.member_id(group.group, member)
    registry.write(Create(path, b"{}", ephemeral=True))
    with pytest.raises(RefusedError, match=f"is live: {member} consumes"):
        group.refuse_if_live()


def test_an_offset_that_is_no_number_stops_the_export(
    group: ExportGroup, registry: Registry, kafka: KafkaSettings, make_topic: Callable[..., str]
) -> None:
    """Nobody guesses where a group with a broken offset stands: the node is named."""
    topic = make_topic()
    path = znodes.offset(group.group, TopicPartition(topic, 0))
    registry.write(Ensure(path))
    registry.write(SetData(path, b"here"))
    with pytest.raises(MalformedZnodeError, match=path):
        plan_for(group, kafka, topic)


def test_two_exports_of_a_group_do_not_overlap(
    group: ExportGroup, cluster: Sandbox, unique: Callable[[str], str]
) -> None:
    """The second one is refused after it has waited out a session, and names who holds the lock."""
    settings = ZooKeeperSettings(cluster.connect, session_timeout=1.0)
    told: list[str] = []
    with group.lock("one"), Registry(settings) as other:
        second = ExportGroup(other, group.group, told.append)
        with (
            pytest.raises(RefusedError, match=r"another export of group .* \(host .*, process \d+\)"),
            second.lock("two"),
        ):
            pytest.fail("locked twice")
        with ExportGroup(other, unique("group"), told.append).lock("three"):
            pass  # another group's export is not in the way
    assert len(told) == 1


def test_a_lock_whose_holder_died_is_waited_out(group: ExportGroup, cluster: Sandbox) -> None:
    """The lock goes with its session: the next export takes it over by itself."""
    settings = ZooKeeperSettings(cluster.connect, session_timeout=3.0)
    holder = Registry(settings).__enter__()
    path = znodes.export_lock(group.group)
    holder.write(Ensure(znodes.export_state(group.group)))
    holder.write(Create(path, b"not json", ephemeral=True))
    with Registry(settings) as other:
        second = ExportGroup(other, group.group, lambda _: threading.Thread(target=holder.close).start())
        with second.lock("two"):
            (stat,) = other.read([Exists(path)])
            assert stat.owner == other.session_id  # type: ignore[union-attr]


def test_the_lock_leaves_nothing_behind(group: ExportGroup, registry: Registry) -> None:
    """A group that existed only for the lock is gone after it; one with offsets keeps them and nothing else."""
    with group.lock("one"):
        assert registry.read([Exists(znodes.export_lock(group.group))])[0] is not None
    assert registry.read([Exists(znodes.group(group.group))])[0] is None
    registry.write(Ensure(znodes.offsets(group.group)))
    with group.lock("two"):
        pass
    assert registry.read([Children(znodes.group(group.group))]) == [("offsets",)]


def test_a_commit_moves_and_creates_offsets(
    group: ExportGroup, kafka: KafkaSettings, make_topic: Callable[..., str], fill: Callable, commit: Commit,
    committed: Committed,
) -> None:  # fmt: skip
    """Offsets that exist are moved, missing ones made; what does not move is not written at all."""
    topic = make_topic(3)
    fill(topic, 30, 3)
    commit(group.group, {TopicPartition(topic, 0): 4, TopicPartition(topic, 2): 10})
    plan = plan_for(group, kafka, topic)
    versions = [partition.version for partition in plan.partitions]
    group.commit(plan)
    assert [committed(group.group, topic, number) for number in range(3)] == [10, 10, 10]
    assert group.committed(plan) == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    assert [p.version for p in plan_for(group, kafka, topic).partitions] == [versions[0] + 1, 0, versions[2]]


@pytest.mark.parametrize("existed", [True, False])
def test_a_foreign_commit_refuses_ours_as_a_whole(
    group: ExportGroup, kafka: KafkaSettings, make_topic: Callable[..., str], fill: Callable, commit: Commit,
    committed: Committed, existed: bool,
) -> None:  # fmt: skip
    """One offset that somebody moved or made since the plan, and nothing is written: theirs stays."""
    topic = make_topic(2)
    fill(topic, 20, 2)
    if existed:
        commit(group.group, {TopicPartition(topic, 0): 1, TopicPartition(topic, 1): 1})
    plan = plan_for(group, kafka, topic)
    commit(group.group, {TopicPartition(topic, 1): 7})
    for attempt in (group.refuse_if_moved, group.commit):
        with pytest.raises(RefusedError, match=f"offset of {topic}-1 was moved.*it is 7"):
            attempt(plan)
    assert committed(group.group, topic, 1) == 7
    assert committed(group.group, topic, 0) == (1 if existed else None)
    assert group.committed(plan) == set()


def test_a_foreign_commit_of_the_same_value_is_noticed(
    group: ExportGroup, kafka: KafkaSettings, make_topic: Callable[..., str], fill: Callable, commit: Commit
) -> None:
    """Versions are compared, not values: a group set back and forth is not the group of the plan."""
    topic = make_topic()
    fill(topic, 10)
    commit(group.group, {TopicPartition(topic, 0): 3})
    plan = plan_for(group, kafka, topic)
    commit(group.group, {TopicPartition(topic, 0): 3})
    with pytest.raises(RefusedError, match="was moved"):
        group.commit(plan)


def test_a_large_group_is_committed_in_pieces(
    group: ExportGroup, kafka: KafkaSettings, unique: Callable[[str], str], committed: Committed, registry: Registry
) -> None:
    """ZooKeeper drops the connection above 1 MiB a request: five thousand partitions with long names still commit."""
    from zkgroup.export.plan import PartitionPlan

    topic = unique("long") + "x" * 200
    plan = ExportPlan(
        group.group,
        tuple(PartitionPlan(TopicPartition(topic, i), None, None, 0, 5) for i in range(5000)),
        (),
    )
    group.commit(plan)
    assert len(group.committed(plan)) == 5000
    assert committed(group.group, topic, 4999) == 5


@pytest.fixture
def through_proxy(cluster: Sandbox) -> Iterator[tuple[TcpProxy, Registry]]:
    """A registry whose connection a test can cut."""
    hosts, _, chroot = cluster.connect.partition("/")
    with TcpProxy(hosts) as proxy:
        settings = ZooKeeperSettings(f"{proxy.address}/{chroot}", session_timeout=2.0, connect_timeout=3.0)
        with Registry(settings) as registry:
            yield proxy, registry


@pytest.mark.parametrize("held", ["requests", "replies"])
def test_a_commit_whose_answer_is_lost_is_found_out(
    through_proxy: tuple[TcpProxy, Registry], kafka: KafkaSettings, make_topic: Callable[..., str], fill: Callable,
    unique: Callable[[str], str], commit: Commit, committed: Committed, held: str,
) -> None:  # fmt: skip
    """The connection dies under the commit: whether it was applied is looked up, and it is done exactly once."""
    proxy, registry = through_proxy
    topic = make_topic()
    fill(topic, 10)
    group = ExportGroup(registry, unique("group"), lambda _: None)
    commit(group.group, {TopicPartition(topic, 0): 2})
    plan = plan_for(group, kafka, topic)
    proxy.stall(held)
    with ThreadPoolExecutor(1) as pool:
        commit_under_way = pool.submit(group.commit, plan)
        if held == "replies":
            wait_until(lambda: committed(group.group, topic) == 10, what="the commit is applied, unseen by its author")
        proxy.cut()
        proxy.heal()
        commit_under_way.result(60)
    assert committed(group.group, topic) == 10
    (again,) = plan_for(group, kafka, topic).partitions
    assert again.version == (plan.partitions[0].version or 0) + 1


def test_unreadable_zookeeper_is_no_empty_group(group: ExportGroup) -> None:
    """A node that cannot be read is an error, and is not taken for a node that is not there."""
    from zkgroup.errors import ZkgroupError
    from zkgroup.export import group as module
    from zkgroup.protocol.ops import Code

    for code in Code:
        if code is Code.NO_NODE:
            assert module._names(Failure(code)) == ()
            assert module._committed("/x", Failure(code)) == (None, None)
        else:
            with pytest.raises(ZkgroupError):
                module._names(Failure(code))
            with pytest.raises(ZkgroupError):
                module._committed("/x", Failure(code))
