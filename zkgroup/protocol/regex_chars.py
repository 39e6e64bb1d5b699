"""Sets of characters, and what Java's character classes mean, over the characters a topic name can have.

A name that comes from ZooKeeper has no control characters (ZooKeeper refuses them), and a name that Kafka takes has no
characters beyond ASCII. So a set is an integer whose bit *c* says whether the printable ASCII character *c* (0x20 to
0x7e) is in it, and Java's Unicode classes need no tables: what they say about these 95 characters has never changed.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Final

FIRST, LAST = 0x20, 0x7E


def span(first: int, last: int) -> int:
    """The characters from ``first`` to ``last``, code points, both included."""
    low, high = max(first, FIRST), min(last, LAST)
    return (1 << (high + 1)) - (1 << low) if low <= high else 0


def one(code: int) -> int:
    """The set of one character; empty where no topic name can have it."""
    return span(code, code)


def _where(test: Callable[[str], bool]) -> int:
    return sum(1 << code for code in range(FIRST, LAST + 1) if test(chr(code)))


ALL: Final = span(FIRST, LAST)
NONE: Final = 0
DIGITS: Final = span(ord("0"), ord("9"))
UPPER: Final = span(ord("A"), ord("Z"))
LOWER: Final = span(ord("a"), ord("z"))
LETTERS: Final = UPPER | LOWER
WORD: Final = LETTERS | DIGITS | one(ord("_"))
SPACE: Final = one(ord(" "))
HEX_DIGITS: Final = DIGITS | span(ord("A"), ord("F")) | span(ord("a"), ord("f"))
GRAPH: Final = ALL & ~SPACE
_DOLLAR: Final = one(ord("$"))

WORD_CHARACTERS: Final[frozenset[str]] = frozenset(chr(c) for c in range(FIRST, LAST + 1) if WORD >> c & 1)

#: Predefined classes. Java's ``\v``, ``\V``, ``\R`` concern line ends, which no name has; ``\h`` a blank.
ESCAPES: Final[dict[str, int]] = {
    "d": DIGITS,
    "D": ALL & ~DIGITS,
    "w": WORD,
    "W": ALL & ~WORD,
    "s": SPACE,
    "S": ALL & ~SPACE,
    "h": SPACE,
    "H": ALL & ~SPACE,
    "v": NONE,
    "V": ALL,
}

_POSIX: Final[dict[str, int]] = {
    "ASCII": ALL,
    "Alnum": LETTERS | DIGITS,
    "Alpha": LETTERS,
    "Blank": SPACE,
    "Cntrl": NONE,
    "Digit": DIGITS,
    "Graph": GRAPH,
    "Lower": LOWER,
    "Print": ALL,
    "Punct": GRAPH & ~(LETTERS | DIGITS),
    "Space": SPACE,
    "Upper": UPPER,
    "XDigit": HEX_DIGITS,
}

_PUNCTUATION: Final = _where(lambda c: unicodedata.category(c)[0] == "P")

#: POSIX classes under ``(?U)``: the Unicode properties of those names. Only one differs in ASCII.
_POSIX_UNICODE: Final[dict[str, int]] = {
    **{name.upper(): value for name, value in _POSIX.items() if name != "ASCII"},
    "PUNCT": _PUNCTUATION,
}

_CATEGORIES: Final = (
    "Cn Lu Ll Lt Lm Lo Mn Me Mc Nd Nl No Zs Zl Zp Cc Cf Co Cs Pd Ps Pe Pc Po Sm Sc Sk So Pi Pf L M N Z C P S"
)

_GENERAL: Final[dict[str, int]] = {
    **{
        name: _where(lambda c, name=name: unicodedata.category(c).startswith(name))  # type: ignore[misc]
        for name in _CATEGORIES.split()
    },
    "LC": LETTERS,
    "LD": LETTERS | DIGITS,
    "L1": ALL,
    "all": ALL,
}

_JAVA: Final[dict[str, int]] = {
    "javaLowerCase": LOWER,
    "javaUpperCase": UPPER,
    "javaAlphabetic": LETTERS,
    "javaIdeographic": NONE,
    "javaTitleCase": NONE,
    "javaDigit": DIGITS,
    "javaDefined": ALL,
    "javaLetter": LETTERS,
    "javaLetterOrDigit": LETTERS | DIGITS,
    "javaJavaIdentifierStart": LETTERS | _DOLLAR | one(ord("_")),
    "javaJavaIdentifierPart": WORD | _DOLLAR,
    "javaUnicodeIdentifierStart": LETTERS,
    "javaUnicodeIdentifierPart": WORD,
    "javaIdentifierIgnorable": NONE,
    "javaSpaceChar": SPACE,
    "javaWhitespace": SPACE,
    "javaISOControl": NONE,
    "javaMirrored": _where(lambda c: unicodedata.mirrored(c) == 1),
}

#: After ``Is``, in any case.
_BINARY: Final[dict[str, int]] = {
    "ALPHABETIC": LETTERS,
    "LETTER": LETTERS,
    "IDEOGRAPHIC": NONE,
    "LOWERCASE": LOWER,
    "UPPERCASE": UPPER,
    "TITLECASE": NONE,
    "WHITE_SPACE": SPACE,
    "CONTROL": NONE,
    "PUNCTUATION": _PUNCTUATION,
    "HEX_DIGIT": HEX_DIGITS,
    "ASSIGNED": ALL,
    "NONCHARACTER_CODE_POINT": NONE,
    "DIGIT": DIGITS,
    "JOIN_CONTROL": NONE,
}

#: Ignoring case changes what these mean from Java 15 on.
_CASED: Final = frozenset(
    [
        "Lower",
        "Upper",
        "Lu",
        "Ll",
        "Lt",
        "javaLowerCase",
        "javaUpperCase",
        "javaTitleCase",
        "LOWERCASE",
        "UPPERCASE",
        "TITLECASE",
        "LOWER",
        "UPPER",
    ]
)


class UnknownPropertyError(ValueError):
    """A property that Java does not know either, or (``known``) one that is not supported here."""

    def __init__(self, why: str, *, known: bool) -> None:
        super().__init__(why)
        self.known = known


def property_set(name: str, *, ignore_case: bool, unicode_classes: bool) -> int:
    r"""What ``\p{name}`` stands for. Raises UnknownPropertyError."""
    key, equals, value = name.partition("=")
    found: tuple[str, int] | None
    if equals:
        if key.lower() not in ("gc", "general_category"):
            raise _unsupported(name)
        found = _plain(value)
    elif name.startswith("In"):
        raise _unsupported(name)
    elif name.startswith("Is"):
        short = name[2:]
        found = (short.upper(), _BINARY[short.upper()]) if short.upper() in _BINARY else _plain(short)
        if found is None:
            raise _unsupported(name)  # a script, or nothing
    elif unicode_classes and name.upper() in _POSIX_UNICODE:
        found = name.upper(), _POSIX_UNICODE[name.upper()]
    else:
        found = _plain(name)
    if found is None:
        raise UnknownPropertyError(f"unknown character property {name[:40]!r}", known=False)
    if ignore_case and found[0] in _CASED:
        raise UnknownPropertyError(
            f"\\p{{{name}}} with case ignored means one thing up to Java 14 and another since", known=True
        )
    return found[1]


def _plain(name: str) -> tuple[str, int] | None:
    for table in (_POSIX, _GENERAL, _JAVA):
        if name in table:
            return name, table[name]
    return None


def _unsupported(name: str) -> UnknownPropertyError:
    return UnknownPropertyError(
        f"{name[:40]!r} is no property that is supported here (scripts and blocks are not: topic names are ASCII)",
        known=True,
    )


#: Characters beyond ASCII that equal an ASCII letter when case is ignored in Unicode's way.
_FOLDED: Final = {0x17F: "s", 0x212A: "k", 0x130: "i", 0x131: "i"}


def one_ignoring_case(code: int, *, unicode_case: bool) -> int:
    """The set of one character and its other case: of ASCII letters, or with ``unicode_case`` of all."""
    letter = _FOLDED.get(code) if unicode_case else None
    character = letter or (chr(code) if code < 0x80 else "")
    if not character:
        return NONE
    return one(ord(character.lower())) | one(ord(character.upper()))


def span_ignoring_case(first: int, last: int) -> int:
    """A range, with the other case of its ASCII letters."""
    letters = span(first, last)
    shifted = 0x20
    return letters | (letters & UPPER) << shifted | (letters & LOWER) >> shifted
