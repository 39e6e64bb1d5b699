"""A failing scenario cut down to what it needs, and reported in plain words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from sim.play import Outcome, play
from sim.scenario import Kind, Scenario

#: How often a smaller scenario is tried with other chances of the network before it counts as harmless.
CHANCES = 4


def shrink(
    scenario: Scenario, say: Callable[[str], None] = lambda text: None, most: int = 3000
) -> tuple[Scenario, Outcome]:
    """The smallest scenario found that breaks the same invariant, and what becomes of it. ``most``: plays."""
    return _Shrinker(scenario, say, most).run()


class NothingBrokenError(ValueError):
    """The scenario breaks no invariant: there is nothing to cut down."""


class _Shrinker:
    """Delta debugging over the faults, then over the size of the world, until neither gets smaller."""

    def __init__(self, scenario: Scenario, say: Callable[[str], None], most: int) -> None:
        self.best, self.outcome = scenario, play(scenario)
        self._say = say
        self._left = most
        if not self.outcome.violation:
            raise NothingBrokenError(f"seed {scenario.seed} breaks nothing")

    def run(self) -> tuple[Scenario, Outcome]:
        before = None
        while before != self.best and self._left > 0:
            before = self.best
            self._fewer_faults()
            self._say(f"{len(self.best.faults)} faults left")
            while any(self._fails(smaller) for smaller in _smaller_worlds(self.best)):
                pass
        self._say(f"{self.best.members} members, {sum(self.best.topics)} partitions left")
        return self.best, play(self.best, trace=True)

    def _fails(self, candidate: Scenario) -> bool:
        """Whether the candidate, or one that has another seed only, breaks the same invariant; it is the best then."""
        for chance in range(CHANCES):
            if self._left <= 0:
                return False
            self._left -= 1
            tried = replace(candidate, seed=candidate.seed + chance)
            outcome = play(tried)
            if outcome.kind == self.outcome.kind:
                self.best, self.outcome = tried, outcome
                return True
        return False

    def _fewer_faults(self) -> None:
        # Nothing after the violation matters, unless it shows at the end.
        size = max(1, len(self.best.faults) // 2)
        while True:
            start, removed = 0, False
            while start < len(self.best.faults):
                faults = self.best.faults
                if self._fails(replace(self.best, faults=faults[:start] + faults[start + size :])):
                    removed = True
                else:
                    start += size
            if size == 1 and not removed:
                return
            size = max(1, size // 2)


def _smaller_worlds(scenario: Scenario) -> Iterator[Scenario]:
    """Worlds that are a little simpler."""
    for members in (scenario.members // 2, scenario.members - 1):
        if 0 < members < scenario.members:
            yield replace(scenario, members=members)
    if len(scenario.topics) > 1:
        yield replace(scenario, topics=scenario.topics[:-1])
    for width in (1, max(scenario.topics) // 2, max(scenario.topics) - 1):
        if 0 < width < max(scenario.topics):
            yield replace(scenario, topics=tuple(min(count, width) for count in scenario.topics))
    if len(scenario.kinds) > 1:
        for kind in dict.fromkeys(scenario.kinds):
            yield replace(scenario, kinds=(kind,))
    if scenario.kinds != (Kind(),) and len(scenario.kinds) == 1 and not scenario.mixed:
        yield replace(scenario, kinds=(Kind(),))
    if scenario.store != "zookeeper":
        yield replace(scenario, store="zookeeper")
    if scenario.chunk != 250:
        yield replace(scenario, chunk=250)


# ---------------------------------------------------------------- the trace


def tell(scenario: Scenario, outcome: Outcome) -> str:
    """What happened, as numbered sentences: the faults, what members say, and what became of the partition at issue."""
    lines = outcome.trace or []
    partition = re.search(r"\bt\d+-\d+\b|topic='(t\d+)', partition=(\d+)", outcome.violation)
    names: Sequence[str] = ()
    if partition is not None:
        name = partition.group(0) if partition.group(1) is None else f"{partition.group(1)}-{partition.group(2)}"
        names = (f" {name} ", f"/{name.replace('-', '/')} ")
    stores = {"zookeeper": "ZooKeeper", "kafka": "Kafka", "dual": "ZooKeeper and Kafka"}
    topics = ", ".join(f"t{number} ({count})" for number, count in enumerate(scenario.topics))
    head = [
        f"A group of {scenario.members}, strategy {scenario.strategy}, offsets in {stores[scenario.store]};"
        f" topics (partitions): {topics}."
    ]
    message = [_sentence(line) for line in _thinned(lines, names)]
    end = [f"Broken after {outcome.at:.2f} s: {outcome.violation}"]
    return "\n".join([*head, *(f"{number:4}. {text}" for number, text in enumerate([*message, *end], 1))])


def _thinned(lines: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    last: dict[str, str] = {}
    for line in lines:
        text = line.partition(" ")[2]
        deeds = " delivers " in text or any(f" {verb} /" in text for verb in ("creates", "writes", "deletes"))
        if deeds and " delivers " in text:
            # Of a row of batches of one member the first and the last tell enough; here, the first.
            who, _, what = text.partition(" delivers ")
            partition = what.split(" ")[0]
            if (names and f" {partition} " not in names) or last.get(partition) == who:
                continue
            last[partition] = who
        elif deeds and "/consumers/" in text:
            if "/owners/" in text or "/offsets/" in text:
                if names and not any(name in f"{text} " for name in names):
                    continue
            elif "/ids/" not in text:
                continue
        elif deeds:
            continue
        yield line


def _sentence(line: str) -> str:
    at, _, text = line.partition(" ")
    words = (
        (r"^fault: (.*?): (m\d+)(.*)$", r"FAULT \1 happens to \2\3"),
        (r"^fault: (.*)$", r"FAULT \1"),
        (r"/consumers/g/owners/(\S+)/(\d+)", r"the owner node of \1-\2"),
        (r"/consumers/g/offsets/(\S+)/(\d+) ?", r"the offset of \1-\2: "),
        (r"/consumers/g/ids/(\S+).*", r"the id node of \1"),
        (r"(delivers \S+) (\d+)-(\d+)", r"\1 from offset \2, and so on"),
    )
    for pattern, replacement in words:
        text = re.sub(pattern, replacement, text)
    return f"at {float(at) - 1000:7.3f} s  {text}"
