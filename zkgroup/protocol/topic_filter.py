"""Topic filters: white lists and black lists of topics, as the Scala consumer reads them.

The Scala consumer (``kafka.consumer.TopicFilter``, 0.8.0 to 1.1.1) matches whole topic names with Java's regular
expressions. All members of a group must select the same topics: an expression that only looks alike in Java and in the
package ``regex`` would have two members read a topic, or none. So expressions are read here, by a grammar that is small
enough to be the same in every release of Java, and written anew for ``regex``; all others are refused. Names of topics
are printable ASCII, which makes character classes, borders and case the same.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, NoReturn

import regex
from regex import Pattern

from zkgroup.errors import FilterLimitError, FilterSyntaxError, UsageError, ZkgroupError
from zkgroup.protocol.names import INTERNAL_TOPICS
from zkgroup.protocol.znodes import FilterKind

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
        why = f"{_printable(error.message)} (at character {error.position})"
        raise kind(
            f"regular expression {_shown(expression)} {what}: {why}",
            error.remedy or "filters are Java regular expressions; ',' means '|', and blanks are dropped",
        ) from None


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else _visible(ord(one)) for one in text)


def _shown(expression: str) -> str:
    shown = _printable(expression)
    return f"'{shown}'" if len(shown) <= 80 else f"'{shown[:77]}...'"


def _visible(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# --- the grammar

MAX_LENGTH: Final = 100_000
MAX_DEPTH: Final = 50
MAX_COUNT: Final = 1000

_COUNT: Final = re.compile(r"\{([0-9]{1,9})(?:,([0-9]{0,9}))?\}", re.ASCII)
_CLASSES: Final = "dwsDWS"
_NO_NAME: Final = "\0"  # for characters that no topic has in its name


class PatternError(ZkgroupError):
    """An expression that is not accepted. ``valid_in_java``: False where Java surely refuses it, too."""

    def __init__(self, why: str, position: int, remedy: str | None = None, *, valid_in_java: bool = True) -> None:
        super().__init__(why, remedy)
        self.position = position
        self.valid_in_java = valid_in_java


@dataclass(frozen=True, slots=True)
class _Atom:
    """A part of the expression, as ``regex`` takes it. ``repeatable``: Java and ``regex`` repeat it alike;
    ``countable``: also by a count."""

    text: str
    repeatable: bool = True
    countable: bool = True


def compile_java(expression: str) -> regex.Pattern[str]:
    """The same expression for ``regex``, for whole names of printable ASCII. Raises ``PatternError``."""
    if len(expression) > MAX_LENGTH:
        raise PatternError(f"it has more than {MAX_LENGTH:,} characters", 0, "write it shorter")
    ignore_case = expression.startswith("(?i)")
    reader = _PatternReader(expression, 4 if ignore_case else 0)
    flags = regex.V0 | regex.ASCII | (regex.IGNORECASE if ignore_case else 0)
    return regex.compile(reader.whole(), flags, cache_pattern=False)


class _PatternReader:
    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._at = start
        self._depth = 0
        self._behind = False
        self._places = 0  # that were read: anchors and look-around

    def whole(self) -> str:
        found = self._alternatives()
        if self._at < len(self._text):
            self._refuse("a ) closes no group", r"write \) for the character", java=False)
        return found

    def _refuse(self, why: str, remedy: str | None = None, *, java: bool = True) -> NoReturn:
        raise PatternError(why, self._at + 1, remedy, valid_in_java=java)

    def _has(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _accept(self, text: str) -> bool:
        """Whether ``text`` is next; it is skipped then."""
        found = self._has(text)
        self._at += len(text) if found else 0
        return found

    def _next(self) -> str:
        self._at += 1
        return self._text[self._at - 1]

    @property
    def _here(self) -> str:
        return self._text[self._at : self._at + 1]

    def _alternatives(self) -> str:
        branches = [self._sequence()]
        while self._accept("|"):
            branches.append(self._sequence())
        return "|".join(branches)

    def _sequence(self) -> str:
        parts: list[str] = []
        while self._here not in ("", "|", ")"):
            if self._here in "*+?":
                self._refuse(f"nothing is there for {self._here} to repeat", java=False)
            atom = self._atom()
            parts.append(atom.text + self._repetition(atom))
        return "".join(parts)

    def _repetition(self, atom: _Atom) -> str:
        """The repetition of an atom. Greedy or lazy is the same, as whole names are matched."""
        if self._here not in ("*", "+", "?", "{"):
            return ""
        if self._here == "{":
            match = _COUNT.match(self._text, self._at)
            if match is None:
                self._refuse("a count is {n}, as ',' means '|'", r"write the alternatives, or \{", java=False)
            low, high = int(match[1]), int(match[2] or match[1])
            if low > high:
                self._refuse("a count that ends before it begins", java=False)
            if high > MAX_COUNT:
                self._refuse(f"a count is more than {MAX_COUNT}")
            count = match[0]
        else:
            count = self._here
        if self._behind or not atom.repeatable or (self._here == "{" and not atom.countable):
            self._refuse("an anchor, or a part of a look-behind, is repeated", "write it without the repetition")
        self._at += len(count)
        if self._here == "+":
            self._refuse("a possessive repetition", "leave the second + out")
        self._accept("?")
        if self._here == "{":
            self._refuse("a repetition is repeated", "put the first in (?:…)")
        return count

    def _atom(self) -> _Atom:
        one = self._next()
        match one:
            case "(":
                return self._group()
            case "[":
                return self._character_class()
            case "\\":
                return self._escape()
            case ".":
                return _Atom(".")
            case "^" | "$":
                self._places += 1
                return _Atom(one, repeatable=False)
            case "{":
                self._at -= 1
                self._refuse("a { that begins no count", r"write \{ for the character")
        return _Atom(_literal(one))

    def _group(self) -> _Atom:
        opened = self._at
        kind = "?:"
        if self._has("?"):
            kind = next((kind for kind in ("?:", "?=", "?!", "?<=", "?<!") if self._accept(kind)), "")
        if not kind:
            others = "write it as ( ), (?: ), (?= ), (?! ), (?<= ) or (?<! )"
            self._refuse("a group of another kind", "put (?i) in front of all" if self._has("?i)") else others)
        if self._depth >= MAX_DEPTH:
            self._refuse(f"groups are nested deeper than {MAX_DEPTH}")
        behind, places = self._behind, self._places
        if behind and kind != "?:":
            self._refuse("look-around within a look-behind")
        self._behind |= kind in ("?<=", "?<!")
        self._depth += 1
        body = self._alternatives()
        self._depth -= 1
        self._behind = behind
        if not self._accept(")"):
            self._at = opened - 1
            self._refuse("a group is not closed", java=False)
        if kind != "?:":
            self._places += 1
            return _Atom(f"({kind}{body})", repeatable=False)
        return _Atom(f"(?:{body})", countable=self._places == places)

    def _escape(self) -> _Atom:
        if not self._here:
            self._refuse("a backslash is at the end", java=False)
        if self._accept("Q"):
            end = self._text.find("\\E", self._at)
            quoted = self._text[self._at : end if end >= 0 else len(self._text)]
            if not quoted:
                self._refuse("an empty quotation", "leave it out")
            self._at += len(quoted) + (2 if end >= 0 else 0)
            # What follows repeats the last character.
            return _Atom("".join(map(_literal, quoted)))
        return _Atom(self._escaped())

    def _escaped(self) -> str:
        one = self._here
        if one.isascii() and one.isprintable() and not one.isalnum():
            return _literal(self._next())
        if one and one in _CLASSES:
            return f"\\{self._next()}"
        if one in ("A", "z", "Z", "G"):
            self._refuse(f"\\{one}", "leave it out: an expression matches whole names")
        if one in ("p", "P"):
            self._refuse(f"\\{one}", "write the characters that it stands for, as in [0-9] or [A-Za-z]")
        return self._refuse(f"the escape \\{one}", "write the characters themselves")

    def _character_class(self) -> _Atom:
        opened = self._at
        negated = "^" if self._accept("^") else ""
        items: list[str] = []
        while not (items and self._accept("]")):
            if not self._here:
                self._at = opened - 1
                self._refuse("a character class is not closed", java=False)
            low = self._in_class(first=not items)
            if self._has("-") and not self._has("-]"):
                self._at += 1
                if not self._here:
                    continue
                high = self._in_class(first=False)
                if not (low[-1].isascii() and high[-1].isascii()) or _NO_NAME in (low, high):
                    self._refuse("a range beyond ASCII", "write the characters themselves")
                if (len(low) == 2 and low[1] in _CLASSES) or (len(high) == 2 and high[1] in _CLASSES):
                    self._refuse("a range from or to a class", r"write \- for the character")
                if low[-1] > high[-1]:
                    self._refuse("a range that ends before it begins", java=False)
                items.append(f"{low}-{high}")
            else:
                items.append(low)
        return _Atom(f"[{negated}{''.join(items)}]")

    def _in_class(self, *, first: bool) -> str:
        """One character or class, as ``regex`` takes it within a class."""
        if self._has("&&"):
            self._refuse("&& within a character class", r"write the characters themselves, or \& for the character")
        if self._here in ("[", "]"):
            self._refuse(f"a {self._here} within a character class", f"write \\{self._here} for the character")
        if self._here == "-" and not (first or self._has("-]")):
            self._refuse("a - amid a character class", r"write \- for the character")
        if self._accept("\\"):
            if not self._here:
                self._refuse("a backslash is at the end", java=False)
            return self._escaped()
        return _literal(self._next())


def _literal(one: str) -> str:
    """One character as ``regex`` takes it, within a class or outside."""
    if not one.isascii():
        return _NO_NAME
    return one if one.isalnum() or one in "_ " else f"\\{one}"
