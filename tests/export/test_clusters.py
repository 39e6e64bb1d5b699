"""A destination that two clusters export to: numbers of the one say nothing of the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cli import run
from exports import root_of
from lines import names

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError
from zkgroup.export.destination.run_log import LOG, TOPICS, Destination, OwnedError
from zkgroup.export.model.run_record import encode_record
from zkgroup.export.planning.export_request import EARLIEST
from zkgroup.export.planning.group_state import GroupState
from zkgroup.export.run.run_export import PartitionSummary
from zkgroup.sandbox.local_cluster import Sandbox

InProcess = Callable[..., list[PartitionSummary]]


def set_cluster(destination: Destination, group: str, cluster: str) -> str:
    """Have a group's only run, and its topics, be of another cluster; which it was of."""
    (entry,) = destination.entries(group)
    record = destination.record(group, entry)
    destination.store.remove_file(f"{LOG}/{group}/{entry.name}")
    destination.append(group, record.run, encode_record(replace(record, cluster=cluster)))
    for topic in record.topics:
        folder = root_of(destination) / TOPICS / topic
        (folder / f"{group}@{record.cluster}").rename(folder / f"{group}@{cluster}")
    return record.cluster


@pytest.mark.parametrize(
    "way", [{}, {"backfill": True, "begin": EARLIEST}, {"on_mismatch": "lake"}, {"on_mismatch": "group"}]
)
@pytest.mark.parametrize("same", [False, True])
def test_a_group_exports_from_one_cluster_to_a_destination(
    in_process: InProcess, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    destination: Destination, way: dict[str, Any], same: bool,
) -> None:  # fmt: skip
    """Also where it exported other topics there; or the same one, whose numbers in both ZooKeepers are alike: offsets
    of the one log were taken for the other one's. To export the log from its start is no remedy."""
    group, topics = unique("group"), [make_topic(), make_topic()]
    for topic in topics:
        fill(topic, 10)
    in_process(group, topics[0], max_messages=4)
    here = set_cluster(destination, group, "elsewhere")
    with pytest.raises(RefusedError, match=rf"{group}\b.*\belsewhere\b.*{here}\b") as raised:
        in_process(group, topics[not same], **way)
    assert "--to" in str(raised.value.remedy)
    assert "earliest" not in str(raised.value.remedy)
    assert "lake" not in str(raised.value.remedy)


def test_offsets_here_say_nothing_of_exports_elsewhere(
    in_process: InProcess, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    cluster: Sandbox, destination: Destination,
) -> None:  # fmt: skip
    """``--verify --group`` compared a group of another cluster, and advised a command that is refused."""
    topic, group = make_topic(), unique("group")
    fill(topic, 10)
    in_process(group, topic)
    set_cluster(destination, group, "elsewhere")
    to = ("-z", cluster.connect, "export", "--to", destination.store.uri, "--verify")
    done = run(*to, "--group", group)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (5, "", 1)
    assert names(done.stderr, group, "elsewhere")
    assert run(*to).returncode == 0


def test_a_topic_of_another_cluster_is_no_other_groups(
    in_process: InProcess, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    destination: Destination,
) -> None:  # fmt: skip
    """Its numbers may be those of the one here; other topics are not in its way. Who takes it over has other names for
    the files of the log here, and exports it from its own start."""
    topic, other = make_topic(), make_topic()
    groups = [unique("group"), unique("group")]
    for name in (topic, other):
        fill(name, 10)
    in_process(groups[0], topic, max_messages=4)
    set_cluster(destination, groups[0], "elsewhere")
    with pytest.raises(OwnedError, match=rf"{topic}\b.*{groups[0]}\b.*\belsewhere\b"):
        in_process(groups[1], topic)
    in_process(groups[1], other)
    (row,) = in_process(groups[1], topic, take_over=groups[0])
    assert (row.start, row.end) == (0, 10)
    assert {parts.tag is None for _, parts in destination.published(topic)} == {True, False}


def test_a_cluster_that_has_got_an_id_is_the_same(
    in_process: InProcess, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    registry: Registry, destination: Destination,
) -> None:  # fmt: skip
    """Brokers write one from 0.10.1 on; before, its birth was its name."""
    topic, group = make_topic(), unique("group")
    fill(topic, 10)
    in_process(group, topic, max_messages=4)
    set_cluster(destination, group, GroupState(registry, group, print).clusters()[-1])
    (row,) = in_process(group, topic)
    assert (row.start, row.end) == (4, 10)
