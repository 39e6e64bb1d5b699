"""Cycles of a group that mixes members of zkgroup and of the Scala consumer (1.1.1)."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from mixed_group import MIXES, SESSION, MixedGroup
from servers import Sandbox
from session_expiry import expire_session
from support import fresh_name, wait_until

from faults.cluster import Patient, Watch, Writer
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Get, Node
from zkgroup.sandbox.topic_admin import create_topic

PARTITIONS = 12


@dataclass
class MixedOutcome:
    """What the cycles showed. What Scala consumers break is reported, and proves nothing about ours."""

    mix: str
    cycles: int
    seed: int
    seconds: float = 0.0
    slowest: float = 0.0
    written: int = 0
    read: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    backwards: int = 0
    again: Counter[tuple[str, str]] = field(default_factory=Counter)
    committed_again: Counter[str] = field(default_factory=Counter)

    @property
    def wrong(self) -> list[str]:
        """What must not be, whoever is in the group."""
        return self.lost

    def text(self) -> str:
        """As a table, in Markdown."""
        steps = [f"| {step} | {number} |" for step, number in sorted(self.steps.items(), key=lambda item: -item[1])]
        again = [f"| first read by {one}, again by {other} | {n:,} |" for (one, other), n in sorted(self.again.items())]
        return "\n".join(
            [
                f"{self.mix}, releases {', '.join(MIXES[self.mix][2])}: {self.cycles} cycles in"
                f" {self.seconds / 60:.1f} minutes, {self.written:,} records, seed {self.seed}.",
                "",
                "| step | times |",
                "|---|---:|",
                *steps,
                "",
                "| | |",
                "|---|---:|",
                f"| records that nobody read | {len(self.lost)} |",
                f"| stored offsets that went back (the Scala consumer writes unconditionally) | {self.backwards} |",
                *again,
                *(
                    f"| committed at a rest, and read again by {who} | {n:,} |"
                    for who, n in self.committed_again.items()
                ),
                f"| the longest time to rest | {self.slowest:.1f} s |",
            ]
        )


def cycle(group: MixedGroup, sandbox: Sandbox, registry: Patient) -> None:
    """Somebody joins, leaves, is killed, stopped past its session, or loses it."""
    kind = group.random.choices(["churn", "pause", "expire"], [6, 2, 2])[0]
    if kind == "churn" or not group.members:
        group.churn()
        return
    member = group.random.choice(group.members)
    path = znodes.member_id(group.group, member.id)

    def owner() -> int:
        (node,) = registry.read([Get(path)])
        return node.stat.owner if isinstance(node, Node) else 0

    before = owner()
    if kind == "pause":
        group.tell(f"{group.kind(member)} is stopped past its session")
        member.pause()
        try:
            wait_until(lambda: owner() == 0, int(SESSION) / 1000 + 20, "its session ends")
        finally:
            member.resume()
    else:
        group.tell(f"{group.kind(member)} loses its session")
        expire_session(sandbox.address, before)
    try:
        wait_until(lambda: owner() not in (0, before), 30, f"{member.id} is back")
        group.wait_for_rest(30)
    except pytest.fail.Exception:
        if group.kind(member) == "ours":
            raise
        # What an operator would do with a Scala consumer that never comes back, or owns without reading.
        group.tell("theirs had to be restarted")
        group.members.remove(member)
        member.kill()
        group.join(ours=False)
        group.wait_for_rest()


def run_cycles(mix: str, cycles: int, seed: int, tell: Callable[[str], None] = lambda text: None) -> MixedOutcome:
    """So many cycles, one after another, each from rest to rest, while records come in."""
    outcome = MixedOutcome(mix, cycles, seed)
    with (
        tempfile.TemporaryDirectory() as folder,
        Sandbox(fresh_name("cycles"), java_options=("-Xmx512m",)) as sandbox,
        sandbox.registry(30.0) as registry,
    ):
        topic, name = "mixed", "mixed"
        create_topic(registry, topic, PARTITIONS)
        group = MixedGroup(sandbox, registry, name, topic, mix, Path(folder), seed)
        patient = Patient(sandbox.connect)
        group.join(ours=False)
        group.join(ours=True)
        group.wait_for_rest()
        writer = Writer(sandbox.bootstrap, topic, PARTITIONS, 10_000_000, 10_000_000 / 500)
        watch = Watch(patient, name, topic, PARTITIONS)
        begun = time.monotonic()
        try:
            for number in range(1, cycles + 1):
                at = time.monotonic()
                cycle(group, sandbox, patient)
                took = time.monotonic() - at
                outcome.slowest = max(outcome.slowest, took)
                tell(f"  {number:3} at rest after {took:.1f} s with {len(group.members)} members")
            writer.stop()
            wait_until(lambda: sum(watch.last.values()) == sum(writer.ends.values()), 120, "everything is committed")
        finally:
            outcome.seconds = time.monotonic() - begun
            group.end()
            watch.stop()
            patient.close()
        seen: Counter[tuple[int, int]] = Counter()
        for output in group.outputs:
            for line in output.read_bytes().split(b"\n")[:-1]:
                _, partition, offset, *_ = line.split(b"\t")
                seen[int(partition), int(offset)] += 1
        outcome.lost = [f"{p}:{o}" for p, end in writer.ends.items() for o in range(end) if not seen[p, o]]
        outcome.written, outcome.read = writer.acknowledged, sum(seen.values())
        last: dict[int, int] = {}
        for commit in watch.commits:
            outcome.backwards += commit.offset < last.get(commit.partition, 0)
            last[commit.partition] = commit.offset
        outcome.steps, outcome.again = group.steps, group.read_again()
        outcome.committed_again = group.committed_again()
    return outcome
