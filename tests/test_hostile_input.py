"""Input that means harm, or is just broken: every parser gives a value or one line that says what is wrong.

A table of all parsers, each with documents that it reads. What is tried: any bytes, and such a document spoilt: bytes
changed, cut, doubled; JSON with any value in any place. Found once, kept as an example.
"""

from __future__ import annotations

import copy
import json
import random
import sqlite3
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zkgroup.config.connection import parse_bootstrap, parse_connect_string
from zkgroup.config.consumer import load_consumer_config
from zkgroup.config.credentials import read_credentials
from zkgroup.config.profiles import read_profiles
from zkgroup.config.properties import parse_properties, read_properties
from zkgroup.connector.start import parse_start
from zkgroup.errors import ZkgroupError
from zkgroup.export import documents
from zkgroup.export.layout import Layout, read_name
from zkgroup.export.rundata import (
    Manifest,
    ManifestFile,
    ManifestPart,
    Pointer,
    RunPlan,
    Settled,
    TopicCoverage,
    TopicIdentity,
    shares,
)
from zkgroup.export.words import PartitionPlan, Skipped, Slice
from zkgroup.groups.backup import Backup, Cluster, SavedNode, SavedOffset
from zkgroup.groups.backup import read as read_backup
from zkgroup.groups.backup_json import encode as encode_backup
from zkgroup.groups.files import FORMATS, parse_offsets
from zkgroup.groups.guard import decode_exporter
from zkgroup.groups.history import History
from zkgroup.groups.progress import Sample
from zkgroup.groups.scope import parse_scope
from zkgroup.groups.stored import stored_offset
from zkgroup.groups.targets import parse_duration, parse_time
from zkgroup.groups.unfinished import UnfinishedExportError, told_of_export
from zkgroup.protocol import brokers, znodes
from zkgroup.protocol.filters import TopicFilter
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import Node, Stat
from zkgroup.sandbox.state import read_state, write_state
from zkgroup.servers import wire
from zkgroup.shapes import require

LONG = "x" * 5000
STAT = Stat(0, 1, 1, 1, 1, 0, 0, 0)


def of_file(read: Callable[[Path], object], name: str) -> Callable[[bytes], object]:
    """A parser that takes a file, called ``name`` in a folder of its own."""

    def parse(data: bytes) -> object:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            path.write_bytes(data)
            return read(path)

    return parse


def of_text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    """A parser that takes what stands on a command line: any bytes but zero, as Python tells them."""
    return lambda data: read(data.replace(b"\0", b"").decode("utf-8", "surrogateescape"))


def again(decode: Callable[[str, bytes], Any], encode: Callable[[Any], bytes]) -> Callable[[bytes], object]:
    """A parser of documents of our own: what it accepts can be written, and read as the same."""

    def parse(data: bytes) -> object:
        found = decode("doc", data)
        if found is not None:
            assert decode("doc", encode(found)) == found
        return found

    return parse


def manifest(data: bytes) -> object:
    """A manifest, with what everyone computes of one."""
    found = documents.decode_manifest("doc", data)
    assert documents.decode_manifest("doc", documents.encode_manifest(found)) == found
    return list(shares(found)), [(part.moves, part.balanced) for part in found.parts]


def backup(data: bytes) -> object:
    """A backup, which can be written again."""
    found = of_file(read_backup, "b.json")(data)
    assert isinstance(found, Backup)
    assert of_file(read_backup, "b.json")(encode_backup(found)) == found
    return found


def state(folder: Path) -> object:
    """A sandbox's state, with what everyone asks of one."""
    found = read_state(folder)
    if found is not None:
        write_state(replace(found, folder=str(folder)))
        assert read_state(folder) == replace(found, folder=str(folder))
        return found.zookeeper, found.brokers, [one.process.alive() for one in (*found.servers, *found.members)]
    return None


