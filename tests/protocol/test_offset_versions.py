"""The offset book against a model of ZooKeeper: compare-and-set commits, foreign writes, lost replies."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim.zookeeper import ModelZooKeeper

from zkgroup.protocol import offset_versions as module
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.offset_versions import CommitError, ForeignWrite, OffsetVersions
from zkgroup.protocol.operations import (
    WRITES,
    Code,
    Create,
    Delete,
    Ensure,
    Failure,
    Get,
    Node,
    Op,
    Result,
    SetData,
    Sync,
    Transaction,
)

A, B, C = (TopicPartition("t", number) for number in range(3))


class Shop:
    """A ZooKeeper, a member's session that owns partitions, and somebody else's session."""

    def __init__(self, partitions: Sequence[TopicPartition] = (A, B, C)) -> None:
        self.server = ModelZooKeeper()
        self.me = self.server.open_session()
        self.other = self.server.open_session()
        self.book = OffsetVersions("g")
        self.server.apply(self.me, Ensure(znodes.owner_topic("g", "t")))
        for partition in partitions:
            self.server.apply(self.me, Create(znodes.owner("g", partition), b"m-0", ephemeral=True))

    def run(
        self,
        procedure: Generator[tuple[Op, ...], Sequence[Result], Any],
        apply: Callable[[Op], Result] | None = None,
    ) -> Any:
        """A procedure to its end, on the member's session."""
        try:
            ops = next(procedure)
            while True:
                ops = procedure.send([(apply or self._apply)(op) for op in ops])
        except StopIteration as stop:
            return stop.value

    def _apply(self, op: Op) -> Result:
        return self.server.apply(self.me, op)

    def load(self) -> Any:
        return self.run(self.book.load([A, B, C]))

    def commit(self, **offsets: int) -> list[ForeignWrite]:
        return self.run(self.book.commit({globals()[name]: offset for name, offset in offsets.items()}, self.me))

    def lose(self, wanted: dict[TopicPartition, int], applied: Callable[[int], bool]) -> None:
        """A commit that is interrupted at its first write; of that, what ``applied`` says has reached the server."""
        procedure = self.book.commit(wanted, self.me)
        ops = next(procedure)
        while not any(isinstance(op, WRITES) and not isinstance(op, Ensure) for op in ops):
            ops = procedure.send([self.server.apply(self.me, op) for op in ops])
        for index, op in enumerate(ops):
            if applied(index):
                self.server.apply(self.me, op)
        procedure.close()

    def write(self, partition: TopicPartition, data: bytes) -> None:
        """Somebody else writes."""
        path = znodes.offset("g", partition)
        self.server.apply(self.other, Ensure(path.rpartition("/")[0]))
        op = SetData(path, data) if path in self.server.nodes else Create(path, data)
        assert not isinstance(self.server.apply(self.other, op), Failure)

    def stored(self, partition: TopicPartition) -> bytes | None:
        node = self.server.apply(self.me, Get(znodes.offset("g", partition)))
        return node.data if isinstance(node, Node) else None

    def robbed(self, partition: TopicPartition) -> None:
        """The owner node is deleted by hand, and claimed by somebody else."""
        path = znodes.owner("g", partition)
        self.server.apply(self.other, Delete(path))
        self.server.apply(self.other, Create(path, b"o-0", ephemeral=True))


def test_first_commit_makes_nodes_and_their_parents() -> None:
    """A group without offsets gets them, parents included."""
    shop = Shop()
    assert shop.load().offsets == {A: None, B: None, C: None}
    assert shop.commit(A=5, B=0) == []
    assert (shop.stored(A), shop.stored(B), shop.stored(C)) == (b"5", b"0", None)


def test_what_has_not_moved_is_not_written() -> None:
    """The node's modification time means last progress, as in the Scala consumer."""
    shop = Shop()
    shop.write(A, b"5")
    shop.load()
    before = shop.server.nodes[znodes.offset("g", A)].version
    shop.commit(A=5)
    assert shop.server.nodes[znodes.offset("g", A)].version == before


