"""Damaged lakes with folders of times: a file's range is not its contents, since what lies between may be in others."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Sequence

import pytest
from exports import abort, offsets, problems, published_in, root_of
from resets import drop_messages

from zkgroup.errors import RefusedError
from zkgroup.export.checks.advice import remedy_for
from zkgroup.export.checks.verify import VerifyRow, verify
from zkgroup.export.lake.lake import Lake
from zkgroup.export.model.layout import LayoutWish
from zkgroup.export.planning.bounds import Bound
from zkgroup.export.runs.run import PartitionSummary
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.topics import Record, produce
from zkgroup.servers.kafka import KafkaSettings

Export = Callable[..., list[PartitionSummary]]
Make = Callable[..., str]
Unique = Callable[[str], str]
DAYS = LayoutWish(("date",), None, None, None)
NOON, DAY = 1_714_564_800_000, 86_400_000
FIRST, SECOND = "date=2024-05-01", "date=2024-05-02"


@pytest.fixture
def send(kafka: KafkaSettings) -> Callable[..., None]:
    """``send(topic, days, partitions)``: a message for each of these days, to each partition."""

    def write(topic: str, days: Sequence[int], partitions: int = 1) -> None:
        records = [Record(b"m", None, number, NOON + day * DAY) for day in days for number in range(partitions)]
        produce(kafka, topic, records)

    return write


@pytest.fixture
def follow(in_process: Export, lake: Lake) -> Callable[[], list[str]]:
    """``follow()`` does what ``--verify`` advises until it finds nothing, and tells what that was."""

    def do(words: list[str]) -> str:
        told = {name: words[words.index(name) + 1] for name in ("--group", "--from", "--until") if name in words}
        if "--adopt" in words:
            try:
                in_process(told["--group"], adopt=True)
            except RefusedError:
                return "adopt, refused"
            return "adopt"
        edges: list[Bound] = []
        for name in ("--from", "--until"):
            places = re.findall(r"([^:,]+):(\d+)=(\d+)", told[name])
            edges.append(Bound("offsets", offsets={TopicPartition(t, int(p)): int(o) for t, p, o in places}))
        topics = words[words.index("--until") + 2 :]
        in_process(told["--group"], *topics, backfill=True, begin=edges[0], until=edges[1])
        return " ".join(f"{low}-{high}" for low, high in zip(*(e.offsets.values() for e in edges), strict=True))

    def run() -> list[str]:
        done: list[str] = []
        for _ in range(4):
            if not (found := [row for row in verify(lake) if row.problem is not None]):
                return done
            told = re.findall(r"'(zkgroup [^']*)'", remedy_for(found, lake.store.destination))
            done += [do(shlex.split(one)) for one in told if "--backfill" in one or "--adopt" in one]
        raise AssertionError((done, problems(lake)))

    return run


def lose(lake: Lake, what: str) -> None:
    """The files whose names have this in them."""
    for name in published_in(root_of(lake)):
        if what in name:
            (root_of(lake) / name).unlink()


def lose_run(lake: Lake, group: str, place: int) -> None:
    shutil.rmtree(root_of(lake) / lake.folder(group, lake.runs(group)[place]))


@pytest.fixture
def without_a_day(
    in_process: Export, make_topic: Make, unique: Unique, lake: Lake, send: Callable[..., None]
) -> tuple[str, str]:
    """Ten messages of two days in turn, and five more; the first day's file of the ten was lost."""
    topic, group = make_topic(), unique("group")
    send(topic, [0, 1] * 5)
    in_process(group, topic, layout=DAYS)
    send(topic, [0] * 5)
    in_process(group, topic)
    lose(lake, f"{FIRST}/0.0-9")
    return topic, group


@pytest.fixture
def written_again(without_a_day: tuple[str, str], lake: Lake, follow: Callable[[], list[str]]) -> tuple[str, str]:
    """That file was written again, and then the run was lost that had written both."""
    topic, group = without_a_day
    assert follow() == ["0-9"]
    lose_run(lake, group, 0)
    return topic, group


def test_what_retention_took_of_one_folder_is_not_what_others_hold(
    without_a_day: tuple[str, str],
    in_process: Export,
    lake: Lake,
    kafka: KafkaSettings,
    follow: Callable[[], list[str]],
) -> None:
    """What was lost of a missing file was recorded, as a range: no file that lies about it was adopted any more."""
    topic, group = without_a_day
    drop_messages(kafka, TopicPartition(topic, 0), 4)
    in_process(group, topic, backfill=True, until=Bound("latest"), begin=Bound("earliest"), skip_lost=True)
    lose_run(lake, group, 0)
    assert follow() == ["adopt"]
    assert offsets(lake) == [offset for offset in range(15) if offset not in (0, 2)]
    assert verify(lake) == [VerifyRow(topic, 0, 0, 15, 13, 0, 2, 3, None)]


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_file_that_was_written_again_tells_which_offsets_it_holds(
    in_process: Export, make_topic: Make, unique: Unique, lake: Lake, send: Callable[..., None],
    follow: Callable[[], list[str]], partitions: int,
) -> None:  # fmt: skip
    """Not its first and its last one alone: a backfill of the others was advised, and wrote nothing, for ever."""
    topic, group = make_topic(partitions), unique("group")
    send(topic, [1, 0, 1, 1], partitions)
    in_process(group, topic, layout=DAYS)
    lose(lake, SECOND)
    follow()
    lose_run(lake, group, 0)
    assert follow() == ["adopt"]
    assert offsets(lake) == sorted([*range(4)] * partitions)
    rows = [VerifyRow(topic, number, 0, 4, 4, 0, 0, 2, None) for number in range(partitions)]
    assert verify(lake) == rows


