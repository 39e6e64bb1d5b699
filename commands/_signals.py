"""SIGINT, SIGTERM and SIGHUP for commands that leave cleanly.

By default a signal raises ``KeyboardInterrupt`` or ``Terminated`` wherever the command is. A command that has to clean
up, such as a member that leaves its group, uses a ``StopRequest`` instead.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self, TypeVar

T = TypeVar("T")

#: A signal within this many seconds of another is the same request: timeout(1) sends each to process and group.
SAME = 1.0
POLL = 0.02  # seconds
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Terminated(BaseException):
    """SIGTERM or SIGHUP was received. ``signum`` is the signal."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


def exit_code_of(signum: int) -> int:
    """The exit code that a shell reports for a signal: 129 for SIGHUP, 130 for SIGINT, 143 for SIGTERM."""
    return 128 + signum


class _Raising:
    """A handler that raises, but not again within ``SAME`` seconds."""

    def __init__(self) -> None:
        self._last: float | None = None

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._last is None or now - self._last > SAME:
            self._last = now
            raise KeyboardInterrupt if signum == signal.SIGINT else Terminated(signum)


def raise_on_signals() -> None:
    """Let SIGTERM and SIGHUP raise ``Terminated``, and SIGINT ``KeyboardInterrupt``. Ignored signals stay ignored."""
    handler = _Raising()
    for signum in STOP_SIGNALS:
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, handler)


def end_by_signals() -> None:
    """Let a signal end the process at once, as by default."""
    for signum in STOP_SIGNALS:
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, signal.SIG_DFL)


@contextmanager
def before_start() -> Iterator[None]:
    """Let signals that would raise end the process at once. For imports, where an exception may get lost in a callback
    or be caught as something else."""
    raising = []
    if threading.current_thread() is threading.main_thread():
        raising = [
            signum
            for signum in STOP_SIGNALS
            if isinstance(handler := signal.getsignal(signum), _Raising) or handler is signal.default_int_handler
        ]
    before = {signum: signal.signal(signum, _end) for signum in raising}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _end(signum: int, frame: FrameType | None) -> None:
    os._exit(exit_code_of(signum))


class StopRequest:
    """While open, the first signal sets the request. A later one, after more than ``SAME`` seconds, interrupts.

    True after a signal. The handler calls ``on_stop`` on the main thread: it must take no lock, not even that of
    ``threading.Event.set``, which the interrupted code may hold. A caller that sets it later checks the request then.
    """

    def __init__(self, on_stop: Callable[[], object] | None = None) -> None:
        self.signum: int | None = None
        self._at = 0.0
        self.on_stop = on_stop
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for signum in STOP_SIGNALS:
            handler = signal.getsignal(signum)
            if handler is not signal.SIG_IGN:
                self._before[signum] = handler
                signal.signal(signum, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is not None:
            if time.monotonic() - self._at <= SAME:
                return
            raise KeyboardInterrupt if signum == signal.SIGINT else Terminated(signum)
        self.signum, self._at = signum, time.monotonic()
        if self.on_stop is not None:
            self.on_stop()

    def __bool__(self) -> bool:
        return self.signum is not None

    @property
    def exit_code(self) -> int:
        """0 without a signal, else the signal's code."""
        return 0 if self.signum is None else exit_code_of(self.signum)

    def unless(self, work: Callable[[], T]) -> T:
        """Run ``work``, which needs no clean-up, on another thread: librdkafka blocks without handling signals. Raises
        ``Terminated`` as soon as a stop is requested; the thread ends with the process."""
        from concurrent.futures import Future, wait  # --help does not need it

        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001  # raised by result(), in the caller's thread
                future.set_exception(error)

        threading.Thread(target=run, name="zkgroup-call", daemon=True).start()
        while not wait([future], POLL).done and self.signum is None:
            pass
        if self.signum is not None:
            raise Terminated(self.signum)
        return future.result()