def test_malformed_nodes_are_reported_one_by_one_and_never_written() -> None:
    """A node that has no offset is an error for its partition alone; a commit leaves it as it is."""
    shop = Shop()
    shop.write(A, b"seven")
    shop.write(B, b"7")
    loaded = shop.load()
    assert loaded.offsets == {B: 7, C: None}
    assert loaded.malformed[A].path == znodes.offset("g", A)
    shop.commit(A=9, B=9)
    assert (shop.stored(A), shop.stored(B)) == (b"seven", b"9")


def test_minus_one_and_blanks_are_read_as_the_scala_consumer_does() -> None:
    """−1 is no offset; blanks do not matter."""
    shop = Shop()
    shop.write(A, b"-1")
    shop.write(B, b" 12\n")
    assert shop.load().offsets == {A: None, B: 12, C: None}


def test_a_foreign_write_ahead_is_respected_until_we_are_past_it() -> None:
    """Somebody moved the offset forward: it is reported, and not taken back."""
    shop = Shop()
    shop.write(A, b"1")
    shop.load()
    shop.write(A, b"50")
    assert shop.commit(A=10) == [ForeignWrite(A, 50)]
    assert shop.stored(A) == b"50"
    assert shop.commit(A=20) == []
    assert shop.stored(A) == b"50"
    shop.commit(A=60)
    assert shop.stored(A) == b"60"


def test_a_foreign_rewind_under_an_owner_is_overwritten_and_reported() -> None:
    """The owner goes on reading where it is, and its next commit says so."""
    shop = Shop()
    shop.write(A, b"10")
    shop.load()
    shop.write(A, b"3")
    assert shop.commit(A=20, B=1) == [ForeignWrite(A, 3)]
    assert (shop.stored(A), shop.stored(B)) == (b"20", b"1")


def test_a_deleted_or_malformed_node_is_written_again() -> None:
    """Deleting or spoiling a node under its owner is a foreign write without a value."""
    shop = Shop()
    shop.write(A, b"1")
    shop.write(B, b"1")
    shop.load()
    shop.server.apply(shop.other, Delete(znodes.offset("g", A)))
    shop.write(B, b"?")
    assert shop.commit(A=5, B=5) == [ForeignWrite(A, None), ForeignWrite(B, None)]
    assert (shop.stored(A), shop.stored(B)) == (b"5", b"5")


def test_a_superseded_owner_writes_nothing_after_its_successor() -> None:
    """Once a successor has committed, the version has moved, the owner node is not ours, and we leave it alone."""
    shop = Shop()
    shop.write(A, b"10")
    shop.load()
    shop.robbed(A)
    shop.write(A, b"20")
    assert shop.commit(A=15, B=1) == []
    assert (shop.stored(A), shop.stored(B)) == (b"20", b"1")
    assert A not in shop.book
    shop.commit(A=30)
    assert shop.stored(A) == b"20"


def test_a_writer_who_does_not_stop_is_named_in_an_error() -> None:
    """A commit gives up after some rounds of foreign writes instead of spinning."""
    shop = Shop()
    shop.write(A, b"0")
    shop.load()
    procedure = shop.book.commit({A: 100}, shop.me)
    ops, number = next(procedure), 0

    def go_on() -> None:
        nonlocal ops, number
        while True:
            number += 1
            shop.write(A, b"%d" % number)
            ops = procedure.send([shop.server.apply(shop.me, op) for op in ops])

    with pytest.raises(CommitError):
        go_on()


@pytest.mark.parametrize("kind", [SetData, Get, Ensure])
def test_a_refusal_names_the_node(kind: type) -> None:
    """Where ZooKeeper's rights do not allow it, the error says which node."""
    shop = Shop()
    shop.write(A, b"0")
    if kind is not Get:
        shop.load()
    procedure = shop.book.load([A]) if kind is Get else shop.book.commit({A: 1, B: 1}, shop.me)
    denied = (kind, Transaction)

    def apply(op: Op) -> Result:
        return Failure(Code.NO_AUTH) if isinstance(op, denied) else shop.server.apply(shop.me, op)

    with pytest.raises(CommitError, match="/consumers/g/offsets/t"):
        shop.run(procedure, apply)


