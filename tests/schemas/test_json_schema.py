"""JSON Schema → columns: each type, what has no column type, values that are not of it, and both ways to read them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lines import names

from zkgroup.schemas.field_decoder import JsonDecoder, _decode_each, make_decoder
from zkgroup.schemas.field_schema import FieldSchema, SchemaError


def decoder(schema: Any) -> JsonDecoder:
    found = make_decoder(FieldSchema("json-schema", json.dumps(schema)))
    assert isinstance(found, JsonDecoder)
    return found


def binary(texts: list[str | None] | list[str]) -> Any:
    """A column of these."""
    return pa.array(texts, pa.string()).cast(pa.binary())


def fields(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


STRING, INTEGER = {"type": "string"}, {"type": "integer"}
#: Schema, Arrow type, a value as JSON, and as it is in the column.
TYPES: list[tuple[Any, Any, str, Any]] = [
    ({"type": "boolean"}, pa.bool_(), "true", True),
    (INTEGER, pa.int64(), "-9223372036854775808", -(1 << 63)),
    (INTEGER, pa.int64(), "1.0", 1),
    (INTEGER, pa.int64(), "12e2", 1200),
    ({"type": "number"}, pa.float64(), "1", 1.0),
    ({"type": "number"}, pa.float64(), "-0.25e1", -2.5),
    (STRING, pa.string(), r'"\u00fc\u0000\ud83d\ude00"', "ü\0😀"),
    ({"enum": ["a", "b"]}, pa.string(), '"a"', "a"),
    ({"const": "a"}, pa.string(), '"a"', "a"),
    ({"type": ["null", "string"]}, pa.string(), "null", None),
    ({"anyOf": [STRING, {"type": "null"}]}, pa.string(), '"x"', "x"),
    ({"$ref": "#/$defs/a~1b"}, pa.int64(), "3", 3),
    ({"allOf": [{"$ref": "#/$defs/a~1b"}]}, pa.int64(), "3", 3),
    (
        {"type": "string", "format": "date-time"},
        pa.timestamp("us", "UTC"),
        '"2024-05-01T14:00:00.5+02:00"',
        datetime(2024, 5, 1, 12, 0, 0, 500_000, UTC),
    ),
    ({"type": "string", "format": "date"}, pa.date32(), '"2024-05-01"', date(2024, 5, 1)),
    ({"type": "string", "format": "email"}, pa.string(), '"x"', "x"),
    ({"type": "array", "items": INTEGER}, pa.list_(pa.int64()), "[1, null]", [1, None]),
    ({"type": "object", "additionalProperties": INTEGER}, pa.map_(pa.string(), pa.int64()), '{"a": 1}', [("a", 1)]),
    (fields(a=INTEGER, b=STRING), pa.struct([("a", pa.int64()), ("b", pa.string())]), '{"a":1}', {"a": 1, "b": None}),
    (fields(a=STRING), pa.struct([("a", pa.string())]), '{"a":"x","c":[{"d":1e300}]}', {"a": "x"}),
]


@pytest.mark.parametrize(("schema", "arrow", "text", "read"), TYPES, ids=[json.dumps(one[0])[:60] for one in TYPES])
def test_each_type_has_its_column(schema: Any, arrow: Any, text: str, read: Any) -> None:
    """As a field with another one, and in a list of objects; a field that is null, or not there, is null."""
    whole = fields(f=schema, g={"type": "array", "items": fields(f=schema)}, n=INTEGER) | {"$defs": {"a/b": INTEGER}}
    made = decoder(whole)
    assert made.type == pa.struct([("f", arrow), ("g", pa.list_(pa.struct([("f", arrow)]))), ("n", pa.int64())])
    values = [f'{{"f":{text},"g":[{{"f":{text}}},{{}}],"n":1}}', f'{{"n":null,\n"f":{text}}} ', None, "{}"]
    found, errors = made.decode(binary(values))
    found.validate(full=True)
    assert errors == {}
    assert found.to_pylist() == [
        {"f": read, "g": [{"f": read}, {"f": None}], "n": 1},
        {"f": read, "g": None, "n": None},
        None,
        {"f": None, "g": None, "n": None},
    ]


def test_a_value_need_not_be_an_object() -> None:
    """As keys often are not."""
    found, errors = decoder(INTEGER).decode(binary(["1", "null", "[]"]))
    assert found.to_pylist() == [1, None, None]
    assert list(errors) == [1, 2]
    assert (names(errors[1], "$", "null"), names(errors[2], "$", "integer")) == (True, True)


#: A schema, the place that is refused, and what else is named.
REFUSED: list[tuple[Any, tuple[object, ...]]] = [
    (fields(a={}), ("$.a",)),
    (fields(a=True), ("$.a",)),
    (fields(a={"type": "object"}), ("$.a", "object")),
    (fields(a={"type": "array"}), ("$.a", "array")),
    (fields(a={"type": "array", "items": fields(b={"type": ["string", "integer"]})}), ("$.a[].b", 2)),
    (fields(a={"oneOf": [STRING, INTEGER]}), ("$.a", 2)),
    (fields(a={"$ref": "#"}), ("$.a",)),
    (fields(a={"$ref": "#/properties/a"}), ("$.a",)),
    (fields(a={"$ref": "#/nowhere"}), ("$.a", "#/nowhere")),
    (fields(a={"$ref": "other.json"}), ("$.a", "other.json")),
    (fields(a=STRING, A=STRING), ("$", "'A'")),
    ([], ("$",)),
    (fields(a={"type": "date"}), ("$.a", "date")),
    ({"type": 5}, ("this", "JSON Schema")),
]


@pytest.mark.parametrize(("schema", "facts"), REFUSED, ids=[json.dumps(one[0])[:60] for one in REFUSED])
def test_what_has_no_column_type_is_refused_with_its_path(schema: Any, facts: tuple[object, ...]) -> None:
    with pytest.raises(SchemaError) as refused:
        decoder(schema)
    assert refused.value.message.split()[0] == facts[0]
    assert names(refused.value.message, *facts)


SCHEMA = fields(
    "a", "l",
    a=INTEGER, n={"type": ["number", "null"]}, s=STRING, b={"type": "boolean"},
    t={"type": "string", "format": "date-time"}, d={"type": "string", "format": "date"},
    l={"type": "array", "items": fields("x", x=INTEGER)},
)  # fmt: skip
#: A value, and what its reason names: the field, and the type that it should have.
WRONG: list[tuple[str, tuple[object, ...]]] = [
    ("", ("JSON",)),
    ('{"a":1,"l":[]', ("JSON",)),
    ('{"a":1,"l":[]}{"a":1,"l":[]}', ("JSON",)),
    ('{"a":1,"l":[],"s":"\\ud800"}', ("JSON",)),
    ('{"a":1,"l":[],"s":"\n"}', ("JSON",)),
    ("[]", ("$", "object")),
    ("null", ("$", "null")),
    ("{}", ("$.a",)),
    ('{"a":null,"l":[]}', ("$.a",)),
    ('{"a":1,"l":[{}]}', ("$.l[].x",)),
    ('{"a":"1","l":[]}', ("$.a", "integer")),
    ('{"a":1.5,"l":[]}', ("$.a", "integer")),
    ('{"a":true,"l":[]}', ("$.a", "integer")),
    ('{"a":9223372036854775808,"l":[]}', ("$.a", "integer", 64)),
    ('{"a":1,"l":{}}', ("$.l", "array")),
    ('{"a":1,"l":[],"n":"1"}', ("$.n", "number")),
    ('{"a":1,"l":[],"s":1}', ("$.s", "string")),
    ('{"a":1,"l":[],"b":1}', ("$.b",)),
    ('{"a":1,"l":[],"t":"2024-05-01T00:00:00"}', ("$.t",)),
    ('{"a":1,"l":[],"t":"soon"}', ("$.t",)),
    ('{"a":1,"l":[],"d":"2024-02-30"}', ("$.d",)),
]


@pytest.mark.parametrize(("text", "facts"), WRONG, ids=[one[0] for one in WRONG])
def test_a_value_of_another_schema_is_null_with_a_reason(text: str, facts: tuple[object, ...]) -> None:
    """Those around it are decoded."""
    good = '{"a":1,"l":[{"x":1}]}'
    found, errors = decoder(SCHEMA).decode(binary([good, text, None, good]))
    right = dict.fromkeys("nsbtd") | {"a": 1, "l": [{"x": 1}]}
    assert found.to_pylist() == [right, None, None, right]
    assert list(errors) == [1]
    assert names(errors[1], *facts)
    assert ("$" in errors[1]) == (facts != ("JSON",))


scalars = (
    st.none() | st.booleans() | st.integers(-(1 << 65), 1 << 65) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("aü\0\"", max_size=3) | st.sampled_from(["2024-05-01", "2024-05-01T00:00:00Z", "2024-05-01T00:00Z"])
    | st.sampled_from(["0001-01-01T00:00:00+01:00", "0000-01-01", "9999-12-31T23:59:59-01:00"])
    | st.sampled_from(["2024-05-01T00:00:00.1234567+02:00", "1900-05-01T00:00:00.999999999Z", "x.1234567890Z"])
)  # fmt: skip
any_json = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ax"), inner)
)
likely = st.fixed_dictionaries(
    {"a": st.integers(-9, 9), "l": st.lists(st.fixed_dictionaries({"x": st.integers(0, 9)}), max_size=2)},
    optional={
        "n": st.floats(allow_nan=False, allow_infinity=False),
        "s": st.text(max_size=2),
        "t": scalars,
        "d": scalars,
        "z": any_json,
    },
)


#: What may be cut off one value, and be in the next.
PIECES = st.sampled_from(
    [
        b'{"a":',
        b'1,"l":[',
        b"]",
        b"{",
        b"}",
        b'"',
        b'"s":"',
        b'}{"a":1,"l":[]}',
        b"\n",
        b",",
        b"\xff",
        b'"n":NaN',
        b"-Inf",
    ]
)
broken = st.lists(PIECES, max_size=6).map(b"".join) | st.lists(PIECES, max_size=6).map(lambda x: b"{%b}" % b"".join(x))
whole = st.one_of(likely, likely, likely, any_json).map(lambda value: json.dumps(value).encode())


@given(st.lists(whole | broken, min_size=1, max_size=4))
def test_both_ways_to_read_agree(datas: list[bytes]) -> None:
    """Arrow's reader, where it takes a batch, has read what value by value is read: also where a value is no JSON, and
    becomes some with the next one."""
    made, column = decoder(SCHEMA), pa.array(datas, pa.binary())
    found, errors = made.decode(column)
    found.validate(full=True)
    slow, slow_errors = _decode_each(column, made.decode_one, made.type)
    assert (repr(found.to_pylist()), errors) == (repr(slow.to_pylist()), slow_errors)  # nan is not itself


def test_what_only_arrow_takes_is_taken_in_any_batch() -> None:
    """Numbers that are none, and more levels than orjson has: also next to a value that is read alone."""
    texts = ['{"a":1,"l":[],"n":NaN}', '{"a":2,"l":[],"z":' + "[" * 2000 + "]" * 2000 + "}"]
    alone, beside = decoder(SCHEMA).decode(binary(texts)), decoder(SCHEMA).decode(binary([*texts, "no JSON"]))
    assert (alone.errors, list(beside.errors)) == ({}, [2])
    assert repr(beside.column.to_pylist()[:2]) == repr(alone.column.to_pylist())
    assert str(alone.column[0].as_py()["n"]) == "nan"


@pytest.mark.parametrize(
    "field",
    [
        '"t":"0001-01-01T00:00:00+01:00"',
        '"t":"0000-01-01T00:00:00.123456789Z"',
        '"t":"9999-12-31T23:59:59-01:00"',
        '"d":"0000-01-01"',
        '"m":[{"t":"0000-01-01T00:00:00Z"}]',
        '"m":[{"d":"0000-01-01"}]',
    ],
)
def test_a_time_of_no_calendar_decodes_in_no_batch(field: str) -> None:
    """Arrow's reader takes years before 1 and after 9999, which most readers of the files do not."""
    time, day = {"type": "string", "format": "date-time"}, {"type": "string", "format": "date"}
    made = decoder(fields(a=INTEGER, t=time, d=day, m={"type": "array", "items": fields(t=time, d=day)}))
    text, good = f'{{"a":1,{field}}}', '{"a":1,"m":[{}]}'
    for texts in ([text], [text] * 600, [good, text], [*[good] * 600, text], [text, "no JSON"], [text, None]):
        found, errors = made.decode(binary(texts))
        wrong = {place for place, one in enumerate(texts) if one not in (good, None)}
        assert errors.keys() == wrong
        assert [row is None for row in found.to_pylist()] == [one != good for one in texts]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_is_one_in_any_schema(text: str) -> None:
    """Also where Arrow's reader is of no use: with a map anywhere, and where a value is no object."""
    number = {"type": "number"}
    schema = fields(n=number, m={"type": "object", "additionalProperties": number}, a=INTEGER)
    good = f'{{"n":{text},"m":{{"x":{text}}}}}'
    found, errors = decoder(schema).decode(
        binary(
            [
                good,
                f'{{"a":{text}}}',
                f'{{"n":{text}',
                f'{{"n":{text},"z":"\\ud800"}}',
                f'{{"z":{text},"n":1' + "[" * 9999,
            ]
        )
    )
    assert repr(found[0].as_py()) == repr({"n": float(text), "m": [("x", float(text))], "a": None})
    assert list(errors) == [1, 2, 3, 4]
    assert names(errors[1], "$.a", "integer")
    assert repr(decoder(number).decode(binary([text])).column.to_pylist()) == repr([float(text)])


