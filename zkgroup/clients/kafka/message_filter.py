"""Which messages a reader asks for: by patterns of their keys, values and headers.

A pattern is a glob of the whole text (``*``, ``?``, ``[…]``), or ``/RE/``: a regular expression of the package
``regex``, found anywhere in it. Text is UTF-8. Each byte that is no UTF-8 is a character of its own, as in file names
(PEP 383), so that a command line can name it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Final, TypeAlias

import regex

from zkgroup.clients.kafka.fetcher import offset_of, partition_of, topic_of
from zkgroup.clients.kafka.message_contents import Headers, headers_of
from zkgroup.errors import FilterLimitError, UsageError
from zkgroup.protocol.names import TopicPartition

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import Message

#: What finds a pattern in a text. Raises ``TimeoutError``.
Matcher: TypeAlias = Callable[[str], object]

#: Seconds of work for an expression and one text.
MAX_MATCH_SECONDS: Final = 1.0
_CLASS: Final = re.compile(r"\[!?+\]?+[^\]]*\]")
#: What ``fnmatch`` makes of a range such as ``[z-a]``.
_NO_CHARACTER: Final = "(?!)"


def parse_pattern(pattern: str, name: str) -> Matcher:
    """The matcher of a pattern. Raises ``UsageError``, which names the option ``name``, for what is malformed: the
    command would consume every message and print none."""
    given = f"{name}: {pattern[:80]!r}"
    if not pattern:
        raise UsageError(f"{name}: the pattern is empty", "write * for any text, or /^$/ for the empty one")
    if pattern.startswith("/"):
        if len(pattern) < 3 or not pattern.endswith("/"):
            raise UsageError(
                f"{given} is no expression between two /", f"write '/RE/', or '[/]{pattern[1:80]}' for a glob"
            )
        try:
            return partial(regex.compile(pattern[1:-1], cache_pattern=False).search, timeout=MAX_MATCH_SECONDS)
        except regex.error as error:
            raise UsageError(
                f"{given} is no regular expression: {error}", "correct it, or write [/] for a / of a glob"
            ) from None
    if "[" in _CLASS.sub("", pattern):
        raise UsageError(f"{given} has a [ without its ]", "close it, or write [[] for the character [")
    if _NO_CHARACTER in (translated := translate(pattern)):
        raise UsageError(f"{given} has a range of no characters", "write the smaller character first, as in [a-z]")
    return re.compile(translated).match


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Patterns of the key, of the value, and of headers by their names. A message passes if each of these that has
    patterns matches one of them; what is null or absent matches none."""

    key: Sequence[Matcher] = ()
    value: Sequence[Matcher] = ()
    headers: Mapping[str, Sequence[Matcher]] = field(default_factory=dict)

    def passing(self, messages: Sequence[Message], most: int | None = None) -> tuple[list[Message], int]:
        """The messages that pass, ``most`` of them at most, and how many were compared for that.

        Raises ``FilterLimitError`` where a message takes more than ``MAX_MATCH_SECONDS``.
        """
        headers = headers_of(messages) if self.headers else repeat(None, len(messages))
        found: list[Message] = []
        for place, (message, own) in enumerate(zip(messages, headers, strict=True)):
            if len(found) == most:
                return found, place
            try:
                if self._passes(message, own):
                    found.append(message)
            except TimeoutError:
                partition = TopicPartition(topic_of(message), partition_of(message))
                raise FilterLimitError(
                    f"a filter takes too much work to match the message of {partition} at offset {offset_of(message)}",
                    "write it without nested repetition",
                ) from None
        return found, len(messages)

    def _passes(self, message: Message, headers: Headers | None) -> bool:
        return (
            (not self.key or _matches(self.key, message.key()))
            and (not self.value or _matches(self.value, message.value()))
            and all(
                any(_matches(matchers, value) for one, value in headers or () if one == name)
                for name, matchers in self.headers.items()
            )
        )


def _matches(matchers: Sequence[Matcher], content: bytes | str | None) -> bool:
    if content is None:
        return False
    text = content if isinstance(content, str) else content.decode("utf-8", "surrogateescape")
    return any(matcher(text) for matcher in matchers)
