"""A session that is ended on the server, whatever its member is about: each phase of the machine is held there, by a
proxy that lets its request, or the answer to it, go no further, by a listener or a reader that does not return, or by
somebody else's node. Another member and a steady stream of records are there all the time; what was delivered and
committed is judged in the end: nothing lost, nothing read by two, nothing taken back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from consume_processes import members
from ensemble import four_letters
from members import wait_for_rest
from observed_group import Held, Observed
from session_expiry import expire_session
from support import wait_until
from tcp_proxy import TcpProxy

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.connector import Connector, Record
from zkgroup.errors import SessionLostError
from zkgroup.protocol import znodes
from zkgroup.protocol.member import Phase
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Delete, Ensure, Failure
from zkgroup.sandbox.local_cluster import Sandbox

TRIGGER = b'{"version":1,"subscription":{},"pattern":"static","timestamp":"0"}'
ASKING = [  # phases that wait for an answer of ZooKeeper's
    Phase.CONNECTING, Phase.REGISTERING, Phase.CHECKING_BROKERS, Phase.READING, Phase.CLAIMING, Phase.LOADING,
    Phase.COMMITTING, Phase.RELEASING, Phase.ROLLING_BACK, Phase.OWNING,
]  # fmt: skip
OTHERS = [Phase.WAITING, Phase.BACKING_OFF, Phase.PAUSING, Phase.NOTIFYING, Phase.STARTING]
#: Phases that write are held after their request, too: the server has done it, and nobody was reported.
WRITING = {Phase.CONNECTING, Phase.REGISTERING, Phase.CLAIMING, Phase.COMMITTING, Phase.RELEASING}


class Scene:
    """The group, and the member ``a`` that is to lose its session: behind a proxy, with a listener that can be held."""

    def __init__(self, observed: Observed, registry: Registry, proxy: TcpProxy, chroot: str, ghosted: str) -> None:
        self.observed, self.registry, self.proxy, self.ghosted = observed, registry, proxy, ghosted
        self._connect = proxy.address + chroot
        self.listener = Held()
        self.busy = threading.Event()  # set: a's reader keeps the record that it has in hand
        self.stuck = threading.Event()  # it has one
        self.connector: Connector | None = None
        self.error: SessionLostError | None = None
        self._undo: list[Callable[[], object]] = []
        self._threads: list[threading.Thread] = []

    @property
    def phase(self) -> str:
        return self.connector.statistics().phase if self.connector is not None else ""

    def join(self, **options: object) -> None:
        """a joins, and has its share."""
        self._start(**options)
        wait_for_rest(self.registry, self.observed.group, 2)

    def begin_to_join(self, **options: object) -> None:
        """a joins in the background, and may be held meanwhile."""
        self._run(lambda: self._start(**options))

    def _start(self, **options: object) -> None:
        def made(connector: Connector) -> None:
            self.connector = connector

        self.observed.join(
            "a", self._connect, listener=self.listener, pace=self._pace, session_timeout=8.0, made=made, **options
        )

    def _pace(self, _record: Record) -> None:
        if self.busy.is_set():
            self.stuck.set()
            wait_until(lambda: not self.busy.is_set(), 60, "the reader may go on")

    def begin_to_leave(self) -> None:
        """a leaves in the background; ``error`` is what that ends with."""
        member = self.observed.members.pop()

        def leave() -> None:
            try:
                member.close()
            except SessionLostError as error:
                self.error = error

        self._run(leave)

    def _run(self, what: Callable[[], object]) -> None:
        self._threads.append(threading.Thread(target=what, daemon=True))
        self._threads[-1].start()

    def trigger_rebalance(self) -> None:
        """Makes the group rebalance."""
        self.put(znodes.member_id(self.observed.group, "trigger"), TRIGGER)

    def put(self, path: str, data: bytes) -> None:
        """Somebody else's node, until ``undo``."""
        self.registry.write(Ensure(path.rpartition("/")[0]))
        assert not isinstance(self.registry.write(Create(path, data, ephemeral=True)), Failure)
        self._undo.append(lambda: self.registry.write(Delete(path)))

    def undo(self) -> None:
        """Everything that held a, or was in its way, is gone."""
        self.busy.clear()
        self.listener.go_on()
        for step in self._undo:
            step()
        self._undo.clear()
        self.proxy.heal()

    def finish(self) -> None:
        """What began in the background has ended."""
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()


@pytest.fixture
def scene(
    zookeeper: Sandbox,
    cluster: Sandbox,
    registry: Registry,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
) -> Callable[[], AbstractContextManager[Scene]]:
    """``with scene() as one``: the group with its other member ``b``."""

    @contextmanager
    def make() -> Iterator[Scene]:
        topic, ghosted, group = make_topic(4), make_topic(1), unique("group")
        with (
            TcpProxy(zookeeper.address) as proxy,
            Observed(cluster.connect, cluster.bootstrap, group, topic, 4) as observed,
        ):
            observed.join("b")
            one = Scene(observed, registry, proxy, cluster.chroot, ghosted)
            try:
                yield one
            finally:
                one.undo()

    return make


def session_of(scene: Scene, address: str, before: set[int]) -> int:
    """a's session; where a itself does not know it yet, the one that is new on the server."""
    assert scene.connector is not None
    known = scene.connector.statistics().session_id
    return known or wait_until(lambda: sessions(address) - before, 10, "a session").pop()


