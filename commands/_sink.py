"""Where consumed messages go: formatted a batch at a time, written to a descriptor, and only then marked."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from ._messages import Formatter

if TYPE_CHECKING:
    from zkgroup.connector import Batch, Stream

# How long a reader waits for messages before it looks whether it should stop.
LOOK = 0.1


class Sink:
    """Readers, one thread a stream, that share one descriptor.

    A batch is marked as consumed when the operating system has all of its bytes; one that could not be written is not.
    """

    def __init__(self, descriptor: int, formatter: Formatter, *, limit: int | None) -> None:
        self.error: OSError | None = None
        self.failure: Exception | None = None
        self.written = 0
        self.last_message = time.monotonic()
        self._descriptor = descriptor
        self._format = formatter
        self._left = limit
        self._stop = False
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def start(self, streams: list[Stream[bytes | None, bytes | None]]) -> None:
        """Begin to read; one thread for each stream."""
        self.last_message = time.monotonic()
        for number, stream in enumerate(streams):
            # Daemons: one that is stuck in a write that nobody reads must not keep the process from ending.
            thread = threading.Thread(target=self._read, args=(stream,), name=f"zkgroup-reader-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Readers leave after the batch in their hands."""
        self._stop = True

    @property
    def done(self) -> bool:
        """Whether all readers have left."""
        return not any(thread.is_alive() for thread in self._threads)

    def wait(self, timeout: float) -> bool:
        """Wait until all readers have left; false if ``timeout`` seconds were not enough."""
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return self.done

    def _read(self, stream: Stream[bytes | None, bytes | None]) -> None:
        try:
            while not self._stop:
                batch = stream.batch(LOOK)
                if batch is not None:
                    self._put(stream, batch)
                elif stream.ended:
                    return
        except OSError as error:
            self.error = error
            self._stop = True
        except Exception as error:  # noqa: BLE001  # a thread's error is the command's, which raises it
            self.failure = error
            self._stop = True
        finally:
            stream.forsake()

    def _put(self, stream: Stream[bytes | None, bytes | None], batch: Batch) -> None:
        with self._lock:
            if self._left is None or self._left > len(batch.messages):
                self._write(self._format(batch.messages))
                stream.mark()
                count = len(batch.messages)
            else:
                count = self._left
                self._write(self._format(batch.messages[:count]))
                stream.mark_first(batch, count)
                self._stop = True
            if self._left is not None:
                self._left -= count
            self.written += count
            self.last_message = time.monotonic()

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]
