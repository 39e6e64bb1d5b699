"""Faults at random times under a group that reads, then the verdict."""

from __future__ import annotations

import heapq
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from members import owners as owners_of
from members import plan
from servers import Sandbox, pause, resume
from session_expiry import expire_session
from support import wait_until

from faults.cluster import Patient, Watch, Writer
from faults.group import Slot
from faults.judge import Unnotified, Verdict, judge
from zkgroup.errors import UnreachableError
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Get, Node
from zkgroup.sandbox.local_cluster import START_TIMEOUT
from zkgroup.sandbox.topic_admin import create_topic

#: Seconds of a member's session with ZooKeeper; a tick of the server is half a second.
TIMEOUT = 4.0
#: Which faults, and how often each.
WEIGHTS = {
    "killed (SIGKILL)": 18,
    "stopped (SIGSTOP)": 20,
    "cut from ZooKeeper": 16,
    "ZooKeeper silent": 10,
    "connection reset": 8,
    "session expired early": 8,
    "left and joined again": 6,
    "ZooKeeper killed": 4,
    "ZooKeeper stopped": 4,
    "broker killed": 3,
    "broker stopped": 3,
}


@dataclass(frozen=True)
class Options:
    """How large a run is."""

    minutes: float = 30.0
    faults: int = 300
    seed: int = 1
    members: int = 8
    partitions: int = 32
    records: int = 1_000_000
    kafka: str = "1.1.1"


@dataclass
class Outcome:
    """What a run showed."""

    options: Options
    faults: Counter[str] = field(default_factory=Counter)
    verdict: Verdict = field(default_factory=Verdict)
    written: int = 0
    refused: list[str] = field(default_factory=list)
    gave_up: list[str] = field(default_factory=list)
    rest: float = 0.0
    caught_up: float = 0.0
    seconds: float = 0.0
    left_behind: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        """All that must not be."""
        return self.verdict.wrong + self.refused + self.left_behind

    def text(self) -> str:
        """As a table, in Markdown."""
        o, v = self.options, self.verdict
        rows = [f"| {name} | {number} |" for name, number in sorted(self.faults.items(), key=lambda item: -item[1])]
        return "\n".join(
            [
                f"{o.members} members, {o.partitions} partitions, {self.written:,} records,"
                f" {self.faults.total()} faults in {self.seconds / 60:.1f} minutes, Kafka {o.kafka}, seed {o.seed}.",
                "",
                "| fault | times |",
                "|---|---:|",
                *rows,
                "",
                "| | |",
                "|---|---:|",
                f"| records that nobody was handed | {len(v.lost)} |",
                f"| stored offsets that went back | {len(v.backwards)} |",
                f"| records delivered that had been committed before | {len(v.committed_again)} |",
                f"| records delivered by two owners at a time | {len(v.overlaps)} |",
                f"| partitions whose end is not committed in the end | {len(v.uncommitted)} |",
                f"| nodes left behind | {len(self.left_behind)} |",
                f"| records delivered again, from behind the last commit | {v.again:,} of {v.delivered:,} |",
                f"| records in the hand of who was stopped or expired | {v.in_hand} |",
                f"| records of other members, from a member that had not heard of its expiry | {v.unnotified} |",
                f"| processes that gave up, and were started again | {len(self.gave_up)} |",
                f"| from the end of the last fault to the plan | {self.rest:.1f} s |",
                f"| … and to the last record | {self.caught_up:.1f} s |",
            ]
        )


