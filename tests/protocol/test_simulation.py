"""The simulation: random groups under thousands of faults, the same whenever they are repeated; and it is not blind.

How to run more of it, and to read it: ``docs/explanation/simulation.md``.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from lines import names
from sim import mutants
from sim.__main__ import Total, command
from sim.play import play
from sim.scenario import BY_HAND, KINDS, Fault, Kind, Scenario, scenario
from sim.shrink import shrink, tell

TESTS = Path(__file__).parents[1]
#: Faults of the usual run.
FAULTS = 1_000
#: What it must have met: every kind of fault that is promised to be stood.
PROMISED = (
    "kill",
    "restart under the same id",
    "pause",
    "one cut off",
    "all cut off",
    "connection reset",
    "request lost",
    "reply lost",
    "latency",
    "early expiry",
    "second expiry in a rebalance",
    "lagging follower",
    "follower cut off from its leader",
    "late watch",
    "join",
    "leave",
    "rolling joins and leaves",
    "partitions added",
    "topic recreated",
    "ZooKeeper restarted",
    "leaders moved",
    "brokers away",
    "slow answer of a broker",
    "stuck reader",
    "other topics come and go",
    "owner node deleted by hand",
    "id deleted by hand",
    "id deleted for a restart",
    "taken for dead",
)


def test_no_fault_breaks_an_invariant() -> None:
    """Thousands of faults, of every kind, in groups of all sizes, stores, strategies and subscriptions."""
    total = Total()
    for seed in itertools.count():
        if total.faults.total() >= FAULTS:
            break
        outcome = play(scenario(seed))
        assert not outcome.violation, f"seed {seed}: {outcome.violation}\nrepeat it: {command(seed)}"
        total.add(seed, outcome)
    assert [fault for fault in PROMISED if not total.faults[fault]] == []
    assert total.counts["at rest"] == total.seeds


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_a_million_faults_break_no_invariant() -> None:
    """The same with a thousand times as many: each kind of fault has come a thousand times."""
    done = subprocess.run(
        [sys.executable, "-m", "sim", "run", "--faults", "1000000"],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=7100,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    counts = dict(line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| "))
    assert [fault for fault in PROMISED if int(counts[fault].replace(",", "")) < 1000] == []


def test_scenarios_cover_what_they_should() -> None:
    """Among a thousand seeds: 2 to 16 members, 1 to 64 partitions, every store, strategy, kind of subscription and of
    fault, Scala consumers, orderly groups."""
    all_of_them = [scenario(seed) for seed in range(1000)]
    assert {2, 16} <= {found.members for found in all_of_them} <= set(range(2, 17))
    assert {1, 64} <= {sum(found.topics) for found in all_of_them} <= set(range(1, 65))
    assert {found.store for found in all_of_them} == {"zookeeper", "kafka", "dual"}
    assert {found.strategy for found in all_of_them} == {"range", "roundrobin"}
    assert {kind.subscription for found in all_of_them for kind in found.kinds} == {"all", "first", "white", "black"}
    assert {fault.kind for found in all_of_them for fault in found.faults} == {*KINDS, *BY_HAND}
    assert any(found.mixed for found in all_of_them)
    assert any(found.orderly for found in all_of_them)


def test_the_same_seed_gives_the_same_run() -> None:
    """Every change and every batch comes at the same time, whatever order Python gives its sets."""
    seeds = ["1", "5", "8", "18", "36"]  # many faults in little time
    message = {
        subprocess.run(
            [sys.executable, "-m", "sim", "seed", *seeds],
            env=os.environ | {"PYTHONPATH": str(TESTS), "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "4242")
    }
    assert len(message) == 1
    assert len({line.rpartition("digest ")[2] for line in message.pop().splitlines()}) == len(seeds)


def test_a_scenario_survives_its_file() -> None:
    """What is saved is what is played again."""
    found = scenario(5)
    assert Scenario.of(found.text()) == found


def test_a_failure_becomes_a_short_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a group of many under many faults a member that deletes whatever it finds leaves a few, reported in order."""
    mutants.mutants_sessions.deletes_without_reading(monkeypatch)
    found = next(
        candidate
        for candidate in (scenario(seed) for seed in range(13, 100))  # the first that show it are long
        if not candidate.mixed and 3 <= candidate.members <= 5 and sum(candidate.topics) <= 8
        if play(candidate).violation
    )
    small, outcome = shrink(found, most=120)
    assert outcome.kind == play(found).kind
    assert len(small.faults) <= 3
    assert small.members <= found.members
    text = tell(small, outcome)
    assert "   1. at " in text
    assert names(text, "deletes", "owner")
    assert text.splitlines()[-1].strip().partition(". ")[2].startswith("Broken after")


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: mutant.__name__)
@pytest.mark.timeout(1800)
def test_no_mutant_lives(mutant: mutants.Mutant) -> None:
    """A member with one of the faults that others had, put back in, does not survive a thousand seeds. (The one that
    is known to show it is tried first; a change of the scenarios makes others do.)"""
    known = mutants.KILLERS.get(mutant.__name__, 0)
    seeds, shown = mutants.seeds_until_killed(mutant, 1, known)
    if not seeds:
        seeds, shown = mutants.seeds_until_killed(mutant)
    assert seeds, f"{mutant.__name__} lives"
    assert shown == "AssertionError" or not shown.endswith("Error"), f"{mutant.__name__} breaks: {shown}"


