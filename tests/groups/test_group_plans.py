"""Plans of what is done to whole groups: pure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lines import names

from zkgroup.clients.kafka.responses import KafkaOffset
from zkgroup.config.time_arguments import parse_duration
from zkgroup.errors import UsageError, ZkgroupError
from zkgroup.groups.changes.group_plans import plan_copy, plan_delete
from zkgroup.groups.changes.group_tree import GroupTree, TreeNode
from zkgroup.groups.changes.inactive_groups import find_inactive_groups, matching
from zkgroup.groups.group_model import StoredOffset
from zkgroup.protocol.names import TopicPartition as P
from zkgroup.protocol.operations import Stat

DAY = 86_400_000
NOW = 1_000 * DAY


def stored(offset: int | None, error: str | None = None) -> StoredOffset:
    return StoredOffset(offset, 0, 1, 2, 3, error)


def node(path: str, data: bytes = b"", *, age: int = 100 * DAY, owner: int = 0) -> TreeNode:
    return TreeNode(path, data, Stat(1, 1, 0, NOW - age, NOW - age, owner))


def tree(group: str, *nodes: TreeNode, unreadable: tuple[str, ...] = ()) -> GroupTree:
    return GroupTree(group, (node(f"/consumers/{group}"), *nodes), unreadable)


def test_a_copy_says_what_becomes_of_each_partition() -> None:
    """New, already there, replaced, malformed on either side, and none: in order, with a note unless it is new; a note
    names what is replaced, and what is wrong."""
    source = {
        P("t", 10): stored(1), P("t", 2): stored(5), P("t", 1): stored(5), P("t", 3): stored(None, "x is no offset"),
        P("t", 4): stored(None), P("t", 5): stored(9),
    }  # fmt: skip
    target = {P("t", 2): stored(5), P("t", 1): stored(7), P("t", 5): stored(None, "is empty"), P("u", 0): stored(1)}
    rows = plan_copy("zookeeper", source, target)
    assert [(row.partition, row.current, row.target, row.change, row.note is not None) for row in rows] == [
        (1, 7, 5, -2, True),
        (2, 5, 5, 0, True),
        (3, None, None, None, True),
        (4, None, None, None, True),
        (5, None, 9, None, True),
        (10, None, 1, None, False),
    ]
    facts = {1: "7", 3: "x is no offset", 4: "-1", 5: "is empty"}
    assert all(names(row.note or "", facts[row.partition]) for row in rows if row.partition in facts)
    assert [row.partition for row in rows if row.moves] == [1, 5, 10]
    assert [row.partition for row in rows if row.problem == "conflict"] == [1, 5]
    assert [row.partition for row in rows if row.problem == "unreadable"] == [3]


def test_metadata_in_kafka_goes_along() -> None:
    """The metadata of an offset is part of the plan."""
    (row,) = plan_copy("kafka", {P("t", 0): KafkaOffset(5, "mine")}, {})
    assert (row.target, row.metadata, row.note) == (5, "mine", None)


offsets = st.dictionaries(
    st.builds(P, st.sampled_from("ab"), st.integers(0, 3)),
    st.builds(stored, st.none() | st.integers(0, 5)) | st.just(stored(None, "malformed")),
)


@given(offsets, offsets)
def test_a_copy_loses_nothing_without_saying_so(source: dict[P, StoredOffset], target: dict[P, StoredOffset]) -> None:
    """Whatever a write would replace is a conflict; all legible offsets are there afterwards; running it again is
    nothing."""
    rows = plan_copy("zookeeper", source, target)
    after = dict(target)
    for row in rows:
        if row.moves and row.target is not None:
            before = after.get(row.key)
            assert row.problem == "conflict" or before is None or (before.offset is None and before.error is None)
            after[row.key] = stored(row.target)
    legible = {key: one.offset for key, one in source.items() if one.offset is not None}
    assert {key: after[key].offset for key in legible} == legible
    assert {key for key in target if key not in source} <= after.keys()
    assert not [row for row in plan_copy("zookeeper", source, after) if row.moves]


def test_a_deletion_shows_the_offsets_of_both_stores() -> None:
    """ZooKeeper's with their times, malformed ones with what is wrong; Kafka's without times."""
    group = tree(
        "g",
        node("/consumers/g/offsets/t/1", b"7", age=DAY),
        node("/consumers/g/offsets/t/0", b"x"),
        node("/consumers/g/offsets/t/B-1", b"7"),
    )
    rows = plan_delete(group.offsets, {P("t", 0): KafkaOffset(3)})
    assert [(row.store, row.partition, row.current, row.committed_at) for row in rows] == [
        ("zookeeper", 0, None, NOW - 100 * DAY),
        ("zookeeper", 1, 7, NOW - DAY),
        ("kafka", 0, 3, None),
    ]
    assert rows[0].note is not None


def test_foreign_nodes_are_those_that_no_consumer_makes() -> None:
    """What others have put into the group is reported before it goes."""
    paths = ["ids", "owners/t/0", "offsets", "zkgroup/export", "foreign", "foreign/x", "offsetsX"]
    group = tree("g", *(node(f"/consumers/g/{path}") for path in paths))
    assert list(group.foreign) == [f"/consumers/g/{path}" for path in ("foreign", "foreign/x", "offsetsX")]


@pytest.mark.parametrize(
    ("text", "days"),
    [("30d", 30), ("2w", 14), ("36h", 1.5), ("1440m", 1), ("86400 s", 1), ("1d12h", 1.5), ("P1DT12H", 1.5), ("0d", 0)],
)
def test_ages(text: str, days: float) -> None:
    """A number with its unit, as people write it, or an ISO duration."""
    assert parse_duration(text) == days * DAY


@pytest.mark.parametrize("text", ["", "30", "d", "-3d", "3y", "P", "1d 2", "3 moons", "٣d"])
def test_what_is_no_age(text: str) -> None:
    """A usage error, never a guess: too short an age deletes too much."""
    with pytest.raises(UsageError):
        parse_duration(text)


def test_patterns_match_whole_names() -> None:
    """Case counts, nothing is implied at either end, and a group that several patterns mean is there once."""
    names = ["console-consumer-1", "my-console-consumer-1", "Console-consumer-2", "x"]
    assert matching(names, ["console-consumer-*", "*-1", "[xy]"]) == [
        "console-consumer-1",
        "my-console-consumer-1",
        "x",
    ]


def test_only_inactive_groups_go() -> None:
    """Not what has members, nor what a session has, nor what cannot be read, nor what was written lately."""
    old = tree("old", node("/consumers/old/offsets/t/0", b"5"))
    trees = [
        old,
        tree("new", node("/consumers/new/offsets/t/0", b"5", age=3 * DAY)),
        tree("alive", node("/consumers/alive/ids/m", owner=7)),
        tree("stale", node("/consumers/stale/ids/m")),
        tree("held", node("/consumers/held/owners/t/0", owner=7)),
        tree("hidden", unreadable=("/consumers/hidden/ids: not authorised",)),
        GroupTree("gone", ()),
    ]
    rows = find_inactive_groups(trees, NOW, 4 * DAY)
    assert [(row.group, row.action, row.state) for row in rows] == [
        ("old", "delete", "inactive"),
        ("new", "keep", "inactive"),
        ("alive", "keep", "active"),
        ("stale", "keep", "active"),
        ("held", "keep", "active"),
        ("hidden", "keep", "broken"),
    ]
    assert rows[0].last_change == NOW - 100 * DAY
    assert (rows[0].partitions, rows[0].znodes) == (1, 2)
    assert find_inactive_groups([replace(old, unreadable=("x",))], NOW, 0)[0].action == "keep"
    (row,) = find_inactive_groups([old], NOW, 0, in_kafka={"old": ZkgroupError("no answer")})
    assert (row.action, names(row.note or "", "no answer")) == ("keep", True)
    later = tree("later", node("/consumers/later/offsets", age=-5))
    assert find_inactive_groups([later], NOW, 0)[0].action == "delete"
    (row,) = find_inactive_groups([later], NOW, 1)
    assert (row.action, row.note is not None) == ("keep", True)


def test_members_that_came_and_left_count() -> None:
    """Only the transaction reports them: it is as late as the next thing that was written anywhere, and it may have
    been just now where nothing was."""
    ids = replace(node("/consumers/g/ids").stat, pzxid=70)
    group = tree("g", TreeNode("/consumers/g/ids", b"", ids))
    earlier, later = Stat(60, 65, 1, NOW - 9 * DAY, NOW - 8 * DAY, 0), Stat(75, 90, 1, NOW - 5 * DAY, NOW, 0)
    (row,) = find_inactive_groups([group], NOW, 6 * DAY, [earlier, later])
    assert (row.action, row.last_change) == ("keep", NOW - 5 * DAY)
    assert row.note is not None
    assert find_inactive_groups([group], NOW, 5 * DAY, [earlier, later])[0].action == "delete"
    assert find_inactive_groups([group], NOW, 1, [earlier])[0].action == "keep"
    assert find_inactive_groups([group], NOW, 0, [earlier])[0].action == "delete"
    same = Stat(70, 70, 0, NOW - 7 * DAY, NOW - 7 * DAY, 0)
    assert find_inactive_groups([group], NOW, 7 * DAY, [same, later])[0].action == "delete"


@given(st.integers(0, 10 * DAY), st.integers(0, 10 * DAY))
def test_age_is_that_of_the_newest_node(age: int, limit: int) -> None:
    """A group is as old as the last write of any of its nodes."""
    group = tree("g", node("/consumers/g/ids"), node("/consumers/g/offsets", age=age))
    assert (find_inactive_groups([group], NOW, limit)[0].action == "delete") == (age >= limit)