class Run:
    """One run: ``go`` does it all."""

    def __init__(self, options: Options, folder: Path, tell: Callable[[str], None]) -> None:
        self.options = options
        self.outcome = Outcome(options)
        self._folder, self._tell = folder, tell
        self._random = random.Random(options.seed)
        self._group, self._topic = "faults", "faults"
        self._schedule: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._busy: set[str] = set()  # servers
        self._jobs: list[Future[None]] = []

    def go(self) -> Outcome:
        """Start everything, do harm, wait, judge."""
        o = self.options
        with (
            Sandbox("faults", kafka=o.kafka, java_options=("-Xmx512m",)) as sandbox,
            ThreadPoolExecutor(4) as pool,
        ):
            self._sandbox, self._pool = sandbox, pool
            with sandbox.registry(30.0) as registry:
                # librdkafka's search for a coordinator makes a broker create this: one whose ZooKeeper is away hangs.
                create_topic(registry, "__consumer_offsets", 4)
                create_topic(registry, self._topic, o.partitions)
            self._registry = Patient(sandbox.connect)
            address = sandbox.connect
            journals = self._folder / "journals"
            journals.mkdir()
            self._slots = [
                Slot(n, address, self._group, self._topic, journals, int(TIMEOUT * 1000)) for n in range(o.members)
            ]
            try:
                self._run(sandbox)
            finally:
                for slot in self._slots:
                    slot.close()
                self._registry.close()
        return self.outcome

    def _run(self, sandbox: Sandbox) -> None:
        o = self.options
        begun = time.monotonic()
        for slot in self._slots:
            slot.start(self._random.randint(1, 2))
        self._wait_for_rest(60.0)
        self._tell(f"at rest after {time.monotonic() - begun:.1f} s: {o.faults} faults in {o.minutes:g} minutes")
        writer = Writer(sandbox.bootstrap, self._topic, o.partitions, o.records, o.minutes * 60)
        watch = Watch(self._registry, self._group, self._topic, o.partitions)
        try:
            begun = time.monotonic()
            self._faults(begun, writer)
            self.outcome.seconds = time.monotonic() - begun
            ended = time.monotonic()
            self._wait_for_rest(60.0)
            self.outcome.rest = time.monotonic() - ended
            self._tell(f"at rest {self.outcome.rest:.1f} s after the last fault")
            wait_until(lambda: writer.done, 300, "the brokers have all records")
            wait_until(lambda: watch.last == writer.ends, 300, "everything is read and committed")
            self.outcome.caught_up = time.monotonic() - ended
            self._leave()
        finally:
            watch.stop()
            writer.stop()
        watch.read_offsets()
        self.outcome.written = writer.acknowledged
        self.outcome.refused = writer.refused[:5]
        excused = Counter[str]()
        for slot in self._slots:
            excused += slot.excuses
        deliveries = (delivery for slot in self._slots for delivery in slot.deliveries())
        unnotified = [one for slot in self._slots for one in slot.unnotified()]
        self.outcome.verdict = judge(deliveries, watch.commits, writer.ends, watch.last, excused, unnotified)

    # ------------------------------------------------------------ the end

    def _wait_for_rest(self, timeout: float) -> None:
        with self._sandbox.registry(30.0) as registry:

            def at_rest() -> bool:
                self._revive()
                if len(self._registry.members(self._group)) != len(self._slots):
                    return False
                return owners_of(registry, self._group) == plan(registry, self._group)

            wait_until(at_rest, timeout, "the group is at rest")

    def _leave(self) -> None:
        for slot in self._slots:
            slot.ask_to_leave()
        for slot in self._slots:
            if slot.wait(30) != 0:
                self.outcome.left_behind.append(f"{slot.process_name} did not leave cleanly: {slot.last_word()[-300:]}")
        with self._sandbox.registry(30.0) as registry:
            left = [*self._registry.members(self._group), *map(str, owners_of(registry, self._group))]
        self.outcome.left_behind += left

    def _revive(self) -> None:
        for slot in self._slots:
            if not slot.away and not slot.running:
                word = slot.last_word().strip().rpartition("\n")[2]
                self._tell(f"  {slot.process_name} has ended: {word}")
                self.outcome.gave_up.append(word)
            slot.revive()

    # ------------------------------------------------------------ faults

    def _faults(self, begun: float, writer: Writer) -> None:
        """As many as are wanted, at random times; returns when the last one is over."""
        o, length = self.options, self.options.minutes * 60
        for _ in range(o.faults):
            self._at(begun + self._random.uniform(0.0, 0.97 * length), self._fault)
        while self._schedule:
            writer.check()
            while self._schedule and self._schedule[0][0] <= time.monotonic():
                heapq.heappop(self._schedule)[2]()
            self._revive()
            for job in [job for job in self._jobs if job.done()]:
                self._jobs.remove(job)
                job.result()
            time.sleep(0.02)
        for job in self._jobs:
            job.result(180)

    def _at(self, when: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._schedule, (when, next(self._numbers), do))

    def _after(self, seconds: float, do: Callable[[], None]) -> None:
        self._at(time.monotonic() + seconds, do)

    def _fault(self) -> None:
        """One fault, of a kind that can happen now; a little later if none can."""
        kind = self._random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        server = kind.partition(" ")[0] if kind.startswith(("ZooKeeper k", "ZooKeeper st", "broker")) else ""
        if server:
            if self._busy:
                self._after(0.5, self._fault)
                return
            self._count(kind, server)
            self._harm_server(kind, server)
            return
        free = [slot for slot in self._slots if not slot.busy and slot.running]
        if not free:
            self._after(0.5, self._fault)
            return
        slot = self._random.choice(free)
        slot.busy = True
        self._count(kind, slot.process_name)
        self._harm_member(kind, slot)

    def _count(self, kind: str, whom: str) -> None:
        self.outcome.faults[kind] += 1
        self._tell(f"  {self.outcome.faults.total():3} {whom}: {kind}")

    def _harm_member(self, kind: str, slot: Slot) -> None:
        pick = self._random.uniform

        def over() -> None:
            slot.busy = False

        def heal() -> None:
            slot.proxy.heal()
            over()

        def go_on() -> None:
            slot.signal(signal.SIGCONT)
            over()

        def start() -> None:
            if slot.running:
                self._after(0.2, start)  # it is still leaving
                return
            slot.start(self._random.randint(1, 2))
            over()

        match kind:
            case "killed (SIGKILL)":
                slot.kill()
                self._after(pick(0.0, 3.0), start)
            case "left and joined again":
                slot.ask_to_leave()
                self._after(pick(0.0, 3.0), start)
            case "stopped (SIGSTOP)":
                slot.signal(signal.SIGSTOP)
                slot.excuses[slot.process_name] += 2  # a record for each stream
                self._after(pick(0.1, 2.5) * TIMEOUT, go_on)
            case "cut from ZooKeeper":
                slot.proxy.cut()
                self._after(pick(0.05, 2.0) * TIMEOUT, heal)
            case "ZooKeeper silent":
                slot.proxy.stall(*self._random.choice([(), ("requests",), ("replies",)]))
                self._after(pick(0.05, 2.0) * TIMEOUT, heal)
            case "connection reset":
                slot.proxy.drop()
                over()
            case "session expired early":
                slot.excuses[slot.process_name] += 2
                self._jobs.append(self._pool.submit(self._expire, slot))

    def _expire(self, slot: Slot) -> None:
        process = slot.process_name
        try:
            path = znodes.member_id(self._group, f"{self._group}_{slot.name}")
            (node,) = self._registry.try_read([Get(path)]) or [None]
            if isinstance(node, Node) and node.stat.owner:
                since = time.monotonic_ns()
                try:
                    expire_session(self._sandbox.address, node.stat.owner)
                finally:
                    # Who cannot be reported, as its connection or ZooKeeper fails as well, goes on until its lease
                    # ends.
                    slot.ended.append(Unnotified(process, since, time.monotonic_ns() + int(TIMEOUT / 2 * 1e9)))
        except UnreachableError as error:
            self._tell(f"  {error}")
        finally:
            slot.busy = False

    def _harm_server(self, kind: str, server: str) -> None:
        self._busy.add(server)
        seconds = self._random.uniform(0.0, 3.0)

        def harm() -> None:
            sandbox = self._sandbox
            target = sandbox.zookeeper if server == "ZooKeeper" else sandbox.broker()
            try:
                if kind.endswith("killed"):
                    target.kill()
                    time.sleep(seconds)  # how long it is away, not a wait for anything
                    sandbox.zookeeper.start(START_TIMEOUT) if server == "ZooKeeper" else sandbox.start_broker()
                else:
                    pause(target)
                    time.sleep(seconds)
                    resume(target)
            finally:
                self._busy.discard(server)

        self._jobs.append(self._pool.submit(harm))


def run(options: Options, tell: Callable[[str], None] = lambda text: None, folder: Path | None = None) -> Outcome:
    """A run in a folder of its own, which is kept where something is wrong and ``folder`` was given."""
    if folder is not None:
        return Run(options, folder, tell).go()
    with tempfile.TemporaryDirectory() as made:
        return Run(options, Path(made), tell).go()
