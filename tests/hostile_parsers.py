"""A table of all parsers, each with documents that it reads."""

from __future__ import annotations

import json
import sqlite3
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import msgspec
from shapes import require

from zkgroup.clients.kafka import wire_protocol
from zkgroup.clients.kafka.start_position import parse_start
from zkgroup.config.connection_settings import parse_bootstrap, parse_connect_string
from zkgroup.config.consumer_config import load_consumer_config
from zkgroup.config.profiles import read_profiles
from zkgroup.config.setting_files import parse_properties, read_auth_file
from zkgroup.config.time_arguments import parse_duration, parse_time
from zkgroup.errors import ZkgroupError
from zkgroup.export.destination.run_log import LAYOUT, Destination
from zkgroup.export.model import run_record
from zkgroup.export.model.layout import Layout, read_name
from zkgroup.export.model.plan_types import LostRange, RecordFile, SkippedRange, Slice
from zkgroup.export.model.run_record import RecordPart, RunRecord, TopicCoverage, TopicIdentity
from zkgroup.export.run.run_context import share_files
from zkgroup.export.stores.store import FolderStore
from zkgroup.groups.changes.backup import Backup, SavedNode, SavedOffset
from zkgroup.groups.changes.backup import encode as encode_backup
from zkgroup.groups.changes.backup import read as read_backup
from zkgroup.groups.changes.export_znodes import Pointer, decode_exporter, decode_pointer, encode_pointer
from zkgroup.groups.changes.preconditions import UnfinishedExportError, describe_unfinished_export
from zkgroup.groups.group_choices import FileFormat
from zkgroup.groups.group_model import Cluster
from zkgroup.groups.monitoring.lag_history import LagHistory, Sample
from zkgroup.groups.offset_files.file_formats import parse_offsets
from zkgroup.groups.partition_scope import parse_scope
from zkgroup.groups.snapshot.group_znodes import stored_offset
from zkgroup.protocol import broker_znodes, znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Node, Stat
from zkgroup.protocol.topic_filter import TopicFilter
from zkgroup.sandbox.sandbox_state import read_state, write_state

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
    """A parser that takes what is on a command line: any bytes but zero, as Python shows them."""
    return lambda data: read(data.replace(b"\0", b"").decode("utf-8", "surrogateescape"))


def again(decode: Callable[[str, bytes], Any], encode: Callable[[Any], bytes]) -> Callable[[bytes], object]:
    """A parser of documents of our own: what it accepts can be written, and read as the same."""

    def parse(data: bytes) -> object:
        found = decode("doc", data)
        if found is not None:
            assert decode("doc", encode(found)) == found
        return found

    return parse


def layout(data: bytes) -> object:
    """A destination's layout, in a file that is named by its hash."""
    with tempfile.TemporaryDirectory() as folder:
        store = FolderStore(Path(folder))
        store.write(f"{LAYOUT}/{run_record.digest(data)[:16]}.json", data)
        return Destination(store).layout()


def record(data: bytes) -> object:
    """A record, with what everyone computes of one."""
    found = run_record.decode_record("doc", data)
    assert run_record.decode_record("doc", run_record.encode_record(found)) == found
    return list(share_files(found)), [(part.moves, part.is_balanced, part.covered) for part in found.partitions]


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
        return [one.process.is_alive() for one in (*found.servers, *found.members)]
    return None


