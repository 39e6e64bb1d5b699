"""Which thread may read a stream. Not thread-safe: the stream guards it with its lock."""

from __future__ import annotations

import threading

from zkgroup.errors import UsageError


class ReaderTurns:
    """Threads may read one after another, not at the same time: the batch in hand of one would count as consumed when
    another asks for the next."""

    def __init__(self) -> None:
        self._reader: threading.Thread | None = None
        self._inside = False
        self._iterator: object | None = None  # that has not ended

    @property
    def mine(self) -> bool:
        """Whether the calling thread was the last to read."""
        return self._reader is threading.current_thread()

    def begin(self, iterator: object | None, *, in_hand: bool) -> None:
        """The calling thread begins to read, within ``iterator`` if that is given. ``in_hand``: the last reader has a
        batch that is not marked. Raises UsageError while another thread reads."""
        elsewhere = self._iterator is not None and self._iterator is not iterator
        if not self.mine and (self._inside or elsewhere or in_hand) and self._reader in threading.enumerate():
            assert self._reader is not None
            raise UsageError(
                f"two threads read one stream: {self._reader.name} has not finished with it",
                "read each stream from one thread, and ask for more streams; to pass one on, leave the loop or mark()",
            )
        self._reader = threading.current_thread()
        self._inside = True
        if iterator is not None:
            self._iterator = iterator

    def end(self) -> None:
        """The thread has its batch, or none has come."""
        self._inside = False

    def leave(self, iterator: object) -> None:
        if self._iterator is iterator:
            self._iterator = None
