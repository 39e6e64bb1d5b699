"""Input that means harm, or is just broken: every parser gives a value or one line that says what is wrong.

A table of all parsers, each with documents that it reads. What is tried: any bytes, and such a document malformed:
bytes changed, cut, doubled; JSON with any value in any place. Found once, kept as an example.
"""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hostile_parsers import BACKUP, LONG, PARSERS, RECORD, SANDBOX
from hypothesis import given, settings
from hypothesis import strategies as st
from support import scaled

from zkgroup.config.profiles import read_profiles
from zkgroup.config.setting_files import read_properties
from zkgroup.errors import ZkgroupError
from zkgroup.export.model import run_record
from zkgroup.groups.changes.backup import encode as encode_backup
from zkgroup.groups.changes.export_znodes import Pointer, encode_pointer


def tame(name: str, data: bytes) -> None:
    """A value, or an expected error of one line that is not long."""
    try:
        PARSERS[name].parse(data)
    except ZkgroupError as error:
        message = str(error)
        assert "\n" not in message
        assert len(message) < 1500


ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 2**31, 2**63, 2**64 - 1, -(2**63), "", "0", "\0", "a\nb", "\u2028", LONG, "9" * 5000),
    *([], [[]], {}, {"": None}, [None], {"0": {}}, [1, [2]], "١", "../..", "NaN"),
)
PIECES = (
    *(b"", b"\0", b"\n", b"\r", b"\\", b'"', b"'", b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80"),
    *(b"[" * 2000, b"{", b"}", b"9" * 5000, b"-", b"NaN", b"1e999", b"\\u", b"\\ud800", b",", b":", b"=", b"/"),
    *(b"(" * 2000, b"(a*)*", b"{1,99999}", b"[a-z&&[", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff", b"\x85"),
    *(b"\xc0\x80", b"\x1b[31m", b"\xe2\x80\xa8"),
)  # fmt: skip


def damaged_text(draw: random.Random, good: bytes) -> bytes:
    """A good document with some places of it changed."""
    for _ in range(draw.randint(1, 4)):
        start = draw.randint(0, len(good))
        end = min(len(good), start + draw.choice((0, 1, 1, 4, 20)))
        piece = draw.choice(
            (draw.choice(PIECES), draw.randbytes(draw.randint(1, 4)), good[draw.randint(0, len(good)) :])
        )
        good = good[:start] + piece + good[end:]
        if len(good) > 100_000:
            break
    return good


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a JSON value: the container, and which key or index of it."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def damaged_json(draw: random.Random, good: bytes) -> bytes:
    """A good document in which some values are others, missing, or under another name."""
    value = orjson.loads(good)
    for _ in range(draw.randint(1, 3)):
        found = list(places(value))
        if not found:
            break
        container, key = draw.choice(found)
        what = draw.randint(0, 5)
        if what == 0:
            del container[key]
        elif what == 1 and isinstance(container, dict):
            container[str(draw.choice(ODD))] = container.pop(key)
        elif what == 2:
            other, which = draw.choice(found)
            container[key] = json.loads(json.dumps(other[which]))
        else:
            container[key] = copy.deepcopy(draw.choice(ODD))
    return json.dumps(value, ensure_ascii=draw.random() < 0.5).encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("name", PARSERS)
def test_good_documents_are_read(name: str) -> None:
    """What the malformed documents are made of is read without a word, in its own format."""
    if name.endswith(" file") and name != "any file":
        return  # the same documents, most of them of other formats
    for data in PARSERS[name].good:
        PARSERS[name].parse(data)


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=scaled(60))
@given(data=st.binary(max_size=300))
def test_any_bytes(name: str, data: bytes) -> None:
    """No bytes bring forth anything but a value or one line."""
    tame(name, data)


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=scaled(150))
@given(seed=st.integers(0, 2**64))
def test_malformed_documents(name: str, seed: int) -> None:
    """Nor does a document that was right before something in it was changed."""
    draw = random.Random(seed)
    good = draw.choice(PARSERS[name].good)
    tame(name, damaged_json(draw, good) if PARSERS[name].json and draw.random() < 0.7 else damaged_text(draw, good))