def answers(read: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """A parser of a broker's answer, which tells by struct.error what is none."""

    def parse(data: bytes) -> object:
        try:
            return read(data)
        except struct.error:
            raise ZkgroupError("no answer") from None

    return parse


IDENTITY = TopicIdentity(17, "abc", "delete", None)
PART = PartitionPlan(TopicPartition("orders", 0), 5, 2, 5, 9, (Skipped("expired", 3, 5),), True)
SLICE = Slice(0, 5, 9, 4)
PLAN = RunPlan(
    "r1", "g", "export", "c", 1, "read_committed", "zstd", 9, 9, None, False, False, {"orders": IDENTITY}, (PART,)
)
COVERAGE = {"orders": TopicCoverage(IDENTITY, {0: ((0, 5), (7, 9))}, {0: 3})}
MANIFEST = Manifest(
    *("r1", "g", "export", "c", "p", "a", 1, 2, "read_committed"),
    (ManifestPart(PART, 9, 4, 0, {"compacted": 0}),),
    COVERAGE,
    files=(ManifestFile("w", "topic=orders/0.5-9.parquet", "orders", 4, 100, (SLICE,)),),
)
BACKUP = Backup(
    "reset-offsets",
    "g",
    1,
    Cluster("h:1", "id", (1, 2)),
    (
        SavedOffset("zookeeper", TopicPartition("orders", 0), 1, None, b"x"),
        SavedOffset("kafka", TopicPartition("t", 1), None, 3),
    ),
    (SavedNode("/consumers/g", b"\xff"),),
)  # fmt: skip
PROCESS = {"pid": 1, "started": "1"}
SANDBOX = {
    "name": "s", "kafka": "1.1.1", "connect": "h:1", "bootstrap": "h:2", "folder": "/f", "ready": True,
    "servers": [{"name": "z", "host": "h", "port": 1, "process": PROCESS, "log": "l", "broker_id": None}],
    "members": [{"name": "m", "group": "g", "release": "1.1.1", "process": PROCESS, "log": "l"}],
    "owner": PROCESS,
}  # fmt: skip
TOML = """
[clusters.prod]
zookeeper = "zk1:2181,zk2:2181/kafka"
connect-timeout = 10
protected = true
kafka = { "security.protocol" = "SASL_SSL" }
[clusters."b".properties]
"auto.offset.reset" = "smallest"
"x" = 0x1F
"""
PROPERTIES = b"# c\ngroup.id = g\\\n  h\na:b\\u00e4\\t\nzookeeper.connect h1:2181,h2:2181/x\n"
METADATA = struct.pack("!iih1siihh1sihiiiiii", 1, 1, 1, b"h", 9092, 1, 0, 1, b"t", 1, 0, 0, 1, 1, 1, 1, 1)


def history(path: Path) -> object:
    """A file of looks, with what is asked of one; samples are what rules count with."""
    with History(path) as kept:
        found = kept.window("c", "g", "zookeeper", 5, 10**12)
    require([sample for samples in found.values() for sample in samples], list[Sample])
    return found


def looks() -> bytes:
    """A file of looks with two in it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "history")
        with History(path):
            pass
        with sqlite3.connect(path) as connection:
            for number, at in enumerate((1_000_000, 2_000_000)):
                connection.execute("INSERT INTO look VALUES (?, 'c', 'g', 'zookeeper', ?)", (number, at))
                connection.execute("INSERT INTO seen VALUES (?, 'orders', 0, 5, 9, NULL)", (number,))
        connection.close()
        return path.read_bytes()


@dataclass(frozen=True)
class Parser:
    """One parser, what it reads, and whether that is JSON."""

    parse: Callable[[bytes], object]
    good: tuple[bytes, ...]
    json: bool = False


def znode(decode: Callable[[str, bytes], object], path: str, *good: bytes) -> Parser:
    """A parser of a znode's data, which is JSON."""
    return Parser(lambda data: decode(path, data), good, json=True)


PARSERS: dict[str, Parser] = {
    "registration": znode(
        znodes.decode_registration,
        "/consumers/g/ids/g_a",
        b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1"}',
        rb'{"version":1,"subscription":{"t\\w+":2},"pattern":"white_list","timestamp":"1"}',
    ),
    "broker": znode(
        brokers.decode_broker,
        "/brokers/ids/1",
        b'{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1"}',
        b'{"version":5,"host":null,"port":-1,"endpoints":["A://[::1]:9"],"listener_security_protocol_map":{"A":"SSL"}}',
    ),
    "topic": znode(brokers.decode_topic, "/brokers/topics/t", b'{"version":3,"partitions":{"0":[1,2]},"topic_id":"x"}'),
    "partition": znode(
        brokers.decode_partition_state, "/state", b'{"controller_epoch":1,"leader":2,"leader_epoch":0,"isr":[2,1]}'
    ),
    "controller": znode(brokers.decode_controller, "/controller", b'{"version":1,"brokerid":3,"timestamp":"1"}'),
    "offset": Parser(lambda data: znodes.decode_offset("/o", data), (b"17", b" -1\n")),
    "stored": Parser(lambda data: stored_offset("/o", Node(data, STAT)), (b"17", "١٢".encode())),
    "pointer": Parser(
        again(documents.decode_pointer, documents.encode_pointer),
        (documents.encode_pointer(Pointer("decided", "r", "/out", "p", "a", "m")),),
        json=True,
    ),
    "plan": Parser(again(documents.decode_plan, documents.encode_plan), (documents.encode_plan(PLAN),), json=True),
    "manifest": Parser(manifest, (documents.encode_manifest(MANIFEST),), json=True),
    "settled": Parser(
        again(documents.decode_settled, documents.encode_settled),
        (documents.encode_settled(Settled("keep", 1, (TopicPartition("t", 0),), COVERAGE)),),
        json=True,
    ),
    "backup": Parser(backup, (encode_backup(BACKUP),), json=True),
    "sandbox": Parser(
        of_file(lambda path: state(path.parent), "state.json"), (json.dumps(SANDBOX).encode(),), json=True
    ),
    "profiles": Parser(of_file(lambda path: read_profiles(path, must_exist=True), "c.toml"), (TOML.encode(),)),
    "history": Parser(of_file(history, "history"), (looks(),)),
    "unfinished": Parser(
        lambda data: told_of_export("g", data) and str(UnfinishedExportError("g", data)),
        (documents.encode_pointer(Pointer("decided", "r", "/out", "p", "a", "m")),),
        json=True,
    ),
    "exporter": Parser(decode_exporter, (b'{"host":"h","pid":7,"run":"r","since":1}',), json=True),
    "properties": Parser(lambda data: parse_properties(data, "file"), (PROPERTIES,)),
    "consumer": Parser(
        lambda data: load_consumer_config(parse_properties(data, "file"), group="g"),
        (b"zookeeper.session.timeout.ms=1000\nauto.offset.reset=smallest\nkafka.linger.ms=3\ndual.commit.enabled=true",),
    ),
    "credentials": Parser(
        of_file(lambda path: read_credentials(path, "profile"), "auth"), (b"digest a:b\n# c\nuser:pass word\n",)
    ),
    "filter": Parser(
        of_text(lambda text: TopicFilter("black_list", text).select(["orders", "a.b", "x" * 200])),
        (rb"(?i)or(d|e)*rs|[a-z&&[^b]]+\p{Alpha}{2}(?<n>a)\k<n>\Qx\E", b"(a*)*b,(x+x+)+y"),
    ),
    "connect string": Parser(of_text(lambda text: parse_connect_string(text, "flag")), (b"h1:2181,[::1]:2/x/y",)),
    "bootstrap": Parser(of_text(lambda text: parse_bootstrap(text, "flag")), (b"SSL://h1:9092,h2",)),
    "time": Parser(of_text(parse_time), (b"2024-05-01T12:00:00+02:00", b"0001-01-01T00:00+23:59")),
    "duration": Parser(of_text(parse_duration), (b"P1DT2H0.5S", b"P2W")),
    "start": Parser(of_text(parse_start), (b"@2024-05-01T12:00", b"-100", b"@0001-01-01T00:00+23:59")),
    "scope": Parser(of_text(lambda text: parse_scope([text])), (b"orders:0,2-5", b"orders")),
    "file name": Parser(
        of_text(read_name), (b"topic=orders/partition=0/date=2024-01-01/5-9.parquet", b"topic=a/0.5-9.parquet")
    ),
    "period": Parser(
        of_text(lambda text: period(text)), (b"topic=orders/date=2024-01-01/hour=3/0.5-9.parquet",)
    ),
    "metadata": Parser(answers(wire.read_metadata), (METADATA,)),
    "offsets": Parser(
        answers(wire.read_offsets), (struct.pack("!ih1siihiq", 1, 1, b"t", 1, 0, 0, 1, 17),)
    ),
    **{
        f"{form or 'any'} file": Parser(
            lambda data, form=form: parse_offsets(data, "saved", form),  # type: ignore[misc]
            (
                b"/consumers/g/offsets/t/0:17\n/chroot/consumers/g/offsets/t/0-3:\n",
                b't,0,17\n',
                b'g,"t,x",1,2\n',
                b"GROUP,TOPIC,PARTITION,OFFSET\ng,t,0,1\n",
                b"Topic Partition Offset\nt 0 1\n",
                b'{"groupid":"g","offsets":{"t":{"0":1}}}',
                b'{"t":{"0":-1}}',
                b'{"error":false,"message":"","status":{"group":"g","partitions":[{"topic":"t","partition":0,"end":{"offset":1}}]}}',
                b'{"error":false,"message":"","topics":{"t":[{"offsets":[{"offset":1},null]}]}}',
                b'[{"topic":"t","partition":0,"offset":1,"group":"g"}]',
                "t 0 1\n".encode("utf-16"),
            ),
        )
        for form in (None, *FORMATS)
    },
}  # fmt: skip


def period(text: str) -> object:
    """The period of a published file's folder; ValueError is what it says of a name that has none."""
    try:
        return Layout(("date", "hour")).period_of_folder(text)
    except ValueError:
        return None


def tame(name: str, data: bytes) -> None:
    """A value, or an expected error of one line that is not long."""
    try:
        PARSERS[name].parse(data)
    except ZkgroupError as error:
        told = str(error)
        assert "\n" not in told
        assert len(told) < 1500


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


def spoilt_text(draw: random.Random, good: bytes) -> bytes:
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


def spoilt_json(draw: random.Random, good: bytes) -> bytes:
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
    """What the spoilt documents are made of is read without a word, in its own format."""
    if name.endswith(" file") and name != "any file":
        return  # the same documents, most of them of other formats
    for data in PARSERS[name].good:
        PARSERS[name].parse(data)


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=60)
@given(data=st.binary(max_size=300))
def test_any_bytes(name: str, data: bytes) -> None:
    """No bytes bring forth anything but a value or one line."""
    tame(name, data)


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=150)
@given(seed=st.integers(0, 2**64))
def test_spoilt_documents(name: str, seed: int) -> None:
    """Nor does a document that was right before something in it was changed."""
    draw = random.Random(seed)
    good = draw.choice(PARSERS[name].good)
    tame(name, spoilt_json(draw, good) if PARSERS[name].json and draw.random() < 0.7 else spoilt_text(draw, good))


