"""``zkgroup migrate-group`` on real servers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli import run
from group_nodes import Groups, commit_in_kafka, joined, static, tree
from lines import names
from migrate_answers import Migrate

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError
from zkgroup.groups.changes.applier import Applier
from zkgroup.groups.changes.migration import plan_migration
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Get, Node

Unique = Callable[[str], str]


def test_offsets_go_to_kafka_and_are_verified(
    migrate: Migrate, registry: Registry, groups: Groups, topic: str, tmp_path: Path
) -> None:
    """The plan changes nothing; --execute writes, leaves ZooKeeper as it is and says how long Kafka keeps them; then
    --verify is content, and a second run has nothing to do."""
    group = groups.make({}, {}, {(topic, 0): 4, (topic, 1): 10, (topic, 2): 0})
    before = tree(registry, f"/consumers/{group}")
    rows = migrate.rows(group)
    assert [(row["partition"], row["source"], row["current"], row["target"]) for row in rows] == [
        *((0, 4, None, 4), (1, 10, None, 10), (2, 0, None, 0))
    ]
    assert migrate.in_kafka(group, topic) == [None] * 3
    result = migrate(group, "--verify")
    assert (result.returncode, names(result.stderr, group, f"{topic}-0", 4)) == (6, True)
    result = migrate(group, "--execute")
    assert (result.returncode, names(result.stderr, 3, group)) == (0, True)
    assert names(result.stderr, 24, "offsets.retention.minutes=1440"), "the default of 1.1.1"
    assert migrate.in_kafka(group, topic) == [4, 10, 0]
    assert tree(registry, f"/consumers/{group}") == before
    assert migrate(group, "--verify").returncode == 0
    unneeded = tmp_path / "backup"
    assert (migrate(group, "--execute", "--backup", str(unneeded)).returncode, unneeded.exists()) == (0, False)


def test_an_active_group_is_refused(migrate: Migrate, kafka: KafkaSettings, groups: Groups, topic: str) -> None:
    """Members in ZooKeeper or in Kafka: exit 5 with their names, and nothing is written. Comparing is allowed."""
    group = groups.make({"@_busy": static({topic: 1})}, {}, {(topic, 0): 4})
    result = migrate(group, "--execute")
    assert (result.returncode, names(result.stderr, f"{group}_busy")) == (5, True)
    assert migrate.in_kafka(group, topic) == [None] * 3
    assert migrate(group, "--verify").returncode == 6
    planned = migrate(group)
    assert (planned.returncode, names(planned.stderr, "--execute", f"{group}_busy")) == (0, True)
    other = groups.make({}, {}, {(topic, 0): 4})
    with joined(kafka, other, [topic]):
        result = migrate(other, "--execute")
    assert (result.returncode, "tester" in result.stderr) == (5, True)
    assert migrate.in_kafka(other, topic) == [None] * 3


def test_the_way_back_is_refused_while_kafka_has_members(
    migrate: Migrate, kafka: KafkaSettings, registry: Registry, groups: Groups, topic: str
) -> None:
    """To ZooKeeper, too: what members in Kafka go on committing there would be older in ZooKeeper at once."""
    group = groups.make({}, {}, {(topic, 0): 4})
    with joined(kafka, group, [topic]) as member:
        member.commit(TopicPartition(topic, 0), 7)
        result = migrate(group, "--prefer", "source", "--execute", to="zookeeper")
        assert (result.returncode, "tester" in result.stderr) == (5, True)
        planned = migrate(group, "--prefer", "source", to="zookeeper")
        assert (planned.returncode, "tester" in planned.stderr) == (0, True)
    assert in_zookeeper(registry, group, topic) == b"4"
    assert migrate(group, "--prefer", "source", "--execute", to="zookeeper").returncode == 0


def in_zookeeper(registry: Registry, group: str, topic: str) -> bytes:
    (node,) = registry.read([Get(znodes.offset(group, TopicPartition(topic, 0)))])
    assert isinstance(node, Node)
    return node.data


def test_an_offset_in_kafka_that_moves_on_is_not_taken_back_to_zookeeper(
    kafka: KafkaSettings, registry: Registry, groups: Groups, topic: str
) -> None:
    """Between plan and write: what was planned is older than what the group has consumed by now."""
    group = groups.make({}, {}, {(topic, 0): 4})
    commit_in_kafka(kafka, group, {TopicPartition(topic, 0): 5})
    applier = Applier(registry, lambda: kafka, 20.0)
    plan = plan_migration(applier, group, "zookeeper").plan
    applier.check(plan)
    commit_in_kafka(kafka, group, {TopicPartition(topic, 0): 6})
    with pytest.raises(RefusedError) as refused:
        applier.write(plan)
    assert names(str(refused.value), f"{topic}-0", 5, 6)
    assert in_zookeeper(registry, group, topic) == b"4"


def test_where_kafka_is_ahead_somebody_decides(migrate: Migrate, groups: Groups, topic: str) -> None:
    """An offset of a later day is not set back, nor kept, without a word."""
    group = groups.make({}, {}, {(topic, p): 5 for p in range(3)})
    commit_in_kafka(migrate.kafka, group, {TopicPartition(topic, 1): 8, TopicPartition(topic, 2): 2})
    result = migrate(group, "--execute")
    refusal = result.stderr.splitlines()[-1]
    assert (result.returncode, names(refusal, f"{topic}-1", "--prefer larger", "--prefer source")) == (5, True)
    assert f"{topic}-2" not in refusal
    assert migrate.in_kafka(group, topic) == [None, 8, 2]
    assert migrate(group, "--prefer", "larger", "--execute").returncode == 0
    assert migrate.in_kafka(group, topic) == [5, 8, 5]
    assert migrate(group, "--prefer", "source", "--execute").returncode == 0
    assert migrate.in_kafka(group, topic) == [5, 5, 5]


def test_offsets_outside_their_log_and_of_topics_that_are_gone(
    migrate: Migrate, registry: Registry, groups: Groups, unique: Unique, topic: str
) -> None:
    """The nearer end, with a note; what does not exist is left behind, with a warning; unreadable ones stop it all."""
    gone = unique("gone")
    group = groups.make({}, {}, {(topic, 0): 99, (topic, 1): 3, (gone, 0): 7})
    result = migrate(group, "--execute")
    assert result.returncode == 0
    assert names(result.stderr, f"{gone}-0", gone)
    assert names(result.stdout.splitlines()[1], 99, 10)
    assert migrate.in_kafka(group, topic) == [10, 3, None]
    bad = groups.make({}, {}, {(topic, 0): 1, (topic, 1): b"x"})
    result = migrate(bad, "--execute")
    assert (result.returncode, names(result.stderr, f"{topic}-1", "zookeeper")) == (1, True)
    assert migrate.in_kafka(bad, topic) == [None] * 3
    name = unique("nosuch")
    nosuch = migrate(name)
    assert (nosuch.returncode, names(nosuch.stderr, name, "ZooKeeper")) == (4, True)
    assert migrate(groups.make({}, {}, {(gone, 0): 7})).returncode == 4


@pytest.mark.parametrize("take", [(), ("--prefer", "larger")])
def test_an_offset_outside_its_log_takes_no_good_one_s_place(
    migrate: Migrate, groups: Groups, topic: str, take: tuple[str, ...]
) -> None:
    """What Kafka's members have yet to read would be skipped: only who says so has the end of the log instead."""
    group = groups.make({}, {}, {(topic, 0): 99, (topic, 1): 3})
    commit_in_kafka(migrate.kafka, group, {TopicPartition(topic, 0): 4})
    result = migrate(group, *take, "--execute")
    assert (result.returncode, names(result.stderr, f"{topic}-0", "ZooKeeper", "Kafka", "--prefer source")) == (5, True)
    assert migrate.in_kafka(group, topic) == [4, None, None]
    assert migrate(group, "--prefer", "source", "--execute").returncode == 0
    assert migrate.in_kafka(group, topic) == [10, 3, None]


