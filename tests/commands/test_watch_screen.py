"""The screen of ``inspect-group --watch`` and ``--replay``, as a terminal shows it."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cli import run
from group_nodes import Groups, static
from lines import names
from screen import Screen
from timelines import state

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.commands._terminal_text import width
from zkgroup.commands._watch_screen import split_keys, whole
from zkgroup.commands._watch_view import Style, View, frame
from zkgroup.groups.watch.timeline import Event, WatchedFinding, WatchedGroup, WatchedMember, WatchedPartition
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import SetData
from zkgroup.sandbox.local_cluster import Sandbox


@pytest.fixture
def group(groups: Groups, topic: str) -> str:
    """Two members own two of three partitions; nobody has the third."""
    return groups.make(
        {"@_alpha": static({topic: 1}), "@_beta": static({topic: 1})},
        {(topic, 0): "@_alpha-0", (topic, 1): "@_beta-0"},
        {(topic, 0): 9, (topic, 1): 2, (topic, 2): 5},
    )


@pytest.fixture
def opened(cluster: Sandbox, group: str) -> Iterator[Callable[..., Screen]]:
    """``opened(columns=200)`` watches the group on a screen that shows it already."""
    made: list[Screen] = []

    def start(**options: object) -> Screen:
        screen = Screen("inspect-group", group, "-z", cluster.connect, "--watch", "--interval", "0.3", **options)  # type: ignore[arg-type]
        made.append(screen)
        screen.until(lambda text: names(text.partition("EVENTS")[2], group))
        return screen

    yield start
    for screen in made:
        screen.__exit__(None, None, None)


def order(screen: Screen) -> list[str]:
    """The partitions' numbers, from the top."""
    lines = screen.lines
    head = next((number for number, line in enumerate(lines) if line.startswith("TOPIC")), None)
    if head is None:
        return []
    end = lines.index("", head)
    return [line.split()[1] for line in lines[head + 1 : end]]


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (200, 50)])
def test_everything_is_on_the_screen(
    opened: Callable[..., Screen], group: str, topic: str, columns: int, lines: int
) -> None:
    """Members, partitions with owner, offsets and lag, also in time, totals and events are there, at any size, within
    the screen."""
    screen = opened(columns=columns, lines=lines)
    screen.until(lambda text: "lag 14" in text and "BEHIND" in text)
    assert names(screen.lines[0], group, 2, 2, 3, 14)
    row = next(line for line in screen.lines if line.startswith(topic) and "beta-0" in line)
    assert columns == 80 or row.split()[:5] == [topic, "1", "2", "10", "8"]
    assert re.match(r"\d+ (s|min)( \d+ s)?\b", row.split(" 8 ", 1)[1].lstrip()), row
    totals = screen.lines[1]
    assert re.search(r"/s .* \d+ (s|min)( \d+ s)?  .*[ ▁█]+ \w+ 14 \w+ \d+ s$", totals), totals
    assert any(line.startswith("    1    8") and "beta" in line for line in screen.lines)
    assert re.search(r" \d+ s: 1 ", screen.lines[2]), "since when it rebalances, and how many it lacks"
    assert names(screen.lines[-1], "s", "lag", "q")
    screen.press("q")
    assert screen.wait() == 0
    assert screen.is_restored


def test_findings_are_on_the_screen(cluster: Sandbox, registry: Registry, groups: Groups, topic: str) -> None:
    """What is wrong is there while it is, and no longer."""
    group = groups.make({}, {}, {(topic, 0): 99, (topic, 1): 2, (topic, 2): 5})
    with Screen("inspect-group", group, "-z", cluster.connect, "--watch", "--interval", "0.3", columns=200) as screen:
        screen.until(lambda text: f"critical  offset-beyond-end: {topic}-0: " in text)
        registry.write(SetData(znodes.offset(group, TopicPartition(topic, 0)), b"5"))
        screen.until(lambda text: "offset-beyond-end" not in text and "lag 18" in text)
        screen.press("q")
        assert screen.wait() == 0


def test_many_findings_leave_the_partitions_their_room() -> None:
    """The worst are shown, and the others counted, in an eighth of the lines."""
    view = View("g")
    found = tuple(WatchedFinding("warning", f"offset-of-missing-topic: t{number}: …") for number in range(9))
    view.add(replace(state(0, {0: None}), findings=found), [])
    shown = frame(view, 80, 24, Style(colour=False))
    first, second = (number for number, line in enumerate(shown) if "offset-of-missing-topic" in line)
    assert [shown[number].split(":")[1].strip() for number in (first, second)] == ["t0", "t1"]
    assert names(shown[second + 1], 7)


