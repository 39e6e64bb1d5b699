"""A ZooKeeper of three servers that loses one, its leader, or two, under a group that reads."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from ensemble import HOST, Ensemble, four_letters
from members import ReadMember, wait_for_rest
from observed_group import Observed
from servers import Sandbox, pause, resume
from support import fresh_name, wait_until

from zkgroup.protocol.names import OFFSETS_TOPIC
from zkgroup.sandbox.processes import Server
from zkgroup.sandbox.topic_admin import create_topic

TIMEOUT = 8.0


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """Three servers."""
    with Ensemble(tmp_path_factory.mktemp("ensemble")) as ensemble:
        yield ensemble


@pytest.fixture(scope="module")
def sandbox(ensemble: Ensemble) -> Iterator[Sandbox]:
    """A broker that all three know."""
    # It must outlive an election, so that only what happens to the members is read.
    properties = {"zookeeper.session.timeout.ms": "10000"}
    with Sandbox(fresh_name("ensemble"), zookeeper=ensemble.address, properties=properties) as sandbox:
        with sandbox.registry(30.0) as registry:
            create_topic(registry, OFFSETS_TOPIC, 4)
        yield sandbox


@pytest.fixture
def observed(ensemble: Ensemble, sandbox: Sandbox) -> Iterator[Observed]:
    """Two members that read."""
    ensemble.followers()
    topic = fresh_name("topic")
    with sandbox.registry(30.0) as registry:
        create_topic(registry, topic, 4)
    with Observed(sandbox.connect, sandbox.bootstrap, fresh_name("group"), topic, 4) as observed:
        observed.join("a", session_timeout=TIMEOUT)
        observed.join("b", session_timeout=TIMEOUT)
        observed.wait_for_progress()
        yield observed
    ensemble.followers()


def server_of(ensemble: Ensemble, member: ReadMember) -> Server:
    """Which server a member is connected to, once it is to one: while they elect a leader they drop their clients."""
    mark = f"sid={member.connector.statistics().session_id:#x},"

    def its() -> list[Server]:
        found = [one for one in ensemble.servers if mark in four_letters(f"{HOST}:{one.port}", "cons")]
        return found if len(found) == 1 else []

    return wait_until(its, 30, "a connection")[0]


def nothing_happened(observed: Observed) -> None:
    """The same sessions, no rebalance but those at the start, nothing read twice."""
    counters = [member.connector.statistics().counters for member in observed.members]
    assert [one.sessions for one in counters] == [1, 1]
    assert [one.rebalances for one in counters] == [2, 1]


def test_a_leader_that_dies_is_survived(ensemble: Ensemble, observed: Observed) -> None:
    """Another server is elected; all sessions live on, and nobody rebalances."""
    leader = ensemble.leader()
    leader.kill()
    assert ensemble.leader() is not leader
    observed.wait_for_progress()
    leader.start(60)
    observed.wait_for_progress()
    nothing_happened(observed)


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_server_that_hangs_is_left(ensemble: Ensemble, observed: Observed, role: str) -> None:
    """One of three stops without closing a connection: whoever is connected to it goes on at another under the same
    session, and nobody rebalances."""
    hung = ensemble.leader() if role == "leader" else server_of(ensemble, observed.members[0])
    pause(hung)
    try:
        observed.wait_for_progress()
        assert hung not in [server_of(ensemble, member) for member in observed.members]
    finally:
        resume(hung)
    ensemble.followers()
    observed.wait_for_progress()
    nothing_happened(observed)


def test_without_a_majority_nothing_is_delivered(ensemble: Ensemble, sandbox: Sandbox, observed: Observed) -> None:
    """Two of three are away: within half of the session's time-out the members stop; when the servers are back, they go
    on where they were."""
    away = ensemble.servers[:2]
    for server in away:
        server.kill()
    killed = time.monotonic()
    messages = lambda: sum(len(member.records) for member in observed.members)  # noqa: E731
    deadline = killed + TIMEOUT / 2
    wait_until(lambda: time.monotonic() > deadline, TIMEOUT, "the leases are over")
    seen = messages()
    ends = dict(observed.writer.ends)
    wait_until(lambda: all(observed.writer.ends[p] > end + 20 for p, end in ends.items()), 30, "more is written")
    assert messages() == seen
    for server in away:
        server.launch()
    for server in away:
        server.wait(60)
    observed.wait_for_progress()
    with sandbox.registry(30.0) as registry:
        wait_for_rest(registry, observed.group, 2)