def answers(read: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """A parser of a broker's answer, which shows by struct.error what is none."""

    def parse(data: bytes) -> object:
        try:
            return read(data)
        except struct.error:
            raise ZkgroupError("no answer") from None

    return parse


IDENTITY = TopicIdentity(17, "abc", "delete", None)
PART = RecordPart(
    TopicPartition("orders", 0), 5, 2, 5, 9, rows=4, undecodable=0, gaps={"compaction": 0},
    skipped=(SkippedRange("retention", 3, 5),), again=(LostRange("topic=orders/0.5-9.parquet", 5, 9, 4),),
)  # fmt: skip
RECORD = RunRecord(
    "00000001-aaaaaaaa", "g", "export", "c", 1, 2, "read_committed",
    Layout(("date", "hour"), "Europe/Berlin", "text", "json"), False, (PART,),
    (RecordFile("w", "topic=orders/0.5-9.parquet", "orders", 4, 100, (Slice(0, 5, 9, 4),)),),
    {"orders": IDENTITY}, {"orders": TopicCoverage(IDENTITY, {0: ((0, 5), (7, 9))}, {0: 3}, {0: 5})},
)  # fmt: skip
POINTER = Pointer("decided", "00000001-aaaaaaaa", "/out", "0" * 64, {"orders": {0: (5, 9)}})
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
    """Read the windows of a lag history: all values are samples."""
    with LagHistory(path) as kept:
        found = kept.window("c", "g", "zookeeper", 5, 10**12)
    require([sample for samples in found.values() for sample in samples], list[Sample])
    return found


def lag_history_file() -> bytes:
    """A lag history of two snapshots."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "history")
        with LagHistory(path):
            pass
        with sqlite3.connect(path) as connection:
            for number, at in enumerate((1_000_000, 2_000_000)):
                connection.execute("INSERT INTO snapshot VALUES (?, 'c', 'g', 'zookeeper', ?)", (number, at))
                connection.execute("INSERT INTO sample VALUES (?, 'orders', 0, 5, 9, NULL)", (number,))
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
        broker_znodes.decode_broker,
        "/brokers/ids/1",
        b'{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1"}',
        b'{"version":5,"host":null,"port":-1,"endpoints":["A://[::1]:9"],"listener_security_protocol_map":{"A":"SSL"}}',
    ),
    "topic": znode(
        broker_znodes.decode_topic, "/brokers/topics/t", b'{"version":3,"partitions":{"0":[1,2]},"topic_id":"x"}'
    ),
    "partition": znode(
        broker_znodes.decode_partition_state,
        "/state",
        b'{"controller_epoch":1,"leader":2,"leader_epoch":0,"isr":[2,1]}'
    ),
    "offset": Parser(lambda data: znodes.decode_offset("/o", data), (b"17", b" -1\n")),
    "stored": Parser(lambda data: stored_offset(Node(data, STAT)), (b"17", "١٢".encode())),
    "pointer": Parser(
        again(decode_pointer, encode_pointer),
        (encode_pointer(POINTER),),
        json=True,
    ),
    "layout": Parser(
        layout, (msgspec.json.encode(Layout(("date", "hour"), "Europe/Berlin", "text", "json")),), json=True
    ),
    "record": Parser(record, (run_record.encode_record(RECORD),), json=True),
    "backup": Parser(backup, (encode_backup(BACKUP),), json=True),
    "sandbox": Parser(
        of_file(lambda path: state(path.parent), "state.json"), (json.dumps(SANDBOX).encode(),), json=True
    ),
    "profiles": Parser(of_file(lambda path: read_profiles(path, must_exist=True), "c.toml"), (TOML.encode(),)),
    "history": Parser(of_file(history, "history"), (lag_history_file(),)),
    "unfinished": Parser(
        lambda data: describe_unfinished_export("g", data) and str(UnfinishedExportError("g", data)),
        (encode_pointer(POINTER),),
        json=True,
    ),
    "exporter": Parser(decode_exporter, (b'{"host":"h","pid":7,"run":"r","since":1}',), json=True),
    "properties": Parser(lambda data: parse_properties(data, "file"), (PROPERTIES,)),
    "consumer": Parser(
        lambda data: load_consumer_config(parse_properties(data, "file"), group="g"),
        (b"zookeeper.session.timeout.ms=1000\nauto.offset.reset=smallest\nkafka.linger.ms=3\ndual.commit.enabled=true",),
    ),
    "credentials": Parser(
        of_file(lambda path: read_auth_file(path, "profile"), "auth"), (b"digest a:b\n# c\nuser:pass word\n",)
    ),
    "filter": Parser(
        of_text(lambda text: TopicFilter("black_list", text).select(["orders", "a.b", "x" * 200])),
        (rb"(?i)or(d|e)*rs|[^a-z.-]+\w{2}(?<!a)(?=b)\Qx\E.*?$", b"(a*)*b,(x+x+)+y"),
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
    "metadata": Parser(answers(wire_protocol.read_metadata), (METADATA,)),
    "offsets": Parser(
        answers(wire_protocol.read_offsets), (struct.pack("!ih1siihiq", 1, 1, b"t", 1, 0, 0, 1, 17),)
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
                b'[{"topic":"t","partition":0,"offset":1,"group":"g"}]',
                "t 0 1\n".encode("utf-16"),
            ),
        )
        for form in (None, *get_args(FileFormat))
    },
}  # fmt: skip


def period(text: str) -> object:
    """The period of a published file's folder; ValueError is what it says of a name that has none."""
    try:
        return Layout(("date", "hour")).period_of_folder(text)
    except ValueError:
        return None
