"""Late messages: those that lie in an earlier day or hour than one before them in their partition. Pure.

A task sees one range and no earlier messages. So it counts how many were late within the range, and of the others how
many lay in which period (their periods only rise); the others' lateness is known when the newest period before the
range is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from zkgroup.export.model.layout import Period


@dataclass
class LateCounter:
    """Of the messages of a range, in their order. ``horizon``: the period of the present; a message from later than
    that has a wrong clock, and makes nothing late."""

    horizon: Period
    late: int = 0
    newest: Period = None
    fresh: dict[int, int] = field(default_factory=dict)

    def add(self, period: Period, count: int) -> None:
        """The next ``count`` messages, all of one period."""
        if period is None:
            return
        if self.newest is not None and period < self.newest:
            self.late += count
        elif self.horizon is None or period <= self.horizon:
            self.newest = period
            self.fresh[period] = self.fresh.get(period, 0) + count


def late_of(ranges: Iterable[tuple[int, Mapping[int, int]]], newest: Period) -> tuple[int, Period]:
    """How many messages of a partition were late. ``ranges``: ``late`` and ``fresh`` of each, in order. ``newest``:
    before them; the second result is the newest period after them."""
    total = 0
    for late, fresh in ranges:
        total += late
        if newest is not None:
            total += sum(count for period, count in fresh.items() if period < newest)
        newest = max([period for period in (newest, *fresh) if period is not None], default=None)
    return total, newest
