"""``zkgroup sandbox demo``: one consumer group with members of two kinds, then its messages in Parquet.

The members and all commands are processes, as a user would run them. The demo itself produces the messages and checks
each step.
"""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO, TypeAlias

from rich.console import Console
from rich.status import Status
from rich.text import Text

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets
from zkgroup.clients.kafka.registered_brokers import Brokers
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import NotFoundError, UsageError, VerificationError, ZkgroupError
from zkgroup.export.stores.store import require
from zkgroup.groups.snapshot.group_reader import read_group
from zkgroup.groups.snapshot.snapshot_defects import ownership_defects
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.kafka_releases import DEFAULT_RELEASE
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.processes import Process, wait_for
from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic, produce

from ._output import format_rows
from ._signals import StopRequest, Terminated
from ._terminal_text import fit, folded

if TYPE_CHECKING:
    from zkgroup.export.spark.readback import PartitionRows  # brings Spark

#: The offsets ``[start, end)`` of each partition.
Ranges: TypeAlias = Mapping[TopicPartition, tuple[int, int]]


INDENT: Final = "   "
#: Columns of a line at most.
MAX_WIDTH: Final = 96


class _Pipe(Console):
    """A console that raises for a closed pipe: Rich would end the process with another exit code."""

    def on_broken_pipe(self) -> None:
        """Raise the error again, so that callers can clean up."""
        raise


class Narrator:
    """Prints steps, their commands and their results: colours and a spinner on a terminal, plain lines elsewhere. Rich
    honours ``NO_COLOR``."""

    def __init__(self, stream: TextIO) -> None:
        self._console = _Pipe(file=stream, highlight=False, markup=False, emoji=False)
        self._steps = 0
        # A pipe has no width.
        self._columns = shutil.get_terminal_size().columns if self._console.is_terminal else sys.maxsize

    def title(self, text: str) -> None:
        self._print(text, "bold")

    def step(self, text: str) -> None:
        self._steps += 1
        self._print("")
        self._print(self._folded(text, f"{self._steps}. ", INDENT), "bold cyan")

    def say(self, text: str, *, indent: str = INDENT) -> None:
        self._print(self._folded(text, indent, indent))

    def command(self, line: str, prompt: str = "$") -> None:
        """Print a command, on one line, so that it can be copied."""
        self._print(f"{INDENT}{prompt} {line}", "bold")

    def output(self, text: str) -> None:
        """Print a command's output. A narrow terminal cuts long lines."""
        for line in text.splitlines():
            self._print(fit(INDENT + line, self._columns).rstrip())

    def check(self, text: str, mark: str = "✓", style: str = "bold green") -> None:
        found = Text(self._folded(text, f"{INDENT}{mark} ", f"{INDENT}  "))
        found.stylize(style, 0, len(INDENT) + len(mark))
        self._console.print(found, soft_wrap=True)

    def failed(self, text: str) -> None:
        self.check(text, "✗", "bold red")

    def waiting(self, text: str) -> Status:
        """A spinner beside the text, as long as it is entered."""
        return self._console.status(Text(text, style="dim"), spinner="dots")

    def _folded(self, text: str, first: str, rest: str) -> str:
        return folded(text, min(self._columns, MAX_WIDTH), first, rest)

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style=style), soft_wrap=True)


def parse_printed(lines: Iterable[bytes]) -> list[tuple[TopicPartition, int]]:
    """The partition and offset of lines that begin with topic, partition, offset and a tab after each."""
    parts = (line.split(b"\t", 3) for line in lines)
    return [(TopicPartition(topic.decode(), int(number)), int(offset)) for topic, number, offset, _ in parts]


def check_reading(expected: Ranges, printed: Iterable[tuple[TopicPartition, int]]) -> tuple[int, int, int]:
    """How many messages the members never read, read more than once, and read that were not expected."""
    times = Counter(printed)
    wanted = {(partition, offset) for partition, (start, end) in expected.items() for offset in range(start, end)}
    return len(wanted - times.keys()), sum(count > 1 for count in times.values()), len(times.keys() - wanted)