def sessions(address: str) -> set[int]:
    """The sessions that a server has connections of."""
    text = four_letters(address, "cons")
    return {int(part.partition(",")[0], 16) for part in text.split("sid=")[1:]}


def arrive(scene: Scene, phase: Phase, directions: tuple[str, ...], *, leaving: bool) -> None:
    """Bring a to ``phase``, on its way out or not, and hold it there."""
    holds = lambda: scene.phase == phase.value  # noqa: E731
    if phase in ASKING:
        arrange(scene, phase)
        scene.proxy.stall_when(holds, *directions)
        if leaving:
            scene.begin_to_leave()
        elif phase in (Phase.CHECKING_BROKERS, Phase.COMMITTING, Phase.RELEASING):
            scene.trigger_rebalance()
        elif phase is not Phase.OWNING:
            scene.begin_to_join(subscription={scene.observed.topic: 1, scene.ghosted: 1})
        assert scene.proxy.closed_gate.wait(30), f"a does not come to {phase}"
    else:
        hold(scene, phase, leaving=leaving)
    wait_until(holds, 30, f"a is {phase.value}")


def arrange(scene: Scene, phase: Phase) -> None:
    """What must be there before a comes to ``phase``."""
    if phase is Phase.ROLLING_BACK:
        scene.put(znodes.owner(scene.observed.group, TopicPartition(scene.ghosted, 0)), b"ghost-0")
    if phase in (Phase.CHECKING_BROKERS, Phase.COMMITTING, Phase.RELEASING, Phase.OWNING):
        scene.join(auto_commit_interval_ms=60_000)  # so that there is something to commit
        scene.observed.wait_until_read()


def hold(scene: Scene, phase: Phase, *, leaving: bool) -> None:
    """Hold a in a phase that waits for others than ZooKeeper."""
    group, topics = scene.observed.group, {scene.observed.topic: 1, scene.ghosted: 1}
    if phase is Phase.WAITING:
        scene.put(znodes.member_id(group, f"{group}_a"), TRIGGER)
        scene.begin_to_join()
    elif phase is Phase.BACKING_OFF:
        scene.put(znodes.owner(group, TopicPartition(scene.ghosted, 0)), b"ghost-0")
        scene.begin_to_join(subscription=topics, rebalance_backoff_ms=20_000)
    elif phase is Phase.STARTING:
        scene.listener.hold("before_starting")
        scene.begin_to_join()
    else:
        scene.join(auto_commit_interval_ms=60_000)
        scene.observed.wait_until_read()
        if phase is Phase.PAUSING:
            scene.busy.set()
            assert scene.stuck.wait(30)
        else:
            scene.listener.hold("before_releasing")
        (scene.begin_to_leave if leaving else scene.trigger_rebalance)()


CASES = [
    # Before the server was asked for a session there is none to end.
    *((phase, (), False) for phase in ASKING + OTHERS if phase is not Phase.CONNECTING),
    *((phase, ("replies",), False) for phase in ASKING if phase in WRITING),
    *((phase, (), True) for phase in (Phase.COMMITTING, Phase.NOTIFYING, Phase.RELEASING)),
    *((phase, ("replies",), True) for phase in (Phase.COMMITTING, Phase.RELEASING)),
]


def case_name(phase: Phase, directions: tuple[str, ...], leaving: bool) -> str:
    return phase.name + ("-done" if directions else "") + ("-leaving" if leaving else "")


@pytest.mark.parametrize(("phase", "directions", "leaving"), CASES, ids=[case_name(*case) for case in CASES])
def test_a_session_that_ends(
    zookeeper: Sandbox,
    registry: Registry,
    scene: Callable[[], AbstractContextManager[Scene]],
    phase: Phase,
    directions: tuple[str, ...],
    leaving: bool,
) -> None:
    """a comes back under a new session (or, leaving, is gone, with an error if anything was not committed), the group
    is at rest, and every guarantee was kept."""
    with scene() as one:
        before = sessions(zookeeper.address)
        arrive(one, phase, directions, leaving=leaving)
        one.observed.excused["a"] += 1
        expire_session(zookeeper.address, session_of(one, zookeeper.address, before))
        assert one.phase == phase.value, "it cannot know yet"
        one.undo()
        one.finish()
        assert one.connector is not None
        if leaving:
            if (phase, directions) != (Phase.COMMITTING, ("replies",)):  # the answer may have been on its way
                assert (one.error is not None) == (phase is Phase.COMMITTING)
            wait_for_rest(registry, one.observed.group, 1)
            assert members(registry, one.observed.group) == (f"{one.observed.group}_b",)
        else:
            # Who has not heard of its session yet asks for one as if it had had none.
            wanted = (1, 2) if phase is Phase.CONNECTING else (2,)
            wait_until(lambda: one.connector.statistics().counters.sessions in wanted, 20, "a second session")
            wait_for_rest(registry, one.observed.group, 2)
        one.observed.wait_until_read()


def test_every_phase_is_there() -> None:
    """A phase that the machine gets some day must be given its case; a new member has no session, nor has who left."""
    assert {phase for phase, _, _ in CASES} | {Phase.NEW, Phase.CLOSED} == set(Phase)