def test_keys_sort_filter_and_pause(opened: Callable[..., Screen], registry: Registry, group: str, topic: str) -> None:
    """Each order, the filter by a text that is typed, and the pause that has the picture still."""
    screen = opened()
    screen.until(lambda text: "lag 14" in text)
    assert order(screen) == ["1", "2", "0"]
    for name, expected in (("name", ["0", "1", "2"]), ("owner", ["2", "0", "1"])):
        screen.press("s")
        screen.until(
            lambda _, name=name, expected=expected: order(screen) == expected and names(screen.lines[-1], "s", name)
        )
    screen.press("s")
    screen.until(lambda _: names(screen.lines[-1], "s", "rate"))
    screen.press("s")
    screen.until(lambda _: order(screen) == ["1", "2", "0"] and names(screen.lines[-1], "s", "lag"))
    screen.press("/betq")
    screen.until(lambda text: "betq_" in screen.lines[-1] and "'betq'" in text)
    screen.press("\x7fa\r")
    screen.until(lambda _: order(screen) == ["1"])
    screen.press("\x1b")
    screen.until(lambda _: len(order(screen)) == 3)
    screen.press("p")
    screen.until(lambda text: "PAUSED" in text)
    registry.write(SetData(znodes.offset(group, TopicPartition(topic, 1)), b"10"))
    assert "lag 14" in screen.until(lambda text: "TOPIC" in text)
    screen.press(" ")
    screen.until(lambda text: "lag 6" in text and "PAUSED" not in text)
    screen.press("\x03")
    assert screen.wait() == 0


def test_a_resize_is_drawn_at_once(opened: Callable[..., Screen]) -> None:
    """After a resize all of the new screen is right, the last line included, without a key or an event."""
    screen = opened(columns=80, lines=24)
    screen.resize(120, 30)
    screen.until(lambda _: names(screen.lines[29], "s", "lag") and "IN/S" in screen.text)
    screen.resize(60, 12)
    screen.until(lambda _: names(screen.lines[11], "s", "lag"))
    assert all(len(line) <= 60 for line in screen.lines)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_signals_leave_the_terminal_as_it_was(opened: Callable[..., Screen], signum: int, code: int) -> None:
    """However it ends, the terminal is its owner's again."""
    screen = opened()
    screen.process.send_signal(signum)
    assert screen.wait() == code
    assert screen.is_restored


def test_stopped_and_continued(opened: Callable[..., Screen]) -> None:
    """Ctrl-Z gives the terminal back to the shell; going on takes it again and draws it whole."""
    # Only a shell's job can be stopped: a session's own leader goes on at once.
    screen = opened(runs='set -m; "$0" "$@"; echo "is stopped"; read -r; fg >/dev/null; echo "left with $?"')
    screen.press("\x1a")
    screen.until(lambda text: "is stopped" in text)
    assert screen.is_restored
    drawn = len(screen.raw)
    screen.press("\r")
    screen.until(lambda _: b"\x1b[?1049h" in screen.raw[drawn:] and "TOPIC" in screen.text)
    screen.press("q")
    screen.until(lambda text: "left with 0" in text)
    assert screen.is_restored


def test_a_terminal_that_goes_away(opened: Callable[..., Screen]) -> None:
    """A terminal that is closed ends the watch: no process stays behind."""
    screen = opened()
    os.close(screen._theirs)
    os.close(screen.master)
    assert screen.process.wait(30) in (0, 1, 129)
    screen._theirs, screen.master = os.open(os.devnull, os.O_RDWR), os.open(os.devnull, os.O_RDWR)


def test_nothing_flickers(opened: Callable[..., Screen]) -> None:
    """The screen is cleared once, at its beginning; frames are drawn over each other, each between the marks that
    hold a terminal's picture still."""
    screen = opened()
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        screen.pump()
    assert screen.raw.count(b"\x1b[2J") == 1
    assert 3 < screen.raw.count(b"\x1b[?2026h") <= 3 + 2 * 10
    assert screen.raw.count(b"\x1b[?2026h") == screen.raw.count(b"\x1b[?2026l")


def test_no_colour(opened: Callable[..., Screen]) -> None:
    """With NO_COLOR nothing is coloured, and the same is there."""
    screen = opened(env={"NO_COLOR": "1"})
    assert b"\x1b[1m" not in screen.raw
    assert b"\x1b[3" not in screen.raw
    coloured = opened()
    assert b"\x1b[31m" in coloured.raw


