"""``zkgroup assign``: predict the partition assignment, or trigger a rebalance."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from zkgroup.config.settings_table import STRATEGIES, Strategy
from zkgroup.errors import NotFoundError, Notice, UsageError, VerificationError, did_you_mean
from zkgroup.text import listed

from ._completion import complete_member
from ._context import open_registry, working
from ._group_changes import CHANGE, ChangeOptions, change_of, with_change
from ._output import Output
from ._shared_options import GroupArgument, OutputOption, option

if TYPE_CHECKING:
    from zkgroup.clients.zookeeper.registry import Registry
    from zkgroup.groups.assignment.assignment_plan import PlanStart
    from zkgroup.groups.assignment.strategy_inference import StrategyInference
    from zkgroup.groups.assignment.trigger_rebalance import Rebalanced
    from zkgroup.groups.assignment.what_if import Choice, Scenario
    from zkgroup.protocol.znodes import Registration

WHAT_IF = "What if (all of these may be repeated)"


@with_change("backup", "no_zookeeper_members")
def assign(
    ctx: typer.Context,
    group: GroupArgument,
    strategy: Annotated[
        Strategy | None,
        option(
            "--strategy", help="The plan of this strategy. Default: the strategy that explains the live owners best."
        ),
    ] = None,
    kafka_version: Annotated[
        str | None,
        option(
            "--kafka-version",
            metavar="RELEASE",
            help="The plan of members of this Kafka release (0.8.0 to 1.1.1). Default: the release that explains the "
            "live owners best.",
        ),
    ] = None,
    compat: Annotated[str | None, option("--compat", hidden=True)] = None,
    member: Annotated[
        list[str] | None,
        option(
            "--member",
            metavar="NAME=T:N,…",
            help="With this member, which reads topic T with N streams; NAME=~REGEX:N for a whitelist, !~ for a "
            "blacklist. NAME is its whole id, which decides the order.",
            panel=WHAT_IF,
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        option("--without", metavar="MEMBER", help="Without this member.", complete=complete_member, panel=WHAT_IF),
    ] = None,
    streams: Annotated[
        list[str] | None,
        option("--streams", metavar="MEMBER=N", help="With N streams of this member for each topic.", panel=WHAT_IF),
    ] = None,
    partitions: Annotated[
        list[str] | None, option("--partitions", metavar="T=N", help="With N partitions of topic T.", panel=WHAT_IF)
    ] = None,
    mix: Annotated[
        list[str] | None,
        option(
            "--mix",
            metavar="MEMBER=STRATEGY[@RELEASE]",
            help="With another strategy or release of this member.",
            panel=WHAT_IF,
        ),
    ] = None,
    outcomes: Annotated[
        int,
        option(
            "--outcomes", metavar="N", min=1, max=10_000, help="With --mix: compute at most N outcomes.", panel=WHAT_IF
        ),
    ] = 50,
    timeout: Annotated[
        float,
        option(
            "--timeout",
            metavar="SECONDS",
            min=1,
            max=3600,
            help="With --execute: how long to wait until the group is stable, before the rebalance and again after it.",
            panel=CHANGE,
        ),
    ] = 30.0,
    output: OutputOption = "table",
    *,
    options: ChangeOptions,
) -> None:
    """Predict the partition assignment, or trigger a rebalance.

    --execute triggers a rebalance of the group as it is, and exits with 6 unless the live owners are then the plan.
    change: move (to another member), stream (to another stream of the same member), claim (no owner now), release (no
    owner in the plan), tied (equal hash codes, swapped), or nothing. Every option may be repeated. With --member the
    group need not exist. Members with mixed strategies (--mix) each own their whole share or nothing: zkgroup computes
    all outcomes, and shows the one that the live owners match, else the one with the fewest unread partitions.

    \b
    zkgroup assign billing --strategy roundrobin --kafka-version 0.8.2
    zkgroup assign billing --member billing_c3=orders:2 --without c1
    zkgroup assign billing --mix c1=roundrobin@0.10.2 --mix c2=range
    zkgroup assign billing --execute
    """
    kafka_version = kafka_version or compat
    changes = parse_changes(member or (), without or (), streams or (), partitions or (), mix or ())
    if options.execute and (changes != Changes() or options.dry_run):
        what = "--dry-run" if options.dry_run else "an option that says what would be"
        raise UsageError(f"--execute and {what} exclude each other", "a group can only be made to rebalance as it is")
    from zkgroup.groups.assignment.assignment_plan import (  # these bring kazoo
        choice_of,
        choose,
        read_plan_start,
        with_topics_read,
    )
    from zkgroup.groups.assignment.what_if import check_size, find_member, plan_all, with_partitions
    from zkgroup.groups.findings.inspection import diagnose
    from zkgroup.groups.snapshot.snapshot_defects import damaged_topics
    from zkgroup.protocol.names import validate_topic

    from ._assignment_view import AssignmentView, show

    choice_of(strategy, kafka_version)  # raises before anything is opened
    change = change_of(ctx, group, options)
    with open_registry(change.settings) as registry:
        start = read_plan_start(registry, group, must_exist=not changes.members)
        base = choose(start.inference, strategy, kafka_version)
        if options.execute:
            assert start.snapshot is not None
            findings = diagnose(start.snapshot, start.inference)
            foreign = [one for one in findings if one.code == "foreign-client"]
            change.warn(Notice(f"{one.code}: {one.message}", one.remedy) for one in foreign)
            change.warn(
                Notice(f"{problem}: members take the topic for one without partitions, and read the others")
                for problem in damaged_topics(start.snapshot, passed_over=True)
            )
            _check_harmless(start, base)
            if change.is_wanted(1):
                _execute(ctx, registry, start, base, strategy, kafka_version, timeout, output)
            return
        scenario = change_members(start.scenario, changes, group)
        choices = {find_member(name, group, scenario.registrations): one for name, one in changes.mix.items()}
        wanted = scenario.subscribed([base, *choices.values()]) | changes.partitions.keys()
        scenario, problems = with_topics_read(registry, scenario, wanted)
    existing = scenario.names
    for topic, count in changes.partitions.items():
        scenario = with_partitions(scenario, validate_topic(topic), count)
    problems += _unread(group, changes.partitions, existing, scenario.subscribed([base, *choices.values()]))
    if gone := sorted(scenario.subscribed([base, *choices.values()]) - scenario.names):
        problems.append(Notice(f"nothing is planned of topics that do not exist: {listed(gone)}"))
    check_size(scenario, [choices.get(name, base) for name in scenario.registrations])
    plan = plan_all(scenario, base, choices, max_outcomes=outcomes)
    show(ctx, AssignmentView(group, start.snapshot, start.inference, base, plan), output, problems)


def _unread(group: str, changed: Iterable[str], existing: Collection[str], read: Container[str]) -> list[Notice]:
    """A warning for each topic whose partitions are changed and that no member reads. Raises ``NotFoundError`` for one
    that does not even exist: it is misspelt."""
    problems = []
    for topic in changed:
        if topic in read:
            continue
        if topic not in existing:
            raise NotFoundError(
                f"--partitions {topic}: there is no such topic, and no member of group {group} subscribes to it",
                did_you_mean(topic, existing, "check its name"),
            )
        problems.append(Notice(f"no member of group {group} subscribes to {topic}: its partitions change nothing"))
    return problems


def _check_harmless(start: PlanStart, base: Choice) -> None:
    """Raise ``RefusedError`` where a rebalance would cost the group what it owns, or come to nothing; ``ZkgroupError``
    where the outcome is unknown."""
    from zkgroup.groups.assignment.trigger_rebalance import find_objection
    from zkgroup.groups.assignment.what_if import plan_all

    assert start.snapshot is not None
    plan = plan_all(start.scenario, base)
    refusal = next((conflict.notice for conflict in plan.conflicts if conflict.kind == "refused"), None)
    planned = None if refusal else plan.assignment(plan.outcomes[0])
    against = find_objection(start.snapshot, planned, refusal)
    if against is not None:
        raise against


def _execute(
    ctx: typer.Context,
    registry: Registry,
    start: PlanStart,
    base: Choice,
    strategy: Strategy | None,
    kafka_version: str | None,
    timeout: float,
    output: Output,
) -> None:
    from zkgroup.groups.assignment.assignment_plan import accepted, find_misfits
    from zkgroup.groups.assignment.strategy_inference import infer_strategy
    from zkgroup.groups.assignment.trigger_rebalance import trigger_rebalance
    from zkgroup.groups.assignment.what_if import plan_all, scenario_of

    from ._assignment_view import AssignmentView, show

    assert start.snapshot is not None
    group = start.snapshot.group
    choices = accepted(start.inference, strategy, kafka_version)
    with working(ctx, f"waiting for group {group} to rebalance"):
        result = trigger_rebalance(registry, group, lambda snapshot: find_misfits(snapshot, choices), timeout=timeout)
    found = next((one for one in choices if not find_misfits(result.snapshot, [one])), base)
    inference = infer_strategy(result.snapshot)
    plan = plan_all(scenario_of(result.snapshot), found)
    show(ctx, AssignmentView(group, result.snapshot, inference, found, plan, result), output)
    wanted = (
        base.variant.text
        if strategy and kafka_version
        else f"{strategy or 'any strategy'} of {kafka_version or 'any release'}"
    )
    _verify(result, wanted, inference)


def _verify(result: Rebalanced, wanted: str, inference: StrategyInference) -> None:
    """Raise ``VerificationError`` unless the group rebalanced as a whole and came to the plan."""
    group = result.snapshot.group
    if not result.snapshot.members:
        raise VerificationError(f"group {group}: all members left meanwhile", "read their logs")
    problems = []
    remedy = "check that the clients of its registrations run"
    if result.defects:
        problems.append(f"did not come to the plan of {wanted}: {listed(result.defects, '; ')}")
    if result.defects and result.answered:
        observed, remedy = _explain(inference)
        problems.append(observed)
    if result.still:
        problems.append(f"{listed(result.still)} did not rebalance: nothing was claimed anew in {result.seconds:.1f} s")
        remedy = (
            f"check the process of {listed(result.still)}: it may hang, or not watch its group, and while its session"
            " lasts no member can claim its partitions"
        )
    if unmended := [member.member for member in result.snapshot.members if member.error is not None]:
        remedy = f"mend the registration of {listed(unmended)} first"
    if problems:
        raise VerificationError(f"group {group}{'' if result.defects else ':'} {'; '.join(problems)}", remedy)


def _explain(inference: StrategyInference) -> tuple[str, str]:
    """What the owners look like, and what to do about it."""
    best = inference.best
    if best is None:
        return "nothing is owned", "read the logs of the members"
    if inference.exact:
        variants = " or ".join(variant.text for variant in inference.exact)
        return f"the owners are the plan of {variants}", "find out which strategy and release its members run"
    odd = listed(inference.deviating or inference.blocked) or "a member"
    return f"the owners are nearly the plan of {best.text}", f"read the log of {odd}"


T = TypeVar("T")

_COUNT = re.compile(r"[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of the command line, in their order."""

    members: dict[str, Registration] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    streams: dict[str, int] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)
    mix: dict[str, Choice] = field(default_factory=dict)


