"""The model of ZooKeeper answers as a real one does: the same operations, the same results and watch events."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sim.real import Real, below, shape
from sim.zookeeper import ModelZooKeeper
from support import scaled, wait_until

from zkgroup.protocol.operations import (
    OPEN,
    Acl,
    Check,
    Children,
    Create,
    Delete,
    Ensure,
    Exists,
    Failure,
    Get,
    GetAcl,
    Op,
    Result,
    SetData,
    Sync,
    Transaction,
)
from zkgroup.sandbox.local_cluster import Sandbox

_examples = itertools.count(1)

NAMES = ("/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/deep")
paths = st.sampled_from(NAMES)
data = st.sampled_from([b"", b"1", b"\xff\x00"])
versions = st.sampled_from([-1, -1, 0, 1, 2])
#: Both let anyone do anything: what is compared is that they are kept.
acls = st.sampled_from([OPEN, OPEN, (*OPEN, Acl("digest", "user:hash", 1))])
creates = st.builds(Create, paths, data, st.booleans(), acls)
sets = st.builds(SetData, paths, data, versions)
deletes = st.builds(Delete, paths, versions)
changes = st.one_of(creates, creates, sets, deletes)
reads = st.one_of(
    st.builds(Get, paths, st.booleans()),
    st.builds(Exists, paths, st.booleans()),
    st.builds(Children, paths, st.booleans()),
    st.builds(GetAcl, paths),
    st.builds(Ensure, paths),
    st.just(Sync()),
)
parts = st.lists(st.one_of(changes, st.builds(Check, paths, versions)), min_size=1, max_size=4)
operations = st.one_of(changes, reads, st.builds(Transaction, parts.map(tuple)))
#: Who does it (0 or 1), and what; −1: that session ends, and another takes its place.
steps = st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 1, 1, -1]), operations), min_size=1, max_size=14)


class Pair:
    """The model and the real one, with two sessions each, below a root of this example's own."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.root = f"/contract-{next(_examples)}"
        self.model = ModelZooKeeper()
        self.model.tell = lambda session, event: self.notified[self.modelled.index(session)].append(event.path)
        self.notified: list[list[str]] = [[], []]
        self.modelled = [self.model.open_session(), self.model.open_session()]
        self.real = [Real(address), Real(address)]
        self.both(0, Ensure("/"))

    def both(self, who: int, op: Op) -> tuple[Any, Any]:
        """What both say, in a form that can be compared."""
        op = below(self.root, op)
        modelled = shape(self.model.apply(self.modelled[who], op), self.modelled)
        real = shape(self.real[who].apply(op), [real.session.session_id for real in self.real])
        return modelled, real

    def end(self, who: int) -> None:
        """One session ends: its ephemeral nodes and watches go. A new one takes its place."""
        self.compare_notified(who)
        self.model.end_session(self.modelled[who])
        self.real[who].session.close()
        self.modelled[who] = self.model.open_session()
        self.notified[who] = []
        self.real[who] = Real(self.address)

    def compare_notified(self, who: int) -> None:
        """Changes of the same nodes must have been reported. (How often depends on what else watched them.)"""
        notified, expected = self.real[who].notified, set(self.notified[who])
        wait_until(lambda: set(notified) >= expected, 5, f"all of {expected} notified")
        assert set(notified) == expected

    def close(self) -> None:
        for real in self.real:
            real.session.close()


@pytest.fixture
def pairs(zookeeper: Sandbox) -> Iterator[Any]:
    made: list[Pair] = []

    def make() -> Pair:
        made.append(Pair(zookeeper.address))
        return made[-1]

    yield make
    for pair in made:
        pair.close()


@settings(max_examples=scaled(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trace=steps)
def test_the_model_answers_as_a_real_server(pairs: Any, trace: list[tuple[int, Op]]) -> None:
    """Any operations of two sessions, in any order, give the same results, and tell the same of what is watched."""
    pair = pairs()
    try:
        for number, (who, op) in enumerate(trace):
            if who < 0:
                pair.end(number % 2)
            else:
                modelled, real = pair.both(who, op)
                assert modelled == real, f"step {number} {op}: model {modelled}, server {real}"
        for who in (0, 1):
            pair.compare_notified(who)
    finally:
        pair.close()


def test_results_come_in_the_order_of_the_operations(zookeeper: Sandbox) -> None:
    """A long pipelined batch is answered operation by operation, failures in their places."""
    real = Real(zookeeper.address)
    try:
        real.apply(Ensure("/order"))
        ops: list[Op] = [Create(f"/order/{n % 1500:05}") for n in range(3000)]
        box: queue.SimpleQueue[list[Result]] = queue.SimpleQueue()
        real.session.submit(ops, box.put)
        results = box.get(timeout=60)
        assert [isinstance(result, Failure) for result in results] == [False] * 1500 + [True] * 1500
    finally:
        real.session.close()
