"""The terminal of a watch: alternate screen, keys, size. It is restored however the watch ends."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import select
import signal
import sys
import termios
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, Final, TypeAlias

from ._terminal_text import width

#: A character, or the name of a key without one.
Key: TypeAlias = str

_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
_LEAVE: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"
# Synchronized output: a terminal that knows it shows a frame at once.
_BEGIN: Final = "\x1b[?2026h\x1b[H"
_END: Final = "\x1b[?2026l"
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
    """The terminal of stdout, as a context manager, for the main thread alone except ``wake``.

    Ctrl-C is a key here (``interrupt``); Ctrl-Z stops the process, with the terminal restored.
    """

    def __init__(self) -> None:
        self._out = sys.stdout.fileno()
        self._keys: int | None = 0 if os.isatty(0) else None
        self._modes: list[Any] | None = None
        self._before: dict[int, Any] = {}
        self._wakeup = -1
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        self._ours, self._theirs = os.pipe()
        for end in (self._ours, self._theirs):
            os.set_blocking(end, False)
        #: True if the frame must be drawn again: the size has changed, or the process was stopped.
        self.stale = True

    def __enter__(self) -> Terminal:
        if self._keys is not None:
            self._modes = termios.tcgetattr(self._keys)
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
        if self._modes is not None and self._keys is not None:
            modes = [*self._modes[:6], list(self._modes[6])]
            modes[3] &= ~(termios.ICANON | termios.ECHO)
            disabled = bytes([os.fpathconf(self._keys, "PC_VDISABLE") & 0xFF])
            modes[6][termios.VINTR] = modes[6][termios.VQUIT] = disabled
            modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
            termios.tcsetattr(self._keys, termios.TCSANOW, modes)
        self._write(_ENTER)
        self.stale = True

    def _give_back(self) -> None:
        # The terminal may be gone.
        with contextlib.suppress(OSError, termios.error):
            self._write(_LEAVE)
            if self._modes is not None and self._keys is not None:
                termios.tcsetattr(self._keys, termios.TCSANOW, self._modes)

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
        watched = [self._ours] if self._keys is None else [self._ours, self._keys]
        ready, _, _ = select.select(watched, [], [], max(0.0, timeout))
        if self._ours in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._ours, 4096)
        if self._keys is None or self._keys not in ready:
            return []
        try:
            data = os.read(self._keys, 4096)
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
    """The keys of a terminal's input."""
    while text:
        length = next((n for n in (4, 3, 1) if text[:n] in _NAMED and len(text) >= n), 0)
        if length == 1 and text[0] == "\x1b" and len(text) > 1:
            length = _sequence(text)  # an unknown sequence
            text = text[length:]
            continue
        length = length or 1
        yield _NAMED.get(text[:length], text[:length])
        text = text[length:]


def _sequence(text: str) -> int:
    """The length of an escape sequence: to its last letter."""
    if text[1] not in "[O":
        return 2
    return next((n + 1 for n in range(2, len(text)) if "@" <= text[n] <= "~"), len(text))
