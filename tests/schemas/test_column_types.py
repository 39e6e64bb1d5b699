"""Old columns and new ones: which type holds the values of both, and what none does."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from zkgroup.schemas.column_types import decode_type, encode_type, widen
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
    ("known", "new", "why"),
    [
        (TEXT, I32, "value is string so far, and int32 in the schema"),
        (struct(a=pa.list_(struct(b=I32))), struct(a=pa.list_(struct(b=TEXT))), "value.a[].b is int32 so far"),
        (pa.map_(TEXT, I32), pa.map_(TEXT, TEXT), "value{} is int32 so far"),
        (struct(a=I32), struct(A=I32), "value.A is value.a so far"),
        (pa.decimal128(5, 2), pa.decimal128(6, 2), "value is decimal128(5, 2) so far"),
        (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC"), "value is timestamp[ms, tz=UTC] so far"),
    ],
    ids=str,
)
def test_an_incompatible_one_is_refused_with_its_path(known: Any, new: Any, why: str) -> None:
    with pytest.raises(IncompatibleSchemaError) as refused:
        widen(known, new, "value")
    assert refused.value.message.startswith(why)
