"""The simulation's model of ZooKeeper, compared with a real one: random traces of several sessions.

A trace is a row of steps: one session sends a batch of operations, pipelined; or all do at once, each below a node of
its own; or a session is closed, or killed by somebody who knows its password, and another takes its place. After each
step results and watch events must be those of the model.
"""

from __future__ import annotations

from random import Random

import pytest
from session_expiry import expire_session
from sim.real import Real, below, shape
from sim.zookeeper import ModelZooKeeper

from zkgroup.protocol.operations import (
    Changed,
    Check,
    Children,
    Create,
    Delete,
    Ensure,
    Exists,
    Get,
    Op,
    SetData,
    Sync,
    Transaction,
)
from zkgroup.sandbox.local_cluster import Sandbox

SESSIONS = 3
NAMES = ("/0", "/1", "/2", "/0/x", "/0/y", "/1/x", "/2/x", "/0/x/deep", "/1/x/deep")


class Traces:
    """A model and a real server, with sessions that live on from trace to trace, each under a root of its own."""

    def __init__(self, address: str, name: str) -> None:
        self.address = address
        self.name = name
        self.count = 0
        self.killed = 0
        self.events = 0
        self.model = ModelZooKeeper()
        self.model.tell = self._tell
        self.modelled = [self.model.open_session() for _ in range(SESSIONS)]
        self.real = [Real(address, 30.0) for _ in range(SESSIONS)]
        self.notified: list[list[str]] = [[] for _ in range(SESSIONS)]

    def _tell(self, session: int, event: Changed) -> None:
        self.notified[self.modelled.index(session)].append(event.path)

    def play(self, seed: int) -> None:
        """One trace."""
        random = Random(seed)
        self.count += 1
        root = f"/{self.name}-{self.count}"
        for path in ("", "/0", "/1"):
            self._batch(0, [Ensure(root + path)], "root")
        for step in range(random.randint(3, 9)):
            where = f"trace {seed}, step {step}"
            kind = random.random()
            if kind < 0.03:
                self._end(random.randrange(SESSIONS), by_force=random.random() < 0.5)
            elif kind < 0.3:
                self._all_at_once(random, root, where)
            else:
                self._batch(random.randrange(SESSIONS), self._operations(random, root, NAMES, 8), where)
            self._compare_notified(where)

    def close(self) -> None:
        for real in self.real:
            real.session.close()

    def _operations(self, random: Random, root: str, names: tuple[str, ...], most: int) -> list[Op]:
        """A batch. ``Ensure`` takes several round trips, and is overtaken by what comes after it: it comes last."""
        ops = [below(root, self._operation(random, names)) for _ in range(random.randint(1, most))]
        return sorted(ops, key=lambda op: isinstance(op, Ensure))

    def _operation(self, random: Random, names: tuple[str, ...]) -> Op:
        path, version = random.choice(names), random.choice((-1, -1, 0, 1, 2))
        data, watch = random.choice((b"", b"1", b"\xff\x00")), random.random() < 0.7
        match random.randrange(10):
            case 0 | 1 | 2:
                return Create(path, data, random.random() < 0.4)
            case 3:
                return SetData(path, data, version)
            case 4:
                return Delete(path, version)
            case 5:
                return Get(path, watch)
            case 6:
                return Exists(path, watch)
            case 7:
                return Children(path, watch)
            case 8:
                parts = [self._operation(random, names) for _ in range(random.randint(1, 4))]
                changes = [part for part in parts if isinstance(part, Create | SetData | Delete)]
                if random.random() < 0.3:
                    return Transaction((*changes, Check(path, version)))
                return Transaction(tuple(changes)) if changes else Ensure(path)
            case _:
                return Ensure(path)

    def _batch(self, who: int, ops: list[Op], where: str) -> None:
        modelled = [shape(self.model.apply(self.modelled[who], op), self.modelled) for op in ops]
        results = self.real[who].apply_all(ops)
        ids = [real.session.session_id for real in self.real]
        for op, expected, result in zip(ops, modelled, results, strict=True):
            assert shape(result, ids) == expected, f"{where}: {op}: model {expected}, server {result}"

    def _all_at_once(self, random: Random, root: str, where: str) -> None:
        """Concurrent sessions that cannot meet: any order gives the same."""
        batches = []
        for who in range(SESSIONS):
            names = tuple(name for name in NAMES if name.startswith(f"/{who}/"))
            self._batch(who, [Ensure(f"{root}/{who}")], where)
            batches.append(self._operations(random, root, names, 6))
        boxes = [real.begin(ops) for real, ops in zip(self.real, batches, strict=True)]
        ids = [real.session.session_id for real in self.real]
        for who, (box, ops) in enumerate(zip(boxes, batches, strict=True)):
            for op, result in zip(ops, box.get(timeout=20), strict=True):
                expected = shape(self.model.apply(self.modelled[who], op), self.modelled)
                assert shape(result, ids) == expected, f"{where}: {op}: model {expected}, server {result}"

    def _end(self, who: int, *, by_force: bool) -> None:
        """A session ends: its ephemeral nodes and watches go. A new one takes its place."""
        self._compare_notified(f"end of {who}")
        real = self.real[who]
        if by_force:
            self.killed += 1
            expire_session(self.address, real.session.session_id)
        self.model.end_session(self.modelled[who])
        real.session.close()
        self.modelled[who] = self.model.open_session()
        self.notified[who] = []
        self.real[who] = Real(self.address, 30.0)

    def _compare_notified(self, where: str) -> None:
        """An event is reported before any answer that the server gives after the change: after a sync all are there."""
        for who, real in enumerate(self.real):
            real.apply(Sync())
            notified, real.notified = real.notified, []
            expected, self.notified[who] = self.notified[who], []
            self.events += len(expected)
            assert sorted(set(notified)) == sorted(set(expected)), f"{where}: session {who}: {notified}, not {expected}"


def _play(address: str, name: str, first: int, count: int) -> Traces:
    traces = Traces(address, name)
    try:
        for seed in range(first, first + count):
            traces.play(seed)
    finally:
        traces.close()
    return traces


def test_random_traces_agree(zookeeper: Sandbox) -> None:
    """A hundred traces, in which sessions are killed and watches fire."""
    traces = _play(zookeeper.address, "traces", 0, 100)
    assert traces.killed > 5
    assert traces.events > 100


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_ten_thousand_random_traces_agree(zookeeper: Sandbox) -> None:
    """The same with ten thousand."""
    traces = _play(zookeeper.address, "many-traces", 1000, 10_000)
    assert traces.count == 10_000
    assert traces.killed > 500
