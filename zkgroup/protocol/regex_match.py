"""Matching whole names, with the work bounded.

Python's ``re`` cannot be stopped, and takes time exponential in the name's length for an expression such as
``(a+)+x``; it also reads a dialect that differs from Java's without a word. So expressions are matched here, in one of
two ways. A regular one runs on a deterministic automaton that is built as names are read: at most one new state a
character, however the expression is written, and a dictionary look-up once the state is known. What looks around or
refers back runs on a backtracking matcher that never visits a state twice. Both count their steps against an
allowance, in place of a clock, so that the outcome depends on nothing but the expression and the names; a million
steps take about half a second.
"""

from __future__ import annotations

from typing import Final

from zkgroup.errors import FilterLimitError
from zkgroup.protocol.regex_chars import WORD_CHARACTERS
from zkgroup.protocol.regex_program import ASSERTS, Op, Program
from zkgroup.protocol.regex_tree import Alternate, Assert, Chars, Concat, Look, Node, Repeat, has_references, is_regular

# Plain integers: an enumeration's members cost three times as much to compare.
_CHAR, _SPLIT, _JUMP, _ASSERT, _MATCH, _OPEN, _CLOSE, _PROGRESS, _REFERENCE, _LOOK, _ATOMIC = map(int, Op)

_BEGIN, _END, _BORDER, _NO_BORDER = range(len(ASSERTS))

#: States and their instructions kept of one automaton; beyond that it starts anew.
_KEPT: Final = 500_000


class Allowance:
    """How many steps may still be taken."""

    __slots__ = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise FilterLimitError(
                "the regular expression takes too much work to match", "write it without nested repetition"
            )


class Matcher:
    """Whether a whole name matches a tree. Names are printable ASCII, at least one character."""

    def __init__(self, tree: Node) -> None:
        self._ways = _decompose(tree)

    def matches(self, name: str, allowance: Allowance) -> bool:
        return any(
            all(part.matches(name, allowance) == expected for part, expected in conditions) for conditions in self._ways
        )


# --- the automaton --------------------------------------------------------------------------------------------------

_AT_START, _AFTER_WORD, _AFTER_OTHER = range(3)


class _State:
    __slots__ = ("accepts", "context", "kernel", "next")

    def __init__(self, kernel: frozenset[int], context: int) -> None:
        self.kernel = kernel
        self.context = context
        self.next: dict[str, _State] = {}
        self.accepts: bool | None = None


class _Automaton:
    """A regular program, made deterministic while names are read."""

    def __init__(self, program: Program) -> None:
        self._code = program.code
        kinds = {instruction[1] for instruction in program.code if instruction[0] == _ASSERT}
        self._words = bool(kinds & {_BORDER, _NO_BORDER})
        self._forget()

    def _forget(self) -> None:
        self._kept = 0
        self._states: dict[tuple[frozenset[int], int], _State] = {}
        self._start = self._state(frozenset((0,)), _AT_START)

    def _state(self, kernel: frozenset[int], context: int) -> _State:
        key = (kernel, context)
        state = self._states.get(key)
        if state is None:
            self._kept += len(kernel) + 1
            state = self._states[key] = _State(kernel, context)
        return state

    def matches(self, name: str, allowance: Allowance) -> bool:
        if self._kept > _KEPT:
            self._forget()
        state = self._start
        for character in name:
            following = state.next.get(character)
            if following is None:
                following = self._advance(state, character, allowance)
            if not following.kernel:
                return False
            state = following
        if state.accepts is None:
            state.accepts = self._accepts(state, allowance)
        return state.accepts

    def _advance(self, state: _State, character: str, allowance: Allowance) -> _State:
        bit = 1 << ord(character)
        kernel = set()
        for at in self._reach(state, character, allowance):
            instruction = self._code[at]
            if instruction[0] == _CHAR and instruction[1] & bit:
                kernel.add(at + 1)
        context = _AFTER_WORD if self._words and character in WORD_CHARACTERS else _AFTER_OTHER
        following = self._state(frozenset(kernel), context)
        state.next[character] = following
        return following

    def _accepts(self, state: _State, allowance: Allowance) -> bool:
        return any(self._code[at][0] == _MATCH for at in self._reach(state, "", allowance))

    def _reach(self, state: _State, following: str, allowance: Allowance) -> set[int]:
        """Every instruction that can be come to without taking a character, with ``following`` ahead ("": the end)."""
        seen: set[int] = set()
        waiting = list(state.kernel)
        while waiting:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            instruction = self._code[at]
            kind = instruction[0]
            if kind == _SPLIT:
                waiting += instruction[1:]
            elif kind == _JUMP:
                waiting.append(instruction[1])
            elif kind == _ASSERT and self._holds(instruction[1], state.context, following):
                waiting.append(at + 1)
        allowance.spend(len(seen))
        return seen

    def _holds(self, assertion: int, context: int, following: str) -> bool:
        if assertion == _BEGIN:
            return context == _AT_START
        if assertion == _END:
            return not following
        border = (context == _AFTER_WORD) != (following in WORD_CHARACTERS)
        return border == (assertion == _BORDER)


# --- the backtracking matcher ---------------------------------------------------------------------------------------

_Slots = tuple[int, ...]


