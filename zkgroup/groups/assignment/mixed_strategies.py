"""The members that can own their shares at the same time although their strategies differ. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

# The search may take far more steps than there are sets; this many take about a second.
_MAX_STEPS: Final = 100_000


def holder_sets(
    members: Collection[str], clashes: Iterable[tuple[str, str]], limit: int
) -> tuple[list[frozenset[str]], bool]:
    """The maximal sets of members without a clash, at most ``limit``, and whether there are more.

    Seen on real members (Kafka 0.8.2.2, 0.11.0.3, 1.1.1): a member claims its whole share or nothing, and tries again
    at each rebalance. So a group comes to rest in one of these sets; which one is a race.
    """
    order = sorted(members)
    position = {member: number for number, member in enumerate(order)}
    everybody = (1 << len(order)) - 1
    friends = [everybody & ~(1 << number) for number in range(len(order))]
    for first, second in clashes:
        friends[position[first]] &= ~(1 << position[second])
        friends[position[second]] &= ~(1 << position[first])
    found: list[frozenset[str]] = []
    for chosen in _cliques(friends, everybody):
        if chosen is None or len(found) == limit:
            return found, True
        found.append(frozenset(order[number] for number in _bits(chosen)))
    return found, False


def _cliques(friends: list[int], everybody: int) -> Iterator[int | None]:
    """The maximal cliques of a graph as bit masks (Bron and Kerbosch with a pivot); None where it gives up."""
    steps = 0
    waiting = [(0, everybody, 0)]  # chosen; who may join; who may too, but was had before
    while waiting:
        steps += 1
        if steps > _MAX_STEPS:
            yield None
            return
        chosen, open_, had = waiting.pop()
        if not open_:
            if not had:
                yield chosen
            continue
        pivot = max(_bits(open_ | had), key=lambda number: (open_ & friends[number]).bit_count())
        branches = []
        for number in _bits(open_ & ~friends[pivot]):
            bit = 1 << number
            branches.append((chosen | bit, open_ & friends[number], had & friends[number]))
            open_ &= ~bit
            had |= bit
        waiting += reversed(branches)


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
