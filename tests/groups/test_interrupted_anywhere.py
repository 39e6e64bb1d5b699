"""A signal that comes between any two lines of whoever changes a group: what is reported is what is there. Real
servers."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import count
from types import FrameType, ModuleType
from typing import Any

import pytest
from guarded_changes import Build, P, commit, plan, values
from resets import TIMEOUT, Kept

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import notices_of
from zkgroup.groups.changes import kafka_writer, znode_deletion, znode_transactions, zookeeper_offset_writer
from zkgroup.groups.changes.change_reports import WriteReport
from zkgroup.groups.changes.group_tree import read_tree
from zkgroup.groups.changes.kafka_writer import write_kafka_offsets
from zkgroup.groups.changes.plan import ZnodeRemoval
from zkgroup.groups.changes.znode_deletion import remove_nodes
from zkgroup.groups.changes.zookeeper_offset_writer import write_offsets

THREE = [P("t", 0), P("t", 1), P("u", 0)]


@contextmanager
def interrupted_before(line: int, modules: Collection[ModuleType], functions: Collection[str]) -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` before the ``line``-th line that this thread runs of these modules, or of these
    functions of them: where a signal's handler does."""
    left = line
    files = {module.__file__ for module in modules}

    def follow(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in files or (functions and frame.f_code.co_name not in functions):
            return None
        if event == "line":
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return follow

    before = sys.gettrace()
    sys.settrace(follow)
    try:
        yield
    finally:
        sys.settrace(before)


def at_every_line(
    change: Callable[[], object], modules: Collection[ModuleType], functions: Collection[str] = ()
) -> Iterator[str]:
    """What ``change`` reported when it was interrupted before each of the lines that it runs; nothing before it has
    begun, and once all is done."""
    for line in count():
        try:
            with interrupted_before(line, modules, functions):
                change()
        except KeyboardInterrupt as stop:
            yield "; ".join(map(str, notices_of(stop)))
        else:
            return


def words(written: int) -> str:
    """What is reported where this many of ``THREE`` are written, up to how to go on."""
    message = WriteReport(tuple(THREE[:written]), tuple(THREE[written:])).describe()
    return f"{message}: " if written else message


def test_offsets_in_pieces(registry: Registry, make_group: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every offset it is reported whether it is written."""
    monkeypatch.setattr("zkgroup.groups.changes.znode_transactions.MAX_TRANSACTION_BYTES", 250)
    group = ""

    def change() -> None:
        nonlocal group
        group = make_group(dict.fromkeys(THREE, 5))
        write_offsets(registry, group, plan(registry, group, dict.fromkeys(THREE, 7)))

    met = set()
    for line, message in enumerate(at_every_line(change, (zookeeper_offset_writer, znode_transactions))):
        met.add(written := values(registry, group, *THREE).count(7))
        assert message.startswith(words(written)) or (not message and written in (0, 3)), (line, written, message)
    assert met == {0, 1, 2, 3}


def test_offsets_in_kafka(
    registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str], make_topic: Callable[..., str]
) -> None:
    """What is there is reported; what is not may be reported as in doubt, while it is under way."""
    topic = make_topic(2)
    two = [P(topic, number) for number in range(2)]
    kept = Kept(registry, kafka, unique("kept"), "kafka")

    def change() -> None:
        kept.put(dict.fromkeys(two, 5))
        write_kafka_offsets(kafka, kept.group, [commit(partition, 7, 5) for partition in two], TIMEOUT)

    met = set()
    for line, message in enumerate(at_every_line(change, [kafka_writer], ("_put", "_done"))):
        met.add(written := kept.get(*two).count(7))
        report = WriteReport(tuple(two)) if written else WriteReport(doubtful=tuple(two))
        said = report.describe(" to Kafka")
        assert message.startswith(said) or (not written and message == WriteReport().describe(" to Kafka")), (
            line,
            message,
        )
    assert met == {0, 2}


def test_nodes_in_pieces(registry: Registry, make_group: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every node it is reported whether it is removed."""
    monkeypatch.setattr("zkgroup.groups.changes.znode_transactions.MAX_TRANSACTION_BYTES", 450)
    group, total = "", 0

    def change() -> None:
        nonlocal group, total
        group = make_group(dict.fromkeys(THREE, 5))
        tree = read_tree(registry, group)
        total = len(tree.nodes)
        remove_nodes(registry, ZnodeRemoval(tree))

    met = set()
    for line, message in enumerate(at_every_line(change, (znode_deletion, znode_transactions))):
        met.add(gone := total - len(read_tree(registry, group).nodes))
        numbers = [int(number) for number in re.findall(r"\d+", message)]
        is_told = numbers == ([gone, total - gone] if gone < total else [gone]) if gone else not numbers
        assert is_told or (not message and gone in (0, total)), (line, gone, message)
    assert {0, total} < met
