"""Who owns what, and who should: pure judgements of a group's owner nodes.

What is said of single owner nodes waits until the group is at rest: members that are rebalancing release and claim
for some seconds, and a look takes several rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from zkgroup.errors import Remedy
from zkgroup.groups.findings.finding_kinds import Finding
from zkgroup.groups.findings.scene import (
    REST,
    SECOND,
    Scene,
    ago,
    few,
    finding,
    per_topic,
    subject_of,
    topic_option,
    unowned,
)
from zkgroup.groups.group_model import GroupMember, GroupPartition
from zkgroup.protocol.names import INTERNAL_TOPICS, TopicPartition, session_text
from zkgroup.text import counted, short

if TYPE_CHECKING:
    from zkgroup.groups.assignment.strategy_inference import StrategyInference

Said = list[tuple[TopicPartition, str]]

_FREE_FIRST: Final = (
    "first free the partitions that are owned by nobody who is a member: no member can claim beside them"
)


def judge_owners(scene: Scene) -> Iterator[Finding]:
    """All about owners."""
    yield from _led_by_mix(scene, list(_judge(scene)))


def _judge(scene: Scene) -> Iterator[Finding]:
    yield from _gaps(scene)
    yield from _nodes(scene)
    if scene.settling:
        yield from _in_progress(scene)
        return
    yield from _unresponsive(scene)
    yield from _awaited(scene)
    yield from _claims(scene)
    yield from _idle_members(scene)
    yield from _unexplained(scene)


def _gaps(scene: Scene) -> Iterator[Finding]:
    if not scene.gaps:
        return
    if scene.obstacle is not None:
        remedy = Remedy(scene.obstacle)
    elif scene.unresponsive:
        remedy = Remedy(_wake_first(scene))
    elif scene.strangers:
        remedy = Remedy(_FREE_FIRST)
    else:
        remedy = Remedy(
            "let the members try again; where a gap remains, restart the members that own nothing, and compare"
            " strategies and releases",
            scene.command("assign", "--execute"),
        )
    again = " in two looks" if scene.persisted.issuperset(p.key for p in scene.gaps) else ""
    topics: dict[str, list[GroupPartition]] = {}
    for partition in scene.gaps:
        topics.setdefault(partition.topic, []).append(partition)
    for gaps in topics.values():
        waiting = sum(p.known_lag("both") or 0 for p in gaps)
        at_least = "at least " if any(p.is_lag_unknown("both") for p in gaps) else ""
        more = f", {at_least}{counted(waiting, 'message')} waiting" if waiting else ""
        what = f"has no owner{again}: nobody reads it" if len(gaps) == 1 else f"have no owner{again}: nobody reads them"
        number = "" if len(gaps) == 1 else f"{len(gaps)} partitions "
        subject = subject_of([p.key for p in gaps])
        yield finding("partition-without-owner", subject, f"{number}{what}{more}", remedy)


def _wake_first(scene: Scene) -> str:
    names = few(sorted(scene.unresponsive))
    return f"first resume or end {names}: the others can claim nothing that it holds, before or after a rebalance"


def _unresponsive(scene: Scene) -> Iterator[Finding]:
    """Members whose owner nodes are older than the last coming or going of a member."""
    for name in sorted(scene.unresponsive):
        member = scene.members[name]
        held = [p for p in scene.partitions if p.member == name]
        since = max((p.since for p in held if p.since is not None), default=None)
        age = f", {ago(scene.now - since)} old" if since is not None else ""
        host = f" on {member.host}" if member.host else ""
        unread = f": meanwhile {counted(len(scene.gaps), 'partition')} of the group unread" if scene.gaps else ""
        yield finding(
            "unresponsive-member",
            name,
            f"has not rebalanced since the group changed: it holds {counted(len(held), 'partition')} by claims from"
            f" before that{age}, and is registered still; its process probably hangs{unread}",
            f"look at its process{host} (stopped, swapped out, in a long garbage collection, stuck in a rebalance"
            f" listener?): resume or end it. Its session {session_text(member.session_id)} keeps its share until it"
            " ends",
            "critical" if scene.gaps else "warning",
        )


def _awaited(scene: Scene) -> Iterator[Finding]:
    """Members that have yet to claim anew, where nothing dates the last coming or going: the node of who left is gone,
    and only its transaction is known. They may be about to, or hang."""
    changed = scene.snapshot.ids_changed
    if not changed or not scene.snapshot.broker_ids:  # without brokers nobody rebalances
        return
    claimed: dict[str, list[GroupPartition]] = {}
    for p in scene.partitions:
        if p.member in scene.members:
            claimed.setdefault(p.member or "", []).append(p)
    waiting = [
        name
        for name, held in sorted(claimed.items())
        if name not in scene.foreign  # others may keep what does not change
        and all(0 < p.claimed < changed for p in held)
        and name not in scene.unresponsive
    ]
    if waiting:
        has, claims = ("has", "its claims are") if len(waiting) == 1 else ("have", "their claims are")
        yield finding(
            "rebalance-in-progress",
            scene.snapshot.group,
            f"{few(waiting)} {has} yet to rebalance: {claims} older than the last coming or going of a member, of which"
            " ZooKeeper keeps no time; that was just now, or the process hangs",
            Remedy(
                "look twice, which names who hangs",
                scene.command("inspect-group", "--recheck-after", str(REST // SECOND)),
            ),
        )


def _nodes(scene: Scene) -> Iterator[Finding]:
    """What is wrong with a node whoever owns it."""
    unreadable = [p for p in scene.partitions if p.error and not p.hidden]
    yield from per_topic(
        "unreadable-owner",
        [(p.key, f"cannot be told whose it is: {p.error}") for p in unreadable if p.session_id],
        Remedy("end the session that made the node (restart its client)").then(scene.rebalance()),
    )
    yield from per_topic(
        "unreadable-owner",
        [(p.key, f"cannot be told whose it is: {p.error}") for p in unreadable if not p.session_id],
        lambda keys: _release(scene, keys),
    )
    persistent: Said = [
        (p.key, f"is owned by {short(p.owner)} through a node that is not ephemeral, and blocks every other claim")
        for p in scene.partitions
        if p.owner is not None and p.session_id == 0
    ]
    yield from per_topic(
        "persistent-owner",
        persistent,
        lambda keys: _release(scene, keys),
    )


def _release(scene: Scene, keys: Sequence[TopicPartition]) -> Remedy:
    """What to do with nodes that belong to no session."""
    releasing = scene.command("release-owners", *topic_option(keys), "--execute")
    return Remedy("release what no session holds", releasing).then(scene.rebalance())


def _in_progress(scene: Scene) -> Iterator[Finding]:
    """Said only where something is not as it should be: a group that has settled already is just young."""
    missing = [p for p in unowned(scene.snapshot) if p.key not in scene.persisted]
    wrong = [p for p in scene.partitions if p.owner is not None and _why_wrong(scene, p) is not None]
    in_kafka = scene.rebalancing_in_kafka
    inference = scene.inference
    known = not (scene.snapshot.members_hidden or scene.snapshot.owners_hidden or scene.snapshot.topics_hidden)
    known = known and not any(member.hidden for member in scene.snapshot.members)
    unsettled = known and inference is not None and inference.best is not None and not inference.exact
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
        scene.snapshot.group,
        f"members or owners changed within {REST // SECOND} s; {', '.join(parts)}",
        Remedy(
            f"look again in {REST // SECOND} s: a healthy group settles within 3",
            scene.command("owners", "--verify"),
        ),
    )


def _why_wrong(scene: Scene, partition: GroupPartition) -> tuple[str, str] | None:
    """The kind of what is wrong with an owner, and what to say of it."""
    owner, member = short(partition.owner or ""), scene.members.get(partition.member or "")
    if member is None and scene.snapshot.members_hidden:
        return None
    if member is None:
        return (
            "owner-without-registration",
            f"is owned by {owner}{_session(partition)}, which is not registered: nobody reads it, nobody else can",
        )
    if not partition.exists or member.error is not None:
        return None
    streams = member.streams.get(partition.topic, 0)
    if streams == 0:
        if _may_take_internal(member, partition) or _takes_unknown(scene, member):
            return None
        return "owner-without-subscription", f"is owned by {owner}, which does not subscribe to the topic"
    if partition.stream is not None and partition.stream >= streams:
        return (
            "owner-beyond-streams",
            f"is owned by {owner}, whose member has {counted(streams, 'stream')} for the topic",
        )
    if partition.session_id and member.session_id and partition.session_id != member.session_id:
        return (
            "owner-of-former-session",
            f"is owned by {owner} in session {session_text(partition.session_id)}, while that member is registered in"
            f" {session_text(member.session_id)}",
        )
    return None


def _is_wrong(scene: Scene, partition: GroupPartition) -> bool:
    """Whether something is told of the partition's owner."""
    if partition.owner is None:
        return partition.error is not None and not partition.hidden
    return not partition.exists or _why_wrong(scene, partition) is not None


