"""A random walk over exports and what befalls them: processes that are killed or paused, offsets that somebody moves,
retention, recreated topics, older copies of ZooKeeper's nodes and of the destination, files that are gone, odd
files, damaged documents, two groups that want one topic; of tables those that others compact, roll back or drop.
After each step two things hold: no message is there twice, and none is lost without being named.

Exports run in processes of their own (``forked_process``).
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from exports import InProcess, commit_offsets, make_member_config
from forked_process import PROCESSES
from resets import drop_messages
from session_expiry import expire_session
from support import wait_until
from topic_changes import delete_topic
from walked_tables import WalkedTable, walked_table

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import ZkgroupError
from zkgroup.export.checks.run_reports import history, status
from zkgroup.export.checks.verify import verify
from zkgroup.export.destination.coverage import lost_partitions, read_coverage, without_rolled_back
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.destination.table_format import open_format
from zkgroup.export.model.choices import TableKind
from zkgroup.export.model.layout import LayoutOptions, parse_parts, read_name
from zkgroup.export.model.run_record import RunRecord
from zkgroup.export.planning.export_request import EARLIEST, Bound
from zkgroup.export.run.run_export import ExportRequest, run_export
from zkgroup.export.stores.store import FolderStore
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children, Create, Delete, Ensure, Exists, Get, Node, Stat
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic, produce

PARTITIONS: Final = 2
POINTS: Final = (
    "locked", "planned", "folder made", "files written", "checked", "topics claimed", "record written", "decided",
    "record in the log", "published 1 of 1", "published 1 of 2", "published for good", "transaction 1 of 1",
    "committed", "tidied up", "table 1 of 1 made", "table 1 of 1 committed",
)  # fmt: skip
_TIMEOUT: Final = 60.0

Outcome = tuple[str, str]  # the error's class, or "done" or "killed"; its message


@dataclass(frozen=True)
class Wish:
    """An export, as its process is reported; ``at``: the point at which it does ``harm`` to itself."""

    connect: str
    bootstrap: str
    group: str
    topic: str
    to: str
    options: Mapping[str, Any] = field(default_factory=dict)
    at: str | None = None
    harm: signal.Signals = signal.SIGKILL


def carry_out(wish: Wish, outcome: Any) -> None:
    """What such a process does."""
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  # for as long as it lives

    def passed(point: str) -> None:
        if point == wish.at:
            os.kill(os.getpid(), wish.harm)

    options = dict(wish.options)
    if options.pop("join", False):
        options["join"] = make_member_config(wish.group)
    request = ExportRequest(wish.group, Path(wish.to), (wish.topic,), **{"range_messages": 7, **options})
    try:
        with Registry(ZooKeeperSettings(wish.connect, session_timeout=4.0), 10.0) as registry:
            run_export(request, registry, lambda: KafkaSettings(wish.bootstrap), on_point=passed, runner=InProcess)
        outcome.send(("done", ""))
    except ZkgroupError as error:
        outcome.send((type(error).__name__, str(error)))
    except BaseException:
        outcome.send(("crashed", traceback.format_exc()))
        raise


class ExportProcess:
    """An export that runs."""

    def __init__(self, wish: Wish) -> None:
        self._outcome, theirs = PROCESSES.Pipe(duplex=False)
        self._process = PROCESSES.Process(target=carry_out, args=(wish, theirs))
        self._process.start()
        theirs.close()

    @property
    def is_stopped(self) -> bool:
        """Whether it is paused, or has ended."""
        with contextlib.suppress(OSError):
            state = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0]
            return state in "TZX"
        return True

    def go_on(self) -> None:
        """Let it go on, if it was paused."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid or 0, signal.SIGCONT)

    def wait(self) -> Outcome:
        """What came of it."""
        self._process.join(_TIMEOUT)
        assert self._process.exitcode is not None, "an export hangs"
        try:
            return self._outcome.recv() if self._outcome.poll() else ("killed", "")
        except EOFError:
            return "killed", ""


@dataclass
class Log:
    """What was produced to one log of a topic: of each partition so many messages."""

    number: int
    czxid: int = 0
    sizes: list[int] = field(default_factory=lambda: [0] * PARTITIONS)