def test_back_to_zookeeper_and_the_backup(migrate: Migrate, groups: Groups, topic: str, tmp_path: Path) -> None:
    """The way back is the same; the backup puts back what the store had."""
    group = groups.make({}, {}, {(topic, 0): 2, (topic, 1): 3})
    commit_in_kafka(migrate.kafka, group, {TopicPartition(topic, p): 6 + p for p in range(3)})
    backup = tmp_path / "backup.json"
    assert migrate(group, "--execute", "--backup", str(backup), to="zookeeper").returncode == 0
    assert [row["current"] for row in migrate.rows(group, to="zookeeper")] == [6, 7, 8]
    result = run("reset-offsets", group, "--undo", str(backup), "--execute", "-z", migrate.connect)
    assert result.returncode == 0, result.stderr
    assert [row["current"] for row in migrate.rows(group, to="zookeeper")] == [2, 3, None]


def test_options_that_contradict_each_other(migrate: Migrate) -> None:
    """Exit 2, before anything is asked."""
    assert migrate("g", "--verify", "--execute").returncode == 2
    assert migrate("g", "--verify", "--prefer", "larger").returncode == 2
    assert run("migrate-group", "g", "-z", migrate.connect).returncode == 2


def test_many_groups_go_to_kafka(migrate: Migrate, groups: Groups, topic: str, unique: Unique) -> None:
    """Those that a pattern matches and that have offsets in ZooKeeper, each by itself; one that is refused stays."""
    stem = unique("many")
    idle, other = (groups.make({}, {}, {(topic, 0): 4}, name=f"{stem}-{name}") for name in ("idle", "other"))
    busy = groups.make({"@_busy": static({topic: 1})}, {}, {(topic, 0): 5}, name=f"{stem}-busy")
    groups.make({}, {}, {}, name=f"{stem}-empty")
    result = run("migrate-group", "--pattern", f"{stem}-*", "--to", "kafka", "--execute", "-z", migrate.connect)
    rows = [line.split()[:2] for line in result.stdout.splitlines()[1:]]
    assert rows == [[busy, "refused"], [idle, "ready"], [other, "ready"]]
    assert names(result.stderr, busy, idle, other, f"{topic}-0", "--undo")
    assert (result.returncode, names(result.stderr, 1, 3, busy, f"{busy}_busy")) == (5, True)
    assert names(result.stderr, 1, f"{stem}-empty")
    assert (migrate.in_kafka(idle, topic), migrate.in_kafka(busy, topic)) == ([4, None, None], [None] * 3)


