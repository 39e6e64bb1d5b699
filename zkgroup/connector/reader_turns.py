"""Whose turn it is to read a stream. Not thread-safe: the stream guards it with its lock."""

from __future__ import annotations

import threading

from zkgroup.errors import UsageError


class Turns:
    """Threads may read one after another, not at the same time: what one has in hand would count as consumed when
    another comes for more."""

    def __init__(self) -> None:
        self._reader: threading.Thread | None = None
        self._inside = False
        self._iterator: object | None = None  # that has not come to its end

    @property
    def mine(self) -> bool:
        """Whether the calling thread was the last to read."""
        return self._reader is threading.current_thread()

    def begin(self, iterator: object | None, *, in_hand: bool) -> None:
        """The calling thread wants to read, in a loop of its own if ``iterator`` is one. ``in_hand``: the last reader
        has a batch that it has not marked. Raises UsageError while another thread is at it."""
        elsewhere = self._iterator is not None and self._iterator is not iterator
        if not self.mine and (self._inside or elsewhere or in_hand) and self._reader in threading.enumerate():
            assert self._reader is not None
            raise UsageError(
                f"two threads read one stream: {self._reader.name} has not done with it",
                "read each stream from one thread, and ask for more streams; to pass one on, leave the loop or mark()",
            )
        self._reader = threading.current_thread()
        self._inside = True
        if iterator is not None:
            self._iterator = iterator

    def end(self) -> None:
        """It has what it came for, or nothing."""
        self._inside = False

    def leave(self, iterator: object) -> None:
        """A loop has come to its end."""
        if self._iterator is iterator:
            self._iterator = None
