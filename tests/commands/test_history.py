"""``inspect-group --history``: of a file of snapshots, without any server."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli import run, run_on_terminal
from group_nodes import Groups
from lines import names

from zkgroup.commands._history import history_lines
from zkgroup.commands._terminal_text import width
from zkgroup.groups.group_model import GroupPartition, GroupSnapshot, StoredOffset
from zkgroup.groups.monitoring.lag_history import HistoryPoint, LagHistory
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.local_cluster import Sandbox

#: A port where nothing listens.
NOWHERE = "127.0.0.1:1"
BEGIN = 1_714_521_600_000  # 2024-05-01T00:00:00Z
HOUR = 3_600_000
HOSTILE = "<b>&\"'\x1b[31m\u202e"


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Two days of two topics, a snapshot an hour: 3600 messages an hour, of which ``slow`` reads half."""
    path = tmp_path / "history.sqlite3"
    with LagHistory(path) as kept:
        for group in ("billing", HOSTILE):
            for hour in range(48):
                partitions = tuple(
                    GroupPartition(
                        topic, 0, stored=StoredOffset(hour * read, 0, 0, 0, hour), log_start=0, log_end=hour * 3600
                    )
                    for topic, read in (("fast", 3600), ("slow", 1800))
                )
                taken_at = BEGIN + hour * HOUR
                kept.keep(NOWHERE, [GroupSnapshot(group, (), partitions, frozenset(), taken_at=taken_at)])
    return path


def test_the_rows(history: Path) -> None:
    """A row for each snapshot, in every format for programs; --topic keeps one topic."""
    args = ("inspect-group", "billing", "--history", "--history-file", str(history), "-z", NOWHERE)
    rows = json.loads(run(*args, "--output", "json").stdout)
    assert len(rows) == 48
    assert rows[2] == {
        "taken_at": "2024-05-01T02:00:00.000Z", "partitions": 2, "lag": 3600, "lag_at_least": 3600, "lag_unknown": 0,
        "produced": 2.0, "consumed": 1.5, "commits": 2,
    }  # fmt: skip
    (first, *_) = csv.DictReader(io.StringIO(run(*args, "--topic", "slow", "--output", "csv").stdout))
    assert (first["partitions"], first["produced"], first["commits"]) == ("1", "", "")
    assert run(*args, "--output", "wide").stdout.splitlines()[0].split()[:2] == ["taken_at", "partitions"]
    assert run(*args, "--store", "kafka").returncode == 4


def test_the_picture_on_a_terminal_and_as_svg(history: Path, tmp_path: Path) -> None:
    """Panels with their scales above a line of times, within the terminal's width; SVG with the same."""
    chart = tmp_path / "lag.svg"
    args = ("inspect-group", "billing", "--history", "--history-file", str(history), "-z", NOWHERE)
    code, shown = run_on_terminal(*args, "--picture", str(chart), env={"COLUMNS": "80", "LINES": "30"})
    assert code == 0
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).split("\r\n")
    assert names(lines[0], "billing", "2024-05-01 00:00", "2024-05-02 23:00", 48)
    assert names(lines[2], "lag", 84600, 84600, "2024-05-02 23:00")
    assert lines[3].startswith("  100k │")
    assert lines[7].startswith("     0 │▁▁")
    assert lines[7].endswith("█")
    assert any(names(line, "produced", 2) for line in lines)
    assert any(line.split() == ["05-01", "12:00", "05-02", "12:00", "UTC"] for line in lines), lines
    assert max(map(width, lines[:-2])) == 80
    assert names(lines[-2], "zkgroup", chart)
    root = ElementTree.parse(chart).getroot()
    assert any(names(text.text or "", "billing") for text in root.findall(".//{*}text"))