def test_many_groups_of_which_some_are_ahead(migrate: Migrate, groups: Groups, topic: str, unique: Unique) -> None:
    """A group that was never moved, and is ahead in Kafka, is refused; equal offsets are done. The plan has the
    warnings and notes that the plan of one group has, and a plan that is refused is not called empty."""
    stem, gone = unique("many"), unique("gone")
    ahead = groups.make({}, {}, {(topic, 0): 0}, name=f"{stem}-ahead")
    equal = groups.make({}, {}, {(topic, 0): 4}, name=f"{stem}-equal")
    outside = groups.make({}, {}, {(topic, 0): 99, (topic, 1): 3, (gone, 0): 7}, name=f"{stem}-outside")
    commit_in_kafka(migrate.kafka, ahead, {TopicPartition(topic, 0): 7})
    commit_in_kafka(migrate.kafka, equal, {TopicPartition(topic, 0): 4})

    def many(pattern: str, *options: str) -> tuple[int, list[list[str]], str]:
        """The exit code, each group with its state, and the other lines."""
        done = run("migrate-group", "--pattern", pattern, "--to", "kafka", *options, "-z", migrate.connect)
        return done.returncode, [line.split()[:2] for line in done.stdout.splitlines()[1:]], done.stderr

    code, states, stderr = many(f"{stem}-*")
    assert (code, states) == (0, [[ahead, "refused"], [outside, "ready"], [equal, "done"]])
    assert names(stderr, "--execute", 1, 3, ahead, "Kafka", "ZooKeeper", f"{topic}-0", "--prefer larger")
    for facts in ((f"{gone}-0", gone), (f"{topic}-0", 99), (f"{topic}-0..1", "--undo")):
        assert sum(names(line, outside, *facts) for line in stderr.splitlines()) == 1, (facts, stderr)
    code, _, stderr = many(ahead)
    assert (code, names(stderr, "--execute", 1, 1, ahead)) == (0, True)
    assert names(stderr.splitlines()[-1], ahead), "and no line after it that there is nothing to do"
    code, states, stderr = many(f"{stem}-*", "--execute")
    assert (code, names(stderr, 1, 3, ahead)) == (5, True)
    assert (migrate.in_kafka(ahead, topic), migrate.in_kafka(outside, topic)) == ([7, None, None], [10, 3, None])
    code, states, _ = many(f"{stem}-*", "--execute", "--prefer", "larger")
    assert (code, states) == (0, [[ahead, "done"], [equal, "done"], [outside, "done"]])
