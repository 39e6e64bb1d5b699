"""What tests share besides fixtures: waiting for a condition, and messages to produce."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from typing import TypeVar

import pytest

from zkgroup.errors import UnreachableError
from zkgroup.sandbox.sandbox_state import SandboxState, running
from zkgroup.sandbox.topic_admin import ProducerRecord

T = TypeVar("T")
_numbers = itertools.count(1)


def fresh_name(stem: str = "name") -> str:
    """A name that no other test has, whichever process it runs in and however often its fixtures are made."""
    return f"{stem}-{os.getpid()}-{next(_numbers)}"


def wait_until(condition: Callable[[], T], timeout: float = 30.0, what: str = "the condition") -> T:
    """Call ``condition`` until it returns something true, and return that; fail after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not within {timeout:g} s; last seen: {value!r}")
        time.sleep(0.02)


def scaled(most: int) -> int:
    """How many examples hypothesis tries: ``most`` in the long run, less than half as many in the usual one."""
    from hypothesis import settings  # not for the processes that import this

    return most * settings.default.max_examples // 100


def values(records: list[ProducerRecord]) -> set[bytes]:
    """All values that there are."""
    return {record.value for record in records if record.value is not None}


def numbered(n: int, partitions: int = 1, start: int = 0) -> list[ProducerRecord]:
    """``n`` messages ``m000000``, ``m000001``, …, dealt out to ``partitions`` in turn."""
    return [ProducerRecord(b"m%06d" % i, b"k%d" % i, i % partitions) for i in range(start, start + n)]


def find(name: str) -> SandboxState | None:
    """The sandbox of this name, if it is running."""
    try:
        return running(name)
    except UnreachableError:
        return None