def test_errors_are_reported_without_a_screen(cluster: Sandbox, unique: Callable[[str], str]) -> None:
    """What prevents a watch is a line, as with any command."""
    group = unique("nobody")
    with Screen("inspect-group", group, "-z", cluster.connect, "--watch") as screen:
        assert screen.wait() == 4
        assert f"'{group}'" in screen.text
        assert b"1049" not in screen.raw


def test_a_recording_is_played_with_keys(cluster: Sandbox, group: str, topic: str, tmp_path: Path) -> None:
    """Step on and back, on to an event, jump; the end is reported, and quitting restores the terminal."""
    path = tmp_path / "r.jsonl"
    from zkgroup.groups.watch.event_detector import EventDetector
    from zkgroup.groups.watch.recording import Header, Recorder

    states = [state(1000 * n, {0: "a@5"}, "a" if n < 7 else "ab", 4) for n in range(10)]
    detector = EventDetector()
    events = detector.detect(states[0])
    with Recorder(path, Header("g", 0, 1.0)) as recorder:
        recorder.add(states[0], events)
        for one in states[1:]:
            events = detector.detect(one)
            recorder.add(one, events)
    with Screen("inspect-group", "--replay", str(path)) as screen:

        def until_state(number: int, *, joined: bool = False) -> None:
            """Until this state is shown; ``joined``: and the event that b has come."""
            screen.until(
                lambda text: (
                    re.search(rf"\b{number} \w+ 10\b", text) is not None
                    and names(text.partition("EVENTS")[2], "b") == joined
                )
            )

        until_state(1)
        screen.press("5")
        until_state(6)
        screen.press("\x1b[D")
        until_state(5)
        screen.press("e")
        until_state(8, joined=True)
        screen.press("\x1b[D")
        until_state(7)
        screen.press("\x1b[C" * 4)
        until_state(10, joined=True)
        screen.press("q")
        assert screen.wait() == 0
        assert screen.is_restored


@pytest.mark.parametrize(("what", "fact"), [({"exists": False}, "gone"), ({"unreadable": 2}, "2")])
def test_a_group_of_which_not_all_is_there(what: dict[str, int], fact: str) -> None:
    """One that is gone, and one with nodes that may not be read, say so in the third line."""
    view = View("g")
    view.add(replace(state(0, {0: None}), **what), [])
    assert names(frame(view, 80, 24, Style(colour=False))[2], fact)


WIDE = "注文-注文-注文-注文-注文-注文-注文"


@pytest.mark.parametrize("columns", [20, 40, 80, 81, 120, 200])
@pytest.mark.parametrize("lines", [6, 24, 60])
def test_no_line_is_wider_than_the_screen(columns: int, lines: int) -> None:
    """Wide characters, long names, control characters, large numbers, many partitions: each line fits, and there are
    as many as the screen has."""
    view = View("g")
    hostile = ["\x1b[31mred", "a\nb", "x" * 300, WIDE]
    partitions = {
        TopicPartition(name, n): WatchedPartition(f"g_{name}-0", f"g_{name}", 5, True, 2**62, 0, 2**62 + n, 1)
        for name in hostile
        for n in range(30)
    }
    members = {f"g_{name}": WatchedMember(name) for name in hostile}
    for at in range(3):
        view.add(
            WatchedGroup(at * 1000, "g", members, partitions, zookeeper="gone " * 50),
            [Event(at * 1000, "member-joined", name) for name in hostile],
        )
    view.filter, view.note = WIDE[:2] if lines == 60 else "", "n" * 300
    for view.typing in (False, True):
        shown = frame(view, columns, lines, Style(colour=False))
        assert len(shown) == lines
        assert max(map(width, shown)) <= columns
        assert not any("\x1b" in line or "\n" in line for line in shown)


def many(name: str, count: int) -> View:
    """A view of a group with so many partitions and four members, and some events."""
    view = View(name)
    members = {f"{name}_{n}": WatchedMember("orders:1") for n in range(4)}
    partitions = {
        TopicPartition("orders", n): WatchedPartition(f"{name}_{n % 4}-0", f"{name}_{n % 4}", 5, True, 0, 0, n, 1)
        for n in range(count)
    }
    for at in range(5):
        view.add(WatchedGroup(at * 1000, name, members, partitions), [Event(at * 1000, "watching", "watching")])
    return view


