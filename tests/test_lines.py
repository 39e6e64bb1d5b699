"""The test helper ``names``: what it finds, and what it does not."""

from __future__ import annotations

import pytest
from lines import names


@pytest.mark.parametrize(
    ("line", "facts", "expected"),
    [
        ("group g: t-1 is 77, not 5", ("g", "t-1", 77, 5), True),
        ("group g: t-1 is 77, not 5", ("t-1", "g"), False),
        ("t-12 is 77", ("t-1",), False),
        ("t-1 is 77", (1,), False),
        ("t-1..3: 1,000 offsets", ("t-1..3", "1,000"), True),
        ("1,000 offsets", (1,), False),
        ("run it: zkgroup -z h:1 offsets g", ("zkgroup -z h:1 offsets g",), True),
        ("run it: zkgroup -z h:1 offsets g2", ("zkgroup -z h:1 offsets g",), False),
        ("/a/5-8.parquet.", ("/a/5-8.parquet",), True),
        ("a first\na second", ("first", "second"), False),
    ],
)
def test_names(line: str, facts: tuple[object, ...], expected: bool) -> None:
    assert names(line, *facts) is expected
