"""A watch without a screen: a line for each event, as soon as it is told."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from ._error_output import reader_is_gone, stdout_descriptor
from ._output import Output, escape_line, is_table, iso_utc, stream_head, stream_line
from ._terminal_text import one_line

if TYPE_CHECKING:
    from zkgroup.groups.watch.timeline import Event

COLUMNS: Final = ("time", "event", "member", "topic", "partition", "from", "to", "seconds", "message")
# What a pipe takes at once as soon as it takes anything: no write blocks where nobody would hear a signal.
_PIECE: Final = 4096
_POLL: Final = 0.2


class Lines:
    """Writes events to stdout. ``stopping`` ends the wait for a reader that does not read."""

    def __init__(self, output: Output, stopping: Callable[[], bool]) -> None:
        self._output = output
        self._stopping = stopping
        self._out = stdout_descriptor()
        self._terminal = os.isatty(self._out)
        self._write(stream_head(COLUMNS, output))

    def tell(self, events: Iterable[Event]) -> None:
        """Write these events. Raises ``BrokenPipeError`` where nobody reads any more."""
        self._write("".join(map(self._line, events)))

    @property
    def unread(self) -> bool:
        """Whether the reader has closed its end."""
        return reader_is_gone(self._out)

    def _line(self, event: Event) -> str:
        row = row_of(event)
        if is_table(self._output):
            # Names may hold anything: a line of text stays one line, of what can be shown.
            return f"{row['time']}  {event.kind:<18}  {one_line(event.message)}\n"
        line = stream_line(row, self._output)
        return escape_line(line, self._output) if self._terminal else line

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        while data and not self._stopping():
            if select.select([], [self._out], [], _POLL)[1]:
                data = data[os.write(self._out, data[:_PIECE]) :]


def row_of(event: Event) -> dict[str, Any]:
    """An event as it stands in JSON."""
    values = (event.kind, event.member, event.topic, event.partition, event.before, event.after, event.seconds)
    return dict(zip(COLUMNS, (iso_utc(event.at), *values, event.message), strict=True))
