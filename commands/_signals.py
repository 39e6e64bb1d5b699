"""SIGINT, SIGTERM and SIGHUP for commands that leave cleanly.

By default a command is interrupted by an exception wherever it is (``KeyboardInterrupt``, ``Terminated``). A command
that has something to put in order, a member that leaves its group, say, takes them as a request instead::

    with StopRequest() as stop:
        while not stop:
            ...
    return stop.exit_code
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

STOP_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Terminated(BaseException):
    """The process was told to end. ``signum`` is the signal."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


def exit_code_of(signum: int) -> int:
    """What a shell reports of a process that ended by a signal: 130 for SIGINT, 143 for SIGTERM."""
    return 128 + signum


def raise_on_termination() -> None:
    """Let SIGTERM and SIGHUP raise ``Terminated``, as SIGINT raises ``KeyboardInterrupt``. Ignored ones stay so."""
    for signum in STOP_SIGNALS:
        if signum != signal.SIGINT and signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, _raise)


def _raise(signum: int, frame: FrameType | None) -> None:
    raise Terminated(signum)


class StopRequest:
    """While open, the first signal sets the request; a second one interrupts, so that nobody has to wait for ever.

    True once a signal came. ``on_stop`` is called in the handler, on the main thread: it must take no lock, not even
    ``threading.Event.set``, whose lock the interrupted code may hold.
    """

    def __init__(self, on_stop: Callable[[], object] | None = None) -> None:
        self.signum: int | None = None
        self._on_stop = on_stop
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for signum in STOP_SIGNALS:
            handler = signal.getsignal(signum)
            if handler is not signal.SIG_IGN:
                self._before[signum] = handler
                signal.signal(signum, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is not None:
            raise KeyboardInterrupt if signum == signal.SIGINT else Terminated(signum)
        self.signum = signum
        if self._on_stop is not None:
            self._on_stop()

    def __bool__(self) -> bool:
        return self.signum is not None

    @property
    def exit_code(self) -> int:
        """0 without a signal, else the signal's code."""
        return 0 if self.signum is None else exit_code_of(self.signum)
