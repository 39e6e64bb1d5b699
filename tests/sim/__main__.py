"""Run the simulation: ``PYTHONPATH=tests python -m sim --help``."""

from __future__ import annotations

import argparse
import logging
import math
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from sim import mutants
from sim.play import Outcome, play
from sim.scenario import Scenario, scenario
from sim.shrink import NothingBrokenError, shrink, tell


def command(seed: int) -> str:
    """What repeats a seed."""
    return f"PYTHONPATH=tests python -m sim seed {seed}"


def _one(seed: int) -> tuple[int, Outcome]:
    return seed, play(scenario(seed))


class Total:
    """What became of many seeds."""

    def __init__(self) -> None:
        self.faults: Counter[str] = Counter()
        self.wrongs: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.violations: list[tuple[int, str]] = []
        self.seeds = 0
        self.seconds = 0.0

    def add(self, seed: int, outcome: Outcome) -> None:
        """One more."""
        self.seeds += 1
        self.seconds += outcome.seconds
        self.faults += outcome.faults
        self.wrongs += outcome.wrongs
        self.counts += outcome.counts
        if outcome.violation:
            self.violations.append((seed, outcome.violation))

    def text(self, took: float) -> str:
        """A table, in Markdown."""
        rows = [f"| {name} | {count:,} |" for name, count in sorted(self.faults.items(), key=lambda item: -item[1])]
        counts = "; ".join(f"{name}: {count:,}" for name, count in sorted(self.counts.items()))
        wrongs = "; ".join(f"{name}: {count:,}" for name, count in sorted(self.wrongs.items())) or "nothing"
        head = (
            f"{self.faults.total():,} faults in {self.seeds:,} groups and {self.seconds / 3600:,.0f} h of their time,"
            f" in {took:,.0f} s; {len(self.violations)} violations"
        )
        table = "\n".join(["| fault | times |", "|---|---:|", *rows])
        return f"{head}\n\n{table}\n\nAlso: {counts}.\nBroken by Scala consumers, and counted only: {wrongs}."


def run_seeds(seeds: Iterable[int], faults: int, jobs: int, minutes: float = math.inf) -> Total:
    """Play seeds until so many faults have taken effect, or the time is over, or ten have broken an invariant."""
    total, message, began = Total(), 0, time.monotonic()
    with multiprocessing.Pool(jobs) as pool:
        for seed, outcome in pool.imap_unordered(_one, seeds, chunksize=4):
            total.add(seed, outcome)
            if outcome.violation:
                print(f"\nseed {seed} breaks an invariant: {outcome.violation}\nrepeat it: {command(seed)}", flush=True)
            if total.seeds - message >= 500:
                message = total.seeds
                took = time.monotonic() - began
                print(f"{message} seeds, {total.faults.total():,} faults, {took:.0f} s", file=sys.stderr, flush=True)
            late = time.monotonic() - began > minutes * 60
            if late or total.faults.total() >= faults or len(total.violations) >= 10:
                pool.terminate()
                break
    return total


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _tell(found: Scenario, outcome: Outcome) -> int:
    print(tell(found, outcome))
    return 1 if outcome.violation else 0


def _seed(seed: int, *, trace: bool) -> int:
    outcome = play(scenario(seed), trace=trace)
    if trace:
        print("\n".join(outcome.trace or []))
    print(f"seed {seed}: {outcome.violation or 'every invariant holds'} (digest {outcome.digest})")
    return 1 if outcome.violation else 0


def main() -> int:
    """The commands."""
    logging.disable(logging.CRITICAL)
    parser = argparse.ArgumentParser(prog="sim", description="Groups under faults, in virtual time.")
    commands = parser.add_subparsers(dest="command", required=True)
    many = commands.add_parser("run", help="play seeds, one after the other")
    many.add_argument("--faults", type=int, default=10_000, help="how many at least (default: 10,000)")
    many.add_argument("--first", type=int, default=0, help="the first seed")
    many.add_argument("--minutes", type=float, default=math.inf, help="stop after so long, whatever was reached")
    many.add_argument("--jobs", type=int, default=2, help="processes side by side")
    one = commands.add_parser("seed", help="play one seed, and say what it breaks")
    one.add_argument("seed", type=int, nargs="+")
    one.add_argument("--trace", action="store_true", help="print all that happens")
    less = commands.add_parser("shrink", help="find the least that breaks what a seed breaks, and print its trace")
    less.add_argument("seed", type=int)
    less.add_argument("--save", type=Path, help="write the scenario to a file")
    less.add_argument("--mutant", choices=[each.__name__ for each in mutants.MUTANTS], help="with this fault put in")
    saved = commands.add_parser("file", help="play a scenario that was saved")
    saved.add_argument("file", type=Path)
    kills = commands.add_parser("mutants", help="how many seeds each known fault takes to be seen")
    kills.add_argument("--seeds", type=int, default=1000)
    args = parser.parse_args()
    match args.command:
        case "run":
            began = time.monotonic()
            total = run_seeds(range(args.first, sys.maxsize), args.faults, args.jobs, args.minutes)
            print(total.text(time.monotonic() - began))
            return 1 if total.violations else 0
        case "seed":
            return max([_seed(seed, trace=args.trace) for seed in args.seed])
        case "shrink":
            with pytest.MonkeyPatch.context() as patch:
                for each in mutants.MUTANTS:
                    if each.__name__ == args.mutant:
                        each(patch)
                try:
                    found, outcome = shrink(scenario(args.seed), _say)
                except NothingBrokenError as error:
                    _say(f"{error}{f' with {args.mutant}' if args.mutant else ''}: take another seed")
                    return 2
                if args.save is not None:
                    args.save.write_text(found.text())
                return _tell(found, outcome)
        case "file":
            found = Scenario.of(args.file.read_text())
            return _tell(found, play(found, trace=True))
        case _:
            return 0 if mutants.main(args.seeds) else 1


if __name__ == "__main__":
    sys.exit(main())
