"""The screen of a watch: states and keys in, frames out; live, or out of a recording."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ._error_output import say
from ._log_output import LIBRARIES
from ._terminal_text import one_line
from ._watch_frame import Style, frame
from ._watch_terminal import Key, Terminal
from ._watch_view import FilteredView, View

if TYPE_CHECKING:
    from zkgroup.groups.watch.recording import Recording
    from zkgroup.groups.watch.timeline import Observation

    from ._signals import StopRequest

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


def style_of_terminal() -> Style:
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return Style(colour=not os.environ.get("NO_COLOR"), signs=encoding.startswith("utf"))


def show_live(
    view: View,
    next_observation: Callable[[], Observation | None],
    woken: Callable[[Callable[[], None]], None],
    stop: StopRequest,
) -> int:
    """Show what ``next_observation`` has, which gives the next state at once or None, until a key or a signal ends it;
    the exit code. ``woken`` receives the function that wakes the screen."""
    pending: deque[Observation] = deque(maxlen=_MAX_PENDING)
    with Terminal() as terminal, messages_as_notes(view):
        woken(terminal.wake)
        painter = Painter(terminal, view)
        while not stop:
            while (entry := next_observation()) is not None:
                pending.append(entry)
            if pending and not view.paused:
                for entry in pending:
                    view.add(*entry)
                pending.clear()
                painter.stale = True
            for key in painter.keys(MAX_KEY_WAIT):
                if key in ("q", "interrupt", "hang-up") and not (view.typing and key == "q"):
                    view.ended_by = key
                    return 0
                painter.press(key)
    return stop.exit_code


def show_recording(view: View, recording: Recording, stop: StopRequest) -> int:
    """Replay a recording on the terminal until a key or a signal; returns the exit code."""
    view.more_keys = "←→ step  e event  +- speed  0-9 jump  "
    with Terminal() as terminal, messages_as_notes(view):
        painter, player = Painter(terminal, view), _Player(recording, view)
        while not stop:
            if player.play():
                painter.stale = True
            player.describe()
            for key in painter.keys(player.wait()):
                if key in ("q", "interrupt", "hang-up") and not (view.typing and key == "q"):
                    return 0
                if not view.typing and player.press(key):
                    painter.stale = True
                else:
                    painter.press(key)
    return stop.exit_code


class Painter:
    """Draws a view when it has changed, at most 25 times a second. ``draw``: the function of a view, columns, lines and
    style that makes a frame."""

    def __init__(self, terminal: Terminal, view: FilteredView, draw: Callable[..., list[str]] = frame) -> None:
        self._terminal = terminal
        self._view = view
        self._draw = draw
        self._style = style_of_terminal()
        self._drawn = 0.0
        self.stale = True

    def keys(self, timeout: float) -> list[Key]:
        """Draw if the view has changed, and wait for keys."""
        if self.stale or self._terminal.stale:
            left = self._drawn + _MIN_FRAME_TIME - time.monotonic()
            if left > 0:
                return self._terminal.keys(min(left, timeout))
            self._terminal.draw(self._draw(self._view, *self._terminal.size, self._style))
            self._drawn, self.stale = time.monotonic(), False
        return self._terminal.keys(timeout)

    def press(self, key: Key) -> None:
        """Pass a key to the view."""
        if self._view.press(key):
            self.stale = True


class _Player:
    """Plays a recording into a view."""

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
        """Show what is due; whether anything was."""
        if self._view.paused or self._next is None or time.monotonic() < self._due:
            return False
        return self._step() is not None

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

    def describe(self) -> None:
        """Show the position in the recording."""
        end = "" if self._next is not None else ", the end"
        name = one_line(str(self._recording.path))
        self._view.note = (
            f"state {self._number + 1} of {self._recording.states}{end}, {_SPEEDS[self._speed]:g} times as fast: {name}"
        )


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
def messages_as_notes(view: FilteredView) -> Iterator[None]:
    """Show messages in the view's note while this is open."""
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
