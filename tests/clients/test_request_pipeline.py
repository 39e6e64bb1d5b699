"""What is under way in a session, without a server."""

from __future__ import annotations

import socket
import threading
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from support import scaled

from zkgroup.clients.zookeeper.kazoo_connection import Bell
from zkgroup.clients.zookeeper.session import MAX_UNANSWERED, RequestBatch
from zkgroup.protocol.operations import Code, Failure, Get, Result

REFUSED = Failure(Code.CONNECTION_LOSS, "not connected")


@settings(max_examples=scaled(50))
@given(st.integers(1, 3 * MAX_UNANSWERED), st.integers(), st.integers(0, 3 * MAX_UNANSWERED))
def test_every_operation_is_sent_once_and_answered_in_its_place(count: int, seed: int, stop: int) -> None:
    """However answers come, never more than a window is on the wire, it never runs dry, and the end is reported once;
    what was not sent when the connection went is refused, what was is not."""
    random = Random(seed)
    finished: list[list[Result]] = []
    batch = RequestBatch([Get(f"/{number}") for number in range(count)], finished.append)
    expected: list[Result] = [REFUSED] * count
    waiting = list(batch.window(MAX_UNANSWERED))
    sent = list(waiting)
    broken = False
    while waiting:
        assert len(waiting) <= MAX_UNANSWERED
        assert not finished
        index = waiting.pop(random.randrange(len(waiting)))
        expected[index] = (str(index),)
        more = batch.answer(index, (str(index),))
        if not broken and len(sent) - len(waiting) > stop:
            broken = True
            batch.refuse(REFUSED)
        elif more and not broken:
            new = batch.window(MAX_UNANSWERED)
            sent += new
            waiting += new
        assert broken or waiting or len(sent) == count
    assert finished == [expected]
    assert sent == list(range(len(sent)))


def test_a_bell_that_is_not_heard_keeps_nobody_waiting() -> None:
    """Ringing returns at once, also when the pair is full: then the other end has enough to wake up by."""
    ours, theirs = socket.socketpair()
    bell = Bell(theirs)
    ringing = threading.Thread(target=lambda: [bell.send(b"\0") for _ in range(100_000)], daemon=True)
    ringing.start()
    ringing.join(20)
    assert not ringing.is_alive()
    assert ours.recv(1) == b"\0"
    bell.close()
    ours.close()