DEEP = 1020  # orjson's own limit is a little above
FOUND: list[tuple[str, bytes]] = [
    # Quoted in a message with all its levels, which took more than Python's stack.
    ("registration", b'{"pattern":"static","subscription":{"t":' + b"[" * DEEP + b"]" * DEEP + b"}}"),
    ("pointer", b'{"format":' + b"[" * DEEP + b"]" * DEEP + b"}"),
    ("unfinished", b'{"state":"decided","run":' + b"[" * 970 + b"]" * 970 + b"}"),
    # Deeper than the parsers' own stacks.
    ("profiles", b"a = " + b"[" * 100_000),
    ("profiles", b"a = " + b"{a = " * 100_000),
    ("sandbox", b"[" * 100_000),
    ("any file", b'{"a":' * 1_000_000),
    # Numbers of thousands of digits, which Python refuses to read, and to show.
    ("profiles", b"[clusters.a]\nconnect-timeout = " + b"9" * 5000),
    ("profiles", b"[clusters.a.kafka]\nx = 0x" + b"f" * 5000),
    ("profiles", b"[clusters.a]\nconnect-timeout = 0x" + b"f" * 5000),
    ("consumer", b"zookeeper.connection.timeout.ms=" + b"9" * 5000),
    ("file name", b"topic=a/partition=0/" + b"9" * 5000 + b"-1.parquet"),
    ("file name", b"topic=a/partition=" + b"9" * 5000 + b"/1-2.parquet"),
    # Right JSON with other types than were written: accepted, and then a traceback far away.
    ("record", run_record.encode_record(RECORD).replace(b'"start": 5', b'"start": "5"')),
    ("record", run_record.encode_record(RECORD).replace(b'"rows": 4', b'"rows": null')),
    ("sandbox", json.dumps(SANDBOX | {"folder": None, "ready": "yes"}).encode()),
    ("backup", encode_backup(BACKUP).replace(b'"time": 1,', b'"time": 9223372036854775807,')),
    # Line breaks, and names without end, in messages.
    ("backup", encode_backup(BACKUP).replace(b'"zkgroup_backup": 2', rb'"zkgroup_backup": "a\nb"')),
    ("profiles", b'[clusters."a\\nb"]\nx = 1'),
    ("profiles", b"[clusters.a]\n" + b"x" * 5000 + b" = 1"),
    ("scope", b"a\nb:x"),
    ("consumer", rb"auto.commit.enable=a\nb"),
    ("consumer", rb"group.id=a\nb"),
    ("pointer", encode_pointer(Pointer("decided", "", "")).replace(b"decided", b"x" * 5000)),
    ("pointer", encode_pointer(Pointer("decided", "", "")).replace(b"decided", rb"a\nb")),
    # Work that grew with the square of the size.
    ("properties", b"\\\n" * 500_000),
    ("connect string", b"h/" + b"," * 100_000),
    ("connect string", b"h/" + b",a" * 50_000 + b":"),
    # What always was reported in a line.
    ("any file", b"\xff\xfe" + "t 0 1\n".encode("utf-16-le")[:-1]),
    ("any file", b"t 0 1\n\0"),
    ("any file", "tøpic 0 1\n".encode("latin-1")),
    ("any file", b'{"t":{"0":1,"\\ud800":2}}'),
    ("any file", b"t " * 5_000_000),
    ("csv file", b'"' + b"x" * 10_000_000),
    ("zk file", b"/consumers/g/offsets/t/0:" + b"1" * 10_000_000),
    ("json file", b'{"t":{"0":' + b"1" * 5_000_000 + b"}}"),
    ("json file", b'{"t":{"0":1}},' * 500_000),
    ("profiles", b"\xff\xfea\0"),
    ("profiles", b"[[clusters]]\n" * 50_000),
    ("properties", b"x" * 1_000_000),
    ("properties", b"\\u12"),
    ("properties", b"\xff\xfea\0=\0b\0"),
    ("duration", b"P" + b"9" * 100_000 + b"D"),
    ("duration", b"PT" + b"9" * 100_000 + b"." + b"9" * 20_000 + b"S"),
    ("time", b"@" * 100_000),
    ("metadata", b"\x7f\xff\xff\xff" * 10),
    ("metadata", b"\0\0\0\0\0\0\0\1" + b"\0\0\0t\0\0\0\1" * 3 + b"\xff" * 20),
    ("offsets", b"\0\0\0\1\0\1t\0\0\0\1" + b"\0\0\0\0\0\0\x80\0\0\0"),
    ("filter", b"(" * 50_000),
    ("filter", b"(a{1,1000}){1,1000}{1,1000}"),
    ("filter", b"(?:(?:(?:(?:x{0,255}){0,255}){0,255}){0,255})"),
    ("filter", b"(x+x+)+(x+x+)+y"),
    ("filter", b"(.*)*\\1" * 20 + b"z"),
    ("filter", b"(?=(x+)+(x+)+y)x*"),
    ("filter", b"[" + b"a-z&&[" * 5000),
    ("filter", b"a|" * 100_000),
    ("filter", b"\\p{" + b"L" * 100_000 + b"}"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "data"), FOUND, ids=[f"{name}-{n}" for n, (name, _) in enumerate(FOUND)])
def test_what_was_found(name: str, data: bytes) -> None:
    """Each takes less than ten seconds of the processor; what grew with the square of its size took minutes."""
    started = time.process_time()
    tame(name, data)
    assert time.process_time() - started < 10


@pytest.mark.parametrize("read", [read_properties, lambda path: read_profiles(path, must_exist=True)])
def test_a_file_without_an_end(read: Callable[[Path], object]) -> None:
    """A device is read only so far as a file of settings may be long."""
    with pytest.raises(ZkgroupError, match=r"/dev/zero\b.*\b1 MiB"):
        read(Path("/dev/zero"))