def test_a_name_is_shown_and_not_obeyed(history: Path, tmp_path: Path) -> None:
    """Control characters are escapes, on the terminal and in the picture."""
    chart = tmp_path / "lag.svg"
    done = run(
        "inspect-group", HOSTILE, "--history", "--history-file", str(history), "-z", NOWHERE, "--picture", str(chart)
    )
    assert done.stdout.splitlines()[0].startswith("<b>&\"'\\x1b[31m\\u202e  2024-05-01")
    title = ElementTree.parse(chart).getroot().find("{*}title")
    assert title is not None
    assert "<b>&\"'\\u001b[31m\\u202e" in (title.text or "")


@pytest.mark.parametrize("columns", [20, 80, 200])
def test_lines_of_any_width(columns: int) -> None:
    """No line of bars is wider than the terminal; a gap is blank."""
    points = [HistoryPoint(at * HOUR, 1, None if at == 5 else at, 0, 1.0, 1e9, 1) for at in (*range(9), 60, 61)]
    lines = ["".join(text for text, _ in line) for line in history_lines(points, "g", columns)]
    bars = [line for line in lines if line[7:8] in ("│", "|", "└", "+")]
    assert len(bars) == 5 + 3 + 3 + 2 + 1
    assert all(width(line) <= max(28, columns) for line in bars)
    assert re.search(r"[^ ] {5,}[^ ]", bars[4][8:]), "fifty hours without a snapshot"


def test_offsets_that_went_back_are_said() -> None:
    """How often, and when the last time was."""
    points = [HistoryPoint(at * HOUR, 1, 9, 0, set_back=(TopicPartition("t", 0),) * (at > 1)) for at in range(6)]
    *_, last = history_lines(points, "g", 80)
    assert names(last[0][0], 1, "1970-01-01 05:00")


def test_what_has_no_history(history: Path, tmp_path: Path) -> None:
    """One line: which file, group and cluster, and how to record it, however like another's its name is. Nothing is
    created."""
    args = ("--history", "-z", NOWHERE, "--history-file")
    done = run("inspect-group", "biling", *args, str(history))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (4, "", 1)
    assert names(done.stderr, history, "biling", NOWHERE, f"zkgroup -z {NOWHERE} inspect-group biling --check")
    assert "billing" not in done.stderr
    nothing = tmp_path / "none.sqlite3"
    done = run("inspect-group", "other", *args, str(nothing))
    assert done.returncode == 4
    assert names(done.stderr, nothing, f"zkgroup -z {NOWHERE} inspect-group other --check")
    assert not nothing.exists()
    done = run("inspect-group", "g", "--history", "--history-file", str(history), "--bootstrap-server", "b:2,a:1")
    assert (done.returncode, names(done.stderr, history, "g", "a:1,b:2")) == (4, True)


@pytest.mark.parametrize("more", [["--check"], ["--watch"], ["--all"], ["--section", "members"], ["--verify"]])
def test_what_a_history_does_not_go_with(more: list[str]) -> None:
    """Options about the group as it is now are wrong usage."""
    assert run("inspect-group", "g", "--history", *more, "-z", NOWHERE).returncode == (3 if "--check" in more else 2)


@pytest.mark.parametrize("more", [[], ["--output", "json"], ["--metrics", "-"]])
@pytest.mark.parametrize("every", [False, True])
def test_a_check_with_a_damaged_history_says_what_to_move_away(
    every: bool, more: list[str], cluster: Sandbox, groups: Groups, tmp_path: Path
) -> None:
    """One line with the file and the remedy, and no verdict that passes for one; a new file is made then."""
    group = groups.make({}, {}, {("gone", 0): 1})
    path = tmp_path / "history.sqlite3"
    path.write_text("no history, " * 99)
    words = ("--all" if every else group, "--check", *more, "--history-file", str(path), "-z", cluster.connect)
    done = run("inspect-group", *words)
    assert (done.returncode, done.stdout.count("\n")) == (3, 1)
    assert names(done.stdout, "ZKGROUP UNKNOWN", path)
    path.rename(tmp_path / "away")
    assert str(path) not in run("inspect-group", *words).stdout
    assert path.exists()
