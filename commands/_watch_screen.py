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
    from zkgroup.groups.watch.group_watch import GroupWatch
    from zkgroup.groups.watch.recording import Recording
    from zkgroup.groups.watch.timeline import Observation

    from ._groups_screen import GroupsPoller
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


def show_live(
    view: View, watch: GroupWatch, next_observation: Callable[[], Observation | None], stop: StopRequest
) -> int:
    """Show what ``next_observation`` has, which gives the next state of the watch at once or None, until a key or a
    signal ends it; the exit code."""
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

    return show(view, stop, take, source=watch)


def show_recording(view: View, recording: Recording, stop: StopRequest) -> int:
    """Show a recording on the terminal, state by state, until a key or a signal; returns the exit code."""
    view.more_keys = "←→ step  e event  0-9 jump  "
    return show(view, stop, lambda: False, press=_Player(recording, view).press)


def show(
    view: FilteredView,
    stop: StopRequest,
    step: Callable[[], bool],
    *,
    draw: Callable[..., list[str]] = frame,
    press: Callable[[Key], bool] = lambda key: False,
    source: GroupWatch | GroupsPoller | None = None,
) -> int:
    """Show a view on the terminal until a key or a signal ends it; the exit code. Messages are shown in its note.

    It is drawn when it has changed, at most 25 times a second. ``step`` takes up what is new; ``press`` handles a key
    before the view does; both say whether anything has changed. ``draw`` makes a frame of view, columns, lines and
    style. ``source``: whose news wake the screen.
    """
    style = Style(colour=not os.environ.get("NO_COLOR"))
    drawn, stale = 0.0, True
    view.ended_by = ""
    with Terminal() as terminal, _messages_as_notes(view):
        if source is not None:
            source.news = terminal.wake
        try:
            while not stop:
                stale |= step()
                wait = MAX_KEY_WAIT
                if stale or terminal.stale:
                    wait = drawn + _MIN_FRAME_TIME - time.monotonic()
                    if wait <= 0:
                        terminal.draw(draw(view, *terminal.size, style))
                        drawn, stale, wait = time.monotonic(), False, MAX_KEY_WAIT
                for key in terminal.keys(wait):
                    if view.ends(key):
                        view.ended_by = key
                        return 0
                    stale |= (not view.typing and press(key)) or view.press(key)
            return stop.exit_code
        finally:
            if source is not None:
                source.news = lambda: None  # the terminal's pipe is closed next


class _Player:
    def __init__(self, recording: Recording, view: View) -> None:
        self._recording = recording
        self._view = view
        self._seek(0)

    def _seek(self, number: int) -> None:
        """To the state of this number, with as many before it as rates are made of."""
        number = max(0, min(number, self._recording.states - 1))
        start = max(0, number - _BACK)
        self._view.restart()
        self._entries = self._recording.entries(start)
        self._number = start - 1
        while self._number < number and self._step() is not None:
            pass

    def _step(self) -> Observation | None:
        """On to the next state; None at the end."""
        entry = next(self._entries, None)
        if entry is not None:
            self._view.add(*entry)
            self._number += 1
        name = one_line(str(self._recording.path))
        self._view.note = f"state {self._number + 1} of {self._recording.states}: {name}"
        return entry

    def press(self, key: Key) -> bool:
        """A key that is for the player; whether it was."""
        match key:
            case "right" | "." | "p" | " ":
                self._step()
            case "left" | ",":
                self._seek(self._number - 1)
            case "e":
                while (entry := self._step()) is not None and not entry.events:
                    pass
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
