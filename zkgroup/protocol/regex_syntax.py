r"""Java's regular expressions, parsed.

The grammar is that of ``java.util.regex.Pattern`` as the reference runs on it (Java 8 to 21), with what is peculiar to
it: ``]`` and ``}`` stand for themselves, ``x{2}{3}`` repeats nothing the second time, ``\Q…\E`` is rewritten before
anything else is read, flags last to the end of their group. Two kinds of error are told apart: *invalid*, Java refuses
it as well; *unsupported*, Java takes it, but releases of Java disagree on it or it cannot be had exactly. Nothing that
Java refuses is accepted: a filter that one member registers and the others cannot compile stops the whole group.
"""

from __future__ import annotations

from typing import Final, Literal

from zkgroup.protocol import regex_chars as chars
from zkgroup.protocol.regex_reader import DIGITS, LETTERS, MAX_DEPTH, CharacterReader, Flags
from zkgroup.protocol.regex_tree import (
    Alternate,
    Assert,
    Atomic,
    BackReference,
    Capture,
    Chars,
    Concat,
    Look,
    Node,
    PatternError,
    Repeat,
    refers_uncertainly,
    skips_iterations,
    width,
)

MAX_LENGTH: Final = 100_000
MAX_COUNT: Final = 2**31 - 1

_EMPTY: Final = Concat(())


def parse(expression: str) -> Node:
    """Parse an expression, else raise PatternError."""
    if len(expression) > MAX_LENGTH:
        raise PatternError(f"it is longer than {MAX_LENGTH} characters", 0, valid_in_java=True)
    parser = _Parser(_without_quotations(expression))
    tree = parser.alternation()
    if parser.peek() == ")":
        parser.invalid("unmatched ')'")
    if refers_uncertainly(tree):
        parser.unsupported("a back-reference to a group that need not have matched before it")
    if skips_iterations(tree):
        parser.unsupported("a count of two or more on a group that can match nothing, depending on the place")
    return tree


def _without_quotations(text: str) -> str:
    r"""Rewrite ``\Q…\E``, as Java does it: before parsing, wherever it stands."""
    out: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\\" or at + 1 == len(text):
            out.append(text[at])
            at += 1
        elif text[at + 1] != "Q":
            out.append(text[at : at + 2])
            at += 2
        else:
            end = text.find("\\E", at + 2)
            quoted = text[at + 2 : end if end >= 0 else len(text)]
            for position, character in enumerate(quoted):
                if position == 0 and character in DIGITS:
                    out.append(f"\\x3{character}")  # not to become part of an escape before it
                elif character in LETTERS or character in DIGITS or not character.isascii():
                    out.append(character)
                else:
                    out.append("\\" + character)
            at = end + 2 if end >= 0 else len(text)
    return "".join(out)


