"""Old columns and new ones: which type holds the values of both, and what none does."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from lines import names

from zkgroup.schemas.column_types import decode_type, encode_type, json_values, widen
from zkgroup.schemas.field_schema import IncompatibleSchemaError

I32, I64, TEXT = pa.int32(), pa.int64(), pa.string()


def struct(**fields: Any) -> Any:
    return pa.struct(list(fields.items()))


@pytest.mark.parametrize(
    ("known", "new", "both"),
    [
        (I32, I64, I64),
        (I64, I32, I64),
        (pa.float32(), pa.float64(), pa.float64()),
        (struct(a=I32), struct(a=I32, b=TEXT), struct(a=I32, b=TEXT)),
        (struct(a=I32, b=TEXT), struct(b=TEXT), struct(a=I32, b=TEXT)),
        (pa.list_(struct(a=I32)), pa.list_(struct(a=I64)), pa.list_(struct(a=I64))),
        (pa.map_(TEXT, I32), pa.map_(TEXT, I64), pa.map_(TEXT, I64)),
    ],
    ids=str,
)
def test_a_compatible_type_widens(known: Any, new: Any, both: Any) -> None:
    assert widen(known, new, "value") == both
    assert widen(both, new, "value") == both
    assert decode_type(encode_type(both)) == both


@pytest.mark.parametrize(
    ("known", "new", "facts"),
    [
        (TEXT, I32, ("value", "string", "int32")),
        (struct(a=pa.list_(struct(b=I32))), struct(a=pa.list_(struct(b=TEXT))), ("value.a[].b", "int32", "string")),
        (pa.map_(TEXT, I32), pa.map_(TEXT, TEXT), ("value{}", "int32", "string")),
        (struct(a=I32), struct(A=I32), ("value.A", "value.a")),
        (pa.decimal128(5, 2), pa.decimal128(6, 2), ("value", "decimal128(5, 2)", "decimal128(6, 2)")),
        (
            pa.timestamp("ms", "UTC"),
            pa.timestamp("us", "UTC"),
            ("value", "timestamp[ms, tz=UTC]", "timestamp[us, tz=UTC]"),
        ),
    ],
    ids=str,
)
def test_an_incompatible_one_is_refused_with_its_path(known: Any, new: Any, facts: tuple[str, ...]) -> None:
    with pytest.raises(IncompatibleSchemaError) as refused:
        widen(known, new, "value")
    assert refused.value.message.split()[0] == facts[0]
    assert names(refused.value.message, *facts)


def test_bytes_as_json() -> None:
    """As text; as base64 where they are none."""
    column = pa.array([{"b": b"a"}, {"b": b"\xff"}, {"b": None}, None], struct(b=pa.binary()))
    assert json_values(column) == [b'{"b":"a"}', b'{"b":{"base64":"/w=="}}', b'{"b":null}', b"null"]
