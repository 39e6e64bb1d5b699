"""The terminal of a watch: alternate screen, keys, size. It is restored however the watch ends."""

from __future__ import annotations

import codecs
import contextlib
import logging
import os
import re
import select
import signal
import sys
import termios
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ._error_output import LIBRARIES, say
from ._terminal_text import one_line, width
from ._watch_view import FilteredView, Style, View, frame

if TYPE_CHECKING:
    from zkgroup.groups.watch.recording import Recording
    from zkgroup.groups.watch.timeline import Observation

    from ._signals import StopRequest

#: A character, or the name of a key without one.
Key: TypeAlias = str

#: The descriptor of the keys: stdin.
_KEYS: Final = 0
_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
_LEAVE: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"
# Synchronized output: a terminal that knows it shows a frame at once.
_BEGIN: Final = "\x1b[?2026h\x1b[H"
_END: Final = "\x1b[?2026l"
_KEY: Final = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~]?|O.?|.)?|.", re.DOTALL)
_NAMED: Final = {
    "\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left",
    "\x1bOA": "up", "\x1bOB": "down", "\x1bOC": "right", "\x1bOD": "left",
    "\x1b[5~": "page-up", "\x1b[6~": "page-down",
    "\x1b[H": "home", "\x1b[F": "end", "\x1bOH": "home", "\x1bOF": "end", "\x1b[1~": "home", "\x1b[4~": "end",
    "\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace", "\x1b": "escape", "\x03": "interrupt",
}  # fmt: skip
_STYLES: Final = re.compile("\x1b\\[[0-9]*m")
_SMALLEST: Final = (20, 6)


class Terminal:
    """The terminal of stdin and stdout, as a context manager, for the main thread alone except ``wake``.

    Ctrl-C is a key here (``interrupt``); Ctrl-Z stops the process, with the terminal restored.
    """

    def __init__(self) -> None:
        self._out = sys.stdout.fileno()
        self._before: dict[int, Any] = {}
        self._wakeup = -1
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        self._ours, self._theirs = os.pipe()
        for end in (self._ours, self._theirs):
            os.set_blocking(end, False)
        #: True if the frame must be drawn again: the size has changed, or the process was stopped.
        self.stale = True

    def __enter__(self) -> Terminal:
        self._modes: list[Any] = termios.tcgetattr(_KEYS)
        for signum, handler in (
            (signal.SIGWINCH, self._resized),
            (signal.SIGTSTP, self._stop),
            (signal.SIGCONT, self._go_on),
        ):
            if signal.getsignal(signum) is not signal.SIG_IGN:
                self._before[signum] = signal.signal(signum, handler)
        # A signal ends the wait for keys.
        self._wakeup = signal.set_wakeup_fd(self._theirs, warn_on_full_buffer=False)
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        signal.set_wakeup_fd(self._wakeup)
        self._give_back()
        os.close(self._ours)
        os.close(self._theirs)

    def _take(self) -> None:
        modes = [*self._modes[:6], list(self._modes[6])]
        modes[3] &= ~(termios.ICANON | termios.ECHO)
        disabled = bytes([os.fpathconf(_KEYS, "PC_VDISABLE") & 0xFF])
        modes[6][termios.VINTR] = modes[6][termios.VQUIT] = disabled
        modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
        termios.tcsetattr(_KEYS, termios.TCSANOW, modes)
        self._write(_ENTER)
        self.stale = True

    def _give_back(self) -> None:
        # The terminal may be gone.
        with contextlib.suppress(OSError, termios.error):
            self._write(_LEAVE)
            termios.tcsetattr(_KEYS, termios.TCSANOW, self._modes)

    def _resized(self, signum: int, frame: FrameType | None) -> None:
        self.stale = True

    def _stop(self, signum: int, frame: FrameType | None) -> None:
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)  # returns after SIGCONT
        signal.signal(signal.SIGTSTP, self._stop)
        self._take()

    def _go_on(self, signum: int, frame: FrameType | None) -> None:
        # After SIGSTOP the shell has changed the terminal's modes.
        self._take()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        try:
            columns, lines = os.get_terminal_size(self._out)
        except OSError:
            columns, lines = 0, 0
        return max(columns, _SMALLEST[0]) if columns else 80, max(lines, _SMALLEST[1]) if lines else 24

    def wake(self) -> None:
        """End the wait for keys; on any thread."""
        with contextlib.suppress(OSError):  # full: a wake-up is pending; closed: the watch has ended
            os.write(self._theirs, b"\0")

    def keys(self, timeout: float) -> list[Key]:
        """Wait for keys, at most ``timeout`` seconds; none after a wake-up. ``hang-up`` if the terminal is gone."""
        ready, _, _ = select.select([self._ours, _KEYS], [], [], max(0.0, timeout))
        if self._ours in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._ours, 4096)
        if _KEYS not in ready:
            return []
        try:
            data = os.read(_KEYS, 4096)
        except OSError:
            data = b""
        return list(split_keys(self._decoder.decode(data))) if data else ["hang-up"]

    def draw(self, lines: Sequence[str]) -> None:
        """Show a frame with one write over the last one, without flicker."""
        columns, _ = self.size
        self._write(_BEGIN + "\r\n".join(whole(line, columns) for line in lines) + _END)
        self.stale = False

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        while data:
            data = data[os.write(self._out, data) :]