class Walk:
    """One walk: ``step`` as often as wanted. Every choice comes from the seed."""

    def __init__(
        self,
        cluster: Sandbox,
        registry: Registry,
        kafka: KafkaSettings,
        folder: Path,
        name: str,
        seed: int,
        table_format: TableKind = "parquet",
    ) -> None:
        self.random = random.Random(seed)
        self.registry = registry
        self.kafka = kafka
        self.connect = cluster.connect
        self.out = folder / "out"
        self.folder = folder
        self.topic = f"{name}-topic"
        self.groups = [f"{name}-a", f"{name}-b"]
        self.group = self.groups[0]
        self.journal: list[str] = []
        self.outcomes: Counter[str] = Counter()
        by = parse_parts(self.random.choice(("partition", "none", "partition,hour")))
        self.layout = LayoutOptions(by=by, format=table_format)
        self.log = Log(0)
        self.logs = [self.log]
        self.nodes: dict[str, tuple[bytes, int]] | None = None
        self.gone: set[tuple[str | None, int, int]] = set()
        self.create_topic()
        self.produce()

    def create_topic(self) -> None:
        create_topic(self.registry, self.topic, PARTITIONS)
        (stat,) = self.registry.read([Exists(znodes.topic(self.topic))])
        assert isinstance(stat, Stat)
        self.log.czxid = stat.czxid

    @property
    def has_tables(self) -> bool:
        return self.layout.format != "parquet"

    @property
    def destination(self) -> Destination:
        return Destination(FolderStore(self.out))

    # --- what happens -----------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Something happens, and then all is as it should be."""
        weights = {
            self.export: 30, self.killed: 18, self.produce: 14, self.backfill: 6, self.paused: 3, self.move: 5,
            self.forget_offset: 2, self.retention: 4, self.recreate: 1, self.lose_file: 3, self.conflicting_file: 2,
            self.damage: 2, self.other_group: 3, self.joined: 2, self.remember: 2, self.restore_nodes: 2,
            self.restore_destination: 1, self.abandon: 1, self.inspect: 4,
        }  # fmt: skip
        if self.has_tables:
            del weights[self.lose_file], weights[self.conflicting_file]
            weights |= {self.compact: 4, self.roll_back: 4, self.drop_table: 1}
        (what,) = self.random.choices(list(weights), list(weights.values()))
        self.journal.append(what.__name__)
        what()
        self.check()

    def produce(self) -> None:
        """Messages, each with its log, partition and offset as its value."""
        records: list[ProducerRecord] = []
        for partition in range(PARTITIONS):
            for _ in range(self.random.randrange(12)):
                text = f"{self.log.number}/{partition}/{self.log.sizes[partition]}"
                records.append(ProducerRecord(text.encode(), None, partition))
                self.log.sizes[partition] += 1
        produce(self.kafka, self.topic, records)

    def export(self) -> None:
        outcome = self.run(self.options())
        assert outcome[0] in _EXPECTED, outcome
        if outcome[0] == "MismatchError":
            # One of the answers that the refusal offers continues, and is not asked again.
            answer = self.random.choice(("lake", "lake", "group", "skip"))
            outcome = self.run({"begin": EARLIEST, "on_mismatch": answer})
            assert outcome[0] in _EXPECTED, outcome

    def killed(self) -> None:
        self.produce()
        self.run(self.options(), at=self.random.choice(POINTS))

    def paused(self) -> None:
        """An export is paused, its session ends, another one runs; then the first one goes on."""
        self.produce()
        first = ExportProcess(self.wish(self.options(), at=self.random.choice(POINTS), harm=signal.SIGSTOP))
        wait_until(lambda: first.is_stopped, _TIMEOUT, "it is paused")
        self.end_session()
        for _ in range(self.random.randrange(1, 3)):
            self.run(self.options())
            if self.random.random() < 0.3:
                self.produce()
        first.go_on()
        self.tell(first.wait())

    def backfill(self) -> None:
        self.run({"begin": EARLIEST, "backfill": True, "on_mismatch": self.random.choice(("fail", "lake"))})

    def joined(self) -> None:
        self.produce()
        self.run({**self.options(), "join": True}, at=self.random.choice((None, None, *POINTS)))

    def move(self) -> None:
        """Somebody moves the group."""
        partition = self.random.randrange(PARTITIONS)
        offset = self.random.randrange(self.log.sizes[partition] + 1)
        commit_offsets(self.registry, self.group, {TopicPartition(self.topic, partition): offset})

    def forget_offset(self) -> None:
        partition = TopicPartition(self.topic, self.random.randrange(PARTITIONS))
        self.registry.write(Delete(znodes.offset(self.group, partition)))

    def retention(self) -> None:
        partition = TopicPartition(self.topic, self.random.randrange(PARTITIONS))
        found = log_offsets(self.kafka, [partition], 10)[partition]
        assert isinstance(found, LogRange)
        if found.start < found.end:
            drop_messages(self.kafka, partition, self.random.randrange(found.start, found.end) + 1)

    def recreate(self) -> None:
        delete_topic(self.registry, self.topic)
        self.log = Log(len(self.logs))
        self.logs.append(self.log)
        self.create_topic()
        self.produce()

    def compact(self) -> None:
        """Others put the rows of a table into fewer files."""
        self.table.compact(self.random)

    def roll_back(self) -> None:
        """Others restore a table to an earlier version: the next export asks, or wants it undone."""
        if (undo := self.table.roll_back(self.random)) is None:
            return
        outcome = self.run(self.options())
        assert outcome[0] in _EXPECTED, outcome
        if outcome[0] in ("TableChangedError", "TableRolledBackError") or self.random.random() < 0.3:
            undo()

    def drop_table(self) -> None:
        """Others drop a table, of which one group alone has ever been the owner."""
        if len(self.destination.groups()) == 1 and self.table.drop():
            self.run(self.options())
            self.run({"abandon": True})  # what could not be finished

    def lose_file(self) -> None:
        """A published file is gone: named by ``verify``, and written again by a backfill, or given up there."""
        tags = {tag for tag, _ in self.ends()}
        newest = max(tags, key=lambda tag: int(tag or "0", 16), default=None)
        files = [name for name in self.files() if (journal := read_name(name)) is not None and journal.tag == newest]
        if not files or (len(tags) > 1 and newest is None) or self.destination.leftover_runs(self.group):
            return
        name = self.random.choice(sorted(files))
        (self.out / name).unlink()
        assert any(name in str(row.problem) for row in verify(self.destination)), name
        for answer in ("fail", "lake"):
            begin = Bound("offsets", offsets={TopicPartition(self.topic, p): 0 for p in range(PARTITIONS)})
            outcome = self.run({"begin": begin, "backfill": True, "on_mismatch": answer})
            if outcome[0] != "MismatchError":
                break
        journal = read_name(name)
        if outcome[0] != "done" and journal is not None and not (self.out / name).exists():
            # Its log is gone: verify goes on naming it.
            self.gone |= {(journal.tag, journal.partition, offset) for offset in range(journal.start, journal.end)}

    def conflicting_file(self) -> None:
        """A file that nobody's export wrote, where the next one is to write: nothing is written over it."""
        partition = self.random.randrange(PARTITIONS)
        start = self.random.randrange(self.log.sizes[partition] + 1)
        path = self.out / f"topic={self.topic}/partition={partition}/{start}-{start + 5}.parquet"
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"odd")
        self.run(self.options())
        assert path.read_bytes() == b"odd"
        path.unlink()

    def damage(self) -> None:
        """A document that is cut, changed or gone is not written over, and no export ends well that depends on it."""
        kept = self.out / "_zkgroup"
        documents = sorted([*kept.rglob("*.json"), *(path for path in kept.glob("topics/*/*") if path.is_file())])
        if not documents:
            return
        path = self.random.choice(documents)
        data, is_of_log = path.read_bytes(), "runs" not in path.relative_to(kept).parts
        harm = self.random.choice((None, data[: len(data) // 2], data + b" ", b""))
        path.unlink() if harm is None else path.write_bytes(harm)
        for _ in range(2):
            self.run({"begin": EARLIEST})
            list(history(self.destination))
            verify(self.destination)
        if is_of_log:
            assert (path.read_bytes() if path.exists() else None) == harm, self.describe(path, harm)
        if is_of_log or path.parent.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def other_group(self) -> None:
        """Another group exports the topic: refused, or it takes over."""
        other = next(group for group in self.groups if group != self.group)
        options = {**self.options(), "take_over": self.group} if self.random.random() < 0.5 else self.options()
        owned = list((self.out / f"_zkgroup/topics/{self.topic}").glob("*"))
        outcome = self.run(options, group=other)
        if not owned or "take_over" in options or outcome[0] not in ("OwnedError", "done"):
            owners = [p.name for p in (self.out / f"_zkgroup/topics/{self.topic}").glob("*") if p.suffix != ".former"]
            if any(name.startswith(f"{other}@") for name in owners):
                self.group = other
        else:
            assert outcome[0] == "OwnedError", outcome

    def remember(self) -> None:
        """Copies of the group's nodes and of the destination are made."""
        self.nodes = {}
        for path in self.offset_paths():
            (node,) = self.registry.read([Get(path)])
            if isinstance(node, Node):
                self.nodes[path] = node.data, node.stat.version

    def restore_nodes(self) -> None:
        """ZooKeeper's data is of an earlier time: older offsets, and no run under way."""
        if self.nodes is None:
            return
        self.registry.write(Delete(znodes.export_state(self.group)))
        for path in self.offset_paths():
            self.registry.write(Delete(path))
        for path, (data, _) in self.nodes.items():
            self.registry.write(Ensure(path.rpartition("/")[0]))
            self.registry.write(Create(path, data))

    def restore_destination(self) -> None:
        """The destination is an older copy of itself, for a while."""
        if not self.out.exists():
            return
        copy = self.folder / "copy"
        shutil.copytree(self.out, copy)
        self.run(self.options())
        self.run(self.options(), at=self.random.choice(POINTS))
        newer = self.folder / "newer"
        self.out.rename(newer)
        copy.rename(self.out)
        self.run(self.options())
        self.check()
        if self.random.random() < 0.5:  # it was the wrong one
            shutil.rmtree(self.out)
            newer.rename(self.out)
        else:
            shutil.rmtree(newer)

    def abandon(self) -> None:
        """Only what cannot be finished is given up."""
        outcome = self.run({"abandon": True})
        assert outcome[0] in ("done", "RefusedError", "TableChangedError", "TableRolledBackError", "NotFoundError"), (
            outcome
        )

    def inspect(self) -> None:
        """Nothing that only reads fails, or changes anything."""
        before = self.state()
        verify(self.destination)
        status(self.registry, self.group, self.destination)
        list(history(self.destination))
        assert self.state() == before

    # --- how --------------------------------------------------------------------------------------------------------

    def options(self) -> dict[str, Any]:
        chosen: dict[str, Any] = {"begin": EARLIEST, "layout": self.layout}
        if self.random.random() < 0.25:
            chosen["max_messages"] = self.random.randrange(1, 20)
        if self.random.random() < 0.15:
            chosen["max_bytes"] = self.random.randrange(1, 60)
        if self.random.random() < 0.3:
            chosen["on_mismatch"] = self.random.choice(("lake", "group", "skip"))
        return chosen

    def wish(self, options: Mapping[str, Any], **more: Any) -> Wish:
        options = {"layout": self.layout, **options}
        journal = {"group": self.group, **more}
        return Wish(self.connect, self.kafka.bootstrap, topic=self.topic, to=str(self.out), options=options, **journal)

    def run(self, options: Mapping[str, Any], **more: Any) -> Outcome:
        """An export, to its end; the session of one that was killed ends at once."""
        outcome = ExportProcess(self.wish(options, **more)).wait()
        if outcome[0] == "killed":
            self.end_session(more.get("group"))
        self.tell(outcome, more)
        return outcome

    def tell(self, outcome: Outcome, more: Mapping[str, Any] | None = None) -> None:
        self.outcomes[outcome[0]] += 1
        self.journal.append(f"  {dict(more or {})} {outcome}")

    def end_session(self, group: str | None = None) -> None:
        """End the session that has the group's lock, and those of members."""
        name = group or self.group
        (children,) = self.registry.read([Children(znodes.ids(name))])
        members = [znodes.member_id(name, child) for child in children] if isinstance(children, tuple) else []
        paths = [znodes.export_lock(name), *members]
        for stat in self.registry.read([Exists(path) for path in paths]):
            if isinstance(stat, Stat) and stat.owner:
                expire_session(self.connect, stat.owner)

    def offset_paths(self) -> list[str]:
        return [znodes.offset(self.group, TopicPartition(self.topic, p)) for p in range(PARTITIONS)]

    @property
    def table(self) -> WalkedTable:
        return walked_table(self.layout.format or "parquet", self.out, self.topic)

    def files(self) -> list[str]:
        if self.has_tables:
            return self.table.files()
        return [str(path.relative_to(self.out)) for path in self.out.glob("topic=*/**/*.parquet")]

    def state(self) -> tuple[object, ...]:
        """Everything that an export changes."""
        files = {str(path): path.stat().st_size for path in sorted(self.out.rglob("*")) if path.is_file()}
        nodes = self.registry.read([Get(path) for path in self.offset_paths()])
        return files, [node.data if isinstance(node, Node) else None for node in nodes]

    # --- what has -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """No message is there twice; none that the log of runs covers is missing without being named."""
        rows = self.rows()
        twice = [row for row, count in Counter(rows).items() if count > 1]
        assert not twice, self.describe(twice)
        there = set(rows)
        records = self.records()
        given_up = {  # of files that were lost, and are in no log any more
            (record.topics[self.topic].tag, part.partition.partition, offset)
            for record in records
            for part in record.partitions
            for gap in part.skipped
            for offset in range(gap.start, gap.end)
        } | self.gone
        rolled_back = self.rolled_back()
        under_way = {run for group in self.destination.groups() for run in self.destination.leftover_runs(group)}
        for record in records:
            for part in () if record.run in under_way else record.partitions:
                tag, number = record.topics[self.topic].tag, part.partition.partition
                lacking = [
                    offset
                    for offset in range(part.start, part.end)
                    if (tag, number, offset) not in there and (tag, number, offset) not in given_up
                ]
                if part.partition not in rolled_back:
                    assert len(lacking) <= sum(part.gaps.values()), self.describe(record.run, part, lacking)
        for key, end in self.ends().items():
            self.check_continuity(key, end)

    def records(self) -> list[RunRecord]:
        """All of the log, without those that a later one has found to be rolled back."""
        groups = [list(self.destination.records(group)) for group in self.destination.groups()]
        return [record for records in groups for record in without_rolled_back(records)]

    def rolled_back(self) -> set[TopicPartition]:
        """What a table has less of than the log's records say; the next export asks about it."""
        if not self.has_tables:
            return set()
        found: set[TopicPartition] = set()
        for group in self.destination.groups():
            newest = self.destination.newest(group)
            if newest is not None and self.topic in newest.coverage:
                tables = open_format(self.destination, newest.layout)
                now, _ = read_coverage(self.destination, tables, newest, self.topic)
                found.update(lost_partitions(self.topic, newest.coverage[self.topic], now))
        return found

    def describe(self, *what: object) -> str:
        """A failure, with what came before it."""
        lines = [*map(str, what), *(str(row) for row in verify(self.destination) if row.problem)]
        return "\n".join([*lines, *self.files(), *(line[:300] for line in self.journal[-40:])])

    def check_continuity(self, key: tuple[str | None, int], end: int) -> None:
        """Whatever lies between the first export of a log and its end is read, or named as skipped."""
        intervals: list[tuple[int, int]] = []
        for record in self.records():
            for part in record.partitions:
                if (record.topics[self.topic].tag, part.partition.partition) == key:
                    intervals += [(part.start, part.end), *((gap.start, gap.end) for gap in part.skipped)]
        place = min((low for low, _ in intervals), default=end)
        for low, high in sorted(intervals):
            assert low <= place, self.describe("a gap that nothing names", key, place, low)
            place = max(place, high)
        assert place >= end, self.describe(key, place, end)

    def ends(self) -> dict[tuple[str | None, int], int]:
        found: dict[tuple[str | None, int], int] = {}
        for group in self.destination.groups():
            if (newest := self.destination.newest(group)) is not None and self.topic in newest.coverage:
                coverage = newest.coverage[self.topic]
                found |= {(coverage.identity.tag, number): end for number, end in coverage.ends.items()}
        return found

    def rows(self) -> list[tuple[str | None, int, int]]:
        """All messages that a reader finds: the log's mark, partition, offset. Each is the message that was sent."""
        found: list[tuple[str | None, int, int]] = []
        tags = {r.topics[self.topic].czxid: r.topics[self.topic].tag for r in self.records() if self.topic in r.topics}
        for name in self.files():
            journal = read_name(name)
            assert self.has_tables or journal is not None, name
            table = pq.ParquetFile(self.out / name).read(columns=None)
            values, offsets = table.column("value").to_pylist(), table.column("offset").to_pylist()
            for value, offset in zip(values, offsets, strict=True):
                number, partition, sent = map(int, value.decode().split("/"))
                assert sent == offset, (name, value, offset)
                assert number < len(self.logs)
                tag = tags[self.logs[number].czxid] if self.has_tables or journal is None else journal.tag
                found.append((tag, partition, offset))
        return found


_EXPECTED: Final = frozenset(
    {
        "done",
        "killed",
        "MismatchError",
        "RefusedError",
        "TableChangedError",
        "TableRolledBackError",
        "OwnedError",
        "OffsetMovedError",
        "TakenOverError",
        "NotFoundError",
    }
)
