"""``zkgroup sandbox demo``: what it checks, what it shows, and that it leaves nothing behind."""

from __future__ import annotations

import contextlib
import io
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cli import ZKGROUP, environment, run
from hypothesis import given
from hypothesis import strategies as st
from lines import names
from support import wait_until

from zkgroup.commands._demo import Narrator, check_reading, export_defects, parse_printed
from zkgroup.protocol.names import TopicPartition

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)
RANGES = {ONE: (0, 5), TWO: (2, 4)}
ALL = [(ONE, offset) for offset in range(5)] + [(TWO, offset) for offset in range(2, 4)]


@dataclass(frozen=True)
class Counts:
    rows: int
    offsets: int
    first: int
    last: int


EXACT = {ONE: Counts(5, 5, 0, 4), TWO: Counts(2, 2, 2, 3)}


# What it checks


@given(st.lists(st.sampled_from([*ALL, (ONE, 5), (TWO, 0), (TopicPartition("x", 0), 0)]), max_size=20))
def test_reading_is_checked_message_by_message(printed: list[tuple[TopicPartition, int]]) -> None:
    """Missing, repeated and unheard of messages are counted as reading each message would."""
    missing = sum(1 for one in ALL if one not in printed)
    repeated = sum(1 for one in set(printed) if printed.count(one) > 1)
    foreign = sum(1 for one in set(printed) if one not in ALL)
    assert check_reading(RANGES, printed) == (missing, repeated, foreign)


def test_printed_lines_are_understood() -> None:
    """Topic, partition, offset, then whatever key and value hold, tabs included."""
    lines = [b"orders\t0\t17\tkey\tva\tlue", b"my.topic\t11\t0\t\t\xff"]
    assert parse_printed(lines) == [(ONE, 17), (TopicPartition("my.topic", 11), 0)]


def test_an_exact_export_has_no_defects() -> None:
    """Partitions without messages are not expected to be there."""
    assert export_defects({**RANGES, TopicPartition("empty", 0): (7, 7)}, EXACT) == []


@pytest.mark.parametrize(
    ("found", "facts"),
    [
        ({ONE: EXACT[ONE]}, ("orders-1", None, (2, 2, 2, 3))),
        ({**EXACT, TopicPartition("x", 0): Counts(1, 1, 0, 0)}, ("x-0", (1, 1, 0, 0), None)),
        ({**EXACT, ONE: Counts(6, 5, 0, 4)}, ("orders-0", (6, 5, 0, 4), (5, 5, 0, 4))),
        ({**EXACT, ONE: Counts(4, 4, 0, 4)}, ("orders-0", (4, 4, 0, 4), (5, 5, 0, 4))),
        ({**EXACT, TWO: Counts(2, 2, 1, 2)}, ("orders-1", (2, 2, 1, 2), (2, 2, 2, 3))),
    ],
)
def test_every_defect_of_an_export_is_found(found: Mapping[TopicPartition, Counts], facts: tuple[object, ...]) -> None:
    """Each alone, by its partition."""
    assert [names(defect, *facts) for defect in export_defects(RANGES, found)] == [True]


@given(st.sampled_from([ONE, TWO]), st.sampled_from(["rows", "offsets", "first", "last"]), st.sampled_from([-1, 1]))
def test_any_other_count_is_a_defect(partition: TopicPartition, name: str, by: int) -> None:
    """No number of the four may differ."""
    changed = replace(EXACT[partition], **{name: getattr(EXACT[partition], name) + by})
    assert export_defects(RANGES, {**EXACT, partition: changed})


# What it shows


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def narrate(stream: io.StringIO) -> str:
    narrator = Narrator(stream)
    narrator.title("A title")
    narrator.step("A step")
    narrator.say("Plain words, enough of them to be broken into two lines on a narrow terminal of 60 columns.")
    narrator.command("zkgroup -c sandbox consume --group shop --whitelist 'orders|payments' > file.txt &")
    narrator.output("a  b\n1  " + "x" * 100 + "\n")
    narrator.check("It is so.")
    narrator.failed("It is not so.")
    return stream.getvalue()


def test_a_pipe_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """No escape sequences, no trailing blanks, and tables whole; the same whatever the terminal is like."""
    monkeypatch.setenv("COLUMNS", "60")
    text = narrate(io.StringIO())
    assert text == (
        "A title\n\n1. A step\n"
        "   Plain words, enough of them to be broken into two lines on a narrow terminal of 60 columns.\n"
        "   $ zkgroup -c sandbox consume --group shop --whitelist 'orders|payments' > file.txt &\n"
        "   a  b\n   1  " + "x" * 100 + "\n   ✓ It is so.\n   ✗ It is not so.\n"
    )


def test_a_terminal_gets_lines_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words are wrapped, tables cut, commands whole; NO_COLOR leaves out the colours."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = narrate(Terminal())
    assert "\x1b[1;36m" in shown
    monkeypatch.setenv("NO_COLOR", "1")
    shown = narrate(Terminal())
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", shown)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert max(len(line) for line in lines if "$" not in line) <= 60
    assert "   1  " + "x" * 53 + "…" in lines
    assert "   $ zkgroup -c sandbox consume --group shop --whitelist 'orders|payments' > file.txt &" in lines


