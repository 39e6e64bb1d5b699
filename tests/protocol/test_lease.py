"""The lease: what proves that a session lives, and for how long it counts."""

from __future__ import annotations

import pytest

from zkgroup.protocol.operations import (
    Children,
    Code,
    Create,
    Delete,
    Ensure,
    Exists,
    Failure,
    Get,
    Op,
    Result,
    SetData,
    Sync,
    Transaction,
)
from zkgroup.protocol.session_requests import BEATS_PER_TIMEOUT, Lease


def lease() -> Lease:
    made = Lease()
    made.begin(6.0, 100.0)
    return made


@pytest.mark.parametrize(
    ("op", "result"),
    [
        (Sync(), None),
        (Create("/a"), None),
        (Create("/a"), Failure(Code.NODE_EXISTS)),
        (SetData("/a", b""), Failure(Code.BAD_VERSION)),
        (Delete("/a"), Failure(Code.NO_NODE)),
        (Transaction((Create("/a"),)), Failure(Code.NODE_EXISTS, index=0)),
    ],
)
def test_what_the_leader_answered_is_a_proof(op: Op, result: Result) -> None:
    """A sync or a write that was answered, even with a refusal, proves the session for half a time-out from sending."""
    made = lease()
    made.renew((op,), (result,), 101.0)
    assert made.is_valid(103.99)
    assert not made.is_valid(104.0)


@pytest.mark.parametrize(
    ("op", "result"),
    [
        (Get("/a"), Failure(Code.NO_NODE)),
        (Exists("/a"), None),
        (Children("/a"), ()),
        (Ensure("/a"), None),
        (Sync(), Failure(Code.CONNECTION_LOSS)),
        (Sync(), Failure(Code.SESSION_EXPIRED)),
        (Sync(), Failure(Code.OTHER)),
        (Create("/a"), Failure(Code.NO_AUTH)),
    ],
)
def test_what_a_lone_follower_may_answer_is_no_proof(op: Op, result: Result) -> None:
    """Reads, an Ensure (which reads where the node exists), and failures that may be the client's own prove nothing."""
    made = lease()
    made.renew((op,), (result,), 101.0)
    assert not made.is_valid(101.0)


def test_an_older_proof_does_not_shorten_the_lease() -> None:
    """Replies may come in out of order: the latest sending time counts."""
    made = lease()
    made.renew((Sync(),), (None,), 102.0)
    made.renew((Sync(),), (None,), 101.0)
    assert made.is_valid(104.9)


def test_the_beat_comes_six_times_a_timeout() -> None:
    """A proof is asked for at once when connected, then every sixth of the time-out, and not while disconnected."""
    made = lease()
    assert made.due(100.0)
    assert not made.due(100.5)
    assert made.beat_at == pytest.approx(100.0 + 6.0 / BEATS_PER_TIMEOUT)
    made.pause()
    assert not made.due(200.0)


def test_a_pause_keeps_what_is_left_and_the_end_does_not() -> None:
    """Losing the connection does not end the session; losing the session ends the lease."""
    made = lease()
    made.renew((Sync(),), (None,), 101.0)
    made.pause()
    assert made.is_valid(103.0)
    made.end()
    assert not made.is_valid(101.0)
