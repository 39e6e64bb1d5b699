"""When a member whose rebalance failed tries again, and when it gives up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: The shortest pause before a retry that something in ZooKeeper has triggered, doubled with each attempt.
EARLIEST_RETRY: Final = 0.05
#: The longest pause of a member that keeps trying.
LONGEST_PAUSE: Final = 30.0
_MANY: Final = 16  # doublings beyond this change nothing


class Attempts:
    """The attempts of one rebalance. Durations are seconds."""

    def __init__(self, max_retries: int, backoff: float) -> None:
        self.count = 0
        self.blockers: set[str] = set()  # owner nodes that are in our way
        self._max_retries = max_retries
        self._backoff = backoff
        self._began = 0.0

    def begin(self, now: float) -> None:
        """A new rebalance."""
        self.count, self._began = 0, now
        self.blockers.clear()

    def failed(self) -> None:
        """One more failed."""
        self.count += 1
        self.blockers.clear()

    def used_up(self, now: float) -> bool:
        """Whether it was tried often enough. Retries that something has triggered come early: four of those prove
        nothing, so the time that the reference would have taken must have passed as well."""
        return self.count >= self._max_retries and not self.patience(now)

    def is_last(self, now: float) -> bool:
        """Whether no other attempt is due by time alone: only something that changes may bring one, before
        ``patience`` is at its end. (The reference sleeps after its last attempt, too, and then gives up.)"""
        return self.count >= self._max_retries and self._backoff >= self.patience(now)

    def patience(self, now: float) -> float:
        """How much is left of the time that the reference would take."""
        return max(0.0, self._began + self._max_retries * self._backoff - now)

    def pause(self, now: float) -> float:
        """How long to wait at most; longer and longer for one that keeps trying."""
        if not self.used_up(now):
            return self._backoff
        grown = self._backoff * 2.0 ** min(_MANY, self.count - self._max_retries)
        return min(max(LONGEST_PAUSE, self._backoff), max(EARLIEST_RETRY, grown))

    def early_pause(self) -> float:
        """How long to wait when what was in the way is gone."""
        return min(self._backoff, EARLIEST_RETRY * 2.0 ** min(_MANY, self.count - 1))

    def keep(self, still_there: Iterable[str]) -> None:
        """Of the blockers, only these are left."""
        self.blockers.intersection_update(still_there)
