"""Records, pointers and layouts as JSON.

A record is UTF-8 JSON; its SHA-256 is in the pointer and in the record's name. Unknown keys are
ignored, so that a later release may add some; ``format`` changes when one may not.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, TypeVar

import msgspec
from msgspec.json import Decoder

from zkgroup.errors import ZkgroupError
from zkgroup.export.model.layout import ColumnTypes, Layout
from zkgroup.export.model.run_record import Pointer, RunRecord

FORMAT: Final = 1
T = TypeVar("T")
_WHY: Final = 200  # characters
# Made once: where two threads ask msgspec for a type for the first time, the process may end.
_RECORD, _POINTER = Decoder(RunRecord), Decoder(Pointer)
_LAYOUT, _COLUMNS, _KEYS = Decoder(Layout), Decoder(ColumnTypes), Decoder(dict[str, msgspec.Raw])


class DamagedDocumentError(ZkgroupError):
    """A document of zkgroup's that is missing, or not as it was written. Nothing is written over it."""


def damaged(name: str, why: str) -> DamagedDocumentError:
    return DamagedDocumentError(f"{name} {why}", "restore it from a copy")


def digest(data: bytes) -> str:
    """The SHA-256 by which a document is named."""
    return hashlib.sha256(data).hexdigest()


def encode_record(record: RunRecord) -> bytes:
    document = {"format": FORMAT, **_plain(record)}
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def decode_record(name: str, data: bytes) -> RunRecord:
    """Read a record; ``name`` is for messages. Raises ``DamagedDocumentError``."""
    return _decode(name, data, _RECORD)


def encode_pointer(pointer: Pointer) -> bytes:
    """The znode's data."""
    return msgspec.json.encode({"format": FORMAT, **_plain(pointer)})


def decode_pointer(path: str, data: bytes) -> Pointer | None:
    """None where the node has no data: no run is under way. Raises ``DamagedDocumentError``."""
    return _decode(f"znode {path}", data, _POINTER) if data else None


def decode_layout(name: str, data: bytes) -> Layout:
    """Read a destination's layout. Raises ``DamagedDocumentError``."""
    return _read(name, data, _LAYOUT)


def decode_columns(name: str, data: bytes) -> ColumnTypes:
    """Read a document with the types of columns. Raises ``DamagedDocumentError``."""
    return _read(name, data, _COLUMNS)


def _plain(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def _decode(name: str, data: bytes, decoder: Decoder[T]) -> T:
    found = _read(name, data, _KEYS).get("format")
    if found is None or bytes(found) != b"%d" % FORMAT:
        version = "no format" if found is None else f"format {bytes(found)[:20].decode('ascii', 'replace')}"
        raise damaged(name, f"has {version}; this release reads {FORMAT}")
    return _read(name, data, decoder)


def _read(name: str, data: bytes, decoder: Decoder[T]) -> T:
    """Its own words on what is wrong may be long, of many lines."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise damaged(name, f"cannot be read: {' '.join(str(error)[:_WHY].split())}") from None
