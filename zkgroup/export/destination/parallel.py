"""Many requests to a store at a time: it may be far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_REQUESTS, _ANSWERS = 16, 64  # at a time

S = TypeVar("S")
T = TypeVar("T")


def ask_each(ask: Callable[[S], T], items: Sequence[S]) -> Iterator[T]:
    """The answer for each item, in their order; raises what ``ask`` raises. Answers are in memory only as far as they
    are taken."""
    if not items:
        return
    with ThreadPoolExecutor(_REQUESTS, thread_name_prefix="zkgroup-destination") as pool:
        for first in range(0, len(items), _ANSWERS):
            yield from pool.map(ask, items[first : first + _ANSWERS])
