"""The what-if options of ``assign``: text → changes of a scenario."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from zkgroup.config.settings_table import STRATEGIES
from zkgroup.errors import UsageError

if TYPE_CHECKING:
    from zkgroup.groups.assignment.what_if import Choice, Scenario
    from zkgroup.protocol.znodes import Registration

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

    def __bool__(self) -> bool:
        return bool(self.members or self.without or self.streams or self.partitions or self.mix)


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


def change_partitions(scenario: Scenario, changes: Changes) -> Scenario:
    """Add partitions to topics whose partitions are known."""
    from zkgroup.groups.assignment.what_if import with_partitions
    from zkgroup.protocol.names import validate_topic

    for topic, count in changes.partitions.items():
        scenario = with_partitions(scenario, validate_topic(topic), count)
    return scenario
