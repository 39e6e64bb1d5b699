"""A messy cluster, as an operator meets it: fifty groups, of which ten are read and eight are broken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from advised_commands import type_in
from broken_groups import Maker
from cli import run

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.sandbox.local_cluster import Sandbox

REAL, LEFT = 10, 32


@pytest.fixture
def maker(cluster: Sandbox, registry: Registry) -> Iterator[Maker]:
    with ExitStack() as stack:
        sessions = (stack.enter_context(cluster.registry(30.0)), stack.enter_context(cluster.registry(30.0)))
        maker = Maker(cluster, registry, sessions)
        stack.callback(maker.clear)
        yield maker


def break_groups(m: Maker) -> dict[str, str]:
    """Eight groups, each with its worst finding."""
    broken = {
        m.group(offsets={(m.orders, 0): 5, (m.orders, 1): b"abc"}): "unreadable-offset",
        m.group(offsets={(m.orders, 0): 500, (m.orders, 1): 5}): "offset-beyond-end",
        m.group(offsets={(m.cut, 0): 2}): "offset-before-start",
        m.again[1]: "recreated-topic",
        m.group(offsets=m.sane | {("never", 0): 5}): "offset-of-missing-topic",
        m.group(offsets=m.sane | {(m.orders, 7): 5}): "offset-of-missing-partition",
        m.group(offsets={(m.orders, 0): 5}): "partition-without-offset",
    }
    contradicting = m.group(offsets=m.sane)
    m.in_kafka(contradicting, 8)
    return broken | {contradicting: "contradicting-offsets"}


def test_every_breakage_is_two_commands_away(cluster: Sandbox, maker: Maker) -> None:
    """The first command names each broken group and its worst finding above all others; the second, of one group,
    prints the commands that mend it. When they have been pasted, nothing is left to find."""
    broken = break_groups(maker)
    for _ in range(REAL):
        maker.group(maker.one(), maker.both, maker.sane)
    for _ in range(LEFT):
        maker.group(offsets=maker.sane)
    own = next(iter(broken)).rpartition("-")[0]

    def listed() -> dict[str, str]:
        shown = run("list-groups", "--filter", f"{own}-*", "--sort", "findings", "-z", cluster.connect)
        assert (shown.returncode, shown.stderr) == (0, "")
        return {words[0]: words[-1] for words in map(str.split, shown.stdout.splitlines()[1:])}

    def commands(group: str) -> list[str]:
        options = ("--section", "findings", "--output", "json")
        rows: list[dict[str, Any]] = json.loads(run("inspect-group", group, "-z", cluster.connect, *options).stdout)
        return [line for row in rows if row["severity"] != "info" for line in row["commands"]]

    found = listed()
    assert len(found) == REAL + LEFT + len(broken) == 50
    assert dict(list(found.items())[: len(broken)]) == broken
    assert set(list(found.values())[len(broken) :]) == {"-"}
    for _ in range(4):  # a remedy may bring the next thing to light
        ill = [group for group, finding in listed().items() if finding != "-"]
        if not ill:
            break
        for group in ill:
            type_in(commands(group), cluster.connect, "--execute")
    assert set(listed().values()) == {"-"}