@pytest.mark.parametrize("name", mutants.OWN)
def test_what_shows_a_mutant_is_no_trouble_for_the_member(name: str) -> None:
    """The scenarios that were made for single mutants find nothing wrong with the member as it is."""
    outcome = play(mutants.OWN[name])
    assert not outcome.violation, tell(mutants.OWN[name], outcome)


# --- what the simulation has found ------------------------------------------------------------------------------------


def _run(*faults: Fault, **options: object) -> None:
    small = Scenario(1, "range", (2,), 2, (Kind(),), faults=faults)
    outcome = play(replace(small, **options), trace=True)  # type: ignore[arg-type]
    assert not outcome.violation, tell(small, outcome)


def test_one_who_waits_for_its_id_is_patient_with_servers_that_restart() -> None:
    """Servers that were restarted give every session its whole time-out again, that of its former self, too: a member
    whose patience went on running gave up a moment too early."""
    for wait in (3.0, 5.0, 5.9):
        _run(
            Fault(2.0, "restart", 0, 1.0),
            Fault(2.0 + wait, "ZooKeeper restarted", 0, 2.4),
        )


def test_a_write_of_a_former_owner_is_remembered_when_it_owns_again() -> None:
    """One whose nodes were deleted by hand, and that hears of it late, commits once under its successor's eyes, and
    then has its partition back. (The simulator's account, which forgot that then, blamed the successor, which reported
    of it.)"""
    _run(Fault(4.9477, "robbed", 483, 2.412), seed=1000756, members=1, keep_trying=True, commit_interval=0.5)


def test_a_commit_that_a_broker_answers_slowly_is_waited_for() -> None:
    """One that was asked for under the last fault and is under way to a broker when the group has come to rest. (The
    simulator's account took it for one that is never answered.)"""
    _run(
        Fault(200.5894, "slow brokers", 488, 2.33),
        Fault(201.0151, "cut all", 803, 0.602),
        Fault(204.6039, "commit", 632, 0.509),
        seed=1002582,
        strategy="roundrobin",
        topics=(1,),
        members=1,
        store="dual",
        keep_trying=True,
    )