def test_a_file_between_whose_messages_are_those_of_another_is_adopted(
    written_again: tuple[str, str], lake: Lake, follow: Callable[[], list[str]]
) -> None:
    """It was said to hold what runs account for that do not name it."""
    topic, _ = written_again
    assert follow() == ["adopt"]
    assert offsets(lake) == list(range(15))
    assert verify(lake) == [VerifyRow(topic, 0, 0, 15, 15, 0, 0, 3, None)]


def test_what_an_adopted_file_does_not_hold_is_missed_again(
    written_again: tuple[str, str], lake: Lake, follow: Callable[[], list[str]]
) -> None:
    """What lay between its messages was in the files of a run that is lost now."""
    _, group = written_again
    follow()
    lose_run(lake, group, 1)
    lose(lake, f"{FIRST}/0.0-9")
    assert follow() == ["0-9"]
    assert offsets(lake) == list(range(15))
    assert [row.problem for row in verify(lake)] == [None]


@pytest.mark.parametrize("days", [(SECOND,), (FIRST,), (FIRST, SECOND)])
def test_what_lay_between_the_messages_of_other_files_is_filled(
    in_process: Export, written_again: tuple[str, str], lake: Lake, follow: Callable[[], list[str]],
    days: tuple[str, ...],
) -> None:  # fmt: skip
    """The backfill took a file's range for its contents, and wrote nothing, each time that it was advised."""
    topic, group = written_again
    for day in days:
        lose(lake, f"{day}/0.{1 * (day == SECOND)}-")
    advised = {(SECOND,): ["1-10"], (FIRST,): ["adopt, refused", "0-9", "adopt"], (FIRST, SECOND): ["0-10", "1-8"]}[
        days
    ]
    assert follow() == advised
    assert offsets(lake) == list(range(15))
    (row,) = verify(lake)
    assert (row.start, row.end, row.rows, row.gaps, row.skipped, row.problem) == (0, 15, 15, 0, 0, None)
    everything = {"backfill": True, "begin": Bound("earliest"), "until": Bound("latest")}
    assert in_process(group, topic, **everything) == []


def test_what_is_missing_between_is_told_in_one_row(written_again: tuple[str, str], lake: Lake) -> None:
    """However many pieces it falls into."""
    lose(lake, SECOND)
    ((start, end, why),) = problems(lake)
    assert (start, end) == (1, 10)
    assert why.startswith("5 offsets among these in no run, though the last manifest of group")


def test_what_is_missing_between_is_filled_beside_files_of_several_ranges(
    in_process: Export, make_topic: Make, unique: Unique, lake: Lake, send: Callable[..., None],
    follow: Callable[[], list[str]],
) -> None:  # fmt: skip
    """The backfill that was advised was refused: it would write twice what it was not to write."""
    topic, group = make_topic(2), unique("group")
    send(topic, [0, 1, 0, 0, 1, 2, 0, 1], 2)
    in_process(group, topic, layout=DAYS)
    lose(lake, FIRST)
    follow()
    lose_run(lake, group, 0)
    lose(lake, SECOND)
    follow()
    assert offsets(lake) == sorted(2 * [*range(8)])
    assert [(row.rows, row.gaps, row.files, row.problem) for row in verify(lake)] == [(8, 0, 3, None)] * 2


@pytest.mark.parametrize("skips", [False, True])
def test_markers_between_are_accounted_for_by_a_backfill(
    in_process: Export, make_topic: Make, unique: Unique, lake: Lake, send: Callable[..., None], kafka: KafkaSettings,
    follow: Callable[[], list[str]], skips: bool,
) -> None:  # fmt: skip
    """Then nothing is unknown of the files about them, and they are adopted without ``--skip-lost``; with it that is
    recorded, and what lies elsewhere is not."""
    topic, group = make_topic(), unique("group")
    send(topic, [0, 1] * 3)
    abort(kafka, topic, 2)
    send(topic, [1, 0, 1])
    in_process(group, topic, layout=DAYS)
    lose(lake, FIRST)
    follow()
    lose_run(lake, group, 0)
    whole = offsets(lake)
    if skips:
        in_process(group, adopt=True, skip_lost=True)
    assert follow() == ([] if skips else ["adopt, refused", "6-9", "adopt"])
    assert offsets(lake) == whole == [*range(6), *range(9, 12)]
    assert verify(lake) == [VerifyRow(topic, 0, 0, 12, 9, 0 if skips else 3, 3 if skips else 0, 2, None)]
