"""Many requests to a store at a time, since each may take a round trip through a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_REQUESTS, _ANSWERS = 16, 64  # at a time

S = TypeVar("S")
T = TypeVar("T")


def map_parallel(ask: Callable[[S], T], items: Sequence[S]) -> Iterator[T]:
    """The answer for each item, in their order. Raises what ``ask`` raises. At most ``_ANSWERS`` answers are in memory
    that the caller has not taken."""
    if not items:
        return
    with ThreadPoolExecutor(_REQUESTS, thread_name_prefix="zkgroup-store") as pool:
        for first in range(0, len(items), _ANSWERS):
            yield from pool.map(ask, items[first : first + _ANSWERS])
