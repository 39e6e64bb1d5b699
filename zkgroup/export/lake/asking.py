"""Many requests to a store at a time: it may be far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_REQUESTS, _ANSWERS = 16, 64  # at a time

S = TypeVar("S")
T = TypeVar("T")


def at_once(ask: Callable[[S], T], of: Sequence[S]) -> Iterator[Future[T]]:
    """What is asked of each of many, in their order. Answers are in memory only as far as they are taken."""
    if not of:
        return
    with ThreadPoolExecutor(_REQUESTS, thread_name_prefix="zkgroup-lake") as pool:
        for first in range(0, len(of), _ANSWERS):
            yield from [pool.submit(ask, one) for one in of[first : first + _ANSWERS]]
