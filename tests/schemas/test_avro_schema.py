"""Avro → columns: each type, what has no column type, and bytes that are none of their schema."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lines import names

from zkgroup.c_extensions import avro_module
from zkgroup.schemas.field_decoder import AvroDecoder, make_decoder
from zkgroup.schemas.field_schema import FieldSchema, SchemaError

MOMENT = datetime(2024, 5, 1, 12, 30, 15, 123000, tzinfo=UTC)


def record(*types: Any, name: str = "R") -> dict[str, Any]:
    """A record with fields f0, f1, … of these types."""
    return {"type": "record", "name": name, "fields": [{"name": f"f{i}", "type": one} for i, one in enumerate(types)]}


def logical(kind: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def decoder(schema: Any, *, native: bool = True) -> AvroDecoder:
    """By the C extension, unless not ``native``."""
    found = make_decoder(FieldSchema("avro", json.dumps(schema)))
    assert isinstance(found, AvroDecoder)
    if not native:
        found._buffers = None
    return found


def encoded(schema: Any, value: Any) -> bytes:
    """The value as fastavro writes it, with its own logical types."""
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


INNER = record("string", ["null", logical("bytes", "decimal", precision=5, scale=2)], name="Inner")
#: Avro type, Arrow type, a value as fastavro writes it, and as it is in the column.
TYPES: list[tuple[Any, Any, Any, Any]] = [
    ("boolean", pa.bool_(), True, True),
    ("int", pa.int32(), -(1 << 31), -(1 << 31)),
    ("long", pa.int64(), (1 << 63) - 1, (1 << 63) - 1),
    ("float", pa.float32(), 0.5, 0.5),
    ("double", pa.float64(), 0.1, 0.1),
    ("bytes", pa.binary(), b"\xff\0", b"\xff\0"),
    ("string", pa.string(), "ü\0", "ü\0"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, pa.string(), "B", "B"),
    ({"type": "fixed", "name": "F", "size": 3}, pa.binary(), b"abc", b"abc"),
    ({"type": "array", "items": "int"}, pa.list_(pa.int32()), [1, 2], [1, 2]),
    ({"type": "array", "items": ["null", "int"]}, pa.list_(pa.int32()), [1, None], [1, None]),
    ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.int32()), {"a": 1}, [("a", 1)]),
    (["null", "string"], pa.string(), "x", "x"),
    (["string"], pa.string(), "x", "x"),
    (
        {"type": "map", "values": {"type": "array", "items": INNER}},
        pa.map_(pa.string(), pa.list_(pa.struct([("f0", pa.string()), ("f1", pa.decimal128(5, 2))]))),
        {"k": [{"f0": "x", "f1": Decimal("-1.50")}, {"f0": "y", "f1": None}]},
        [("k", [{"f0": "x", "f1": Decimal("-1.50")}, {"f0": "y", "f1": None}])],
    ),
    (
        logical("bytes", "decimal", precision=38, scale=10),
        pa.decimal128(38, 10),
        Decimal("-9999999999999999999999999999.9999999999"),
        Decimal("-9999999999999999999999999999.9999999999"),
    ),
    (
        {"type": "fixed", "name": "D", "size": 8, "logicalType": "decimal", "precision": 10, "scale": 0},
        pa.decimal128(10, 0),
        Decimal(-7),
        Decimal(-7),
    ),
    (logical("int", "date"), pa.date32(), date(1, 1, 1), date(1, 1, 1)),
    (logical("int", "time-millis"), pa.time32("ms"), time(23, 59, 59, 999000), time(23, 59, 59, 999000)),
    (logical("long", "time-micros"), pa.time64("us"), time(1, 2, 3, 4), time(1, 2, 3, 4)),
    (logical("long", "timestamp-millis"), pa.timestamp("ms", "UTC"), MOMENT, MOMENT),
    (logical("long", "timestamp-micros"), pa.timestamp("us", "UTC"), MOMENT, MOMENT),
    (
        logical("long", "local-timestamp-millis"),
        pa.timestamp("ms"),
        MOMENT.replace(tzinfo=None),
        MOMENT.replace(tzinfo=None),
    ),
    (
        logical("string", "uuid"),
        pa.string(),
        uuid.UUID(int=7),
        "00000000-0000-0000-0000-000000000007",
    ),
    (logical("string", "of another"), pa.string(), "x", "x"),
]


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(("avro", "arrow", "written", "read"), TYPES, ids=[json.dumps(one[0])[:60] for one in TYPES])
def test_each_type_has_its_column(avro: Any, arrow: Any, written: Any, read: Any, native: bool) -> None:
    """As a field of a record, alone, and null: of a nullable union, and where a message has nothing."""
    for schema, given_value, wanted in (
        (record(avro), {"f0": written}, {"f0": read}),
        (avro, written, read),
        (record(["null", avro] if not isinstance(avro, list) else avro), {"f0": written}, {"f0": read}),
    ):
        made = decoder(schema, native=native)
        assert made.type == (pa.struct([("f0", arrow)]) if isinstance(wanted, dict) else arrow)
        found, errors = made.decode(pa.array([encoded(schema, given_value), None], pa.binary()))
        assert (found.to_pylist(), errors) == ([wanted, None], {})
        found.validate(full=True)


#: A schema, the place that is refused (none where it is no schema), and what else is named.
REFUSED: list[tuple[Any, tuple[object, ...]]] = [
    (record(["null", "int", "string"]), ("$.f0", 2)),
    (record({"type": "array", "items": ["int", "string"]}), ("$.f0[]", 2)),
    (record({"type": "map", "values": record("null", name="I")}), ("$.f0{}.f0", "null")),
    (record(["null", "R"]), ("$.f0", "R", "R")),
    (record(), ("$",)),
    (record({"type": "fixed", "name": "F", "size": 0}), ("$.f0", "fixed")),
    (record(logical("bytes", "decimal", precision=39, scale=2)), ("$.f0", 39)),
    (
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "A", "type": "int"}]},
        ("$", "'A'"),
    ),
    ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "nothing"}]}, ()),
    ([], ("$", 0)),
    (7, ()),
    ({"type": "array"}, ()),
]


@pytest.mark.parametrize(("schema", "facts"), REFUSED, ids=[json.dumps(one[0])[:60] for one in REFUSED])
def test_what_has_no_column_type_is_refused_with_its_path(schema: Any, facts: tuple[object, ...]) -> None:
    with pytest.raises(SchemaError) as refused:
        decoder(schema)
    message = refused.value.message
    assert (message.split()[0] if message.startswith("$") else None) == next(iter(facts), None)
    assert names(message, *facts)


SCHEMA = record("string", "int", logical("long", "timestamp-millis"), logical("bytes", "decimal", precision=3, scale=1))
PLAIN = record("string", "long", "long", "bytes")
#: Bytes, and what their reason names: the field, or the error of fastavro.
WRONG: list[tuple[bytes, tuple[object, ...]]] = [
    (b"", ("EOFError",)),
    (encoded(PLAIN, {"f0": "x", "f1": 1, "f2": 1, "f3": b"\1"}) + b"\0", ()),
    (b"\x04\xff\xff\x02\x02\x02\x01", ("UnicodeDecodeError",)),
    (b"\xff\xff\xff\xff\x0f", ("EOFError",)),  # a length of 2 GB
    (encoded(PLAIN, {"f0": "x", "f1": 1 << 40, "f2": 1, "f3": b"\1"}), ()),
    (encoded(PLAIN, {"f0": "x", "f1": 1, "f2": 1 << 60, "f3": b"\1"}), ("$.f2",)),
    (encoded(PLAIN, {"f0": "x", "f1": 1, "f2": 1, "f3": b"\x7f\xff"}), ("$.f3", 3)),
]


@pytest.mark.parametrize(("data", "facts"), WRONG, ids=[one[0].hex() or "none" for one in WRONG])
def test_bytes_of_another_schema_are_null_with_a_reason(data: bytes, facts: tuple[object, ...]) -> None:
    """Those around them are decoded."""
    good = encoded(SCHEMA, {"f0": "x", "f1": 1, "f2": MOMENT, "f3": Decimal("99.9")})
    found, errors = decoder(SCHEMA).decode(pa.array([good, data, None, good], pa.binary()))
    right = {"f0": "x", "f1": 1, "f2": MOMENT, "f3": Decimal("99.9")}
    assert found.to_pylist() == [right, None, None, right]
    assert list(errors) == [1]
    assert names(errors[1], *facts)
    assert ("Error" in errors[1], "$" in errors[1]) == ("Error" in str(facts), "$" in str(facts))


def test_reasons_are_few() -> None:
    """Wherever a value is cut off, and whatever comes behind it."""
    good = encoded(SCHEMA, {"f0": "x" * 50, "f1": 1, "f2": MOMENT, "f3": Decimal("99.9")})
    cut, longer = ([*(good[:end] for end in range(40))], [*(good + b"\0" * more for more in range(1, 40))])
    _, errors = decoder(SCHEMA).decode(pa.array([*cut, *longer], pa.binary()))
    reasons = Counter(errors.values())
    assert {names(reason, "EOFError"): count for reason, count in reasons.items()} == {True: 40, False: 39}
    assert len(reasons) == 2


INNER_TOO = record("bytes", {"type": "fixed", "name": "F", "size": 2}, name="I")
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
EVERYTHING = record(
    "boolean",
    "int",
    "double",
    {"type": "array", "items": ["null", "string"]},
    {"type": "map", "values": INNER_TOO},
    ["null", record(ENUM, "float", {"type": "array", "items": "I"}, name="N")],
    logical("long", "timestamp-millis"),
    ["long", "null"],
    ["string"],
    logical("bytes", "decimal", precision=38, scale=2),
    ["null", {"type": "fixed", "name": "D", "size": 17, "logicalType": "decimal", "precision": 3, "scale": 0}],
)
inner = st.fixed_dictionaries({"f0": st.binary(max_size=3), "f1": st.binary(min_size=2, max_size=2)})
nested = {"f0": st.sampled_from("AB"), "f1": st.sampled_from([0.5, -2.0]), "f2": st.lists(inner, max_size=2)}
values = st.fixed_dictionaries(
    {
        "f0": st.booleans(),
        "f1": st.integers(-(1 << 31), (1 << 31) - 1),
        "f2": st.floats(allow_nan=False),
        "f3": st.lists(st.none() | st.text(max_size=3), max_size=3),
        "f4": st.dictionaries(st.text(max_size=2), inner, max_size=2),
        "f5": st.none() | st.fixed_dictionaries(nested),
        "f6": st.integers(-(1 << 40), 1 << 62),
        "f7": st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
        "f8": st.text(max_size=9),
        "f9": st.integers(1 - 10**38, 10**38 - 1).map(lambda number: Decimal(number).scaleb(-2, Context(prec=40))),
        "f10": st.none() | st.integers(-999, 999).map(Decimal),
    }
)


@st.composite
def some_bytes(draw: st.DrawFn) -> bytes | None:
    """A value of ``EVERYTHING``, most often whole."""
    data = encoded(EVERYTHING, draw(values))
    match draw(st.sampled_from(["whole", "whole", "null", "cut", "longer", "changed", "anything"])):
        case "null":
            return None
        case "cut":
            return data[: draw(st.integers(0, len(data) - 1))]
        case "longer":
            return data + b"\0"
        case "changed":
            place = draw(st.integers(0, len(data) - 1))
            return data[:place] + bytes([draw(st.integers(0, 255))]) + data[place + 1 :]
        case "anything":
            return draw(st.binary(max_size=40))
    return data


@pytest.mark.skipif(avro_module() is None, reason="there is no C extension")
@given(st.lists(some_bytes(), max_size=5), st.integers(0, 2))
def test_the_extension_decodes_what_fastavro_does(datas: list[bytes | None], before: int) -> None:
    """Whole values and broken ones, also in a slice of a column: none raises; and both give the same, but for encodings
    that Avro does not have and that fastavro lets pass."""
    made, slow = decoder(EVERYTHING), decoder(EVERYTHING, native=False)
    assert made._buffers is not None
    column = pa.array([*[b"\1"] * before, *datas], pa.binary()).slice(before)
    found, errors = made.decode(column)
    wanted, why = slow.decode(column)
    found.validate(full=True)
    assert set(why) <= set(errors)
    for place, (ours, theirs) in enumerate(zip(found.to_pylist(), wanted.to_pylist(), strict=True)):
        if place in errors and place not in why:
            assert not {"$", "("} & set(errors[place])  # neither a field nor an error of fastavro's
        else:
            if ours is not None:
                ours["f4"] = list(dict(ours["f4"]).items())  # a name that is there twice
            assert repr(ours) == repr(theirs)  # nan is not itself


def test_a_value_in_many_is_as_it_was_alone() -> None:
    """Buffers grow, and a broken value leaves nothing behind in them."""
    numbers = {"f0": True, "f1": 7, "f2": 0.5, "f6": 1, "f7": None, "f9": Decimal("-1.25"), "f10": Decimal(-7)}
    good = encoded(EVERYTHING, numbers | {"f3": ["x" * 99], "f4": {}, "f5": None, "f8": "y"})
    found, errors = decoder(EVERYTHING).decode(pa.array([good, good[:-1]] * 3000, pa.binary()))
    (alone,) = decoder(EVERYTHING).decode(pa.array([good], pa.binary()))[0].to_pylist()
    found.validate(full=True)
    assert len(errors) == 3000
    assert found.to_pylist() == [alone, None] * 3000
