"""Where exports begin and end, as they are asked to: by times, by offsets, by files; and what is said of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from lines import names

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.errors import RefusedError, UsageError
from zkgroup.export.planning.export_request import EARLIEST, LATEST, Bound, parse_bound, refuse_backwards
from zkgroup.export.run.run_export import PartitionSummary
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.topic_admin import ProducerRecord, produce

Export = Callable[..., list[PartitionSummary]]
Committed = Callable[..., int | None]
NOON = 1_600_000_000_000


@pytest.fixture
def export(in_process: Export) -> Export:
    """One export without Spark."""
    return in_process


def test_times_and_offsets_bound_an_export(
    export: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    committed: Committed, tmp_path: Path,
) -> None:  # fmt: skip
    """From the first message of a time to the first of another; an offset file and offsets by name; a partition that is
    not named is left where it is."""
    topic = make_topic(2)
    produce(kafka, topic, [ProducerRecord(b"%d" % i, None, i % 2, NOON + i * 1000) for i in range(40)])
    at_ten, at_thirty = (Bound("time", NOON + second * 1000) for second in (10, 30))
    group = unique("times")
    rows = export(group, topic, begin=at_ten, until=at_thirty)
    assert [(row.start, row.end) for row in rows] == [(5, 15), (5, 15)]
    rows = export(group, topic, until=Bound("time", NOON + 10**9))
    assert [(row.start, row.end) for row in rows] == [(15, 20), (15, 20)]

    group = unique("named")
    named = partial(export, group, topic, root=tmp_path / "named")
    rows = named(begin=parse_bound(f"{topic}:0=3,{topic}:1=4", group, "--from"), max_messages=2)
    assert [(row.start, row.end) for row in rows] == [(3, 4), (4, 5)]
    rows = named(until=parse_bound(f"{topic}:1=7", group, "--until"))
    assert [(row.start, row.end) for row in rows] == [(4, 4), (5, 7)]
    with pytest.raises(RefusedError, match=rf"{topic}-0\b.*\b4\b.*--from.*\b9\b"):
        named(begin=parse_bound(f"{topic}:0=9", group, "--from"))

    path = tmp_path / "checkpoint"
    path.write_text("".join(f"/consumers/other/offsets/{topic}/{p}:{10 + p}\n" for p in range(2)))
    group = unique("file")
    rows = export(group, topic, root=tmp_path / "third", begin=parse_bound(str(path), group, "--from"))
    assert [(row.start, row.end) for row in rows] == [(10, 20), (11, 20)]


def test_what_an_end_does_not_name_is_started(
    export: Export, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    committed: Committed,
) -> None:  # fmt: skip
    """Also by a file that is older than a partition; and an end that the log has not. The next export goes on with all
    of them, from where the first had to begin: none is new to it."""
    topic, group, warnings = make_topic(3), unique("group"), list[str]()
    fill(topic, 30, 3)
    rows = export(group, topic, begin=EARLIEST, until=parse_bound(f"{topic}:0=99", group, "--until"))
    assert [(row.start, row.end) for row in rows] == [(0, 10), (0, 0), (0, 0)]
    assert [committed(group, topic, number) for number in range(3)] == [10, 0, 0]
    fill(topic, 3, 3)
    assert [(row.start, row.end) for row in export(group, topic, on_warning=warnings.append)] == [
        (10, 11),
        (0, 11),
        (0, 11),
    ]
    assert warnings == []
    begin, until = (parse_bound(f"{topic}:{number}=5", group, "--until") for number in (1, 0))
    assert export(group, topic, backfill=True, begin=begin, until=until) == []


def test_a_file_of_others_is_refused_without_options_that_are_not_there(tmp_path: Path) -> None:
    """A file of several groups needs the group's name; that of a single group is taken as it is."""
    path = tmp_path / "two"
    path.write_text("/consumers/a/offsets/t/0:5\n/consumers/b/offsets/t/0:6\n")
    assert parse_bound(str(path), "b", "--from").offsets == {TopicPartition("t", 0): 6}
    with pytest.raises(UsageError, match=r"\ba, b\b.*\bc\b"):
        parse_bound(str(path), "c", "--from")


def test_places_are_read_in_any_case() -> None:
    assert [parse_bound(text, "g", "--from") for text in ("Earliest", "LATEST", "End")] == [EARLIEST, LATEST, LATEST]
    with pytest.raises(UsageError, match=r"^--until 'Earliest' "):
        parse_bound("Earliest", "g", "--until")


@pytest.mark.parametrize("option", ["--from", "--until"])
@pytest.mark.parametrize("text", ["", "nowhere", "@noon", "@2020-13-01", "t:0=1,t:0=2", "t:0", "-1"])
def test_bounds_that_mean_nothing_are_refused(text: str, option: str) -> None:
    """With the ways to write one, in words that are right for this option."""
    with pytest.raises(UsageError, match=f"^{option} ") as raised:
        parse_bound(text, "group", option)
    assert "start" not in str(raised.value)
    assert option == "--from" or "earliest" not in str(raised.value)
    assert not text.startswith("@") or names(raised.value.message, option, repr(text), repr(text[1:]))


@pytest.mark.parametrize(
    ("begin", "until"),
    [(Bound("time", NOON + 1), Bound("time", NOON)), [parse_bound(f"t:0={n}", "g", "--from") for n in (8, 7)]],
)
def test_an_end_before_the_beginning_is_refused(begin: Bound, until: Bound) -> None:
    """It would leave a group without offsets where it begins, and export nothing."""
    refuse_backwards(until, begin)
    with pytest.raises(UsageError, match=r"--from\b.*--until"):
        refuse_backwards(begin, until)


def test_a_file_of_another_cluster_is_refused(in_process: Export, forty: tuple[str, str], tmp_path: Path) -> None:
    """Its offsets mean other messages there."""
    topic, group = forty
    path = tmp_path / "offsets.json"
    path.write_text(json.dumps({"groupid": group, "offsets": {topic: {"0": 5}}, "cluster_id": "elsewhere"}))
    with pytest.raises(RefusedError, match=r"offsets\.json\b.*\belsewhere\b"):
        in_process(group, topic, begin=parse_bound(str(path), group, "--from"))