def test_an_answer_that_was_asked_for_while_brokers_are_slow_is_waited_for() -> None:
    """The last fault lasts until the last of those that ask under it has its answer, ten seconds later. (The
    simulator's account let it end when it began, and called a member that waited one that does not come to rest.)"""
    first = Kind(subscription="first", streams=1, listener_takes=0.3)
    _run(
        Fault(11.79, "restart", 171, 2.1),
        Fault(15.4206, "lagging follower", 750, 1.053),
        Fault(34.3208, "rolling", 318, 0.189),
        Fault(46.6717, "kill", 81, 1.348),
        Fault(47.1167, "slow brokers", 203, 1.828),
        seed=1010307,
        strategy="roundrobin",
        topics=(2, 2, 2),
        members=3,
        kinds=(
            Kind(subscription="black", streams=2),
            first,
            Kind(subscription="first", streams=3),
            Kind(subscription="black", streams=2, listener_commits=True),
        ),
        store="kafka",
        commit_interval=0.5,
    )


def test_patience_that_was_spent_on_faults_is_no_giving_up_in_peace() -> None:
    """Whoever comes while no server answers gives up after its time-out, be that a second after the last fault. (The
    simulator's account called it giving up in peace.)"""
    _run(
        Fault(3.8451, "ZooKeeper restarted", 969, 1.177),
        Fault(4.1136, "join", 774, 2.327),
        Fault(4.2131, "cut all", 717, 0.983),
        seed=1012913,
        strategy="roundrobin",
        topics=(1,),
        members=1,
        kinds=(Kind(subscription="all"),),
        keep_trying=False,
    )


def test_a_follower_that_catches_up_answers_in_order() -> None:
    """A member releases its partition while its server lags behind: the answer to its sync comes after the events of
    everything before it. (The simulator's follower answered as its leader before it had caught up.)"""
    _run(
        Fault(58.3978, "join", 170, 1.919),
        Fault(60.7428, "replaced", 80, 1.711),
        Fault(61.6874, "lose request", 42, 1.856),
        Fault(77.7754, "leave", 61, 0.628),
        Fault(81.7509, "lagging follower", 100, 0.58),
        Fault(83.1192, "replaced", 595, 2.039),
        Fault(85.0373, "robbed", 53, 1.937),
        seed=3739,
        strategy="roundrobin",
        topics=(3,),
        members=4,
        kinds=(Kind(subscription="all", streams=1),),
        keep_trying=True,
        commit_interval=0.5,
    )


def test_a_watch_that_comes_late_after_the_last_fault_is_waited_for() -> None:
    """A fault that takes effect while the group comes to rest moves the time until which it must. (The simulator's
    account counted from the fault before it.)"""
    _run(
        Fault(39.3586, "replaced", 578, 1.247),
        Fault(39.9012, "partitions added", 678, 2.189),
        Fault(40.1131, "ZooKeeper restarted", 354, 2.247),
        Fault(40.7045, "replaced", 520, 0.749),
        Fault(42.0581, "late watches", 862, 2.426),
        seed=16583,
        strategy="roundrobin",
        topics=(1,),
        members=1,
        kinds=(Kind(subscription="first", streams=2),),
        keep_trying=True,
        commit_interval=3.0,
        chunk=250,
    )


def test_a_deletion_of_one_whose_server_has_not_heard_of_the_new_owner_is_excused() -> None:
    """Its owner node was deleted by hand and taken by another, and the follower that it is connected to heard of that
    after it had sent its release. (The simulator's account took its server for one that knows at once.)"""
    _run(
        Fault(9.401, "replaced", 976, 1.257),
        Fault(13.8907, "id deleted", 476, 1.214),
        Fault(14.0478, "leave", 718, 0.933),
        Fault(18.95, "latency", 551, 0.833),
        Fault(19.9494, "robbed", 127, 0.685),
        Fault(21.3037, "restart", 926, 0.33),
        Fault(22.5535, "early expiry", 651, 1.059),
        Fault(27.1115, "robbed", 204, 2.358),
        Fault(28.0502, "lagging follower", 86, 1.585),
        Fault(28.2514, "robbed", 455, 0.504),
        Fault(28.9649, "owner deleted", 569, 1.673),
        seed=9710,
        strategy="roundrobin",
        topics=(6,),
        members=8,
        kinds=(Kind(streams=1),),
        store="kafka",
        keep_trying=True,
        commit_interval=3.0,
        chunk=250,
    )
