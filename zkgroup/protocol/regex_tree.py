"""Regular expressions as trees: what the parser makes and the compiler reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


class PatternError(ValueError):
    """An expression that is not accepted; ``valid_in_java`` tells whether it is only not supported here."""

    def __init__(self, why: str, position: int, *, valid_in_java: bool) -> None:
        super().__init__(why)
        self.why = why
        self.position = position
        self.valid_in_java = valid_in_java


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set."""

    mask: int


@dataclass(frozen=True, slots=True)
class Assert:
    """A place: the begin, the end, (not) a border of a word."""

    kind: Literal["begin", "end", "border", "no_border"]


@dataclass(frozen=True, slots=True)
class Concat:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternate:
    branches: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """``high`` is None where there is no limit."""

    body: Node
    low: int
    high: int | None
    mode: Literal["greedy", "lazy", "possessive"]


@dataclass(frozen=True, slots=True)
class Capture:
    body: Node
    number: int


@dataclass(frozen=True, slots=True)
class Atomic:
    body: Node


@dataclass(frozen=True, slots=True)
class Look:
    """A look ahead, or back over ``low`` to ``high`` characters."""

    body: Node
    ahead: bool
    negative: bool
    low: int = 0
    high: int = 0


@dataclass(frozen=True, slots=True)
class BackReference:
    number: int
    ignore_case: bool


Node: TypeAlias = Chars | Assert | Concat | Alternate | Repeat | Capture | Atomic | Look | BackReference


def children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Concat):
        return node.parts
    if isinstance(node, Alternate):
        return node.branches
    if isinstance(node, Repeat | Capture | Atomic | Look):
        return (node.body,)
    return ()


def is_regular(node: Node) -> bool:
    """Whether a finite automaton can match it: no look-around, no back-reference, nothing possessive or atomic."""
    if isinstance(node, Atomic | Look | BackReference) or (isinstance(node, Repeat) and node.mode == "possessive"):
        return False
    return all(is_regular(child) for child in children(node))


def has_references(node: Node) -> bool:
    """Whether there is a back-reference in it."""
    return isinstance(node, BackReference) or any(has_references(child) for child in children(node))


def referenced_groups(node: Node) -> set[int]:
    found = {node.number} if isinstance(node, BackReference) else set()
    for child in children(node):
        found |= referenced_groups(child)
    return found


def can_be_empty(node: Node) -> bool:
    """Whether it can match without taking a character (or might: back-references)."""
    if isinstance(node, Chars):
        return False
    if isinstance(node, Concat):
        return all(can_be_empty(part) for part in node.parts)
    if isinstance(node, Alternate):
        return any(can_be_empty(branch) for branch in node.branches)
    if isinstance(node, Repeat):
        return node.low == 0 or can_be_empty(node.body)
    if isinstance(node, Capture | Atomic):
        return can_be_empty(node.body)
    return True


def width(node: Node) -> tuple[int, int] | None:
    """How many characters a look-behind's body takes, at least and at most; None where Java may refuse to tell."""
    if isinstance(node, Chars):
        return 1, 1
    if isinstance(node, Assert | Look):
        return 0, 0
    if isinstance(node, Capture | Atomic):
        return width(node.body)
    if isinstance(node, Repeat):
        if not isinstance(node.body, Chars) or node.high is None or node.high > 1000:
            return None
        return node.low, node.high
    if isinstance(node, BackReference):
        return None
    widths = [width(part) for part in (node.parts if isinstance(node, Concat) else node.branches)]
    known = [width for width in widths if width is not None]
    if len(known) < len(widths):
        return None
    if isinstance(node, Alternate):
        return min(low for low, _ in known), max(high for _, high in known)
    return sum(low for low, _ in known), sum(high for _, high in known)


def refers_uncertainly(node: Node, sure: frozenset[int] = frozenset()) -> bool:
    """Whether a back-reference does not follow its group on every way through the expression.

    Java then reads what a failed attempt left behind, or what an iteration left out, as its implementation has it.
    """
    if isinstance(node, BackReference):
        return node.number not in sure
    if isinstance(node, Concat):
        for part in node.parts:
            if refers_uncertainly(part, sure):
                return True
            sure |= _surely_set(part)
        return False
    return any(refers_uncertainly(child, sure) for child in children(node))


def skips_iterations(node: Node) -> bool:
    """Whether Java, which ends a counted loop at an iteration that takes nothing, may miss a match by that.

    It misses none where an empty iteration could as well have come last, that is, where being empty does not depend on
    the place.
    """
    if isinstance(node, Repeat) and node.low > 1 and can_be_empty(node.body) and _depends_on_place(node.body):
        return True
    return any(skips_iterations(child) for child in children(node))


def _depends_on_place(node: Node) -> bool:
    return isinstance(node, Assert) or not is_regular(node) or any(map(_depends_on_place, children(node)))


def _surely_set(node: Node) -> frozenset[int]:
    if isinstance(node, Capture):
        return _surely_set(node.body) | {node.number}
    if isinstance(node, Concat):
        return frozenset[int]().union(*map(_surely_set, node.parts))
    return frozenset()
