"""A registry for a procedure to work on: run to its end, or cut off anywhere."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from sim.zookeeper import ModelZooKeeper
from zkgroup.protocol import procedures as do
from zkgroup.protocol import znodes
from zkgroup.protocol.names import INTERNAL_TOPICS
from zkgroup.protocol.operations import Changed, Create, Ensure, Failure, Op, Result
from zkgroup.protocol.znodes import Registration

MINE = Registration("static", {"t": 2}, 1)


class Shop:
    """A ZooKeeper with a topic of three partitions; our session, and somebody else's."""

    def __init__(self) -> None:
        self.server = ModelZooKeeper()
        self.me = self.server.open_session()
        self.other = self.server.open_session()
        self.notified: list[str] = []
        self.server.tell = self._tell
        self.make("/brokers/topics/t", b'{"version":1,"partitions":{"10":[1],"9":[1],"0":[1]}}')

    def _tell(self, session: int, event: Changed) -> None:
        if session == self.me:
            self.notified.append(event.path)

    def make(self, path: str, data: bytes = b"", *, ephemeral: bool = False, session: int | None = None) -> None:
        self.server.apply(self.other, Ensure(path.rpartition("/")[0]))
        done = self.server.apply(session or self.other, Create(path, data, ephemeral))
        assert not isinstance(done, Failure)

    def run(
        self, procedure: Generator[tuple[Op, ...], Sequence[Result], Any], ops: tuple[Op, ...] | None = None
    ) -> Any:
        """A procedure to its end, from its beginning or from the operations that it waits for."""
        try:
            ops = next(procedure) if ops is None else ops
            while True:
                ops = procedure.send([self.server.apply(self.me, op) for op in ops])
        except StopIteration as stop:
            return stop.value

    def cut_off(self, procedure: Generator[tuple[Op, ...], Sequence[Result], Any], ops_done: int) -> bool:
        """Run a procedure until so many operations are done, then interrupt it. False if it ended before."""
        try:
            ops = next(procedure)
            while True:
                results = []
                for op in ops:
                    if ops_done == 0:
                        procedure.close()
                        return True
                    ops_done -= 1
                    results.append(self.server.apply(self.me, op))
                ops = procedure.send(results)
        except StopIteration:
            return False

    def register(self) -> Any:
        return self.run(do.register("g", "me", znodes.encode_registration(MINE), self.me))

    def read(self, mine: Registration = MINE, strategy: str = "range", **options: Any) -> do.RebalanceInput:
        options = {"exclude_internal": True, "internal": INTERNAL_TOPICS} | options
        return self.run(do.read_registry("g", "me", mine, strategy, self.me, **options))

    def owned(self) -> dict[str, tuple[bytes, int]]:
        return {p: (n.data, n.owner) for p, n in self.server.nodes.items() if p.startswith("/consumers/g/owners/t/")}