def _session(partition: GroupPartition) -> str:
    return f" (session {session_text(partition.session_id)})" if partition.session_id else ""


def _takes_unknown(scene: Scene, member: GroupMember) -> bool:
    """Whether nobody here can tell what its filter takes."""
    return scene.snapshot.topics_hidden and member.registration is not None and member.registration.pattern != "static"


def _may_take_internal(member: GroupMember, partition: GroupPartition) -> bool:
    """Whether internal topics are left out of a filter is the reader's setting, which no registration tells."""
    registration = member.registration
    return registration is not None and registration.pattern != "static" and partition.topic in INTERNAL_TOPICS


def _claims(scene: Scene) -> Iterator[Finding]:
    kinds: dict[str, Said] = {}
    stay: Said = []
    for partition in scene.partitions:
        if partition.owner is not None and (wrong := _why_wrong(scene, partition)) is not None:
            of_no_session = wrong[0] == "owner-without-registration" and not partition.session_id
            (stay if of_no_session else kinds.setdefault(wrong[0], [])).append((partition.key, wrong[1]))
    yield from per_topic("owner-without-registration", stay, lambda keys: _release(scene, keys))
    again = scene.rebalance()
    others = ", and the others take over" if scene.snapshot.members else ""

    def restarting(keys: Sequence[TopicPartition]) -> Remedy:
        """Transactions tell whether it has registered since."""
        owned = [(scene.by_key[key], scene.members[scene.by_key[key].member or ""]) for key in keys]
        if all(0 < member.czxid < partition.claimed for partition, member in owned):
            why = ", which claimed this after it had registered: was its registration changed by hand?"
        elif all(0 < partition.claimed < member.czxid for partition, member in owned):
            why = ", which has registered anew since it claimed"
        else:
            why = ""
        return Remedy(f"restart the member{why}").then(again)

    remedies: dict[str, Remedy | Callable[[Sequence[TopicPartition]], Remedy]] = {
        "owner-without-registration": Remedy(
            "end the process that holds the session (its id node was deleted, or it hangs): its nodes go with"
            f" it{others}"
        ).then(again),
        "owner-without-subscription": restarting,
        "owner-beyond-streams": restarting,
        "owner-of-former-session": Remedy(
            "nothing, if it goes within the session time-out; else two processes use one consumer.id: end one of them"
        ),
    }
    for code, said in kinds.items():
        yield from per_topic(code, said, remedies[code])
    unreadable = {name for name, topic in scene.snapshot.topics.items() if topic.exists and topic.error is not None}
    gone: Said = [
        (p.key, f"does not exist, and is owned by {short(p.owner)}")
        for p in scene.partitions
        if p.owner is not None and not p.exists and p.member is not None and p.topic not in unreadable
    ]
    yield from per_topic(
        "owner-of-missing-partition",
        gone,
        Remedy("members do not notice that a topic is deleted, and release it at their next rebalance").then(
            again, ": "
        ),
    )


