"""What a member knows of the registry is what is there, and costs no second request."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from sim.shop import MINE, Shop

from zkgroup.protocol import procedures as do
from zkgroup.protocol.names import INTERNAL_TOPICS
from zkgroup.protocol.operations import Changed, Create, Delete, Failure, Get, Node, Op, Result, SetData
from zkgroup.protocol.procedures import RegistryCache

PATHS = [f"/n/{letter}" for letter in "abc"]
WANTED = [Get(path, watch=path != "/n/c") for path in PATHS]


class Reader:
    """A session that reads through ``Known``, and hears of watches as they are reported: before the answers to a
    request that are still to come, but an answer is handed on with the last one of its request."""

    def __init__(self) -> None:
        self.shop = Shop()
        self.known = RegistryCache()
        self.asked: list[str] = []
        self.shop.server.tell = self._tell
        for path in PATHS:
            self.shop.make(path, b"0")

    def _tell(self, session: int, event: Changed) -> None:
        if session == self.shop.me:
            self.known.changed(event.path)

    def change(self, path: str, what: str) -> None:
        """Somebody else writes, deletes, or makes a node."""
        data = what.encode()
        op = {"delete": Delete(path), "create": Create(path, data)}.get(what, SetData(path, data))
        self.shop.server.apply(self.shop.other, op)

    def read(self, *between: tuple[int, str, str]) -> list[Result]:
        """Read all; ``between``: before which answer a node is changed."""
        self.asked = []
        procedure = self.known.read(WANTED)
        try:
            ops = next(procedure)
            results = []
            for number, op in enumerate(ops):
                for _, path, what in [one for one in between if one[0] == number]:
                    self.change(path, what)
                self.asked.append(op.path)
                results.append(self.shop.server.apply(self.shop.me, op))
            procedure.send(results)
        except StopIteration as stop:
            found: list[Result] = stop.value
            return found
        raise AssertionError("it asks twice")

    @property
    def truth(self) -> list[bytes | None]:
        return [node.data if (node := self.shop.server.nodes.get(path)) else None for path in PATHS]


def data_of(results: Sequence[Result]) -> list[bytes | None]:
    assert all(isinstance(result, Node | Failure) for result in results)
    return [result.data if isinstance(result, Node) else None for result in results]


CHANGES = st.tuples(st.integers(0, 2), st.sampled_from(PATHS), st.sampled_from(["1", "2", "delete", "create"]))


@given(st.lists(st.tuples(st.booleans(), st.lists(CHANGES, max_size=4)), max_size=8))
def test_what_is_known_is_what_is_there(rounds: list[tuple[bool, list[tuple[int, str, str]]]]) -> None:
    """Whatever others do, between readings and in the middle of one, also to nodes that come back: a reading that
    nothing disturbs finds what is there."""
    reader = Reader()
    for inside, changes in rounds:
        if inside:
            reader.read(*changes)
        else:
            for _, path, what in changes:
                reader.change(path, what)
        assert data_of(reader.read()) == reader.truth


def test_only_what_has_changed_is_asked_for() -> None:
    """What is watched and has not changed costs no request; what is not watched is read each time; what another makes
    anew is read anew."""
    reader = Reader()
    reader.read()
    assert reader.asked == PATHS
    reader.read()
    assert reader.asked == ["/n/c"]
    reader.change("/n/a", "delete")
    reader.change("/n/a", "create")
    assert data_of(reader.read()) == [b"create", b"0", b"0"]
    assert reader.asked == ["/n/a", "/n/c"]


def test_nothing_is_known_once_the_connection_was_lost() -> None:
    """Watches went with it; what is answered afterwards to a request from before is not believed in later, either."""
    reader = Reader()
    reader.read()
    reader.known.forget()
    reader.read()
    assert reader.asked == PATHS
    procedure = reader.known.read([Get("/n/b", watch=True), *WANTED])
    answers = [reader.shop.server.apply(reader.shop.me, op) for op in next(procedure)]
    reader.known.forget()
    with contextlib.suppress(StopIteration):
        procedure.send(answers)
    assert len(reader.known) == 0


def test_a_rebalance_reads_one_registration_for_one_that_came() -> None:
    """A group of a hundred: a member that has read it reads the newcomer alone, and what changed when one has left:
    nothing."""
    shop, known = Shop(), RegistryCache()
    shop.register()
    body = b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1"}'
    for number in range(100):
        shop.make(f"/consumers/g/ids/g_{number}", body, ephemeral=True)
    tell = shop.server.tell

    def message(session: int, event: Changed) -> None:
        tell(session, event)
        if session == shop.me:
            known.changed(event.path)

    shop.server.tell = message

    def gets() -> tuple[int, do.RebalanceInput]:
        count = 0
        options: dict[str, Any] = {"exclude_internal": True, "internal": INTERNAL_TOPICS, "cache": known}
        procedure = do.read_registry("g", "me", MINE, "range", shop.me, **options)
        try:
            ops: tuple[Op, ...] = next(procedure)
            while True:
                count += sum(isinstance(op, Get) for op in ops)
                ops = procedure.send([shop.server.apply(shop.me, op) for op in ops])
        except StopIteration as stop:
            return count, stop.value

    count, first = gets()
    assert (count, len(first.members)) == (102, 101)
    assert gets() == (0, first)
    shop.make("/consumers/g/ids/g_new", body, ephemeral=True)
    count, second = gets()
    assert (count, len(second.members)) == (1, 102)
    shop.server.apply(shop.other, Delete("/consumers/g/ids/g_7"))
    count, third = gets()
    assert (count, len(third.members)) == (0, 101)
    shop.server.apply(shop.other, SetData("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}'))
    count, fourth = gets()
    assert (count, fourth.partitions) == (1, {"t": (0,)})