def export_defects(expected: Ranges, found: Mapping[TopicPartition, PartitionRows]) -> list[str]:
    """The differences between an export and exactly one row per expected message; empty if there are none."""
    wanted = {p: (end - start, end - start, start, end - 1) for p, (start, end) in expected.items() if end > start}
    there = {partition: astuple(counted) for partition, counted in found.items()}
    return [
        f"{partition} has (rows, offsets, first, last) {there.get(partition)}, not {wanted.get(partition)}"
        for partition in sorted(wanted.keys() | there.keys())
        if there.get(partition) != wanted.get(partition)
    ]


GROUP: Final = "shop"
TOPICS: Final = ("orders", "payments")
PARTITIONS: Final = 3
ITEMS: Final = ("teapot", "kettle", "cup", "saucer", "spoon")
LEAVE: Final = 30.0  # seconds until a process has left


class DemoCommand(Process):
    """A command as a user runs it: a process that prints to a file, its temporary files in ``folder``."""

    def __init__(self, name: str, arguments: Sequence[str], folder: Path, sandbox: Sandbox) -> None:
        super().__init__(name, sandbox.guard)
        self._words = shlex.join(arguments)
        self._output = folder / f"{name}.txt"
        self._errors = folder / f"{name}.log"
        command = ["env", f"TMPDIR={folder}", sys.executable, "-P", "-m", "zkgroup", *arguments]
        self.spawn(command, folder=folder, log=self._errors, output=self._output)

    def lines(self) -> list[bytes]:
        """The whole lines that it has printed so far."""
        return self._output.read_bytes().split(b"\n")[:-1]

    def check_alive(self) -> None:
        """Raise ``ZkgroupError`` if it has ended."""
        if not self.running:
            raise self._failure(f"ended with status {self.returncode}")

    def finish(self, timeout: float, status: int = 0) -> None:
        """Wait until it ends, with ``status``. However we end, it ends."""
        try:
            if not self.wait_gone(timeout):
                raise self._failure(f"was not done in {timeout:g} s")
        finally:
            self.stop(LEAVE)
        if self.returncode != status:
            raise self._failure(f"ended with status {self.returncode}, not {status}")

    def _failure(self, what: str) -> ZkgroupError:
        lines = self._errors.read_text(encoding="utf-8", errors="replace").splitlines()
        return ZkgroupError(f"zkgroup {self._words} {what}: {lines[-1] if lines else 'it printed nothing'}")