@pytest.mark.parametrize(
    "texts",
    [
        ['{"a":1,"l":[],"s":"}', '{"}', "{}{}"],
        ['{"a":1,"l":[]}{"a":1,"l":[]}', '{"a":1,"l":[{"x":1}', '{"x":2}]}'],
        ['{"a":1,"l":[],"z":{}', '{"a":1,"l":[]}}'],
    ],
)
def test_values_that_are_json_together_are_none_alone(texts: list[str]) -> None:
    """As many objects as values, or parts of one."""
    assert len(decoder(SCHEMA).decode(binary(texts)).errors) == len(texts)


def test_a_batch_with_a_wrong_value_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but some hundred values around it are read by Arrow's reader; nulls keep their places."""
    made, each = decoder(SCHEMA), list[int]()
    slowly = made.decode_one
    monkeypatch.setattr(made, "decode_one", lambda data: (each.append(1), slowly(data))[1])
    texts = [None, *(f'{{"a":{number},"l":[]}}' for number in range(4000))]
    texts[3000] = "no JSON"
    found, errors = made.decode(binary(texts))
    assert [row and row["a"] for row in found.to_pylist()] == [None, *range(2999), None, *range(3000, 4000)]
    assert list(errors) == [3000]
    assert len(each) < 500


def test_the_common_batch_is_read_by_arrow() -> None:
    """Values as they are most often, among them some that are null, or have line breaks: at once."""
    made = decoder(SCHEMA)
    texts = ['{"a":1,"l":[{"x":2}],"t":"2024-05-01T00:00:00.123Z"}', '{\n "a": 2,\n "l": []\n}', ' {"l":[],"a":3}\n']
    assert made._decode_all(binary(texts)) is not None
    assert made._decode_all(binary(["x", *texts]).slice(1, 2)).to_pylist()[1]["a"] == 2
    assert made._decode_all(binary([*texts, '{"a":1}'])) is None


def test_nanoseconds_are_read_by_arrow() -> None:
    """As Go and .NET write times: cut to microseconds, however deep, also next to nulls and before 1970."""
    time = {"type": "string", "format": "date-time"}
    made = decoder(fields(t=time, l={"type": "array", "items": fields(t=time)}))
    times = ["2024-05-01T12:00:00.123456789Z", "1960-05-01T12:00:00.1234567+02:00", "2024-05-01T12:00:00Z"]
    texts = [json.dumps({"t": one, "l": [{"t": one}, None, {}]}) for one in times]
    column = binary([*texts, '{"l":null}', "{}"])
    found = made._decode_all(column)
    found.validate(full=True)
    assert found.to_pylist() == _decode_each(column, made.decode_one, made.type).column.to_pylist()
    assert found.to_pylist()[1]["l"][0]["t"].microsecond == 123456
