"""The register of mutants: members with a known fault put back in."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from sim.play import play
from sim.scenario import Fault, Kind, Scenario, scenario

Patch = pytest.MonkeyPatch
Mutant = Callable[[Patch], None]
MUTANTS: list[Mutant] = []
#: Seeds that are known to show a mutant; 0 does for the others.
KILLERS: dict[str, int] = {
    "writes_past_the_lease": 5,
    "commits_to_kafka_past_the_lease": 33,
    "commits_to_kafka_under_the_next_session": 33,
    "sure_of_everything": 12,
    "claims_by_value": 9,
    "no_rollback": 25,
    "ignores_owner_nodes": 27,
    "sends_again_in_the_next_session": 1,
    "ignores_its_id": 1,
    "forgets_events_of_a_rebalance": 18,
    "believes_what_has_changed": 21,
    "knows_over_connections": 11,
    "ignores_new_partitions": 3,
    "gives_up_silently": 4,
    "no_compare_and_set": 31,
    "forgets_unknown_outcomes": 3,
    "reads_offsets_before_it_claims": 16,
    "commits_after_the_release": 10,
    "starts_at_the_end": 1,
    "does_not_wait_for_streams": 46,
    "forgets_who_waits_for_a_commit": 5,
    "no_lease": 4,
    "lease_from_the_reply": 13,
    "keeps_its_share_after_an_expiry": 4,
    "trusts_lost_watches": 3,
    "starts_at_the_smaller_of_two": 27,
    "kafka_whatever_zookeeper_says": 27,
}

#: For mutants that seeds show less than once in a thousand: the coincidence that does, with nothing else around it.
OWN: dict[str, Scenario] = {
    # A reader comes back with a batch of a generation that ended under it, when its partition was read on by another.
    "late_marks_count": Scenario(
        115,
        "range",
        (2,),
        2,
        (Kind(),),
        commit_interval=0.2,
        faults=(
            Fault(2.84, "stuck reader", 0, 6.11),
            Fault(7.33, "early expiry", 2, 1.0),
            Fault(11.73, "cut one", 2, 1.0),
        ),
    ),
    # A broker comes between the two answers of a snapshot for one.
    "deaf_while_it_reads_brokers": Scenario(
        83,
        "range",
        (2,),
        1,
        (Kind(),),
        commit_interval=0.2,
        faults=(Fault(0.5, "brokers away", 0, 0.515), Fault(1.0, "early expiry", 0, 1.0)),
    ),
    # Partitions come while leaders are away, and nothing makes the group rebalance when those are back.
    "forgets_what_is_held_back": Scenario(
        32,
        "range",
        (2,),
        3,
        (Kind(),),
        commit_interval=0.2,
        faults=(
            Fault(0.51, "leader moved", 0, 3.97),
            Fault(0.75, "leader moved", 1, 2.27),
            Fault(0.86, "leader moved", 4, 0.41),
            Fault(1.16, "leader moved", 2, 2.71),
            Fault(1.32, "partitions added", 3, 2.78),
            Fault(2.66, "leader moved", 3, 2.67),
            Fault(3.28, "partitions added", 2, 1.62),
            Fault(3.34, "leader moved", 1, 3.52),
            Fault(3.39, "partitions added", 3, 3.81),
        ),
    ),
}


def mutant(patch: Mutant) -> Mutant:
    """Enter a mutant in the list."""
    MUTANTS.append(patch)
    return patch


def seeds_until_killed(patch: Mutant, most: int = 1000, first: int = 0) -> tuple[int, str]:
    """How many seeds it takes, from ``first`` on, and what the last one shows; 0 where the mutant lives on.

    One with a scenario of its own is only tried in that.
    """
    with pytest.MonkeyPatch.context() as patching:
        patch(patching)
        if own := OWN.get(patch.__name__):
            outcome = play(own)
            return int(bool(outcome.violation)), outcome.kind
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
