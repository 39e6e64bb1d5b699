"""From a parsed expression to instructions for a matcher.

``regular`` expressions (no look-around, no back-reference, nothing possessive or atomic) compile to plain automata.
The others keep the order in which Java tries its choices, since there it decides what matches.
"""

from __future__ import annotations

import enum
from typing import Final, TypeAlias

from zkgroup.protocol.regex_tree import (
    Alternate,
    Assert,
    Atomic,
    Capture,
    Chars,
    Concat,
    Look,
    Node,
    PatternError,
    Repeat,
    can_be_empty,
    is_regular,
    referenced_groups,
)

MAX_INSTRUCTIONS: Final = 100_000


class Op(enum.IntEnum):
    """What an instruction does; its two or more operands are in brackets."""

    CHAR = 0  # [mask]: take one character of the set, go on behind
    SPLIT = 1  # [first, second]: try the one, then the other
    JUMP = 2  # [target]
    ASSERT = 3  # [kind]
    MATCH = 4  # the whole expression, or the body of a look-around or atomic group, is through
    OPEN = 5  # [slot]: note the position
    CLOSE = 6  # [slot]: what was noted there up to here is the group's text, in the next two slots
    PROGRESS = 7  # [slot, target]: nothing taken since the note → go to the target
    REFERENCE = 8  # [slot, ignore case]: take what the group's text is
    LOOK = 9  # [body, ahead, negative, low, high, behind]: the body stands at ``body``
    ATOMIC = 10  # [body, behind]


Instruction: TypeAlias = tuple[int, ...]

ASSERTS: Final = ("begin", "end", "border", "no_border")


class Program:
    """Instructions; the first one is where matching begins."""

    def __init__(self, tree: Node) -> None:
        self.code: list[Instruction] = []
        self.slots = 0
        self.regular = is_regular(tree)
        self._spent = 0
        self._group_slots: dict[int, int] = {}
        for number in sorted(referenced_groups(tree)):
            self._group_slots[number] = self._new_slots(3)
        self._emit(tree)
        self._add(Op.MATCH)

    def _new_slots(self, count: int) -> int:
        first = self.slots
        self.slots += count
        return first

    def _add(self, *instruction: int) -> int:
        self._spend()
        self.code.append(tuple(map(int, instruction)))
        return len(self.code) - 1

    def _spend(self) -> None:
        self._spent += 1
        if self._spent > MAX_INSTRUCTIONS:
            raise PatternError(f"it unfolds to more than {MAX_INSTRUCTIONS} steps", 0, valid_in_java=True)

    def _emit(self, node: Node) -> None:
        if isinstance(node, Chars):
            self._add(Op.CHAR, node.mask)
        elif isinstance(node, Assert):
            self._add(Op.ASSERT, ASSERTS.index(node.kind))
        elif isinstance(node, Concat):
            for part in node.parts:
                self._emit(part)
        elif isinstance(node, Alternate):
            self._emit_alternate(node)
        elif isinstance(node, Repeat):
            self._emit_repeat(node)
        elif isinstance(node, Capture):
            self._emit_capture(node)
        elif isinstance(node, Atomic):
            at = self._add(Op.ATOMIC)
            self._emit_body(node.body)
            self.code[at] = (Op.ATOMIC.value, at + 1, len(self.code))
        elif isinstance(node, Look):
            at = self._add(Op.LOOK)
            self._emit_body(node.body)
            self.code[at] = (Op.LOOK.value, at + 1, node.ahead, node.negative, node.low, node.high, len(self.code))
        else:
            slot = self._group_slots[node.number]
            self._add(Op.REFERENCE, slot, node.ignore_case)

    def _emit_body(self, body: Node) -> None:
        self._emit(body)
        self._add(Op.MATCH)

    def _emit_alternate(self, node: Alternate) -> None:
        exits: list[int] = []
        for branch in node.branches[:-1]:
            split = self._add(Op.SPLIT)
            self._emit(branch)
            exits.append(self._add(Op.JUMP))
            self.code[split] = (Op.SPLIT.value, split + 1, len(self.code))
        self._emit(node.branches[-1])
        for at in exits:
            self.code[at] = (Op.JUMP.value, len(self.code))

    def _emit_capture(self, node: Capture) -> None:
        slot = self._group_slots.get(node.number)
        if slot is None:
            self._emit(node.body)
            return
        self._add(Op.OPEN, slot)
        self._emit(node.body)
        self._add(Op.CLOSE, slot)

    def _emit_repeat(self, node: Repeat) -> None:
        if node.mode == "possessive":
            # Java never goes back into an iteration of a possessive loop, not even between iterations.
            once = node.body if isinstance(node.body, Chars | Atomic) else Atomic(node.body)
            self._emit(Atomic(Repeat(once, node.low, node.high, "greedy")))
            return
        for _ in range(node.low):
            self._spend()
            self._emit(node.body)
        if node.high is None:
            self._emit_star(node)
            return
        splits: list[int] = []
        for _ in range(node.high - node.low):
            splits.append(self._add(Op.SPLIT))
            self._emit(node.body)
        for at in splits:
            self._set_split(at, at + 1, len(self.code), node.mode == "lazy")

    def _emit_star(self, node: Repeat) -> None:
        start = self._add(Op.SPLIT)
        slot = -1
        if not self.regular and can_be_empty(node.body):
            slot = self._new_slots(1)
            self._add(Op.OPEN, slot)
        self._emit(node.body)
        checks = self._add(Op.PROGRESS) if slot >= 0 else -1
        self._add(Op.JUMP, start)
        if slot >= 0:
            self.code[checks] = (Op.PROGRESS.value, slot, len(self.code))
        self._set_split(start, start + 1, len(self.code), node.mode == "lazy")

    def _set_split(self, at: int, body: int, behind: int, lazy: bool) -> None:
        self.code[at] = (Op.SPLIT.value, behind, body) if lazy else (Op.SPLIT, body, behind)
