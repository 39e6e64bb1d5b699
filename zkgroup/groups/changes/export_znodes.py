"""The znodes of an export, as JSON: the pointer to its run, and the process that has its lock.

``zkgroup.export`` documents the states. Changes of a group read them, too: what is decided must be finished.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from zkgroup.errors import MalformedZnodeError

State = Literal["planned", "decided"]
_MAX_WHY: Final = 200  # characters


class Pointer(msgspec.Struct, frozen=True, tag_field="format", tag=1):
    """The data of ``/consumers/GROUP/zkgroup/export``. ``output``: the destination, as it is shown. ``record``: the
    SHA-256 of the record, once it is decided. ``offsets``: the offsets of a decided run, for ``--abandon``: topic →
    partition → [start, end); None where that is too much for a node.

    Unknown keys are ignored, so that a later release may add some; ``format`` changes when one may not.
    """

    state: State
    run: str
    output: str
    record: str | None = None
    offsets: Mapping[str, Mapping[int, tuple[int, int]]] | None = None


class Exporter(msgspec.Struct):
    """The process that has an export's lock, and ``since`` when (milliseconds since 1970)."""

    host: Annotated[str, msgspec.Meta(max_length=255)]
    pid: int
    since: int | None = None

    @property
    def is_killed(self) -> bool:
        """Whether its process on this host is gone: the lock stays until its session ends."""
        return self.host == socket.gethostname() and not Path(f"/proc/{self.pid}").exists()

    @property
    def text(self) -> str:
        """The export, as text."""
        place = f"on {self.host}, process {self.pid}"
        return f"an export {place}, was killed" if self.is_killed else f"an export runs {place}"


class _Versioned(msgspec.Struct):
    format: int = 1


# Made once: where two threads ask msgspec for a type for the first time, the process may end.
_POINTER, _EXPORTER = msgspec.json.Decoder(Pointer), msgspec.json.Decoder(Exporter)
_VERSIONED = msgspec.json.Decoder(_Versioned)
_ERRORS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def encode_pointer(pointer: Pointer) -> bytes:
    """The znode's data."""
    return msgspec.json.encode(pointer)


def decode_pointer(path: str, data: bytes) -> Pointer | None:
    """None where the node has no data: no run is under way. Raises ``MalformedZnodeError``."""
    try:
        return _POINTER.decode(data) if data else None
    except _ERRORS as error:
        why, remedy = " ".join(str(error)[:_MAX_WHY].split()), "restore it from a copy"
        with suppress(*_ERRORS):
            if (found := _VERSIONED.decode(data).format) != 1:
                why, remedy = f"it has format {found}, and this release reads 1", "use the release that wrote it"
        raise MalformedZnodeError(path, why, remedy) from None


def decode_exporter(data: bytes) -> Exporter | None:
    """Read an export's lock; None where it names no process."""
    with suppress(*_ERRORS):
        return _EXPORTER.decode(data)
    return None
