"""Avro → Arrow arrays by the C extension ``_avro``: a program for it, and arrays of what it gives."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import pyarrow as pa

from zkgroup.c_extensions import avro_module

#: As in ``_avro.c``.
BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, STRING, ENUM, FIXED, RECORD, ARRAY, MAP, NULLABLE, SINGLE, DECIMAL = range(15)
PRIMITIVES: Final = {
    "boolean": (BOOLEAN, 0, 0),
    "int": (INT, -(1 << 31), 1 << 31),
    "long": (LONG, 0, 0),
    "float": (FLOAT, 0, 0),
    "double": (DOUBLE, 0, 0),
    "bytes": (BYTES, 0, 0),
    "string": (STRING, 0, 0),
}
_WIDTHS: Final = {INT: 4, LONG: 8, FLOAT: 4, DOUBLE: 8, ENUM: 4, DECIMAL: 16}
_MAX_NODES: Final = 10_000


@dataclass(frozen=True, slots=True)
class AvroNode:
    """A node of a schema. ``low``, ``high``: of a number's range (0, 0: any); ``low``: a fixed's size, the place of
    null in a union; ``high``: a decimal's digits. ``symbols``: of an enum."""

    kind: int
    low: int = 0
    high: int = 0
    inner: tuple[AvroNode, ...] = ()
    symbols: tuple[str, ...] = ()


class BufferDecoder:
    """Decodes binary columns to columns of a type, by a program."""

    def __init__(self, module: ModuleType, root: AvroNode, kind: Any) -> None:
        self._module: Any = module
        self._kind = kind
        self._nodes: list[AvroNode] = []
        self._next: list[int] = []
        self._flatten(root)
        words = (
            word
            for node, after in zip(self._nodes, self._next, strict=True)
            for word in (node.kind, after, node.low, node.high)
        )
        self._program = struct.pack(f"{4 * len(self._nodes)}q", *words)

    def _flatten(self, node: AvroNode) -> None:
        place = len(self._nodes)
        self._nodes.append(node)
        self._next.append(0)
        for one in node.inner:
            self._flatten(one)
        self._next[place] = len(self._nodes)

    def decode(self, column: Any) -> tuple[Any, list[int]]:
        """The column, null where nothing is, or where it does not decode; and the places of the latter."""
        count = len(column)
        _, ends, data = column.buffers()
        there = column.is_valid()
        valid = there.cast(pa.int8()).buffers()[1] if column.null_count else None
        some = memoryview(ends)[4 * column.offset : 4 * (column.offset + count + 1)]
        columns, bad = self._module.decode(data or b"", some, valid, self._program)
        if valid is None and not bad:
            return self._array(columns, 0, self._kind, count, None, 0), bad
        flags = bytearray(valid or b"\1" * count)[:count]
        for place in bad:
            flags[place] = 0
        return self._array(columns, 0, self._kind, count, _bits(flags), flags.count(0)), bad

    def _array(self, columns: Any, place: int, kind: Any, count: int, valid: Any, missing: int) -> Any:
        """The array of a node, and of those within."""
        node = self._nodes[place]
        nulls, flags, offsets, values = columns[place]
        make = pa.Array.from_buffers
        if node.kind == NULLABLE:
            return self._array(columns, place + 1, kind, count, _bits(flags) if nulls else None, nulls)
        if node.kind == SINGLE:
            return self._array(columns, place + 1, kind, count, valid, missing)
        if node.kind == RECORD:
            inner, at = [], place + 1
            for field in kind:
                inner.append(self._array(columns, at, field.type, count, None, 0))
                at = self._next[at]
            return make(kind, count, [valid], missing, children=inner)
        if node.kind in (ARRAY, MAP):
            items = int.from_bytes(offsets[-4:], "little")
            if node.kind == ARRAY:
                child = self._array(columns, place + 1, kind.value_type, items, None, 0)
            else:
                fields = [kind.key_field, kind.item_field]
                parts = [
                    self._array(columns, place + 1, kind.key_type, items, None, 0),
                    self._array(columns, place + 2, kind.item_type, items, None, 0),
                ]
                child = pa.StructArray.from_arrays(parts, fields=fields)
            return make(kind, count, [valid, pa.py_buffer(offsets)], missing, children=[child])
        if node.kind == BOOLEAN:
            return make(kind, count, [valid, _bits(values)], missing)
        if node.kind == ENUM:
            indices = make(pa.int32(), count, [valid, pa.py_buffer(values)], missing)
            return pa.DictionaryArray.from_arrays(indices, _texts(node.symbols)).cast(pa.string())
        if node.kind in _WIDTHS:
            return make(kind, count, [valid, pa.py_buffer(values)], missing)
        return make(kind, count, [valid, pa.py_buffer(offsets), pa.py_buffer(values)], missing)


def make_buffer_decoder(root: AvroNode, kind: Any) -> BufferDecoder | None:
    """A decoder by the extension; None without one, and for a schema that it does not take."""
    module = None if root.kind == NULLABLE or _size(root) > _MAX_NODES else avro_module()
    return None if module is None else BufferDecoder(module, root, kind)


def _size(node: AvroNode) -> int:
    total = 1
    for one in node.inner:
        total += _size(one)
        if total > _MAX_NODES:
            break
    return total


def _bits(flags: bytes | bytearray) -> Any:
    """A buffer of bits for bytes that are 0 or 1."""
    return pa.Array.from_buffers(pa.int8(), len(flags), [None, pa.py_buffer(flags)]).cast(pa.bool_()).buffers()[1]


def _texts(words: tuple[str, ...]) -> Any:
    data = [word.encode() for word in words]
    ends = [0]
    for one in data:
        ends.append(ends[-1] + len(one))
    buffers = [None, pa.py_buffer(struct.pack(f"{len(ends)}i", *ends)), pa.py_buffer(b"".join(data))]
    return pa.Array.from_buffers(pa.string(), len(data), buffers)