def parse_changes(
    member: Sequence[str], without: Sequence[str], streams: Sequence[str], partitions: Sequence[str], mix: Sequence[str]
) -> Changes:
    """Parse the options. Raises ``UsageError`` for invalid and for repeated ones."""
    return Changes(
        _once("--member", member, parse_member, "c3=orders:2,payments:1"),
        tuple(dict.fromkeys(without)),
        _once("--streams", streams, _positive, "c1=4"),
        _once("--partitions", partitions, _positive, "orders=24"),
        _once("--mix", mix, _parse_choice, "c1=roundrobin@0.8.2"),
    )


def _once(option: str, given: Sequence[str], parse: Callable[[str, str], T], example: str) -> dict[str, T]:
    found: dict[str, T] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"{option} {text!r} cannot be read", f"write it like {option} {example}")
        if name in found:
            raise UsageError(f"{option} says two things of {name}", "say one")
        found[name] = parse(f"{option} {text}", value)
    return found


def _positive(where: str, text: str) -> int:
    if not _COUNT.fullmatch(text) or int(text) == 0:
        raise UsageError(f"{where}: {text!r} is no number of 1 or more", "give such a number")
    return int(text)


def parse_member(where: str, text: str) -> Registration:
    """``T:N,T:N`` (a topic alone means one stream); ``~REGEX:N`` for a white list, ``!~REGEX:N`` for a black list."""
    from zkgroup.protocol.names import validate_topic
    from zkgroup.protocol.topic_filter import TopicFilter
    from zkgroup.protocol.znodes import Registration

    mark, tilde, rest = text.partition("~")
    if tilde and mark in ("", "!"):
        expression, streams = _with_streams(where, rest)
        wanted = TopicFilter("black_list" if mark else "white_list", expression)
        return Registration(wanted.kind, {expression: streams})
    subscription: dict[str, int] = {}
    for part in text.split(","):
        topic, streams = _with_streams(where, part)
        if validate_topic(topic) in subscription:
            raise UsageError(f"{where}: topic {topic} is there twice", "name each topic once")
        subscription[topic] = streams
    return Registration("static", subscription)


