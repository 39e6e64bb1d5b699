"""The thread for what blocks, and how its end is waited for."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from zkgroup.connector.zookeeper_driver import Worker


def test_what_was_submitted_is_done_in_turn_and_no_more_after_the_end() -> None:
    """One thing after the other; what has not begun when it is closed never does."""
    worker, done, busy, go_on = Worker("h"), [], threading.Event(), threading.Event()

    def work() -> None:
        busy.set()
        go_on.wait(10)
        done.append(1)

    worker.submit(work)
    worker.submit(lambda: done.append(2))
    assert busy.wait(10)
    assert not worker.close(0.01)
    go_on.set()
    assert worker.close(10)
    assert done == [1]


def test_an_interrupted_wait_does_not_take_the_thread_for_ended() -> None:
    """Thread.join does, in Python 3.11: whoever closes again would free what the thread still uses."""
    worker, busy, go_on = Worker("h"), threading.Event(), threading.Event()

    def work() -> None:
        busy.set()
        go_on.wait(20)

    worker.submit(work)
    assert busy.wait(10)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupt = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            worker.close(10)
    finally:
        signal.signal(signal.SIGINT, before)
        interrupt.cancel()
    assert not worker.close(0.05)
    go_on.set()
    assert worker.close(10)