DEEP = 1020  # orjson's own limit is a little above
FOUND: list[tuple[str, bytes]] = [
    # Quoted in a message with all its levels, which took more than Python's stack.
    ("registration", b'{"pattern":"static","subscription":{"t":' + b"[" * DEEP + b"]" * DEEP + b"}}"),
    ("pointer", b'{"format":' + b"[" * DEEP + b"]" * DEEP + b"}"),
    ("unfinished", b'{"state":"planned","run":' + b"[" * 970 + b"]" * 970 + b"}"),
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
    ("plan", documents.encode_plan(PLAN).replace(b'"start": 5', b'"start": "5"')),
    ("manifest", documents.encode_manifest(MANIFEST).replace(b'"rows": 4', b'"rows": null')),
    ("settled", b'{"format":1,"how":"both","when":1,"left":[],"coverage":{}}'),
    ("sandbox", json.dumps(SANDBOX | {"folder": None, "ready": "yes"}).encode()),
    ("backup", encode_backup(BACKUP).replace(b'"time_ms": 1,', b'"time_ms": 9223372036854775807,')),
    # Line breaks, and names without end, in messages.
    ("backup", encode_backup(BACKUP).replace(b'"zkgroup_backup": 1', rb'"zkgroup_backup": "a\nb"')),
    ("profiles", b'[clusters."a\\nb"]\nx = 1'),
    ("profiles", b"[clusters.a]\n" + b"x" * 5000 + b" = 1"),
    ("scope", b"a\nb:x"),
    ("pointer", documents.encode_pointer(Pointer("decided", "", "", "", "")).replace(b"decided", b"x" * 5000)),
    # Work that grew with the square of the size.
    ("properties", b"\\\n" * 500_000),
    ("connect string", b"h/" + b"," * 100_000),
    ("connect string", b"h/" + b",a" * 50_000 + b":"),
    # What always was told in a line.
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
    ("profiles", b"a." * 400_000 + b"a = 1"),
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
    with pytest.raises(ZkgroupError, match="/dev/zero is larger than 1 MiB"):
        read(Path("/dev/zero"))
