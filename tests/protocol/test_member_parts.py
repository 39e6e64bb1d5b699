"""The small parts of a member: which owner nodes are surely its own, and when it tries again."""

from __future__ import annotations

import pytest

from zkgroup.protocol.member.acquisition import LONGEST_PAUSE, MIN_RETRY_PAUSE, RebalanceRetries
from zkgroup.protocol.member.member_context import OwnedZnodes, Timers
from zkgroup.protocol.names import ConsumerThreadId, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ME = ConsumerThreadId("me", 0)
SHARE = {A: ME, B: ME}


def watched() -> OwnedZnodes:
    """Holdings of two partitions, both seen to be ours and watched."""
    holdings = OwnedZnodes()
    holdings.claim(SHARE)
    holdings.claimed(SHARE)
    assert holdings.begin_check() == SHARE
    holdings.end_check(kept=True)
    return holdings


def test_only_what_was_watched_and_did_not_change_is_surely_ours() -> None:
    """Freshly claimed nodes are not watched yet: they are read before they are deleted."""
    holdings = OwnedZnodes()
    holdings.claim(SHARE)
    holdings.claimed(SHARE)
    assert holdings.release() == ([A, B], set())
    assert watched().release() == ([A, B], {A, B})


def test_a_doubt_is_kept_until_it_was_read() -> None:
    """A change that is reported while its node is being read needs another look."""
    holdings = watched()
    holdings.mark_unverified([A, TopicPartition("other", 0)])
    assert holdings.begin_check() == {A: ME}
    holdings.mark_unverified([A])
    holdings.end_check(kept=True)
    assert holdings.has_unverified
    assert holdings.release() == ([A, B], {B})


def test_what_is_being_read_is_not_sure() -> None:
    """A release in the middle of a snapshot trusts nothing that is being read."""
    holdings = watched()
    holdings.mark_all_unverified()
    holdings.begin_check()
    assert holdings.release()[1] == set()


def test_a_read_that_found_a_loss_leaves_all_it_read_in_doubt() -> None:
    """Where one owner node was changed by others, none of those read is deleted blindly."""
    holdings = watched()
    holdings.mark_all_unverified()
    holdings.begin_check()
    holdings.end_check(kept=False)
    assert holdings.release() == ([A, B], set())


def test_a_release_that_is_restarted_is_sure_of_nothing() -> None:
    """After an interruption nobody knows which of the deletes were applied."""
    holdings = watched()
    assert holdings.release()[1] == {A, B}
    assert holdings.share == {}
    assert holdings.release() == ([A, B], set())


def test_attempts_are_used_up_by_number_and_time() -> None:
    """Retries that something triggers come early; they do not count for more than the time they took."""
    retries = RebalanceRetries(4, 2.0)
    retries.begin(100.0)
    for _ in range(6):
        retries.failed()
    assert not retries.exhausted(107.9)
    assert retries.exhausted(108.0)
    retries.begin(200.0)
    retries.failed()
    assert not retries.exhausted(300.0)


def test_after_the_last_attempt_only_a_change_brings_another() -> None:
    """Attempts at 0, 2, 4 and 6 s: no fifth is due by time, but 2 s of patience are left. Attempts that came early
    leave room for others."""
    retries = RebalanceRetries(4, 2.0)
    retries.begin(100.0)
    for at in (100.0, 102.0, 104.0):
        retries.failed()
        assert not retries.is_last(at)
    retries.failed()
    assert (retries.is_last(106.0), retries.remaining_time(106.0)) == (True, 2.0)
    assert not retries.is_last(101.0)
    assert (retries.is_last(109.0), retries.remaining_time(109.0)) == (True, 0.0)


def test_pauses_grow_for_one_that_keeps_trying() -> None:
    """The configured back-off first, then doubled up to half a minute; early retries double from 50 ms."""
    retries = RebalanceRetries(2, 2.0)
    retries.begin(0.0)
    pauses, early = [], []
    for _ in range(9):
        retries.failed()
        pauses.append(retries.pause(100.0))
        early.append(retries.early_pause())
    assert pauses == [2.0, 2.0, 4.0, 8.0, 16.0, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]
    assert early[:3] == [MIN_RETRY_PAUSE, 2 * MIN_RETRY_PAUSE, 4 * MIN_RETRY_PAUSE]
    assert early[-1] == 2.0


def test_blockers_are_of_one_attempt() -> None:
    """What was in the way of an earlier attempt may be our own node by now."""
    retries = RebalanceRetries(4, 2.0)
    retries.blockers = {"/a", "/b"}
    retries.keep(["/b", "/c"])
    assert retries.blockers == {"/b"}
    retries.failed()
    assert retries.blockers == set()


def test_timers_go_off_once_and_may_be_hastened_or_cancelled() -> None:
    """An alarm is called when due, at most once; one may cancel another that is due as well."""
    timers, rung = Timers(), []

    def first() -> None:
        rung.append("a")
        timers.cancel("b")

    timers.set("a", 5.0, first)
    timers.set("b", 5.0, lambda: rung.append("b"))
    timers.set("c", 9.0, lambda: rung.append("c"))
    timers.hasten("c", 6.0)
    timers.hasten("c", 8.0)
    timers.hasten("d", 1.0)
    timers.hasten("d", 1.0, timers.cancel)
    assert timers.next == 5.0
    timers.fire(5.0)
    assert (rung, timers.next) == (["a"], 6.0)
    timers.cancel_all_but("x")
    timers.fire(10.0)
    assert rung == ["a"]
    assert timers.next == pytest.approx(float("inf"))