def whole(line: str, columns: int) -> str:
    """The line, and an erased rest. After a line as wide as the screen the cursor is on its last column, which would be
    erased."""
    return line if width(_STYLES.sub("", line)) >= columns else f"{line}\x1b[K"


def split_keys(text: str) -> Iterator[Key]:
    """The keys of a terminal's input, without sequences that are unknown."""
    for found in _KEY.findall(text):
        if found in _NAMED or len(found) == 1:
            yield _NAMED.get(found, found)


#: How long to wait for a key, a state or a signal, in seconds; and between two frames at least.
MAX_KEY_WAIT: Final = 0.25
_MIN_FRAME_TIME: Final = 0.04
#: Snapshots that are kept while the screen is paused.
_MAX_PENDING: Final = 300
#: Snapshots before the one that a key jumps to, for rates and the history of lag.
_BACK: Final = 60
_SPEEDS: Final = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0)
#: Seconds that are waited for the next state of a recording at most.
_MAX_WAIT: Final = 2.0


def show_live(
    view: View,
    next_observation: Callable[[], Observation | None],
    woken: Callable[[Callable[[], None]], None],
    stop: StopRequest,
) -> int:
    """Show what ``next_observation`` has, which gives the next state at once or None, until a key or a signal ends it;
    the exit code. ``woken`` receives the function that wakes the screen."""
    pending: deque[Observation] = deque(maxlen=_MAX_PENDING)

    def take() -> bool:
        while (entry := next_observation()) is not None:
            pending.append(entry)
        if not pending or view.paused:
            return False
        for entry in pending:
            view.add(*entry)
        pending.clear()
        return True

    with open_screen(view) as screen:
        woken(screen.terminal.wake)
        return screen.run(stop, take)


def show_recording(view: View, recording: Recording, stop: StopRequest) -> int:
    """Replay a recording on the terminal until a key or a signal; returns the exit code."""
    view.more_keys = "←→ step  e event  +- speed  0-9 jump  "
    with open_screen(view) as screen:
        player = _Player(recording, view)
        return screen.run(stop, player.play, player.press, player.wait)


class Screen:
    """Draws a view when it has changed, at most 25 times a second, and passes keys to it. ``draw``: the function of a
    view, columns, lines and style that makes a frame."""

    def __init__(self, terminal: Terminal, view: FilteredView, draw: Callable[..., list[str]]) -> None:
        self.terminal = terminal
        self._view = view
        self._draw = draw
        self._style = Style(colour=not os.environ.get("NO_COLOR"))
        self._drawn = 0.0
        self._stale = True

    def run(
        self,
        stop: StopRequest,
        step: Callable[[], bool],
        press: Callable[[Key], bool] = lambda key: False,
        wait: Callable[[], float] = lambda: MAX_KEY_WAIT,
    ) -> int:
        """Show the view until a key or a signal ends it; the exit code. ``step`` takes up what is new; ``press``
        handles a key that is not the view's; both say whether anything has changed. ``wait``: seconds to the next."""
        self._view.ended_by = ""
        while not stop:
            self._stale |= step()
            for key in self._keys(wait()):
                if self._view.ends(key):
                    self._view.ended_by = key
                    return 0
                self._stale |= (not self._view.typing and press(key)) or self._view.press(key)
        return stop.exit_code

    def _keys(self, timeout: float) -> list[Key]:
        if self._stale or self.terminal.stale:
            left = self._drawn + _MIN_FRAME_TIME - time.monotonic()
            if left > 0:
                return self.terminal.keys(min(left, timeout))
            self.terminal.draw(self._draw(self._view, *self.terminal.size, self._style))
            self._drawn, self._stale = time.monotonic(), False
        return self.terminal.keys(timeout)


