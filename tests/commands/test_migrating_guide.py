"""The guide that docs/how-to/migrating.md gives, followed block by block on real servers."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli import ZKGROUP, environment, run
from group_nodes import commit_in_kafka, joined
from lines import names
from migrate_answers import Migrate
from support import numbered, wait_until

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import produce

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "migrating.md"
Unique = Callable[[str], str]


def block(mark: str, **replacements: str) -> str:
    """The commands of the guide below ``<!-- MARK -->``, with these names for those of the guide."""
    text = GUIDE.read_text(encoding="utf-8")
    (found,) = re.findall(rf"<!-- {mark} -->\n```bash\n(.*?)```\n", text, re.DOTALL)
    known = r"compare-old|compare-new|billing-new|billing(?=\s)|orders"
    return re.sub(known, lambda name: replacements[name[0].replace("-", "_")], found)


def typed(commands: str, folder: Path, cluster: Sandbox) -> subprocess.CompletedProcess[str]:
    """Commands in bash, where ``zkgroup`` is ours and knows its cluster; it ends with the first that fails."""
    path = f"{Path(ZKGROUP).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env=environment({"PATH": path, "ZKGROUP_ZOOKEEPER": cluster.connect}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def shell(commands: str, folder: Path, cluster: Sandbox) -> str:
    """What they print; every command must succeed."""
    done = typed(commands, folder, cluster)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Guide:
    """Follows the guide for one group, block by block. All that it has must have been followed in the end."""

    def __init__(self, chapter: str, folder: Path, cluster: Sandbox, **replacements: str) -> None:
        self._marks = re.findall(rf"<!-- ({chapter}: \w+) -->", GUIDE.read_text(encoding="utf-8"))
        self._chapter = chapter
        self._replacements = replacements
        self._folder = folder
        self._cluster = cluster
        self.followed: set[str] = set()

    def __call__(self, step: str) -> str:
        """A step that succeeds at once; what it prints."""
        self.followed.add(f"{self._chapter}: {step}")
        return shell(block(f"{self._chapter}: {step}", **self._replacements), self._folder, self._cluster)

    def until(self, step: str, seen: Callable[[str], bool]) -> str:
        """A step that is typed again until it succeeds and shows what the guide says that it will."""
        self.followed.add(f"{self._chapter}: {step}")
        commands = block(f"{self._chapter}: {step}", **self._replacements)
        last: list[str] = []

        def again() -> bool:
            done = typed(commands, self._folder, self._cluster)
            last[:] = [done.stdout]
            return done.returncode == 0 and seen(done.stdout)

        wait_until(again, 60, f"{self._chapter}: {step}")
        return last[0]

    def left(self) -> set[str]:
        """What was not followed."""
        return set(self._marks) - self.followed


def test_the_guide_for_consumers_that_may_stop(
    migrate: Migrate, cluster: Sandbox, registry: Registry, unique: Unique, topic: str, tmp_path: Path
) -> None:
    """A Scala member in ZooKeeper, then one of Kafka's own groups: each message is read once. There is a way back, and
    what is left in ZooKeeper goes while the new member is active."""
    group = unique("guide")
    guide = Guide("stopped", tmp_path, cluster, billing=group)
    with cluster.member(group, topic, name="old", from_beginning=True) as old:
        wait_until(lambda: len(old.consumed()) == 30, 60, "the old member reads everything")
        assert f"{group}_old" in guide("1")
    guide.until("1", lambda shown: len(shown.splitlines()) == 1)
    assert group not in guide("2")
    assert migrate.in_kafka(group, topic) == [None] * 3, "a plan"
    guide("3")
    produce(migrate.kafka, topic, numbered(3, 3, 30))
    with joined(migrate.kafka, group, [topic]):
        shown = guide.until("4", lambda shown: "tester" in shown)
        found = zip(*(column(shown, topic, name) for name in ("partition", "committed", "lag")), strict=True)
        assert list(found) == [(str(n), "10", "1") for n in range(3)]
    wait_until(lambda: group_is_empty(migrate, group), 30, "the new member is gone")
    commit_in_kafka(migrate.kafka, group, {TopicPartition(topic, 0): 11})
    guide("back")
    assert [row["source"] for row in migrate.rows(group)] == [11, 10, 10], "the new members' offsets"
    with joined(migrate.kafka, group, [topic]):
        guide("5")
    (left,) = registry.read([Children(znodes.group(group))])
    assert not isinstance(left, tuple)
    assert migrate.in_kafka(group, topic) == [11, 10, 10]
    assert guide.left() == set()


def test_the_old_way_and_the_new_side_by_side(
    migrate: Migrate, cluster: Sandbox, registry: Registry, unique: Unique, topic: str, tmp_path: Path
) -> None:
    """Both kinds of member print the same messages and commit the same offsets, each in its own store; a group that
    moves from one to the other reads each message once."""
    replacements = {
        "compare_old": unique("old"),
        "compare_new": unique("new"),
        "orders": topic,
        "billing": unique("billing"),
    }
    shown = shell(block("side by side", **replacements), tmp_path, cluster)
    assert "the same messages" in shown
    assert len((tmp_path / "old.txt").read_text().splitlines()) == 30
    rows = [line.split()[1:3] for line in shown.splitlines() if line.startswith(topic)]
    assert rows[:6] == [["0", "10"], ["1", "10"], ["2", "10"]] * 2, "offsets in ZooKeeper, then in Kafka"
    (left,) = registry.read([Children(znodes.group(replacements["compare_old"]))])
    assert not isinstance(left, tuple)
    assert migrate.in_kafka(replacements["compare_new"], topic) == [None] * 3
    shell(block("one that moves", **replacements), tmp_path, cluster)
    assert sorted((tmp_path / "billing.txt").read_text().split()) == [f"m{n:06d}" for n in range(30)]
    assert migrate.in_kafka(replacements["billing"], topic) == [10, 10, 10]


def column(shown: str, topic: str, name: str) -> list[str]:
    """A column of the table of offsets: those before ``behind``, which has blanks, have none."""
    lines = [line.split() for line in shown.splitlines()]
    (place,) = (line.index(name) for line in lines if line[:2] == ["topic", "partition"] and name in line)
    return [line[place] for line in lines if line[:1] == [topic] and len(line) > place]


def group_is_empty(migrate: Migrate, group: str) -> bool:
    result = run("list-groups", "--output", "json", "-z", migrate.connect)
    return any(row["group"] == group and row["members"] == 0 for row in json.loads(result.stdout))


@pytest.mark.long  # six Scala members
def test_the_guide_for_consumers_that_must_not_stop(
    migrate: Migrate,
    cluster: Sandbox,
    registry: Registry,
    unique: Unique,
    make_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    """Two Scala members, rolled one by one to dual commits and then to Kafka alone, under traffic, then a newer client:
    nothing is missing, and each step shows what the guide says that it shows."""
    group, topic, beside = unique("rolled"), make_topic(2), unique("beside")
    guide = Guide("rolled", tmp_path, cluster, billing=group, billing_new=beside)
    dual, alone = properties_of_the_guide()
    sent = 0
    everything: list[Any] = []

    def traffic() -> None:
        nonlocal sent
        produce(migrate.kafka, topic, numbered(10, 2, sent))
        sent += 10

    def all_read() -> bool:
        values = {record.value for member in everything for record in member.consumed()}
        return values == {b"m%06d" % number for number in range(sent)}

    def start(name: str, properties: dict[str, str]) -> Any:
        member = cluster.member(group, topic, name=name, from_beginning=True, properties=properties)
        everything.append(member)
        return member.start()

    def rows(shown: str) -> list[list[str]]:
        return [line.split() for line in shown.splitlines() if line.startswith(f"{topic} ")]

    members = [start("a", {}), start("b", {})]
    traffic()
    wait_until(all_read, 60, "the old way")
    guide.until("1", lambda shown: len(rows(shown)) == 4)
    assert (tmp_path / "before.txt").exists()
    for step, properties in (("2", dual), ("4", alone)):
        for index, name in enumerate("ab"):
            members[index].stop()
            new = f"{name}-{step}"
            members[index] = start(new, properties)
            traffic()
            wait_until(all_read, 60, "read while it is rolled")
            guide.until(step, lambda shown: f"{group}_{new}" in shown and len(rows(shown)) > 2)  # noqa: B023
        if properties is dual:
            guide.until("3", lambda shown: True)
    before = [row["current"] for row in migrate.rows(group, to="zookeeper")]
    traffic()
    done = str(sent // 2)
    wait_until(all_read, 60, "read from Kafka's offsets")
    shown = guide.until("4", lambda shown: column(shown, topic, "committed_kafka") == [done, done])
    assert [row["current"] for row in migrate.rows(group, to="zookeeper")] == before, "ZooKeeper's stand still"
    guide("copy")
    assert migrate.in_kafka(beside, topic, 2) == [sent // 2] * 2
    for member in members:
        member.stop()
    guide.until("5", lambda shown: len(shown.splitlines()) == 1)
    assert migrate.in_kafka(group, topic, 2) == [sent // 2, sent // 2]
    result = migrate(group, "--execute")
    ahead = names(result.stderr, f"{topic}-0..1", "--prefer larger", "--prefer source")
    assert (result.returncode, ahead) == (5, True), result.stderr
    with joined(migrate.kafka, group, [topic]):
        shown = guide.until("6", lambda shown: "tester" in shown)
        assert [row[2] for row in rows(shown)[-2:]] == [done, done]
        guide("7")
    (left,) = registry.read([Children(znodes.group(group))])
    assert not isinstance(left, tuple)
    assert migrate.in_kafka(group, topic, 2) == [sent // 2, sent // 2]
    assert guide.left() == set()


def properties_of_the_guide() -> list[dict[str, str]]:
    """What members are given while they are rolled, in the order of the guide."""
    chapter = GUIDE.read_text(encoding="utf-8").partition("## Consumers that must not stop")[2]
    blocks = re.findall(r"```properties\n(.*?)```", chapter, re.DOTALL)
    return [dict(line.split("=") for line in text.splitlines()) for text in blocks]