class _Parser(CharacterReader):
    """Recursive descent; one object reads one expression once."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.groups = 0
        self.names: dict[str, int] = {}

    # --- expressions ---

    def alternation(self) -> Node:
        branches = [self.sequence()]
        while self.peek() == "|":
            self.at += 1
            branches.append(self.sequence())
        return branches[0] if len(branches) == 1 else Alternate(tuple(branches))

    def sequence(self) -> Node:
        parts: list[Node] = []
        while (character := self.peek()) and character not in "|)":
            if character in "?*+":
                self.invalid(f"{character!r} has nothing to repeat")
            node = self.group() if character == "(" else self.atom(character)
            if node is not None:
                parts.append(self.quantified(node))
        return parts[0] if len(parts) == 1 else Concat(tuple(parts))

    def atom(self, character: str) -> Node:
        if character == "{":
            return _EMPTY  # Java repeats nothing here, and complains if no count follows
        self.at += 1
        if character == "[":
            return Chars(self.char_class())
        if character == "\\":
            return self.escape()
        if character == "^":
            return Assert("begin")
        if character == "$":
            return Assert("end")
        return Chars(chars.ALL if character == "." else self.single(ord(character)))

    def quantified(self, node: Node) -> Node:
        character = self.peek()
        if character not in ("?", "*", "+", "{"):
            return node
        self.at += 1
        low: int
        high: int | None
        if character == "{":
            low, high = self.counts()
        else:
            low, high = {"?": (0, 1), "*": (0, None), "+": (1, None)}[character]
        mode: Literal["greedy", "lazy", "possessive"] = "greedy"
        if self.peek() in ("?", "+"):
            mode = "lazy" if self.take() == "?" else "possessive"
        return Repeat(node, low, high, mode)

    def counts(self) -> tuple[int, int | None]:
        if self.peek() not in DIGITS:
            self.invalid("'{' is not followed by a count")
        low = self.count()
        high: int | None = low
        if self.peek() == ",":
            self.at += 1
            high = None if self.peek() == "}" else self.count()
        if self.take() != "}":
            self.invalid("a count in braces is not closed")
        if high is not None and high < low:
            self.invalid("a count in braces has its limits the wrong way round")
        return low, high

    def count(self) -> int:
        number = 0
        while self.peek() in DIGITS:
            number = number * 10 + int(self.take())
            if number > MAX_COUNT:
                self.invalid("a count in braces is too large")
        return number

    # --- groups ---

    def group(self) -> Node | None:
        """A group, or None for flags that stand alone."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.unsupported(f"groups are nested more than {MAX_DEPTH} deep")
        saved = self.flags
        self.at += 1
        if self.peek() != "?":
            node = self.capture()
        else:
            self.at += 1
            special = self.special()
            if special is None:
                self.depth -= 1
                return None
            node = special
        self.flags = saved
        self.depth -= 1
        return node

    def body(self) -> Node:
        tree = self.alternation()
        if self.take() != ")":
            self.invalid("a group is not closed")
        return tree

    def capture(self) -> Node:
        self.groups += 1
        number = self.groups
        return Capture(self.body(), number)

    def special(self) -> Node | None:
        kind = self.take()
        if kind == ":":
            return self.body()
        if kind == "=" or kind == "!":
            return Look(self.body(), ahead=True, negative=kind == "!")
        if kind == ">":
            return Atomic(self.body())
        if kind == "<":
            if self.peek() in ("=", "!"):
                return self.look_behind()
            name = self.group_name()
            if name in self.names:
                self.invalid(f"two groups are named {name!r}")
            self.names[name] = self.groups + 1
            return self.capture()
        self.at -= 1
        return self.inline_flags()

    def look_behind(self) -> Node:
        negative = self.take() == "!"
        start = self.at
        body = self.body()
        bounds = width(body)
        if bounds is None:
            self.at = start
            self.unsupported("a look-behind with a repeated group, '*' or '+' in it")
        return Look(body, ahead=False, negative=negative, low=bounds[0], high=bounds[1])

    def group_name(self) -> str:
        if self.peek() not in LETTERS:
            self.invalid("a group's name does not start with a letter")
        start = self.at
        while self.peek() in LETTERS or self.peek() in DIGITS:
            self.at += 1
        name = self.text[start : self.at]
        if self.take() != ">":
            self.invalid("a group's name is not closed by '>'")
        return name

    def inline_flags(self) -> Node | None:
        before = self.flags
        on = True
        while (flag := self.peek()) and flag not in "):":
            self.at += 1
            if flag == "-" and on:
                on = False
            elif flag in "ims" or flag == "d" or flag == "u" or flag == "U":
                self.set_flag(flag, on)
            elif flag in "xc":
                if on:
                    self.unsupported(f"the flag (?{flag})")
            else:
                self.invalid(f"unknown group or flag (?{flag[:1]}")
        if self.take() == ":":
            node = self.body()
            self.flags = before
            return node
        if self.at > len(self.text):
            self.invalid("a group is not closed")
        return None

    def set_flag(self, flag: str, on: bool) -> None:
        # (?m), (?s) and (?d) are about line ends, which no name has.
        now = self.flags
        if flag == "i":
            self.flags = Flags(on, now.unicode_case, now.unicode_classes)
        elif flag == "u":
            self.flags = Flags(now.ignore_case, on, now.unicode_classes)
        elif flag == "U":
            self.flags = Flags(now.ignore_case, on, on)

    # --- escapes and references ---

    def escape(self) -> Node:
        character = self.take()
        if character in ("p", "P"):
            return Chars(self.family(character == "P"))
        if character in chars.ESCAPES and character:
            return Chars(chars.ESCAPES[character])
        if character in ("A", "G"):
            return Assert("begin")
        if character in ("z", "Z"):
            return Assert("end")
        if character in ("b", "B"):
            if self.text.startswith("{g}", self.at) and character == "b":
                self.unsupported(r"\b{g}")
            return Assert("border" if character == "b" else "no_border")
        if character == "R":
            return Chars(chars.NONE)
        if character and character in "123456789":
            return self.numbered_reference(int(character))
        if character == "k":
            return self.named_reference()
        return Chars(self.single(self.code(character)))

    def numbered_reference(self, number: int) -> Node:
        while self.peek() in DIGITS and number * 10 + int(self.peek()) <= self.groups:
            number = number * 10 + int(self.take())
        return BackReference(number, self.flags.ignore_case)

    def named_reference(self) -> Node:
        if self.take() != "<":
            self.invalid(r"\k is not followed by a group's name")
        name = self.group_name()
        if name not in self.names:
            self.invalid(f"no group is named {name!r}")
        return BackReference(self.names[name], self.flags.ignore_case)
