"""Findings about registrations (id nodes). Pure.

The defects and the releases that they stop were seen on running members of 0.8.2.2, 0.10.2.2 and 1.1.1; see
``protocol.znodes.registration_defects``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from zkgroup.errors import FilterSyntaxError, Remedy, UsageError
from zkgroup.groups.assignment.strategy_inference import Variant
from zkgroup.groups.findings.finding_kinds import Finding, finding, first_few
from zkgroup.groups.findings.group_facts import GroupFacts
from zkgroup.groups.group_model import GroupMember
from zkgroup.groups.snapshot.group_znodes import is_stopping_everyone
from zkgroup.protocol import znodes
from zkgroup.protocol.names import INTERNAL_TOPICS
from zkgroup.protocol.znodes import Registration
from zkgroup.text import counted, listed

#: With more topics that have surplus streams they are one finding.
MAX_TOPICS: Final = 5


def diagnose_members(facts: GroupFacts) -> Iterator[Finding]:
    """Findings about registrations."""
    for member in facts.snapshot.members:
        yield from _readable(facts, member)
        yield from _defects(facts, member)
        yield from _subscription(facts, member)
        if member.session_id == 0 and (member.registration is not None or member.data):
            yield finding(
                "persistent-member",
                member.member,
                "the registration is no ephemeral node: it stays when its client goes, and keeps its share from others",
                _removal(facts, member).after("make sure that its client is gone, then "),
            )
    yield from _foreign(facts)
    yield from _disagreement(facts)
    yield from _surplus(facts)


def _removal(facts: GroupFacts, member: GroupMember) -> Remedy:
    """How to remove a registration: a persistent node outlives its client."""
    if member.session_id:
        return Remedy("stop the client that wrote it: its node goes with its session")
    return Remedy("remove the registration", facts.command("release-owners", "--member", member.member, "--execute"))


def _readable(facts: GroupFacts, member: GroupMember) -> Iterator[Finding]:
    if member.error is None:
        return
    if member.registration is not None:
        yield _unreadable_filter(facts, member, member.error, next(iter(member.registration.subscription), ""))
    elif is_stopping_everyone(member):
        yield finding(
            "stopping-registration",
            member.member,
            f"the registration {member.error}; every Scala member gives its partitions up at its next rebalance"
            " and cannot finish it while this node is there",
            _removal(facts, member).then(
                Remedy(
                    "the members rebalance by themselves when it goes: verify that they have",
                    facts.command("owners", "--verify"),
                ),
                "; ",
            ),
        )
    else:
        yield finding(
            "unreadable-node",
            member.member,
            f"the registration cannot be judged: {member.error}; what the member reads is not known, nor whether"
            " others get past its registration",
            "connect with credentials that the access list of the node admits; the member may be as healthy as any",
            "warning",
        )


def _unreadable_filter(facts: GroupFacts, member: GroupMember, error: str, expression: str) -> Finding:
    from zkgroup.protocol.topic_filter import TopicFilter  # brings ``regex``

    why: str | None = None  # matching takes too much work
    try:
        expression.encode()
        TopicFilter("white_list", expression)
    except FilterSyntaxError:
        why = "Java refuses it as well: every Scala member fails its rebalance while this node is there"
    except UnicodeEncodeError:
        why = "it is no text"
    except UsageError:
        pass
    if why is not None:
        remedy = _removal(facts, member).after("correct the expression; ")
        return finding("unreadable-filter", member.member, f"{error}; {why}", remedy)
    return finding(
        "unreadable-filter",
        member.member,
        f"{error}; which topics the member takes is not known here, and what it owns cannot be judged",
        "write the expression more simply, if other tools than the Scala consumer are to read it",
        "warning",
    )


def _defects(facts: GroupFacts, member: GroupMember) -> Iterator[Finding]:
    if member.registration is None:
        return
    some = [defect for defect in member.defects if defect.effect == "stops-releases"]
    rest = [defect for defect in member.defects if defect != znodes.ESCAPED_TWICE and defect not in some]
    if some:
        rest = [defect for defect in rest if defect != znodes.NUMERIC_TIMESTAMP]  # a large one stops members
        stuck = bool(facts.gaps)
        yield finding(
            "unportable-registration",
            member.member,
            f"{first_few([defect.text for defect in some], '; ')}"
            + (f"; {counted(len(facts.gaps), 'partition')} of the group unread" if stuck else ""),
            _removal(facts, member).then(
                Remedy("let it write what the Scala consumer writes (the timestamp as a string)"), "; "
            ),
            "critical" if stuck else "warning",
        )
    if znodes.ESCAPED_TWICE in member.defects and member.error is None:
        does, topics = "matches", {*member.streams}
        if member.registration.pattern == "black_list":
            does, topics = "excludes", {*facts.snapshot.existing_topics} - topics - INTERNAL_TOPICS
        effect = f"{does} {counted(len(topics), 'topic') if topics else 'no topic'}"
        yield finding(
            "doubly-escaped-filter",
            member.member,
            f"every reader sees {_shown(member.registration)}, which {effect}: members of 1.0.1 to 1.1.1 register each"
            " backslash twice",
            r"write the filter without a backslash: [.] for \., [0-9] for \d, [A-Za-z0-9_] for \w",
        )
    if rest:
        meant = any(defect.effect == "changes-meaning" for defect in rest)
        yield finding(
            "registration-defect",
            member.member,
            listed([defect.text for defect in rest], "; "),
            "correct the client that wrote it, or upgrade it",
            "warning" if meant else "info",
        )


def _shown(registration: Registration) -> str:
    expression = next(iter(registration.subscription), "")
    return f"'{expression}'" if len(expression) <= 60 else f"'{expression[:57]}...'"


def _subscription(facts: GroupFacts, member: GroupMember) -> Iterator[Finding]:
    registration = member.registration
    if registration is None or member.error is not None:
        return
    if facts.snapshot.has_hidden_topics:
        return  # what exists is not known
    if registration.pattern != "static":
        if not member.streams and znodes.ESCAPED_TWICE not in member.defects:
            yield finding(
                "filter-without-topics",
                member.member,
                f"the filter {_shown(registration)} matches none of"
                f" {counted(len(facts.snapshot.existing_topics), 'topic')}",
                "nothing, if the topics are still to come: the member joins in when they do; else correct the filter",
                "warning" if facts.is_unread else "info",
            )
        return
    known = set(facts.snapshot.existing_topics)
    if not known and facts.snapshot.problems:
        return  # the list of topics may be what could not be read
    missing = sorted(name for name in registration.subscription if name not in known)
    if missing:
        yield finding(
            "missing-topic",
            member.member,
            f"subscribes to {first_few(missing)}, which {'do' if len(missing) > 1 else 'does'} not exist",
            "create the topic, or correct its name in the member's subscription",
        )


def _foreign(facts: GroupFacts) -> Iterator[Finding]:
    stopping: dict[str, list[str]] = {}
    for member in facts.snapshot.members:
        if member.foreign is not None:
            stopping.setdefault(member.foreign, []).append(member.member)
    names = [name for name in facts.members if name in facts.foreign and facts.members[name].foreign is None]
    signs = []
    if names:
        signs.append(
            f"not named as the Scala consumer names its members: {first_few(names)}; such clients may divide partitions"
            " by rules of their own"
        )
    signs += [
        f"the registration of {first_few(them)}, which stops members of the Scala consumer, {why}"
        for why, them in stopping.items()
    ]
    if facts.snapshot.foreign:
        nodes, paths = counted(len(facts.snapshot.foreign), "node"), first_few(facts.snapshot.foreign)
        signs.append(f"{nodes} that no consumer makes, as Storm's spout does for its state: {paths}")
    if signs:
        remedy = Remedy(
            "leave the nodes to their client, and mix it with no Scala member unless both compute the same plan",
            *([facts.command("assign")] if names else []),
        )
        yield finding("foreign-client", facts.snapshot.group, "; ".join(signs), remedy)


def _disagreement(facts: GroupFacts) -> Iterator[Finding]:
    inference = facts.inference
    if inference is None or facts.is_settling:
        return
    why = inference.refused.get(_STRICT)
    if why is None or _LENIENT in inference.refused:
        return
    is_owned = any(partition.member is not None for partition in facts.partitions)
    running = inference.best is not None and inference.best[0] == "roundrobin"
    is_stuck = bool(facts.gaps) and (running or not is_owned)
    if not (running or is_stuck or (facts.gaps and inference.deviating)):
        return
    unread = f"{counted(len(facts.gaps), 'partition')} unread"
    yield finding(
        "subscription-disagreement",
        facts.snapshot.group,
        f"{why}; {unread if is_stuck else 'members of 0.8.2 to 0.10.1 would not rebalance'}",
        Remedy(
            "subscribe all members to the same topics, with one number of streams for each, or set"
            " partition.assignment.strategy=range for all; see that plan",
            facts.command("assign", "--strategy", "range"),
        ),
        "critical" if is_stuck else "warning",
    )


# What the first refuses alone is subscriptions that differ; what the second refuses too is the number of streams.
_STRICT: Final = Variant("roundrobin", "0.8.2")
_LENIENT: Final = Variant("roundrobin", "1.1")


def _surplus(facts: GroupFacts) -> Iterator[Finding]:
    """Streams that no plan can assign a partition to. For roundrobin all topics count together."""
    streams: Counter[str] = Counter()
    for member in facts.snapshot.members:
        streams.update(member.streams)
    partitions = Counter(partition.topic for partition in facts.partitions if partition.exists)
    beyond = {topic: (wanted, partitions[topic]) for topic, wanted in streams.items() if wanted > partitions[topic] > 0}
    if not beyond:
        return
    if facts.inference is not None and (too_many := facts.inference.refused.get(_LENIENT)) is not None:
        yield finding(
            "surplus-streams", facts.snapshot.group, too_many, "correct the registration with so many streams"
        )
        return
    remedy = "nothing, where spare members stand by on purpose; else fewer streams, or more partitions"
    if len(beyond) > MAX_TOPICS:
        topics = first_few(sorted(beyond))
        message = f"{len(beyond)} topics have fewer partitions than the group has streams for them: {topics}"
        yield finding("surplus-streams", facts.snapshot.group, message, remedy, "info")
        return
    for topic, (wanted, there) in sorted(beyond.items()):
        message = f"{wanted} streams for {counted(there, 'partition')}: {wanted - there} will get none of it"
        yield finding("surplus-streams", topic, message, remedy, "info")