@contextmanager
def open_screen(view: FilteredView, draw: Callable[..., list[str]] = frame) -> Iterator[Screen]:
    """The screen of a view on the terminal; messages are shown in its note."""
    with Terminal() as terminal, _messages_as_notes(view):
        yield Screen(terminal, view, draw)


class _Player:
    def __init__(self, recording: Recording, view: View) -> None:
        self._recording = recording
        self._view = view
        self._speed = _SPEEDS.index(1.0)
        self._seek(0)

    def _seek(self, number: int) -> None:
        """To the state of this number, with as many before it as rates are made of."""
        number = max(0, min(number, self._recording.states - 1))
        start = max(0, number - _BACK)
        self._view.restart()
        self._entries = self._recording.entries(start)
        self._number = start - 1
        self._next: Observation | None = next(self._entries, None)
        while self._next is not None and self._number < number:
            self._step()

    def _step(self) -> Observation | None:
        """On to the next state; None at the end."""
        entry = self._next
        if entry is not None:
            self._view.add(*entry)
            self._number += 1
            self._next = next(self._entries, None)
            gap = 0.0 if self._next is None else (self._next.state.at - entry.state.at) / 1000 / _SPEEDS[self._speed]
            self._due = time.monotonic() + max(0.0, min(gap, _MAX_WAIT))
        return entry

    def play(self) -> bool:
        """Show what is due, and the position; whether anything was due."""
        is_due = not self._view.paused and self._next is not None and time.monotonic() >= self._due
        if is_due:
            self._step()
        end = "" if self._next is not None else ", the end"
        name = one_line(str(self._recording.path))
        self._view.note = (
            f"state {self._number + 1} of {self._recording.states}{end}, {_SPEEDS[self._speed]:g} times as fast: {name}"
        )
        return is_due

    def wait(self) -> float:
        """How long nothing is due."""
        if self._view.paused or self._next is None:
            return MAX_KEY_WAIT
        return max(0.0, min(MAX_KEY_WAIT, self._due - time.monotonic()))

    def press(self, key: Key) -> bool:
        """A key that is for the player; whether it was."""
        match key:
            case "right" | ".":
                self._view.paused = True
                self._step()
            case "left" | ",":
                self._view.paused = True
                self._seek(self._number - 1)
            case "e":
                self._view.paused = True
                while (entry := self._step()) is not None and not entry.events:
                    pass
            case "+" | "=":
                self._speed = min(len(_SPEEDS) - 1, self._speed + 1)
                self._due = time.monotonic()
            case "-":
                self._speed = max(0, self._speed - 1)
            case _ if len(key) == 1 and key in "0123456789":
                self._seek(self._recording.states * int(key) // 10)
            case _:
                return False
        return True


class _Notes(logging.Handler):
    """Shows messages in a line of the screen, and repeats them on stderr afterwards."""

    def __init__(self, view: FilteredView) -> None:
        super().__init__()
        self._view = view
        self.kept: deque[str] = deque(maxlen=20)

    def emit(self, record: logging.LogRecord) -> None:
        words = one_line(record.getMessage())
        self._view.note = words
        self.kept.append(words)


@contextmanager
def _messages_as_notes(view: FilteredView) -> Iterator[None]:
    if not sys.stderr.isatty():
        yield
        return
    notes = _Notes(view)
    loggers = [logging.getLogger(name) for name in ("zkgroup", *LIBRARIES)]
    before = [list(logger.handlers) for logger in loggers]
    for logger in loggers:
        logger.handlers[:] = [notes]
    try:
        yield
    finally:
        for logger, handlers in zip(loggers, before, strict=True):
            logger.handlers[:] = handlers
        for words in notes.kept:
            say(words, kind="warning")