def _idle_members(scene: Scene) -> Iterator[Finding]:
    if not scene.unread:
        return
    holders = {partition.member for partition in scene.partitions}
    per_name: dict[str, int] = {}
    for key in scene.unread:
        per_name[key.topic] = per_name.get(key.topic, 0) + 1
    hidden = {p.topic for p in scene.partitions if p.hidden}
    blocked = frozenset(scene.inference.blocked) if scene.inference is not None else frozenset()
    for member in scene.snapshot.members:
        unread = sum(per_name.get(topic, 0) for topic in member.streams)
        if member.member in holders or member.error is not None or not unread:
            continue
        if not hidden.isdisjoint(member.streams):
            continue  # it may own what cannot be seen
        since = member.created_at or member.registered_at
        joined = f", registered for {ago(scene.now - since)}" if since is not None else ""
        remedy = Remedy(
            "let it try again; where that fails, restart it, and set partition.assignment.strategy alike for all",
            scene.command("assign", "--execute"),
        )
        if scene.stopping:
            why = "no rebalance can be finished beside a registration that cannot be read"
        elif scene.obstacle is not None:
            why = "nobody claims anything while no broker is registered"
        elif scene.unresponsive:
            why = f"{few(sorted(scene.unresponsive))} has not rebalanced, and may hold a part of its share"
            remedy = Remedy(_wake_first(scene))
        elif any(key.topic in member.streams for key in scene.strangers):
            why = "somebody who is no member may hold a part of its share, so that it can claim none"
            remedy = Remedy(_FREE_FIRST)
        elif member.member in blocked:
            why = "others hold a part of its share, so that it can claim none: strategies or releases differ"
        else:
            why = "it gave its rebalance up, and stays registered; or others hold a part of its share by another plan"
        yield finding(
            "member-without-partitions",
            member.member,
            f"owns nothing{joined}, with {counted(unread, 'partition')} of its topics unread: {why}",
            scene.obstacle or remedy,
        )


