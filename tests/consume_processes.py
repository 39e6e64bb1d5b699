"""``zkgroup consume`` as its users run it: processes to watch, and what a group looks like from outside."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cli import ZKGROUP, environment, start
from support import wait_until
from zygote import Forked

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children, Get, Node


class ConsumeProcess:
    """A ``zkgroup consume`` active. Its output goes to a file, so that it never waits for us."""

    def __init__(self, process: Forked, output: Path, errors: Path) -> None:
        self.process = process
        self.output = output
        self.errors = errors

    @property
    def lines(self) -> list[str]:
        """What is printed so far: complete lines."""
        return self.output.read_text().split("\n")[:-1]

    @property
    def stderr(self) -> str:
        """stderr so far."""
        return self.errors.read_text()

    def wait_for_lines(self, count: int, timeout: float = 30.0) -> list[str]:
        """Wait until at least so many lines are printed; returns them all."""

        def enough() -> list[str] | None:
            assert self.process.poll() is None or len(self.lines) >= count, self.stderr
            return self.lines if len(self.lines) >= count else None

        return wait_until(enough, timeout, f"{count} lines") or []

    def wait_to_hear(self, words: str, timeout: float = 30.0) -> None:
        """Wait until stderr has ``words``."""
        wait_until(lambda: words in self.stderr, timeout, f"{words!r} on stderr")

    def stop(self, signum: int, timeout: float = 20.0) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        self.process.send_signal(signum)
        return self.process.wait(timeout)


@contextmanager
def start_consume(folder: Path, connect: str, *options: str) -> Iterator[ConsumeProcess]:
    """``zkgroup -z CONNECT consume OPTIONS…``; what is left of it at the end is killed."""
    number = len(list(folder.glob("*.out")))
    output, errors = folder / f"{number}.out", folder / f"{number}.err"
    with output.open("wb") as out, errors.open("wb") as err:
        process = start("-z", connect, "consume", *options, stdout=out.fileno(), stderr=err.fileno())
    try:
        yield ConsumeProcess(process, output, errors)
    finally:
        process.kill()


@contextmanager
def into_a_full_pipe(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """``zkgroup`` that has filled a pipe; the process, and the end to read from."""
    ours, theirs = os.pipe()
    with subprocess.Popen([ZKGROUP, *arguments], stdout=theirs, stderr=subprocess.PIPE, env=environment()) as process:
        try:
            wait_until(lambda: not select.select([], [theirs], [], 0)[1], what="the pipe is full")
            os.close(theirs)
            yield process, ours
        finally:
            process.kill()
            os.close(ours)


def committed(registry: Registry, group: str) -> Mapping[str, int]:
    """The offsets that a group has in ZooKeeper: ``{"topic-0": 12}``."""
    (topics,) = registry.read([Children(znodes.offsets(group))])
    offsets: dict[str, int] = {}
    for topic in topics if isinstance(topics, tuple) else ():
        (numbers,) = registry.read([Children(znodes.offset_topic(group, topic))])
        for number in numbers if isinstance(numbers, tuple) else ():
            partition = TopicPartition(topic, int(number))
            (node,) = registry.read([Get(znodes.offset(group, partition))])
            if isinstance(node, Node):
                offsets[str(partition)] = int(node.data)
    return offsets


def members(registry: Registry, group: str) -> tuple[str, ...]:
    """Who is registered."""
    (listed,) = registry.read([Children(znodes.ids(group))])
    return listed if isinstance(listed, tuple) else ()


def owned(registry: Registry, group: str) -> list[str]:
    """The partitions that have an owner."""
    (topics,) = registry.read([Children(znodes.owners(group))])
    found: list[str] = []
    for topic in topics if isinstance(topics, tuple) else ():
        (numbers,) = registry.read([Children(znodes.owner_topic(group, topic))])
        found += [f"{topic}-{number}" for number in numbers] if isinstance(numbers, tuple) else []
    return sorted(found)


def nobody_is_left(registry: Registry, group: str) -> bool:
    """Whether no member is registered, and nothing is owned."""
    return not members(registry, group) and not owned(registry, group)
