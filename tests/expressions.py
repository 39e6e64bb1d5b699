"""Random regular expressions, most of them valid in Java, with all that is peculiar about Java's dialect."""

from __future__ import annotations

import random

_LITERALS = ["a", "b", "a", "b", "c", "A", "B", "_", "-", r"\.", "1", "."]
_PREDEFINED = [r"\w", r"\d", r"\W", r"\D", r"\s", r"\S", r"\h", r"\H", r"\v", r"\V", r"\R"]
_PLACES = ["^", "$", r"\b", r"\B", r"\A", r"\z", r"\Z", r"\G"]
_PROPERTIES = [
    *[r"\p{Alpha}", r"\P{Lu}", r"\p{L}", r"\pN", r"\p{IsAlphabetic}", r"\p{Punct}", r"\p{javaLowerCase}", r"\p{Lower}"],
    *[r"\p{gc=Lu}", r"\p{IsDigit}", r"\p{ASCII}", r"\p{IsLu}", r"\p{L1}", r"\p{IsPunctuation}", r"\p{alpha}"],
]
_ESCAPES = [
    r"\x61",
    r"\x{62}",
    r"\u0061",
    r"\0141",
    r"\061",
    r"\t",
    r"\e",
    r"\cA",
    r"\-",
    r"\_",
    r"\~",
    r"\i",
    r"\y",
    r"\X",
]
_QUOTATIONS = [r"\Qa.\E", r"\Q1\E", r"\Qa", r"\E"]
_STRAY = ["]", "}", "{", "&", "&&", ",", "#", " ", "~", "é", "ſ", "\u212a", "İ", "ı"]
_FLAGS = ["(?i)", "(?-i)", "(?iu)", "(?s)", "(?m)", "(?d)", "(?U)", "(?-U)", "(?u)", "(?-u)", "(?x)", "(?)"]
_REFERENCES = [r"\1", r"\2", r"\12", r"\k<n>", r"\k<m>", r"\b{g}"]
_ODD = [*_PREDEFINED, *_PLACES, *_PROPERTIES, *_ESCAPES, *_QUOTATIONS, *_STRAY, *_FLAGS, *_REFERENCES]

_IN_CLASSES = [
    *["a", "b", "c", "A", "z", "Z", "0", "9", "-", "-", "_", ".", "^", "&", "&&", "[", "]", r"\d", r"\w", r"\s", r"\W"],
    *[r"\.", r"\]", r"\-", r"\p{Alpha}", r"\P{L}", "a-c", "b-z", "A-Z", "0-9", r"\x61", r"\Qb]\E", r"\v", r"\h", r"\b"],
    *["[bc]", "[^b]", "é", r"\u0061", r"\061"],
]
_COUNTS = ["*", "+", "?", "*?", "+?", "??", "*+", "++", "?+", "{2}", "{1,}", "{0,2}", "{1,2}?", "{2}+"]
_ODD_COUNTS = ["{,2}", "{2,1}", "{", "{a}", "{1", "{0}", "{2}{3}"]
_OPENERS = ["(", "(", "(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?<n>", "(?i:", "(?-i:", "(?<m>", "(?<1>", "(?P<"]


class Expressions:
    """Draws expressions. ``plain`` ones mean the same to Python's own module."""

    def __init__(self, seed: int, *, plain: bool = False) -> None:
        self._draw = random.Random(seed)
        self._plain = plain

    def expression(self, depth: int = 3) -> str:
        """One expression, of at most ``depth`` nested groups."""
        return "|".join(self._sequence(depth) for _ in range(self._draw.choice([1, 1, 1, 2, 3])))

    def _sequence(self, depth: int) -> str:
        return "".join(self._atom(depth) + self._count() for _ in range(self._draw.choice([0, 1, 1, 2, 2, 3, 4])))

    def _atom(self, depth: int) -> str:
        chance = self._draw.random()
        if depth > 0 and chance < 0.25:
            opener = self._draw.choice(_OPENERS[:3] if self._plain else _OPENERS)
            return opener + self.expression(depth - 1) + (")" if self._plain or self._draw.random() < 0.98 else "")
        if self._plain:
            return self._draw.choice(["a", "b", "a", "b", ".", "[ab]", "[^a]", r"\w", "(?!a)", "(?=b)"])
        if chance < 0.4:
            return self._character_class(2)
        return self._draw.choice(_LITERALS if chance < 0.75 else _ODD)

    def _count(self) -> str:
        if self._draw.random() > 0.35:
            return ""
        if self._plain:
            return self._draw.choice(_COUNTS[:6] + _COUNTS[9:13])
        return self._draw.choice(_COUNTS if self._draw.random() < 0.9 else _ODD_COUNTS)

    def _character_class(self, depth: int) -> str:
        items = [self._class_item(depth) for _ in range(self._draw.randint(0, 4))]
        if self._draw.random() < 0.15:
            items += ["&&", self._class_item(depth)]
        start = "[^" if self._draw.random() < 0.3 else "["
        return start + "".join(items) + ("]" if self._draw.random() < 0.97 else "")

    def _class_item(self, depth: int) -> str:
        if depth and self._draw.random() < 0.15:
            return self._character_class(depth - 1)
        return self._draw.choice(_IN_CLASSES)