def _with_streams(where: str, text: str) -> tuple[str, int]:
    head, colon, tail = text.rpartition(":")
    return (head, _positive(where, tail)) if colon and _COUNT.fullmatch(tail) else (text, 1)


def _parse_choice(where: str, text: str) -> Choice:
    from zkgroup.groups.assignment.assignment_plan import choice_of

    name, at, release = text.partition("@")
    strategy = next((known for known in STRATEGIES if known == name), None)
    if strategy is None or (at and not release):
        raise UsageError(f"{where}: {text!r} is no strategy", "write range, roundrobin, or roundrobin@0.10.2")
    return choice_of(strategy, release or None)


def change_members(scenario: Scenario, changes: Changes, group: str) -> Scenario:
    """Remove members, add members, change streams, in this order. Raises ``NotFoundError`` for an unknown member."""
    from zkgroup.groups.assignment.what_if import find_member, with_member, with_streams, without_member

    for name in changes.without:
        scenario = without_member(scenario, find_member(name, group, scenario.registrations))
    for name, registration in changes.members.items():
        scenario = with_member(scenario, name, registration)
        for streams in registration.subscription.values():
            with_streams(scenario, name, streams)  # raises for an invalid number
    for name, streams in changes.streams.items():
        scenario = with_streams(scenario, find_member(name, group, scenario.registrations), streams)
    return scenario
