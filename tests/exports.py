"""What tests of exports share besides fixtures: the files of a folder, and the messages in them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.dataset as ds
from cli import run
from support import wait_until
from topic_changes import delete_topic

from zkgroup.clients.kafka.client import KafkaSettings, producer
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.config import ConsumerConfig
from zkgroup.export.checks.verify import VerifyRow, verify
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.model.plan_types import OffsetRange
from zkgroup.export.planning.export_request import Bound
from zkgroup.export.planning.mismatch import MismatchError, MismatchKind
from zkgroup.export.run.run_export import PartitionSummary
from zkgroup.export.stores.store import FolderStore
from zkgroup.export.tasks.export_task import run_task
from zkgroup.export.tasks.task_data import DoneAnswer, TaskSettings, done_or_raise
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Ensure, SetData
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import create_topic

if TYPE_CHECKING:
    from deltalake import DeltaTable

#: What a reader is reported where topics look like numbers: see ``zkgroup.export.destination.run_log``.
FOLDERS = ds.partitioning(pa.schema([("topic", pa.string()), ("partition", pa.int32())]), flavor="hive")


def files_in(folder: Path) -> list[str]:
    """All files below ``folder``, relative to it."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def nothing_in(folder: Path) -> bool:
    """Whether runs that came to nothing have left nothing but whose topics these were to be, and the layout."""
    return all(name.startswith(("_zkgroup/topics/", "_zkgroup/layout/")) for name in files_in(folder))


def published_in(folder: Path) -> list[str]:
    """The files below ``folder`` that readers see: all but what runs keep of themselves."""
    return [name for name in files_in(folder) if not name.startswith("_zkgroup/")]


def messages_in(folder: Path) -> list[dict[str, Any]]:
    """All messages of an export, by topic, partition and offset."""
    rows = ds.dataset(folder, partitioning=FOLDERS).to_table().to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def table_in(folder: Path, topic: str) -> DeltaTable:
    """A topic's table in a destination."""
    from deltalake import DeltaTable  # 129 MB: not for all that imports this

    return DeltaTable(folder / topic)


def root_of(destination: Destination) -> Path:
    """The folder of a destination that is one."""
    assert isinstance(destination.store, FolderStore)
    return destination.store.root


def offsets(destination: Destination) -> list[int]:
    """Those of all messages that a reader of the destination finds."""
    return sorted(row["offset"] for row in messages_in(root_of(destination)))


def problem_rows(destination: Destination, **options: Any) -> list[VerifyRow]:
    """The problems that ``--verify`` finds."""
    return [row for row in verify(destination, **options) if row.problem is not None]


def problems(destination: Destination, **options: Any) -> list[tuple[int | None, int | None, str]]:
    """What ``--verify`` finds: offsets, and why."""
    return [(row.start, row.end, str(row.problem)) for row in problem_rows(destination, **options)]


def unassigned_problems(destination: Destination) -> list[str]:
    """Those of no partition: damaged documents, and files that no record names."""
    return [str(row.problem) for row in problem_rows(destination) if row.topic is None]


def join_lines(notices: Iterable[object]) -> str:
    """Warnings or problems as a command prints them: a line each."""
    return "\n".join(map(str, notices))


def mismatches_of(error: MismatchError) -> list[tuple[TopicPartition, MismatchKind, int | None, int | None]]:
    """The partitions that cannot simply continue: why, the group's offset, and where its exports end."""
    facts = ((one.fact, one.kind) for one in error.mismatches)
    return [(fact.partition, kind, fact.committed, fact.exported_end) for fact, kind in facts]


def verify_output(cluster: Sandbox, destination: Destination, *options: str) -> str:
    """What ``--verify`` says of the problems that it finds, with what mends them."""
    done = run("-z", cluster.connect, "export", "--to", destination.store.uri, "--verify", *options)
    assert done.returncode == 6, (done.stdout, done.stderr)
    return done.stderr


@contextmanager
def destination_for_all() -> Iterator[Destination]:
    """One that other users may list, unless its own modes stop them."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Destination(FolderStore(Path(name, "lake")))


@contextmanager
def as_nobody() -> Iterator[None]:
    """As a user whom the modes of files stop."""
    was = os.geteuid()
    try:
        if was == 0:
            os.seteuid(65534)
        yield
    finally:
        os.seteuid(was)


def bound_at(topic: str, offset: int) -> Bound:
    """An offset of partition 0, as ``TOPIC:0=OFFSET`` says it."""
    return Bound("offsets", offsets={TopicPartition(topic, 0): offset})


def read(rows: Iterable[PartitionSummary]) -> list[tuple[int, int]]:
    """What was exported."""
    return [(row.start, row.end) for row in rows if row.rows]


def commit_offsets(registry: Registry, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Write offsets as any other client of the group does: over whatever is there."""
    for partition, offset in offsets.items():
        path = znodes.offset(group, partition)
        registry.write(Ensure(path))
        registry.write(SetData(path, znodes.encode_offset(offset)))


def recreate_topic(registry: Registry, topic: str) -> None:
    """Delete a topic, and make one of its name."""
    delete_topic(registry, topic)
    create_topic(registry, topic)


def make_member_config(group: str) -> ConsumerConfig:
    """The settings of an export that is a member; it does not wait long for others."""
    return ConsumerConfig(group_id=group, auto_commit_enable=False, rebalance_backoff_ms=300, rebalance_max_retries=20)


def committed_end(kafka: KafkaSettings, topic: str) -> int:
    """Where partition 0 ends for those who read what is committed: a marker moves it, and coordinators write that after
    they have answered."""
    partition = TopicPartition(topic, 0)
    found = log_offsets(kafka, [partition], 10, read_committed=True)[partition]
    assert isinstance(found, LogRange), found
    return found.end


def abort(kafka: KafkaSettings, topic: str, count: int) -> None:
    """A transaction that is not committed: so many messages in partition 0, and its marker."""
    before = committed_end(kafka, topic)
    client = producer(kafka, transactional_id=f"aborting-{topic}")
    client.init_transactions(30)
    client.begin_transaction()
    for _ in range(count):
        client.produce(topic, b"aborted", partition=0)
    client.flush(30)
    client.abort_transaction(30)
    wait_until(lambda: committed_end(kafka, topic) == before + count + 1, 20, "the marker is written")


class InProcess:
    """Runs tasks one after the other in this very process, with the function that Spark's executors run."""

    cores = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def run(
        self,
        settings: TaskSettings,
        tasks: Sequence[Sequence[OffsetRange]],
        done: Callable[[DoneAnswer], None],
    ) -> list[DoneAnswer]:
        """As ``SparkJobs.run``."""
        finished: list[DoneAnswer] = []
        for task in tasks:
            for answer in run_task(settings, task):
                finished.append(done_or_raise(answer))
                done(finished[-1])
        return finished
