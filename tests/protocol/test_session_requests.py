"""The talk with ZooKeeper: what is sent when, and what becomes of it when the connection or the session goes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from zkgroup.errors import ZkgroupError
from zkgroup.protocol.events import Reply, Send
from zkgroup.protocol.offset_versions import Procedure
from zkgroup.protocol.operations import Code, Create, Failure, Get, Op, Result, Sync
from zkgroup.protocol.session_requests import RESTART_PAUSE, SessionRequests

LOST = Failure(Code.CONNECTION_LOSS)
READ, WRITE = (Get("/a"),), (Create("/b"),)


class Talk:
    """A conversation, connected at time 100 with a time-out of 6 s, and what it has sent."""

    def __init__(self) -> None:
        self.sent: list[Send] = []
        self.outcome: list[object] = []
        self.begun = 0
        self.zookeeper = SessionRequests(self.sent.append)
        self.zookeeper.now = 100.0
        self.zookeeper.connect(1, 6.0)

    def prove(self) -> None:
        """Let a sync be answered, so that the lease holds."""
        self.zookeeper.tick()
        self.answer(self.sent[-1], None)
        self.sent.clear()

    def answer(self, send: Send, *results: Result) -> None:
        self.zookeeper.reply(Reply(send.request, results, self.zookeeper.now))

    def run(self, *steps: tuple[Op, ...]) -> None:
        """Run a procedure of these steps; its outcome is the results it was sent."""

        def procedure() -> Procedure[list[Sequence[Result]]]:
            self.begun += 1
            got = []
            for step in steps:
                got.append((yield step))
            return got

        self.zookeeper.run(procedure, self.outcome.append, self.outcome.append)


def test_a_procedure_goes_from_answer_to_answer() -> None:
    """Each step is sent when the one before is answered; the outcome comes at the end."""
    talk = Talk()
    talk.prove()
    talk.run(READ, WRITE)
    assert [send.ops for send in talk.sent] == [READ]
    talk.answer(talk.sent[0], None)
    assert [send.ops for send in talk.sent] == [READ, WRITE]
    talk.answer(talk.sent[1], None)
    assert talk.outcome == [[(None,), (None,)]]
    assert talk.zookeeper.idle


def test_a_write_past_the_lease_waits_for_a_proof() -> None:
    """Reads may go on; a write is not sent before a sync, asked at once, is answered, and then decided on anew: what it
    was decided on may be as old as the lease."""
    talk = Talk()
    talk.run(READ, WRITE)
    talk.answer(talk.sent[0], None)
    assert [send.ops for send in talk.sent] == [READ, (Sync("/consumers"),)]
    talk.answer(talk.sent[1], None)
    assert [send.ops for send in talk.sent][2:] == [READ]
    talk.answer(talk.sent[2], None)
    assert [send.ops for send in talk.sent][3:] == [WRITE]
    assert talk.begun == 2


def test_a_held_write_is_not_sent_after_a_reconnect() -> None:
    """What it was decided on may be outdated: the procedure begins again instead."""
    talk = Talk()
    talk.run(WRITE)
    talk.zookeeper.disconnect()
    talk.zookeeper.connect(1, 6.0)
    assert talk.begun == 2
    talk.answer(talk.sent[0], LOST)
    assert WRITE not in [send.ops for send in talk.sent]


@pytest.mark.parametrize("early", [True, False])
def test_an_interrupted_procedure_begins_again_when_connected(early: bool) -> None:
    """Whichever is heard first, the failed reply or the end of the connection: it is begun again once, reconnected."""
    talk = Talk()
    talk.run(READ)
    if early:
        talk.answer(talk.sent[0], LOST)
        talk.zookeeper.disconnect()
    else:
        talk.zookeeper.disconnect()
        talk.answer(talk.sent[0], LOST)
    assert talk.begun == 1
    talk.zookeeper.connect(1, 6.0)
    assert talk.begun == 2
    talk.answer(talk.sent[-1], None)
    assert talk.outcome == [[(None,)]]


def test_down_and_up_before_the_failed_reply_begins_again_at_once() -> None:
    """A connection that is back already when the failure is heard is used."""
    talk = Talk()
    talk.run(READ)
    talk.zookeeper.disconnect()
    talk.zookeeper.connect(1, 6.0)
    talk.answer(talk.sent[0], LOST)
    assert talk.begun == 2


def test_a_loss_without_a_disconnect_does_not_spin() -> None:
    """A failure of which nothing else is heard is tried again after a pause, not at once."""
    talk = Talk()
    talk.run(READ)
    talk.answer(talk.sent[0], LOST)
    assert talk.begun == 1
    assert talk.zookeeper.wake_at <= talk.zookeeper.now + RESTART_PAUSE
    talk.zookeeper.now += RESTART_PAUSE
    talk.zookeeper.tick()
    assert talk.begun == 2


def test_a_reply_that_comes_after_the_disconnect_does_not_send() -> None:
    """A success that is heard late must not make the next step go out without a connection."""
    talk = Talk()
    talk.prove()
    talk.run(READ, WRITE)
    talk.zookeeper.disconnect()
    talk.answer(talk.sent[0], None)
    assert [send.ops for send in talk.sent] == [READ]
    talk.zookeeper.connect(1, 6.0)
    assert talk.begun == 2


def test_stale_replies_find_nobody() -> None:
    """Answers to a procedure that was given up, or to another session's, have no effect."""
    talk = Talk()
    talk.run(READ)
    first = talk.sent[0]
    talk.run(READ)
    talk.answer(first, None)
    assert talk.outcome == []
    talk.zookeeper.end()
    talk.zookeeper.connect(2, 6.0)
    talk.answer(talk.sent[1], None)
    assert talk.outcome == []
    assert talk.zookeeper.idle


def test_what_was_started_in_one_session_is_not_started_in_the_next() -> None:
    """Operations belong to a session: nothing of it is carried over."""
    talk = Talk()
    talk.run(WRITE)
    talk.zookeeper.end()
    talk.sent.clear()
    talk.zookeeper.connect(2, 6.0)
    assert [send.ops for send in talk.sent if send.ops == WRITE] == []
    assert talk.begun == 1


def test_an_error_of_a_procedure_is_its_outcome() -> None:
    """What a procedure raises goes to ``failed``, and the conversation is free again."""
    talk = Talk()
    error = ZkgroupError("no")

    def failing() -> Procedure[None]:
        yield READ
        raise error

    talk.zookeeper.run(failing, talk.outcome.append, talk.outcome.append)
    talk.answer(talk.sent[0], None)
    assert talk.outcome == [error]
    assert talk.zookeeper.idle


def test_the_beat_is_sent_only_while_connected() -> None:
    """A sync goes out every sixth of the time-out, and none without a connection."""
    talk = Talk()
    for _ in range(12):
        talk.zookeeper.tick()
        talk.zookeeper.now += 0.5
    assert len(talk.sent) == 6
    talk.zookeeper.disconnect()
    talk.zookeeper.now += 100.0
    talk.zookeeper.tick()
    assert len(talk.sent) == 6