def partitions_of(shown: list[str]) -> list[int]:
    """The numbers of the partitions that are shown."""
    return [int(line.split()[1]) for line in shown if line.startswith("orders ")]


@pytest.mark.parametrize(("columns", "lines"), [(80, 8), (80, 12), (80, 24), (200, 24), (200, 50)])
@pytest.mark.parametrize("count", [1, 7, 8, 9, 40, 1000])
def test_partitions_that_have_no_line_are_counted(columns: int, lines: int, count: int) -> None:
    """On no screen a row is missing without a word: those above and below are reported, with the keys that show them,
    and PgDn from the first to the last passes over none."""
    view = many("g", count)
    seen: list[int] = []
    while True:
        shown = frame(view, columns, lines, Style(colour=False))
        rows = partitions_of(shown)
        above = view.scroll
        below = count - above - len(rows)
        (message,) = [line for line in shown if line.startswith("… ") and "/" in line] or [""]
        assert rows
        if not above and not below:
            assert message == ""
        else:
            assert re.findall(r"\d+", message) == [str(count) for count in (above, below) if count]
        assert not set(range(count)) - set(rows) or message
        seen += [row for row in rows if row not in seen]
        if not below:
            break
        view.press("page-down")
    assert seen == list(range(count))[::-1], "most lag first"


@pytest.mark.parametrize("columns", [80, 200])
def test_a_long_name_leaves_the_numbers_their_room(columns: int) -> None:
    """A group's name of 300 characters is cut, and takes no second line; members, lag and the time are there."""
    shown = frame(many("n" * 300, 40), columns, 24, Style(colour=False))
    assert shown[0].startswith("n" * 12)
    assert re.search(r"n…  4 \w+  40 \w+ 40 \w+ \w+  lag 780  00:00:04Z$", shown[0])
    assert max(map(width, shown)) <= columns
    assert partitions_of(shown)


def test_the_last_column_is_not_erased() -> None:
    """Behind a line that fills the width nothing is erased: the cursor is still on its last character. Wide
    characters and colours are counted as what they take."""
    assert whole("x" * 80, 80) == "x" * 80
    assert whole("\x1b[7m" + "漢" * 40 + "\x1b[0m", 80).endswith("漢\x1b[0m")
    assert whole("\x1b[1mx\x1b[0m", 80).endswith("\x1b[K")


def test_an_error_leaves_the_terminal_as_it_was(cluster: Sandbox, group: str, tmp_path: Path) -> None:
    """What ends a watch from within is reported on the terminal that was there before."""
    path = tmp_path / "r.jsonl"
    record = ["--interval", "0.2", "--record", str(path)]
    with Screen(
        "inspect-group", group, "-z", cluster.connect, "--watch", *record, runs='ulimit -f 2; exec "$0" "$@"'
    ) as screen:
        assert screen.wait(60) == 1
        assert screen.is_restored
        assert str(path).encode() in screen.raw[screen.raw.rindex(b"\x1b[?1049l") :]


def test_keys_of_terminals() -> None:
    """What terminals send for keys; sequences that mean nothing here are no text."""
    assert list(split_keys("q\x1b[A\x1b[5~\x1bOH\x1b[1;5Cx\x1b[200~é\x1b")) == [
        "q", "up", "page-up", "home", "x", "é", "escape",
    ]  # fmt: skip


def test_dumb_terminals_get_lines(cluster: Sandbox, group: str) -> None:
    """Where nothing can be drawn, a line for each event it is."""
    with Screen("inspect-group", group, "-z", cluster.connect, "--watch", env={"TERM": "dumb"}) as screen:
        screen.until(lambda text: "watching" in text)
        assert b"\x1b[" not in screen.raw
        screen.process.send_signal(signal.SIGTERM)
        assert screen.wait() == 143


def test_options_that_mean_nothing_together(tmp_path: Path) -> None:
    """Wrong usage is reported before anything is asked."""
    for given in (
        ["--watch"], ["g", "--watch", "--verify"], ["g", "--watch", "--all"], ["g", "--interval", "1"],
        ["g", "--record", "f"], ["g", "--picture", "f"], ["g", "--watch", "--replay", "f"], ["g", "--replay", "f"],
        ["--replay", str(tmp_path / "nothing")],
    ):  # fmt: skip
        result = run("inspect-group", *given)
        assert (result.returncode, result.stdout) == (2, ""), given
        assert result.stderr.count("\n") == 1