def test_a_lost_reply_is_not_taken_for_a_foreign_write() -> None:
    """A write that was applied, and whose reply was lost, is recognised as ours when it is looked up."""
    shop = Shop()
    shop.write(A, b"1")
    shop.load()
    shop.lose({A: 7, B: 7}, lambda index: True)
    assert (shop.stored(A), shop.stored(B)) == (b"7", b"7")
    assert shop.commit(A=9, B=9) == []
    assert (shop.stored(A), shop.stored(B)) == (b"9", b"9")


def test_a_lost_request_is_written_again() -> None:
    """A write that never arrived is written by the next commit."""
    shop = Shop()
    shop.load()
    shop.lose({A: 7}, lambda index: False)
    assert shop.commit(A=7) == []
    assert shop.stored(A) == b"7"


def commit_and_takeover(shop: Shop, moment: int) -> bool:
    """A commit before whose operation of that number A is taken over, and the successor commits 20. Whether there was
    such an operation."""
    done = 0

    def apply(op: Op) -> Result:
        nonlocal done
        if done == moment:
            shop.robbed(A)
            shop.write(A, b"20")
        done += 1
        return shop.server.apply(shop.me, op)

    shop.run(shop.book.commit({A: 30}, shop.me), apply)
    return done > moment


@pytest.mark.parametrize("lost", [False, True])
def test_a_takeover_between_any_two_operations_is_never_overwritten(lost: bool) -> None:
    """A commit finds a foreign write, or one of its own whose reply was lost, and meanwhile the partition is taken over
    and its successor commits: between whichever operations that is, the successor's offset is in the end."""
    for moment in range(20):
        shop = Shop()
        shop.write(A, b"1")
        shop.load()
        if lost:
            shop.lose({A: 5}, lambda index: True)
        else:
            shop.write(A, b"2")
        if not commit_and_takeover(shop, moment):
            break
        shop.commit(A=40)
        assert shop.stored(A) == b"20", f"taken over before operation {moment}"
    assert 4 <= moment < 19, "a sync, two looks, and a write at least"


def test_a_lost_reply_is_read_on_a_server_that_has_caught_up() -> None:
    """After a reconnect the server may not know yet of a write of ours whose reply was lost: it is not to be taken for
    somebody else's once it turns up, and what is stored is not held back for it."""
    shop = Shop()
    shop.write(A, b"1")
    shop.load()
    behind: ModelZooKeeper | None = copy.deepcopy(shop.server)
    shop.lose({A: 7}, lambda index: True)

    def apply(op: Op) -> Result:
        """Reads are answered from what the server knows; it has caught up once it has answered a sync or a write."""
        nonlocal behind
        if isinstance(op, (Sync, *WRITES)):
            behind = None
        return (behind or shop.server).apply(shop.me, op)

    assert shop.run(shop.book.commit({A: 6}, shop.me), apply) == []
    assert shop.stored(A) == b"6"


@given(
    data=st.data(),
    chunk=st.integers(1, 3),
    offsets=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6),
)
def test_whatever_is_lost_the_last_commit_stays(
    data: st.DataObject, chunk: int, offsets: list[tuple[int, int, int]]
) -> None:
    """Any mix of commits that succeed and commits of which any part was lost ends with the last one's offsets, and
    nothing is ever taken for somebody else's."""
    shop = Shop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", chunk)
        shop.load()
        for number, (a, b, c) in enumerate(offsets):
            wanted = {A: 10 * number + a, B: 10 * number + b, C: 10 * number + c}
            if data.draw(st.booleans()):
                reached = data.draw(st.sets(st.integers(0, 2)))
                shop.lose(wanted, reached.__contains__)
            else:
                assert shop.run(shop.book.commit(wanted, shop.me)) == []
                assert [shop.stored(p) for p in (A, B, C)] == [b"%d" % wanted[p] for p in (A, B, C)]
