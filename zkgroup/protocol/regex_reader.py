r"""Reading the characters of a Java regular expression: escapes, and classes in brackets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn

from zkgroup.protocol import regex_chars as chars
from zkgroup.protocol.regex_tree import PatternError

MAX_DEPTH: Final = 50

DIGITS: Final = frozenset("0123456789")
OCTAL: Final = frozenset("01234567")
HEX: Final = frozenset("0123456789abcdefABCDEF")
LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
CONTROLS: Final = {"a": 7, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9}


@dataclass(frozen=True, slots=True)
class Flags:
    ignore_case: bool = False
    unicode_case: bool = False
    unicode_classes: bool = False


@dataclass(frozen=True, slots=True)
class CharSet:
    """What stands in a class and is no single character."""

    mask: int


class CharacterReader:
    """A place in an expression, and what can be read there about characters."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.flags = Flags()
        self.depth = 0

    # --- reading ---

    def peek(self, ahead: int = 0) -> str:
        """The next character, or the empty string at the end."""
        return self.text[self.at + ahead : self.at + ahead + 1]

    def take(self) -> str:
        character = self.peek()
        self.at += 1
        return character

    def invalid(self, why: str) -> NoReturn:
        raise PatternError(why, min(self.at, len(self.text)), valid_in_java=False)

    def unsupported(self, why: str) -> NoReturn:
        raise PatternError(why, min(self.at, len(self.text)), valid_in_java=True)

    def single(self, code: int) -> int:
        if self.flags.ignore_case:
            return chars.one_ignoring_case(code, unicode_case=self.flags.unicode_case)
        return chars.one(code)

    # --- escapes ---

    def code(self, character: str) -> int:
        """The code point that an escape stands for, in and out of classes; ``character`` is what follows the \\."""
        if character in CONTROLS:
            return CONTROLS[character]
        reader: Callable[[], int] | None = {
            "0": self.octal, "x": self.hexadecimal, "u": self.unicode, "c": self.control,
        }.get(character)  # fmt: skip
        if reader is not None:
            return reader()
        if not character:
            self.invalid("it ends in a backslash")
        if character in "XN":
            self.unsupported(f"\\{character}")
        if character in LETTERS or character in DIGITS:
            self.invalid(f"unknown escape \\{character}")
        return ord(character)

    def octal(self) -> int:
        digits = ""
        while self.peek() in OCTAL and self.peek() and len(digits) < 3 and int(digits + self.peek(), 8) <= 0o377:
            digits += self.take()
        if not digits:
            self.invalid(r"\0 is not followed by an octal digit")
        return int(digits, 8)

    def hexadecimal(self) -> int:
        if self.peek() != "{":
            return self.hex_digits(2, r"\x")
        self.at += 1
        code = 0
        while self.peek() in HEX:
            code = code * 16 + int(self.take(), 16)
            if code > 0x10FFFF:
                self.invalid(r"\x{…} is beyond the last character")
        if self.take() != "}":
            self.invalid(r"\x{…} is not closed")
        return code

    def unicode(self) -> int:
        code = self.hex_digits(4, r"\u")
        if 0xD800 <= code < 0xDC00 and self.peek() == "\\" and self.peek(1) == "u":
            start = self.at
            self.at += 2
            low = self.hex_digits(4, r"\u")
            if 0xDC00 <= low < 0xE000:
                return 0x10000 + (code - 0xD800 << 10) + (low - 0xDC00)
            self.at = start
        return code

    def hex_digits(self, count: int, what: str) -> int:
        digits = self.text[self.at : self.at + count]
        if len(digits) < count or not set(digits) <= HEX:
            self.invalid(f"{what} is not followed by {count} hexadecimal digits")
        self.at += count
        return int(digits, 16)

    def control(self) -> int:
        character = self.take()
        if not character:
            self.invalid(r"\c is not followed by a character")
        return ord(character) ^ 64

    def family(self, complement: bool) -> int:
        name = self.take()
        if name == "{":
            end = self.text.find("}", self.at)
            if end < 0:
                self.invalid(r"\p{…} is not closed")
            name = self.text[self.at : end]
            self.at = end + 1
        if not name:
            self.invalid(r"\p is not followed by a name")
        try:
            found = chars.property_set(
                name, ignore_case=self.flags.ignore_case, unicode_classes=self.flags.unicode_classes
            )
        except chars.UnknownPropertyError as error:
            raise PatternError(str(error), self.at, valid_in_java=error.known) from None
        return chars.ALL & ~found if complement else found

    # --- classes ---

    def char_class(self) -> int:
        """A class in brackets; the opening one is already read."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.unsupported(f"classes are nested more than {MAX_DEPTH} deep")
        negative = self.peek() == "^"
        if negative:
            self.at += 1
        mask, combined = self.class_items()
        if self.take() != "]":
            self.invalid("a character class is not closed")
        self.depth -= 1
        if not negative:
            return mask
        if combined:
            self.unsupported("a negated class that holds a class or '&&' (Java 8 and 9 disagree on it)")
        return chars.ALL & ~mask

    def class_items(self) -> tuple[int, bool]:
        """What stands before the closing bracket, and whether classes were combined in it."""
        mask: int | None = None
        combined = False
        while (character := self.peek()) and not (character == "]" and mask is not None):
            if character == "[":
                combined = True
                self.at += 1
                mask = (mask or 0) | self.char_class()
            elif character == "&" and self.peek(1) == "&":
                combined = True
                self.at += 2
                right = self.intersected()
                mask = right if mask is None else mask & right
            else:
                mask = (mask or 0) | self.class_range()
        return mask or 0, combined

    def intersected(self) -> int:
        """The right side of ``&&``: classes in brackets, or bare items up to the end."""
        if self.peek() in ("]", "&"):
            self.unsupported("'&&' in a class with nothing on its right")
        if self.peek() != "[":
            return self.class_items()[0]
        mask = 0
        while self.peek() == "[":
            self.at += 1
            mask |= self.char_class()
        if self.peek() and self.peek() != "]" and not self.text.startswith("&&", self.at):
            self.unsupported("characters behind the class on the right of '&&'")
        return mask

    def class_range(self) -> int:
        first = self.class_character(range_end=False)
        if isinstance(first, CharSet):
            return first.mask
        if self.peek() != "-" or self.peek(1) in ("[", "]"):
            return self.single(first)
        self.at += 1
        last = self.class_character(range_end=True)
        if isinstance(last, CharSet) or last < first:
            self.invalid("a range of characters has its ends the wrong way round")
        if self.flags.ignore_case:
            return chars.span_ignoring_case(first, last)
        return chars.span(first, last)

    def class_character(self, *, range_end: bool) -> int | CharSet:
        character = self.take()
        if not character:
            self.invalid("a character class is not closed")
        if character != "\\":
            return ord(character)
        escaped = self.take()
        if escaped == "v" and (range_end or self.peek() == "-"):
            return 0x0B
        if escaped in chars.ESCAPES:
            return CharSet(chars.ESCAPES[escaped])
        if escaped in ("p", "P") and not range_end:
            return CharSet(self.family(escaped == "P"))
        if escaped and escaped in "RX123456789":
            self.invalid(f"\\{escaped} cannot stand in a class")
        return self.code(escaped)
