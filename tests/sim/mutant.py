"""The register of mutants: members with a known fault put back in."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from sim.play import play
from sim.scenario import scenario

Patch = pytest.MonkeyPatch
Mutant = Callable[[Patch], None]
MUTANTS: list[Mutant] = []
#: Seeds that are known to show a mutant; 0 does for the others.
KILLERS: dict[str, int] = {
    "lease_from_reads": 6,
    "commits_to_kafka_past_the_lease": 6,
    "commits_to_kafka_under_the_next_session": 40,
    "sure_of_everything": 12,
    "claims_by_value": 9,
    "no_rollback": 25,
    "ignores_owner_nodes": 27,
    "sends_again_in_the_next_session": 17,
    "ignores_new_partitions": 22,
    "gives_up_silently": 20,
    "no_compare_and_set": 31,
    "forgets_unknown_outcomes": 7,
    "reads_offsets_before_it_claims": 16,
    "commits_after_the_release": 7,
    "starts_at_the_smaller_of_two": 27,
    "kafka_whatever_zookeeper_says": 27,
}


def mutant(patch: Mutant) -> Mutant:
    """Enter a mutant in the list."""
    MUTANTS.append(patch)
    return patch


def seeds_until_killed(patch: Mutant, most: int = 1000, first: int = 0) -> tuple[int, str]:
    """How many seeds it takes, from ``first`` on, and what the last one shows; 0 where the mutant lives on."""
    with pytest.MonkeyPatch.context() as patching:
        patch(patching)
        for seed in range(first, first + most):
            outcome = play(scenario(seed))
            if outcome.violation:
                return seed - first + 1, outcome.kind
    return 0, ""


def main(most: int = 1000) -> bool:
    """Print the table of all mutants. False where one lives."""
    logging.disable(logging.CRITICAL)
    alive = 0
    print(f"| {'mutant':42} | seeds | shown by |\n|{'-' * 44}|------:|----------|")
    for each in MUTANTS:
        seeds, shown = seeds_until_killed(each, most)
        alive += not seeds
        print(f"| {each.__name__:42} | {seeds or 'ALIVE':>5} | {shown} |", flush=True)
    return not alive
