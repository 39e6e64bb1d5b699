"""Findings about owner nodes. Pure.

Most wait until the group is at rest: members that rebalance release and claim for some seconds, and a snapshot takes
several rounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from zkgroup.errors import Remedy
from zkgroup.groups.findings.finding_kinds import SECOND, Finding, PartitionTexts, ago, finding, first_few, per_topic
from zkgroup.groups.findings.group_facts import REST, GroupFacts, topic_option, unowned
from zkgroup.groups.group_model import GroupPartition
from zkgroup.groups.snapshot.snapshot_defects import claim_defect
from zkgroup.protocol.names import TopicPartition, session_text, span_list
from zkgroup.text import counted, listed, short

if TYPE_CHECKING:
    from zkgroup.groups.assignment.strategy_inference import StrategyInference


def diagnose_owners(facts: GroupFacts) -> list[Finding]:
    return _led_by_mix(facts, list(_diagnose(facts)))


def _diagnose(facts: GroupFacts) -> Iterator[Finding]:
    yield from _gaps(facts)
    yield from _nodes(facts)
    if facts.is_settling:
        yield from _in_progress(facts)
        return
    for part in (_unresponsive, _awaited, _claims, _idle_members, _unexplained):
        yield from part(facts)


def _gaps(facts: GroupFacts) -> Iterator[Finding]:
    if not facts.gaps:
        return
    remedy = _first_step(facts) or Remedy(
        "let the members try again; where a gap remains, restart the members that own nothing, and compare"
        " strategies and releases",
        facts.command("assign", "--execute"),
    )
    again = " in two snapshots" if facts.unowned_before.issuperset(p.key for p in facts.gaps) else ""
    topics: dict[str, list[GroupPartition]] = {}
    for partition in facts.gaps:
        topics.setdefault(partition.topic, []).append(partition)
    for gaps in topics.values():
        waiting = sum(p.known_lag("both") or 0 for p in gaps)
        at_least = "at least " if any(p.is_lag_unknown("both") for p in gaps) else ""
        more = f", {at_least}{counted(waiting, 'message')} waiting" if waiting else ""
        what = f"has no owner{again}: nobody reads it"
        if len(gaps) > 1:
            what = f"{len(gaps)} partitions have no owner{again}: nobody reads them"
        subject = listed(span_list(p.key for p in gaps))
        yield finding("partition-without-owner", subject, f"{what}{more}", remedy)


def _first_step(facts: GroupFacts) -> Remedy | None:
    """What must be done before unread partitions can get an owner; None where members may just try again."""
    if facts.obstacle is not None:
        return Remedy(facts.obstacle)
    if facts.unresponsive:
        names = first_few(sorted(facts.unresponsive))
        return Remedy(
            f"first resume or end {names}: no other member can claim its partitions, before or after a rebalance"
        )
    if facts.unregistered_owners:
        return Remedy("first free the partitions that no registered member owns: until then no member can claim them")
    return None


def _unresponsive(facts: GroupFacts) -> Iterator[Finding]:
    for name in sorted(facts.unresponsive):
        member = facts.members[name]
        owned = [p for p in facts.partitions if p.member == name]
        since = max((p.since for p in owned if p.since is not None), default=None)
        age = f", {ago(facts.now - since)} old" if since is not None else ""
        host = f" on {member.host}" if member.host else ""
        unread = f": meanwhile {counted(len(facts.gaps), 'partition')} of the group unread" if facts.gaps else ""
        yield finding(
            "unresponsive-member",
            name,
            f"has not rebalanced since the group changed: it owns {counted(len(owned), 'partition')} by claims from"
            f" before that{age}, and is registered still; its process probably hangs{unread}",
            f"check its process{host} (stopped, swapped out, in a long garbage collection, stuck in a rebalance"
            f" listener?): resume or end it. Its session {session_text(member.session_id)} keeps its share until it"
            " ends",
            "critical" if facts.gaps else "warning",
        )


def _awaited(facts: GroupFacts) -> Iterator[Finding]:
    """Members that have yet to claim anew, where the last change of members has no time: the node of a member that left
    is gone, only the transaction of its deletion is known. They may be about to claim, or hang."""
    waiting = sorted(facts.overtaken - facts.unresponsive)
    if waiting:
        yield finding(
            "rebalance-in-progress",
            facts.snapshot.group,
            f"no claim of {first_few(waiting)} is newer than the last coming or going of a member, of which ZooKeeper"
            " keeps no time: that was just now, or the process hangs",
            Remedy(
                "inspect twice: that names the member that hangs",
                facts.command("inspect-group", "--recheck-after", str(REST // SECOND)),
            ),
        )


def _nodes(facts: GroupFacts) -> Iterator[Finding]:
    unreadable = [p for p in facts.partitions if p.error and not p.is_unreadable]
    yield from per_topic(
        "unreadable-owner",
        [(p.key, f"has an unknown owner: {p.error}") for p in unreadable if p.session_id],
        Remedy("end the session that made the node (restart its client)").then(facts.rebalance()),
    )
    yield from per_topic(
        "unreadable-owner",
        [(p.key, f"has an unknown owner: {p.error}") for p in unreadable if not p.session_id],
        lambda keys: _release(facts, keys),
    )
    persistent: PartitionTexts = [
        (p.key, f"is owned by {short(p.owner)} through a node that is not ephemeral, and blocks every other claim")
        for p in facts.partitions
        if p.owner is not None and p.session_id == 0
    ]
    yield from per_topic(
        "persistent-owner",
        persistent,
        lambda keys: _release(facts, keys),
    )


def _release(facts: GroupFacts, keys: Sequence[TopicPartition]) -> Remedy:
    """How to remove nodes that belong to no session."""
    releasing = facts.command("release-owners", *topic_option(keys), "--execute")
    return Remedy("release the nodes without a session", releasing).then(facts.rebalance())


def _in_progress(facts: GroupFacts) -> Iterator[Finding]:
    """A rebalance, reported only where something is out of place: a group that has settled is just young."""
    missing = [p for p in unowned(facts.snapshot) if p.key not in facts.unowned_before]
    wrong = [p for p in facts.partitions if p.owner is not None and _why_wrong(facts, p) is not None]
    in_kafka = facts.snapshot.kafka_phase
    inference = facts.inference
    unsettled = facts.is_plan_known and inference is not None and inference.best is not None and not inference.exact
    if not (missing or wrong or in_kafka or unsettled):
        return
    parts = []
    if in_kafka:
        parts.append(f"in Kafka the group is {in_kafka}")
    if missing:
        parts.append(f"{counted(len(missing), 'partition')} without an owner as yet")
    if wrong:
        parts.append(f"{counted(len(wrong), 'owner')} out of place as yet")
    if not parts:
        parts.append("the owners are no plan's as yet")
    yield finding(
        "rebalance-in-progress",
        facts.snapshot.group,
        f"members or owners changed within {REST // SECOND} s; {', '.join(parts)}",
        Remedy(
            f"check again in {REST // SECOND} s: a healthy group settles within 3",
            facts.command("owners", "--verify"),
        ),
    )


def _why_wrong(facts: GroupFacts, partition: GroupPartition) -> tuple[str, str] | None:
    if not partition.exists and partition.member is not None:
        return None
    return claim_defect(partition, facts.members.get(partition.member or ""), facts.snapshot)


def _claims(facts: GroupFacts) -> Iterator[Finding]:
    kinds: dict[str, PartitionTexts] = {}
    stay: PartitionTexts = []
    for partition in facts.partitions:
        if partition.owner is not None and (wrong := _why_wrong(facts, partition)) is not None:
            of_no_session = wrong[0] == "owner-without-registration" and not partition.session_id
            (stay if of_no_session else kinds.setdefault(wrong[0], [])).append((partition.key, wrong[1]))
    yield from per_topic("owner-without-registration", stay, lambda keys: _release(facts, keys))
    again = facts.rebalance()
    others = ", and the others take over" if facts.snapshot.members else ""
    restart = Remedy("restart the member").then(again)
    remedies = {
        "owner-without-registration": Remedy(
            f"end the process that has the session (its id node was deleted, or it hangs): its nodes go with it{others}"
        ).then(again),
        "owner-without-subscription": restart,
        "owner-beyond-streams": restart,
        "owner-of-former-session": Remedy(
            "nothing, if it goes within the session timeout; else two processes use one consumer.id: end one of them"
        ),
    }
    for code, texts in kinds.items():
        yield from per_topic(code, texts, remedies[code])
    unreadable = {name for name, topic in facts.snapshot.topics.items() if topic.exists and topic.error is not None}
    gone: PartitionTexts = [
        (p.key, f"does not exist, and is owned by {short(p.owner)}")
        for p in facts.partitions
        if p.owner is not None and not p.exists and p.member is not None and p.topic not in unreadable
    ]
    yield from per_topic(
        "owner-of-missing-partition",
        gone,
        Remedy("members do not notice that a topic is deleted, and release it at their next rebalance").then(
            again, ": "
        ),
    )


def _idle_members(facts: GroupFacts) -> Iterator[Finding]:
    if not facts.unread:
        return
    holders = {partition.member for partition in facts.partitions}
    per_name = Counter(key.topic for key in facts.unread)
    unreadable = {p.topic for p in facts.partitions if p.is_unreadable}
    first = _first_step(facts)
    again = Remedy(
        "let it try again; where that fails, restart it, and set partition.assignment.strategy alike for all",
        facts.command("assign", "--execute"),
    )
    for member in facts.snapshot.members:
        unread = sum(per_name[topic] for topic in member.streams)
        if member.member in holders or member.error is not None or not unread:
            continue
        if not unreadable.isdisjoint(member.streams):
            continue  # it may own what cannot be seen
        since = member.created_at or member.registered_at
        joined = f", registered for {ago(facts.now - since)}" if since is not None else ""
        why = "it gave its rebalance up, and stays registered; or others own a part of its share by another plan"
        if first is not None:
            why = "as the group is, it can claim no share"
        yield finding(
            "member-without-partitions",
            member.member,
            f"owns nothing{joined}, with {counted(unread, 'partition')} of its topics unread: {why}",
            first or again,
        )


def _unexplained(facts: GroupFacts) -> Iterator[Finding]:
    inference = facts.inference
    if inference is None or inference.exact or inference.best is None:
        return
    if not facts.is_plan_known or any(member.error is not None for member in facts.snapshot.members):
        return  # what should be whose is not known here
    if facts.unresponsive:
        return  # the others follow a newer plan
    owned = (p for p in facts.partitions if p.owner is not None)
    is_reported = bool(facts.unread) or any(not p.exists or _why_wrong(facts, p) is not None for p in owned)
    if all(p.member is None for p in facts.partitions) or (is_reported and len(facts.members) < 2):
        return  # a single member is no mix
    if is_reported and not (inference.deviating or inference.blocked):
        return  # other findings explain the whole difference
    suspects = tuple(dict.fromkeys((*inference.deviating, *inference.blocked)))
    named = first_few([_suspect(facts, inference, name) for name in suspects])
    who = f"; not by that plan: {named}" if suspects else ""
    what = "clients of different kinds in one group" if facts.foreign else "a mix of strategies, or of releases"
    yield finding(
        "unexplained-owners",
        facts.snapshot.group,
        f"the owners are no strategy's plan: {what}; nearest is {inference.best.text}, but for"
        f" {counted(inference.differences, 'partition')}{who}",
        Remedy(
            "give all members one partition.assignment.strategy, and for roundrobin releases that hash alike (up to"
            " 0.11, or from 1.0 on); see who would own what",
            facts.command("assign", "--strategy", inference.best[0]),
        ),
        "info" if facts.foreign else "warning",
    )


#: What members of different strategies or releases come to: each claims a share by a plan of its own.
_FOLLOWING: Final = ("partition-without-owner", "member-without-partitions")


def _is_mix(facts: GroupFacts) -> bool:
    """Whether a member has another share than the plan's, or cannot have its own. A member without partitions whose
    share is free may have given up instead."""
    if facts.inference is None or facts.foreign or facts.unregistered_owners:
        return False
    holders = {partition.member for partition in facts.partitions}
    return bool(facts.inference.blocked) or not holders.isdisjoint(facts.inference.deviating)


def _led_by_mix(facts: GroupFacts, found: list[Finding]) -> list[Finding]:
    """Where members disagree about the plan, findings that follow from it lose their remedy."""
    mix = next((one for one in found if one.code == "unexplained-owners"), None)
    follow = [one for one in found if one.code in _FOLLOWING]
    if mix is None or not follow or not _is_mix(facts):
        return found
    names = first_few([f"{one.code} of {one.subject}" for one in follow])
    lead = replace(mix, severity="critical", message=f"{mix.message}; from this follows {names}")
    others = [one for one in found if one is not mix and one not in follow]
    return [lead, *(replace(one, remedy=None) for one in follow), *others]


def _suspect(facts: GroupFacts, inference: StrategyInference, name: str) -> str:
    owned = sum(partition.member == name for partition in facts.partitions)
    others = [variant for variant in inference.may_run.get(name, ()) if variant != inference.best]
    fits = f", as {' or '.join(variant.text for variant in others)} has it" if owned and others else ""
    return f"{name} (owns {owned or 'nothing'}{fits})"
