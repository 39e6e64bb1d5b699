"""Topic filters: white lists and black lists of topics, as the reference reads them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Literal

from zkgroup.errors import UsageError
from zkgroup.protocol.names import INTERNAL_TOPICS

FilterKind = Literal["white_list", "black_list"]


def normalise(raw: str) -> str:
    """The reference's normalisation (``kafka.consumer.TopicFilter``, 0.8.0 to 1.1.1)."""
    return raw.strip().replace(",", "|").replace(" ", "").strip("\"'")


@dataclass(frozen=True)
class TopicFilter:
    """Which topics a member takes: those that match the expression, or (black list) all others."""

    kind: FilterKind
    expression: str
    _compiled: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "expression", normalise(self.expression))
        try:
            compiled = re.compile(self.expression)
        except re.error as error:
            raise UsageError(f"regular expression {self.expression[:80]!r}: {error}") from None
        object.__setattr__(self, "_compiled", compiled)

    def matches(self, topic: str) -> bool:
        """Whether the filter takes the topic (internal topics are not looked at here)."""
        return (self._compiled.fullmatch(topic) is not None) == (self.kind == "white_list")

    def select(
        self,
        topics: Iterable[str],
        *,
        exclude_internal: bool = True,
        internal: Collection[str] = INTERNAL_TOPICS,
    ) -> tuple[str, ...]:
        """Those of ``topics`` that the filter takes, sorted."""
        left_out: Collection[str] = internal if exclude_internal else ()
        return tuple(sorted(t for t in set(topics) if t not in left_out and self.matches(t)))