# The whole of it


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A state folder of its own."""
    return tmp_path / "state"


@dataclass
class DemoProcess:
    """A demo on its way."""

    process: subprocess.Popen[str]
    home: Path
    shown: str = ""

    @property
    def name(self) -> str:
        return f"demo-{self.process.pid}"

    def read_until(self, *facts: object) -> None:
        """Read what it says until a line names these."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.shown += line
            if names(line, *facts):
                return
        pytest.fail(f"{facts} never came: {self.shown}")

    def end(self) -> int:
        """Its exit code; nothing that it started may be left."""
        shown, _ = self.process.communicate(timeout=60)
        self.shown += shown
        wait_until(lambda: not processes_with(str(self.home)), 10.0, "its processes to be gone")
        assert [path.name for path in (self.home / "sandbox").iterdir()] == []
        return self.process.returncode


def processes_with(text: str) -> list[str]:
    """The command lines, of all running processes, that have this text in them."""
    lines = []
    for command_line in Path("/proc").glob("[0-9]*/cmdline"):  # a bare Debian has no ps
        with contextlib.suppress(OSError):
            lines.append(command_line.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in lines if text in line]


@pytest.fixture
def demo(home: Path) -> Iterator[DemoProcess]:
    """A demo of few messages, with its stdout and stderr together; in the background of a script, where SIGINT is
    ignored, which its members must not inherit."""
    process = subprocess.Popen(
        ["bash", "-c", 'trap "" INT; exec "$@"', "bash", ZKGROUP, "sandbox", "demo", "--messages", "400"],
        env=environment({"ZKGROUP_STATE_DIR": str(home), "PYTHONUNBUFFERED": "1"}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield DemoProcess(process, home)
    if process.poll() is None:
        process.terminate()
        process.communicate(timeout=60)


@pytest.mark.parametrize(
    ("signum", "at", "file"),
    [
        (signal.SIGINT, "$ zkgroup sandbox start", "broker-1/server.log"),
        pytest.param(
            signal.SIGTERM,
            "> python-2.txt",
            "members/shop/shop_scala/consumer.properties",
            marks=pytest.mark.long,
        ),
    ],
)
def test_an_interrupted_demo_leaves_nothing(demo: DemoProcess, signum: int, at: str, file: str) -> None:
    """Ctrl-C while servers start, and an end while members join: the code of the signal, no process, no folder."""
    demo.read_until(at)
    wait_until((demo.home / "sandbox" / demo.name / file).exists)
    demo.process.send_signal(signum)
    assert demo.end() == 128 + signum
    assert "Traceback" not in demo.shown


@pytest.mark.long
def test_a_killed_demo_leaves_nothing(demo: DemoProcess) -> None:
    """SIGKILL while members read: they and the servers end by themselves, and the folder goes."""
    demo.read_until("✓", 200)
    folder = demo.home / "sandbox" / demo.name
    assert folder.is_dir()
    demo.process.kill()
    wait_until(lambda: not folder.exists(), 10.0, "the folder to be gone")
    wait_until(lambda: not processes_with(str(demo.home)), 10.0, "its processes to be gone")


def test_a_failed_check_is_reported(demo: DemoProcess) -> None:
    """A message that nobody had sent, put among those that a member printed: exit code 6, and a line that says so."""
    demo.read_until("5.", "python-2")
    printed = demo.home / "sandbox" / demo.name / "demo" / "python-2.txt"
    with printed.open("a") as file:
        file.write("orders\t0\t999999\tkey\tvalue\n")
    assert demo.end() == 6
    assert names(demo.shown, "✗", 300, 0, 1)
    assert names(demo.shown.splitlines()[-1], "zkgroup", 300, 0, 1)


@pytest.mark.long
def test_the_whole_demo_and_a_sandbox_to_play_with(home: Path) -> None:
    """Every check holds; with --keep the sandbox runs on under its usual name, and a stop removes all of it."""
    env = {"ZKGROUP_STATE_DIR": str(home)}
    done = run("sandbox", "demo", "--keep", "--messages", "1000", env=env, timeout=240)
    try:
        assert (done.returncode, done.stderr) == (0, "")
        assert ("✗" in done.stdout, done.stdout.count("✓")) == (False, 7)
        for facts in ((750,), ("archive", "1,000"), ("shop", 250)):
            assert names(done.stdout, "✓", *facts)
        # What it proposes to try works.
        shown = run("-c", "sandbox", "consume", "orders", "--offset", "-3", "--until-end", "--output", "json", env=env)
        assert (shown.returncode, shown.stdout.count("\n")) == (0, 9)
        again = run("sandbox", "demo", "--keep", env=env)
        assert (again.returncode, again.stderr.count("\n")) == (5, 1)
        assert names(again.stderr, "default", "--name")
    finally:
        assert run("sandbox", "stop", env=env).returncode == 0
    assert list((home / "sandbox").iterdir()) == []