def demo_message(number: int) -> ProducerRecord:
    """The message with this number: its topic is ``TOPICS[number % 2]``."""
    if number % len(TOPICS) == 0:
        value = {"order": number, "item": ITEMS[number // 2 % len(ITEMS)]}
    else:
        value = {"payment": number, "cents": 100 + number * 37 % 9900}
    partition = number // len(TOPICS) % PARTITIONS
    return ProducerRecord(json.dumps(value).encode(), b"customer-%d" % (number % 97), partition)


BATCHES: Final = 4
#: The format of the Scala consumer's records.
FORMAT: Final = r"%t\t%p\t%o\t%k\t%s\n"

# Deadlines in seconds, for busy machines.
JOIN: Final = 60.0
READ: Final = 60.0
PRODUCE: Final = 30.0
COMMAND: Final = 180.0
#: What to do where one was not kept.
BUSY: Final = "is the machine very busy? try again"


def run_demo(*, keep: bool, name: str, total: int, kafka: str) -> None:
    """Run the demo, in two minutes, with ``total`` messages on brokers of release ``kafka``.

    With ``keep`` the sandbox is left running unless the demo fails. Raises ``VerificationError`` if a check fails.
    """
    require("pyspark", "pyarrow", what="the demo", extra="all")
    # Members would inherit an ignored SIGINT, and one of them is ended by it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    began, narrator = time.monotonic(), Narrator(sys.stdout)
    narrator.title("One consumer group, three members of two kinds, and its messages in Parquet")
    narrator.say(
        "Everything is real, and runs on this machine alone: a ZooKeeper, a Kafka broker, Kafka's own consumer, "
        f"zkgroup, Spark. It takes two minutes{'' if keep else ' and leaves nothing behind'}. What follows a $ is "
        "what you would type.",
        indent="",
    )
    sandbox = Sandbox(name, kafka=kafka)
    if sandbox.release.kraft:
        raise UsageError(f"the demo has groups in ZooKeeper, and Kafka {kafka} has none", "choose an older --kafka")
    try:
        demo = Demo(narrator, sandbox, total)
        demo.start_servers()
        # Of a JVM that an interrupt has ended already pyspark says that it cannot be stopped.
        with sandbox.registry() as registry, warnings.catch_warnings(action="ignore", category=RuntimeWarning):
            # Of a pandas that Spark does not know yet, and that nothing here uses.
            warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\.")
            demo.run_steps(registry)
        if keep:
            sandbox.run_on()
            demo.invite()
        else:
            sandbox.stop()
    except (KeyboardInterrupt, Terminated):
        narrator.title("\nInterrupted: everything that runs is ended.")
        raise
    finally:
        sandbox.stop()  # does nothing where it is stopped, or meant to run on
    narrator.title(f"\nDone in {time.monotonic() - began:.0f} s." + ("" if keep else " Nothing is left running."))


class Demo:
    """The steps of the demo, in order."""

    def __init__(self, narrator: Narrator, sandbox: Sandbox, total: int) -> None:
        self._narrator = narrator
        self._sandbox = sandbox
        self._name = () if sandbox.name == "default" else ("--name", sandbox.name)
        self._cluster = ":".join(("sandbox", *self._name[1:]))
        self._folder = sandbox.folder / "demo"
        self._total = total
        self._sent = 0
        self._batch = self._shown = 0
        self._members: dict[str, DemoCommand] = {}
        self._gone: list[DemoCommand] = []

    # The steps

    def start_servers(self) -> None:
        self._narrator.step("A ZooKeeper and a Kafka broker are started")
        release = self._sandbox.release.version
        kafka = () if release == DEFAULT_RELEASE else ("--kafka", release)
        self._narrator.command(shlex.join(("zkgroup", "sandbox", "start", *self._name, *kafka)))
        with self._narrator.waiting("starting two servers, and downloading Kafka if this is the first time"):
            self._sandbox.start()
        self._folder.mkdir()
        self._narrator.say(
            f"ZooKeeper is at {self._sandbox.connect}, Kafka {self._sandbox.release.version} at "
            f"{self._sandbox.bootstrap}. Every other command finds them by -c {self._cluster}."
        )

    def run_steps(self, registry: Registry) -> None:
        try:
            self._fill(registry)
            self._join(registry)
            self._read()
            self._one_leaves(registry)
            self._all_leave()
            self._export()
        finally:
            for member in self._members.values():
                member.stop(LEAVE)

    def _fill(self, registry: Registry) -> None:
        self._narrator.step(f"Two topics are made, and {self._part(0):,} messages produced")
        for topic in TOPICS:
            create_topic(registry, topic, PARTITIONS)
        self._produce()
        self._narrator.say(
            f"The topics are {' and '.join(TOPICS)}, with {PARTITIONS} partitions each. zkgroup only reads topics: the "
            "demo itself produces the messages."
        )

    def _join(self, registry: Registry) -> None:
        self._narrator.step(f'Three members join the consumer group "{GROUP}"')
        both = ("--group", GROUP, "--whitelist", "|".join(TOPICS), "--from-beginning")
        served = self._sandbox.release
        release = served.version if served.member else DEFAULT_RELEASE  # 2.0 dropped that consumer
        self._narrator.say(f"One is the Scala consumer of Kafka {release}.")
        of = () if release == DEFAULT_RELEASE else ("--release", release)
        self._start("scala", "sandbox", "member", *self._name, *of, *both, "--records", "--id", "scala")
        self._narrator.say("Two are zkgroup:")
        for member in ("python-1", "python-2"):
            own = ("-X", f"consumer.id={member}", "--format", FORMAT)
            self._start(member, "-c", self._cluster, "consume", *both, *own)
        self._narrator.say("They meet in ZooKeeper, and by the same rule each works out its share of the partitions.")
        self._settled(registry)

    def _read(self) -> None:
        self._produce()
        self._narrator.step(f"{self._part(1):,} more messages arrive while all three read")
        self._all_read()
        for member in self._members.values():
            last = member.lines()[-1].decode()
            self._narrator.output(f"{member.name:9} has read {len(member.lines()):>7,}, the last: {last.expandtabs(1)}")
        self._narrator.check(f"all {self._sent:,} messages have been read")

    def _one_leaves(self, registry: Registry) -> None:
        self._narrator.step("python-2 is interrupted, as by Ctrl-C: it commits its offsets and leaves")
        self._narrator.command("kill -INT %3")
        self._leave("python-2")
        self._narrator.say("The other two take over what it owned.")
        self._settled(registry)
        self._produce()
        self._narrator.say(f"{self._part(2):,} more messages arrive.")
        self._all_read()
        self._narrator.check(f"all {self._sent:,} messages have been read")

    def _all_leave(self) -> None:
        self._narrator.step("The other two leave as well. What has the group read?")
        self._narrator.command("kill -INT %1 %2")
        with self._narrator.waiting("waiting until they have committed and left"):
            for name in tuple(self._members):
                self._leave(name)
        printed = [message for member in self._gone for message in parse_printed(member.lines())]
        missing, repeated, foreign = check_reading(self._ranges(), printed)
        if missing or foreign:
            self._wrong(
                f"of {self._sent:,} messages {missing:,} were not read, and {foreign:,} read that nobody had sent"
            )
        if repeated:
            self._narrator.check(
                f"all {self._sent:,} messages were read, {repeated:,} of them twice: a group promises each at least "
                "once, and a member that gives up a partition may have read what it had not committed"
            )
        else:
            self._narrator.check(f"all {self._sent:,} messages were read, each exactly once")

    def _export(self) -> None:
        read = self._ranges()
        self._produce()
        everything = self._ranges()
        rest = {partition: (read[partition][1], end) for partition, (_, end) in everything.items()}
        self._narrator.step(f"{self._part(3):,} more messages arrive, and nobody is there: they go to Parquet")
        self._narrator.say(
            f'An export takes up where the group "{GROUP}" has stopped, and commits what it has written.'
        )
        self._show("-c", self._cluster, "export", "--group", GROUP, "--to", GROUP)
        self._narrator.say('Another group, "archive", has no offsets yet: it begins at the first message.')
        begin = ("--group", "archive", "--from", "earliest", "--to", "archive")
        self._show("-c", self._cluster, "export", *TOPICS, *begin)
        self._read_back({"archive": everything, GROUP: rest})

    def _read_back(self, expected: dict[str, Ranges]) -> None:
        from zkgroup.export.spark.readback import read_back  # brings Spark

        self._narrator.step("Spark reads the Parquet back")
        for line in (
            "from pyspark.sql.functions import *",
            'rows, offset = spark.read.parquet("archive"), col("offset")',
            'counts = [count("*"), count_distinct(offset), min(offset), max(offset)]',
            'rows.groupBy("topic", "partition").agg(*counts).show()',
        ):
            self._narrator.command(line, prompt=">>>")
        with self._narrator.waiting("starting Spark"):
            found = dict(zip(expected, read_back([self._folder / name for name in expected]), strict=True))
        columns = ("topic", "partition", "rows", "offsets", "first", "last")
        counts = [(*partition, *astuple(counted)) for partition, counted in sorted(found["archive"].items())]
        self._narrator.output("".join(format_rows(counts, columns, "table")))
        for name, ranges in expected.items():
            if defects := export_defects(ranges, found[name]):
                self._wrong(f"in the folder {name}: {'; '.join(defects)}")
        rows = {name: sum(one.rows for one in counted.values()) for name, counted in found.items()}
        self._narrator.check(f"archive has {rows['archive']:,} rows: every message is there exactly once")
        self._narrator.check(f"{GROUP} has {rows[GROUP]:,}: each message that the members had not read, exactly once")

    def invite(self) -> None:
        self._narrator.step("The sandbox runs on, to play with")
        zkgroup = f"zkgroup -c {self._cluster}"
        self._narrator.command("zkgroup sandbox status")
        self._narrator.command(f"{zkgroup} consume orders --offset -3 --until-end --output json")
        self._narrator.command(f"{zkgroup} export orders --group copy --from earliest --to copy")
        self._narrator.say("A member goes on until Ctrl-C. Meanwhile, in another terminal, ask who owns what:")
        self._narrator.command(f"{zkgroup} consume orders payments --group mine --from-beginning")
        self._narrator.command(f"{zkgroup} owners mine")
        self._narrator.say("At the end:")
        self._narrator.command(shlex.join(("zkgroup", "sandbox", "stop", *self._name)))
        self._narrator.say(f"What this demo wrote is in {self._folder}, and goes with the sandbox.")

    # Parts of steps

    def _part(self, batch: int) -> int:
        """The number of messages of a batch; the batches add up to the total."""
        return self._total * (batch + 1) // BATCHES - self._total * batch // BATCHES

    def _kafka(self) -> KafkaSettings:
        with self._sandbox.registry() as registry:
            return Brokers(registry.read, {}).settings()

    def _produce(self) -> None:
        numbers = range(self._sent, self._sent + self._part(self._batch))
        kafka = self._kafka()
        # librdkafka calls back at each delivery, and an exception that a signal raises there is lost.
        with StopRequest() as stop:
            for index, topic in enumerate(TOPICS):
                records = [demo_message(number) for number in numbers if number % len(TOPICS) == index]
                produce(kafka, topic, records, timeout=PRODUCE)
        if stop.signum is not None:
            raise Terminated(stop.signum)
        self._sent += len(numbers)
        self._batch += 1

    def _ranges(self) -> Ranges:
        partitions = [TopicPartition(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
        logs = log_offsets(self._kafka(), partitions, 10.0)
        found = {partition: (log.start, log.end) for partition, log in logs.items() if isinstance(log, LogRange)}
        if (count := sum(end - start for start, end in found.values())) != self._sent:
            raise ZkgroupError(f"the broker has {count} messages, but {self._sent} were sent")
        return found

    def _start(self, name: str, *arguments: str) -> None:
        self._members[name] = DemoCommand(name, arguments, self._folder, self._sandbox)
        self._narrator.command(f"zkgroup {shlex.join(arguments)} > {name}.txt &")

    def _leave(self, name: str) -> None:
        """Interrupt a member, and wait until it has left in order."""
        member = self._members[name]
        member.check_alive()
        member.signal(signal.SIGINT)
        member.finish(LEAVE, 128 + signal.SIGINT)
        self._gone.append(self._members.pop(name))

    def _settled(self, registry: Registry) -> None:
        """Wait until exactly our members own everything, then show it the way a user sees it."""
        wanted = {f"{GROUP}_{name}" for name in self._members}
        partitions = PARTITIONS * len(TOPICS)

        def is_settled() -> bool:
            for member in self._members.values():
                member.check_alive()
            try:
                seen = read_group(registry, GROUP)
            except NotFoundError:  # nobody has registered yet
                return False
            owners = {partition.member for partition in seen.partitions}
            return owners == wanted and len(seen.partitions) == partitions and not ownership_defects(seen)

        with self._narrator.waiting("waiting until the group is at rest"):
            wait_for(is_settled, JOIN, "the group did not come to rest", BUSY)
        self._show("-c", self._cluster, "owners", GROUP, "--verify")
        self._narrator.check("every partition has exactly one owner, and it is a registered member")

    def _all_read(self) -> None:
        def has_read() -> bool:
            for member in self._members.values():
                member.check_alive()
            lines = [line for member in (*self._members.values(), *self._gone) for line in member.lines()]
            # A message that two members printed counts once: parsed only when it may be enough.
            return len(lines) >= self._sent and len(set(parse_printed(lines))) >= self._sent

        with self._narrator.waiting("waiting until everything is read"):
            wait_for(has_read, READ, "not all messages were read", BUSY)

    def _show(self, *arguments: str) -> None:
        self._narrator.command(f"zkgroup {shlex.join(arguments)}")
        self._shown += 1
        command = DemoCommand(f".command-{self._shown}", arguments, self._folder, self._sandbox)
        with self._narrator.waiting("running"):
            command.finish(COMMAND)
        self._narrator.output(b"\n".join(command.lines()).decode())

    def _wrong(self, what: str) -> None:
        self._narrator.failed(what)
        raise VerificationError(f"the demo found something wrong: {what}", "please report it")