def _unexplained(scene: Scene) -> Iterator[Finding]:
    inference = scene.inference
    if inference is None or inference.exact or inference.best is None:
        return
    if any(member.error is not None for member in scene.snapshot.members):
        return  # what should be whose is not known here
    if scene.snapshot.members_hidden or scene.snapshot.owners_hidden or scene.snapshot.topics_hidden:
        return  # nor what is whose
    if scene.unresponsive:
        return  # the others follow a plan that it has not heard of
    holders = {partition.member for partition in scene.partitions if partition.member is not None}
    told = bool(scene.unread) or any(_is_wrong(scene, p) for p in scene.partitions)
    if not holders or (told and len(scene.members) < 2):
        return  # whoever is alone is part of no mix
    if told and not (inference.deviating or inference.blocked):
        return  # what is told of is the whole difference
    suspects = tuple(dict.fromkeys((*inference.deviating, *inference.blocked)))
    foreign = bool(scene.foreign)
    who = f"; not by that plan: {few([_suspect(scene, inference, name) for name in suspects])}" if suspects else ""
    what = "clients of different kinds in one group" if foreign else "a mix of strategies, or of releases"
    yield finding(
        "unexplained-owners",
        scene.snapshot.group,
        f"the owners are no strategy's plan: {what}; nearest is {inference.best.text}, but for"
        f" {counted(inference.differences, 'partition')}{who}",
        Remedy(
            "give all members one partition.assignment.strategy, and for roundrobin releases that hash alike (up to"
            " 0.11, or from 1.0 on); see who would own what",
            scene.command("assign", "--strategy", inference.best[0]),
        ),
        "info" if foreign else "warning",
    )


#: What members of different strategies or releases come to: each claims a share by a plan of its own.
_FOLLOWING: Final = ("partition-without-owner", "member-without-partitions")


def _is_mix(scene: Scene) -> bool:
    """Whether a member holds another share than the plan's, or cannot have its own: one that holds nothing although its
    share is free may as well have given up."""
    if scene.inference is None or scene.foreign or scene.strangers:
        return False
    holders = {partition.member for partition in scene.partitions}
    return bool(scene.inference.blocked) or not holders.isdisjoint(scene.inference.deviating)


def _led_by_mix(scene: Scene, found: list[Finding]) -> list[Finding]:
    """Where members disagree about the plan, what follows from that advises nothing of its own."""
    mix = next((one for one in found if one.code == "unexplained-owners"), None)
    follow = [one for one in found if one.code in _FOLLOWING]
    if mix is None or not follow or not _is_mix(scene):
        return found
    names = few([f"{one.code} of {one.subject}" for one in follow])
    lead = replace(mix, severity="critical", message=f"{mix.message}; from this follows {names}")
    others = [one for one in found if one is not mix and one not in follow]
    return [lead, *(replace(one, remedy=None) for one in follow), *others]


def _suspect(scene: Scene, inference: StrategyInference, name: str) -> str:
    owned = sum(partition.member == name for partition in scene.partitions)
    others = [variant for variant in inference.may_run.get(name, ()) if variant != inference.best]
    fits = f", as {' or '.join(variant.text for variant in others)} has it" if owned and others else ""
    return f"{name} (owns {owned or 'nothing'}{fits})"