class _Backtracker:
    """A program that is not regular. Choices are tried in Java's order, each state (with what is noted) once."""

    def __init__(self, program: Program) -> None:
        self._code = program.code
        self._slots: _Slots = (-1,) * program.slots

    def matches(self, name: str, allowance: Allowance) -> bool:
        return self._run(name, 0, 0, self._slots, len(name), allowance) is not None

    def _run(
        self, name: str, start: int, position: int, slots: _Slots, end: int, allowance: Allowance
    ) -> tuple[int, _Slots] | None:
        """Run from an instruction to the first MATCH, at ``end`` (−1: anywhere) → the position and the notes there."""
        code = self._code
        seen: set[tuple[int, int, _Slots]] = set()
        waiting = [(start, position, slots)]
        while waiting:
            state = waiting.pop()
            if state in seen:
                continue
            seen.add(state)
            at, position, slots = state
            while True:
                allowance.spend(1)
                instruction = code[at]
                kind = instruction[0]
                if kind == _CHAR:
                    if position == len(name) or not instruction[1] >> ord(name[position]) & 1:
                        break
                    at, position = at + 1, position + 1
                elif kind == _SPLIT:
                    waiting.append((instruction[2], position, slots))
                    waiting.append((instruction[1], position, slots))
                    break
                elif kind == _JUMP:
                    at = instruction[1]
                elif kind == _MATCH:
                    if end in (-1, position):
                        return position, slots
                    break
                else:
                    moved = self._rare(instruction, at, name, position, slots, allowance)
                    if moved is None:
                        break
                    at, position, slots = moved
        return None

    def _rare(
        self, instruction: tuple[int, ...], at: int, name: str, position: int, slots: _Slots, allowance: Allowance
    ) -> tuple[int, int, _Slots] | None:
        kind = instruction[0]
        if kind == _ASSERT:
            return (at + 1, position, slots) if _holds_at(instruction[1], name, position) else None
        if kind == _OPEN:
            return at + 1, position, _noted(slots, instruction[1], position)
        if kind == _CLOSE:
            slot = instruction[1]
            return at + 1, position, _noted(slots, slot + 1, slots[slot], position)
        if kind == _PROGRESS:
            return (instruction[2] if slots[instruction[1]] == position else at + 1), position, slots
        if kind == _REFERENCE:
            return _referred(instruction, at, name, position, slots)
        if kind == _ATOMIC:
            found = self._run(name, instruction[1], position, slots, -1, allowance)
            return None if found is None else (instruction[2], *found)
        return self._look(instruction, name, position, slots, allowance)

    def _look(
        self, instruction: tuple[int, ...], name: str, position: int, slots: _Slots, allowance: Allowance
    ) -> tuple[int, int, _Slots] | None:
        _, body, ahead, negative, low, high, behind = instruction
        found = None
        if ahead:
            found = self._run(name, body, position, slots, -1, allowance)
        else:
            for start in range(position - low, max(position - high, 0) - 1, -1):
                found = self._run(name, body, start, slots, position, allowance)
                if found is not None:
                    break
        if negative:
            return (behind, position, slots) if found is None else None
        return None if found is None else (behind, position, found[1])


def _noted(slots: _Slots, first: int, *values: int) -> _Slots:
    return slots[:first] + values + slots[first + len(values) :]


def _referred(
    instruction: tuple[int, ...], at: int, name: str, position: int, slots: _Slots
) -> tuple[int, int, _Slots] | None:
    _, slot, ignore_case = instruction
    start, end = slots[slot + 1], slots[slot + 2]
    if start < 0:
        return None  # Java: a group that has not matched cannot be referred to
    text, here = name[start:end], name[position : position + end - start]
    if text != here and not (ignore_case and text.lower() == here.lower()):
        return None
    return at + 1, position + end - start, slots


def _holds_at(assertion: int, name: str, position: int) -> bool:
    if assertion == _BEGIN:
        return position == 0
    if assertion == _END:
        return position == len(name)
    before = position > 0 and name[position - 1] in WORD_CHARACTERS
    after = position < len(name) and name[position] in WORD_CHARACTERS
    return (before != after) == (assertion == _BORDER)


# --- taking look-around out -----------------------------------------------------------------------------------------

_Part = _Automaton | _Backtracker
_ANYTHING: Final = Repeat(Chars((1 << 128) - 1), 0, None, "greedy")


def _part(tree: Node) -> _Part:
    program = Program(tree)
    return _Automaton(program) if program.regular else _Backtracker(program)


def _decompose(tree: Node) -> list[list[tuple[_Part, bool]]]:
    """Alternatives, each a list of parts that must all match the whole name, or must not.

    ``(?!x)y`` matches what ``y`` matches and ``x.*`` does not, so that the look-arounds people write most, at the begin
    and at the end, need no backtracking. Back-references see groups across the parts: then nothing is taken apart.
    """
    if has_references(tree):
        return [[(_part(tree), True)]]
    branches = tree.branches if isinstance(tree, Alternate) else (tree,)
    regular = tuple(branch for branch in branches if is_regular(branch))
    ways: list[list[tuple[_Part, bool]]] = []
    if regular:
        ways.append([(_part(regular[0] if len(regular) == 1 else Alternate(regular)), True)])
    ways += [_conditions(branch) for branch in branches if not is_regular(branch)]
    return ways


def _conditions(branch: Node) -> list[tuple[_Part, bool]]:
    parts = list(branch.parts) if isinstance(branch, Concat) else [branch]
    conditions: list[tuple[_Part, bool]] = []
    first = 0
    while first < len(parts) and isinstance(parts[first], Assert | Look):
        part = parts[first]
        if isinstance(part, Look):
            if not part.ahead:
                break
            conditions.append((_part(Concat((part.body, _ANYTHING))), not part.negative))
            del parts[first]
        elif part == Assert("begin"):
            first += 1
        else:
            break
    last = len(parts) - 1
    while last >= first and isinstance(parts[last], Assert | Look):
        part = parts[last]
        if isinstance(part, Look):
            if part.ahead:
                break
            conditions.append((_part(Concat((_ANYTHING, part.body))), not part.negative))
            del parts[last]
        elif part != Assert("end"):
            break
        last -= 1
    conditions.append((_part(Concat(tuple(parts))), True))
    return conditions
