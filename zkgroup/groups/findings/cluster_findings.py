"""What concerns the group as a whole, and the cluster that it lives in; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from zkgroup.clients.kafka.responses import words_of
from zkgroup.errors import Remedy
from zkgroup.groups.findings.finding_kinds import Finding
from zkgroup.groups.findings.scene import COMMITTED_BY_THEN, REST, Scene, ago, few, finding, per_topic, unsubscribe
from zkgroup.groups.findings.unreadable_nodes import judge_hidden
from zkgroup.groups.group_model import FaultyBroker, GroupPartition
from zkgroup.groups.snapshot.ownership import failing_beside, read_twice
from zkgroup.groups.snapshot.tables import alike
from zkgroup.groups.snapshot.znode_reader import topic_path
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition, spans
from zkgroup.text import counted

_CORRECT: Final = "look at the node with a ZooKeeper client: correct or delete it"
_WRITE_TOPIC: Final = "write the topic's partitions and replicas into the node again, with a ZooKeeper client"
_UNREAD: Final = ": members take the topic for one without partitions, and read the others"
#: So many single problems are told of one by one.
MOST: Final = 20


def judge_cluster(scene: Scene) -> Iterator[Finding]:
    """All that is about no single member, owner or offset."""
    snapshot = scene.snapshot
    if snapshot.in_zookeeper and not snapshot.broker_ids and znodes.broker_ids() not in snapshot.hidden:
        yield finding(
            "cluster-without-broker",
            snapshot.group,
            "no broker is registered: nothing can be read, and members that start own nothing until one comes",
            "start the brokers; if they run, compare the chroot in their zookeeper.connect with the one given here",
        )
    yield from _faulty_brokers(scene)
    yield from _leaders(scene)
    yield from _deletions(scene)
    yield from _split(scene)
    yield from _problems(scene)
    yield from judge_hidden(scene)
    yield from _incomplete(scene)
    if scene.debris and scene.at_rest_for is not None:
        yield finding(
            "group-debris",
            snapshot.group,
            f"has no member, and was last changed {ago(scene.at_rest_for)} ago",
            Remedy("delete it", scene.command("delete-group", "--execute")),
        )


def _faulty_brokers(scene: Scene) -> Iterator[Finding]:
    """Whoever leads what they read: members look at all brokers. Which release a member is of, no node tells: of what
    stops some, only the state of the group shows that these are among them."""
    brokers = scene.snapshot.faulty_brokers
    for broker in brokers:
        fault = broker.fault
        members = failing_beside(scene.snapshot, broker)
        if not members or (fault.rebalances and len(brokers) == len(scene.snapshot.broker_ids) and not _stuck(scene)):
            continue
        which = "every member of the Scala consumer" if fault.releases is None else f"members {fault.releases}"
        does = "claims its partitions and reads nothing" if fault.rebalances else "fails its rebalances"
        if fault.releases is not None:
            does = does.replace("claims its", "claim their").replace("reads", "read").replace("fails its", "fail their")
        yield finding(
            "incompatible-broker",
            broker.path,
            f"{fault.why}: {which} {does} while it is registered so; in this group {few(members)}",
            _MEND_BROKER[fault.releases is None, fault.rebalances],
            "critical" if fault.releases is None or _do_fail(scene, broker, members) else "info",
        )


def _do_fail(scene: Scene, broker: FaultyBroker, members: Sequence[str]) -> bool:
    """Whether some of ``members``, which the broker may make fail, do. One whose rebalance fails claims nothing, or
    keeps the owner nodes that it has, and stops reading."""
    if broker.fault.rebalances:
        return _stuck(scene)
    changed_since = scene.snapshot.ids_changed > broker.czxid
    return bool(scene.gaps) or (changed_since and not scene.unresponsive.isdisjoint(members))


#: By whether all releases fail, and whether they get through a rebalance.
_MEND_BROKER: Final = {
    (True, True): "give the broker a PLAINTEXT listener, which is all that the Scala consumer speaks",
    (True, False): "restart the broker, so that it registers anew; delete the node if it is no broker's",
    (False, True): "upgrade the members, or give the broker a PLAINTEXT listener",
    (False, False): "upgrade the members, or call the broker's listeners by their protocols",
}


def _stuck(scene: Scene) -> bool:
    """Whether something has been owned and unread for longer than a commit takes. Where no broker at all has what the
    Scala consumer wants, its members would never have worked: others may be named alike."""
    return any(
        p.owner is not None
        and p.since is not None
        and scene.now - p.since > COMMITTED_BY_THEN
        and (p.log_end is None or p.log_end > (p.committed("both") or p.log_start or 0))
        for p in scene.partitions
    )


def _leaders(scene: Scene) -> Iterator[Finding]:
    snapshot = scene.snapshot
    if not snapshot.broker_ids:
        return
    read: list[tuple[TopicPartition, str]] = []
    others: list[tuple[TopicPartition, str]] = []
    for p in scene.partitions:
        why = _without_leader(scene, p)
        if why is not None:
            (read if scene.concerns_readers(p) else others).append((p.key, why))
    remedy = "start the brokers that hold its replicas; until then nothing of it can be read or written"
    yield from per_topic("partition-without-leader", read, remedy)
    yield from per_topic("partition-without-leader", others, remedy, "warning")


def _without_leader(scene: Scene, p: GroupPartition) -> str | None:
    """A log end came from a leader; a topic that has just been made has none yet."""
    topic = scene.snapshot.topics.get(p.topic)
    if not p.exists or p.log_end is not None or p.leader_unknown:
        return None
    if topic is not None and topic.error is not None:
        return None  # what is the matter there is told of the topic
    if topic is not None and topic.created_at is not None and scene.now - topic.created_at < REST:
        return None
    if p.leader is None or p.leader < 0:
        return "has no leader"
    if p.leader not in scene.snapshot.broker_ids:
        return f"is led by broker {p.leader}, which is not registered"
    return None


def _deletions(scene: Scene) -> Iterator[Finding]:
    snapshot = scene.snapshot
    owned = {p.topic for p in scene.partitions if p.owner is not None}
    for name, topic in sorted(snapshot.topics.items()):
        if topic.to_be_deleted:
            read = name in snapshot.subscribed or name in owned
            yield finding(
                "topic-marked-for-deletion",
                name,
                "is marked for deletion"
                + (", and members of the group read it" if read else "; the group's offsets of it will stay behind")
                + ("" if topic.exists else "; its registration is gone already"),
                unsubscribe(scene, name).after(
                    "a mark that stays is one that brokers cannot act on (delete.topic.enable=false, a replica's broker"
                    " down); if it is meant, "
                ),
                "warning" if read else "info",
            )


def _split(scene: Scene) -> Iterator[Finding]:
    group = scene.snapshot.coordinator
    if group is None or not group.members or not scene.snapshot.members:
        return
    twice = read_twice(scene.snapshot)
    here, there = counted(len(scene.snapshot.members), "member"), counted(len(group.members), "member")
    yield finding(
        "split-group",
        scene.snapshot.group,
        f"has {here} in ZooKeeper and {there} in Kafka, which know nothing of each other"
        + (f": {counted(len(twice), 'partition')} read twice ({spans(twice[:20])})" if twice else ""),
        Remedy(
            "stop one side before the other starts; look at the offsets of both",
            scene.command("offsets", "--store", "both"),
        ),
        "critical" if twice else "warning",
    )


def _problems(scene: Scene) -> Iterator[Finding]:
    snapshot = scene.snapshot
    problems = list(dict.fromkeys(snapshot.problems))
    for name, topic in sorted(snapshot.topics.items()):
        if topic.exists and topic.error is not None and topic.error not in problems and not _is_hidden(scene, name):
            error = topic.error
            problems.append(replace(error, why=error.why + _UNREAD) if topic.passed_over else error)
    by_why: dict[str, list[str]] = {}
    for problem in problems:
        by_why.setdefault(problem.why, []).append(problem.path)
    for why, paths in list(by_why.items())[:MOST]:
        topics = any(path.startswith(f"{znodes.topics()}/") for path in paths)
        remedy = _WRITE_TOPIC if topics else _CORRECT
        if len(paths) > 1:
            message = f"{len(paths)} nodes, of which each {why}: {few(paths)}"
            yield finding("unreadable-node", snapshot.group, message, remedy)
        else:
            yield finding("unreadable-node", paths[0], why, remedy)
    if len(by_why) > MOST:
        more = f"and {len(by_why) - MOST} more kinds of nodes that hold what nobody reads, or should not be there"
        yield finding("unreadable-node", snapshot.group, more, _CORRECT)


def _is_hidden(scene: Scene, topic: str) -> bool:
    return (topic_path(topic) or "") in scene.snapshot.hidden


def _incomplete(scene: Scene) -> Iterator[Finding]:
    snapshot = scene.snapshot
    said = [*snapshot.warnings, *words_of("the group", snapshot.kafka_untold)]
    told = snapshot.reasons_told
    group = snapshot.coordinator
    if group is not None and group.error and not snapshot.kafka_untold:
        said.append(f"the group in Kafka: {group.error}")
        told |= {group.error}
    unknown = [(p, p.log_error) for p in scene.partitions if p.log_error is not None and _has_log(scene, p)]
    said += alike([(p, why) for p, why in unknown if why not in told])
    uncertain = [(p, p.kafka.error) for p in scene.partitions if p.kafka is not None and p.kafka.error is not None]
    said += alike([(p, why) for p, why in uncertain if why not in told], "in Kafka: ")
    if said:
        yield finding(
            "incomplete-look",
            snapshot.group,
            f"{few(said, '; ')}: what depends on it was not judged",
            "check that the brokers run and that their addresses can be reached from here, then look again",
        )


def _has_log(scene: Scene, p: GroupPartition) -> bool:
    """Whether a broker should have told of it: that nobody leads it, or that it is gone, is told of elsewhere."""
    return p.exists and _without_leader(scene, p) is None and p.leader is not None
