"""The run of ``tests/faults`` in short, and that its judge sees what must not be."""

from __future__ import annotations

import pytest
from faults.judge import Commit, Delivery, Unnotified, Verdict, judge
from faults.run import Options, run

ENDS = {0: 4}


def verdict(
    deliveries: list[tuple[int, str, int]],
    commits: list[tuple[int, int]] | None = None,
    excused: dict[str, int] | None = None,
    final: int = 4,
    unnotified: list[Unnotified] | None = None,
) -> Verdict:
    """Of deliveries (time, tenure, offset) and commits (time, offset) of partition 0, whose log has four records."""
    return judge(
        [Delivery(at, tenure, 0, offset) for at, tenure, offset in deliveries],
        [Commit(at, 0, offset) for at, offset in commits or []],
        ENDS,
        {0: final},
        excused or {},
        unnotified or [],
    )


GOOD = [(1, "a/1", 0), (2, "a/1", 1), (5, "b/1", 2), (6, "b/1", 3)]


def test_a_good_run_is_good() -> None:
    """Handed over behind a commit, or read again from behind the last one: both are as they should be."""
    assert verdict(GOOD, [(3, 2), (9, 4)]).wrong == []
    again = verdict([*GOOD[:2], (4, "b/1", 1), *GOOD[2:]], [(3, 1), (9, 4)])
    assert (again.wrong, again.again, again.delivered) == ([], 1, 5)


@pytest.mark.parametrize(
    ("what", "deliveries", "commits", "final"),
    [
        ("lost", [GOOD[0], *GOOD[2:]], [], 4),
        ("backwards", GOOD, [(3, 2), (4, 1)], 4),
        ("committed_again", [*GOOD[:2], (4, "b/1", 1), *GOOD[2:]], [(3, 2)], 4),
        ("overlaps", [GOOD[0], (2, "b/1", 1), (3, "a/1", 1), *GOOD[2:]], [], 4),
        ("uncommitted", GOOD, [(9, 3)], 3),
    ],
)
def test_what_must_not_be_is_seen(
    what: str, deliveries: list[tuple[int, str, int]], commits: list[tuple[int, int]], final: int
) -> None:
    """Each guarantee, broken once."""
    found = verdict(deliveries, commits, final=final)
    assert len(getattr(found, what)) == 1
    assert len(found.wrong) == 1


def test_one_record_in_hand_is_excused_and_not_two() -> None:
    """Who was stopped may note one record when it goes on, not a second one."""
    late = [(3, "b/1", 1), (4, "a/1", 1), (5, "b/1", 2), (6, "b/1", 3)]
    found = verdict([GOOD[0], *late], excused={"a": 1})
    assert (found.wrong, found.in_hand) == ([], 1)
    found = verdict([GOOD[0], *late[:2], (5, "a/1", 2), *late[2:]], excused={"a": 1})
    assert len(found.overlaps) == 1


def test_an_unnotified_member_may_go_on_until_then_and_no_longer() -> None:
    """Whose session was ended early reads on what was its share, also if another has committed that, until it is
    reported; nothing of it is taken for the beginning of a share. Others are excused nothing."""
    late = [(4, "b/1", 1), (5, "a/1", 1), (6, "a/1", 2), (7, "b/1", 2), (8, "b/1", 3)]
    ended = Unnotified("a", 3, 7)
    found = verdict([GOOD[0], *late], [(5, 2)], unnotified=[ended])
    assert (found.wrong, found.unnotified, found.again) == ([], 2, 2)
    first = [(2, "b/1", 0), (3, "b/1", 1), (5, "a/9", 1), (7, "b/1", 2), (8, "b/1", 3)]
    assert verdict(first, unnotified=[ended]).wrong == []
    assert len(verdict([GOOD[0], *late], unnotified=[ended._replace(until=6)]).overlaps) == 1
    assert len(verdict([GOOD[0], *late], unnotified=[ended._replace(process="c")]).overlaps) == 2
    assert len(verdict([GOOD[0], *late[:3], late[4]], unnotified=[ended]).wrong) == 0, "a has read it, too"
    assert len(verdict([GOOD[0], *late[:2], late[4]], unnotified=[ended]).lost) == 1


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("minutes", "faults", "records"), [(0.25, 5, 9_000), pytest.param(1.75, 25, 60_000, marks=pytest.mark.long)]
)
def test_random_faults(minutes: float, faults: int, records: int) -> None:
    """Eight processes under kills, stops, cuts, silence, expiries, and servers that die: nothing is lost, read by two
    at a time, taken back or left behind. A seed of its own each time, which is printed."""
    from faults.group import environment_seed

    options = Options(minutes, faults, seed=environment_seed(), members=6, partitions=16, records=records)
    outcome = run(options, print)
    print(outcome.text())
    assert outcome.wrong == []
    assert outcome.written == options.records
    assert outcome.verdict.delivered >= options.records
    assert outcome.faults.total() == options.faults
