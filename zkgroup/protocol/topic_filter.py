"""Topic filters: white lists and black lists of topics, as the Scala consumer reads them.

The Scala consumer (``kafka.consumer.TopicFilter``, 0.8.0 to 1.1.1) matches whole topic names with Java's regular
expressions. Expressions that Java and the package ``regex`` read alike are accepted (``filter_syntax``), all others
refused: all members of a group must select the same topics.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from regex import Pattern

from zkgroup.errors import FilterLimitError, FilterSyntaxError, UsageError
from zkgroup.protocol.filter_syntax import PatternError, compile_java
from zkgroup.protocol.names import INTERNAL_TOPICS

FilterKind = Literal["white_list", "black_list"]

#: Seconds of work for one name, and the seconds that each name adds where many are matched.
TIMEOUT: Final = 1.0
TIMEOUT_PER_NAME: Final = 0.0005

_BLANKS: Final = "".join(map(chr, range(0x21)))  # Java's String.trim removes these
_QUOTES: Final = "\"'"


def normalise(expression: str) -> str:
    """The Scala consumer's normalisation: trim, ``,`` becomes ``|``, drop blanks, drop quotes at both ends.

    Every reader applies it again to the registered expression, so it is applied until nothing changes.
    """
    while True:
        once = expression.strip(_BLANKS).replace(",", "|").replace(" ", "").strip(_QUOTES)
        if once == expression:
            return once
        expression = once


@dataclass(frozen=True)
class TopicFilter:
    """The topics that a member selects: those that match the expression, or (black list) all others.

    Raises FilterSyntaxError for an expression that Java refuses, UsageError for one that Java and ``regex`` may read
    differently.
    ``expression`` is kept in normalised form, as it is registered.
    """

    kind: FilterKind
    expression: str
    _pattern: Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.kind not in ("white_list", "black_list"):
            raise UsageError(f"a filter of kind {self.kind!r}", "give white_list or black_list")
        if not isinstance(self.expression, str):
            raise UsageError(f"the filter {self.expression!r} is no text", "give a Java regular expression")
        object.__setattr__(self, "expression", normalise(self.expression))
        object.__setattr__(self, "_pattern", _compile(self.expression))

    def matches(self, topic: str) -> bool:
        """Whether the filter selects the topic; internal topics are not left out here.

        No filter of either kind selects a name that no topic can have, empty or beyond printable ASCII. Raises
        FilterLimitError where matching takes longer than ``TIMEOUT``.
        """
        return self._matches(topic, time.thread_time() + TIMEOUT)

    def select(
        self,
        topics: Iterable[str],
        *,
        exclude_internal: bool = True,
        internal: Collection[str] = INTERNAL_TOPICS,
    ) -> tuple[str, ...]:
        """Those of ``topics`` that the filter selects, sorted. Raises FilterLimitError as ``matches`` does.

        ``internal`` are the topics that ``exclude_internal`` leaves out: which ones depends on the reader's release.
        """
        names = set(topics)
        until = time.thread_time() + TIMEOUT + TIMEOUT_PER_NAME * len(names)
        if exclude_internal:
            names.difference_update(internal)
        return tuple(sorted(name for name in names if self._matches(name, until)))

    def _matches(self, topic: str, until: float) -> bool:
        if not topic or not (topic.isascii() and topic.isprintable()):
            return False
        try:
            found = self._pattern.fullmatch(topic, timeout=max(until - time.thread_time(), 0.001))
        except TimeoutError:
            raise FilterLimitError(
                f"regular expression {_shown(self.expression)} takes too much work to match {topic[:80]!r}",
                "write it without nested repetition and look-around",
            ) from None
        return (found is not None) == (self.kind == "white_list")


def _compile(expression: str) -> Pattern[str]:
    try:
        expression.encode()
        return compile_java(expression)
    except UnicodeEncodeError:
        raise UsageError(f"regular expression {_shown(expression)} is no valid text", "write it in UTF-8") from None
    except PatternError as error:
        kind, what = (UsageError, "is not supported") if error.valid_in_java else (FilterSyntaxError, "is invalid")
        raise kind(
            f"regular expression {_shown(expression)} {what}: {error.message} (at character {error.position})",
            error.remedy or "filters are Java regular expressions; ',' means '|', and blanks are dropped",
        ) from None


def _shown(expression: str) -> str:
    shown = "".join(one if one.isprintable() else _visible(ord(one)) for one in expression)
    return f"'{shown}'" if len(shown) <= 80 else f"'{shown[:77]}...'"


def _visible(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
