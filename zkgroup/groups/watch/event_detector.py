"""Detects the events of a group: what happened between two of its states. Does no I/O.

End of a rebalance: members of the Scala consumer (and of zkgroup) release and claim all their partitions in every
rebalance. At its end each claim has a higher transaction number than the membership change that began it. Members of
other clients may keep their claims: for them it is enough that every partition has an owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from zkgroup.groups.watch.timeline import Event, Kind, WatchedGroup, WatchedPartition, lag_text
from zkgroup.protocol.names import TopicPartition, session_text
from zkgroup.text import counted, listed

#: A partition before it exists.
_NEVER: Final = WatchedPartition(is_counted=False)


class EventDetector:
    """Detects the events of one group, a state at a time.

    ``last``: the last state, None before the first. ``since``: when the rebalance that is under way began (milliseconds
    since 1970), None at rest.
    """

    def __init__(self) -> None:
        self.last: WatchedGroup | None = None
        self.since: int | None = None
        self._measured: WatchedGroup | None = None  # the last state with new offsets
        self._owned: dict[TopicPartition, str] = {}  # the last owner of each partition
        self._moved: frozenset[TopicPartition] = frozenset()  # the partitions that the rebalance gave another owner

    def detect(self, state: WatchedGroup) -> list[Event]:
        """The events between the last state and this one, which is the last from now on. Causes come before effects."""
        before, self.last = self.last, state
        if before is None:
            return self._begin(state)
        events = list(_environment_events(before, state))
        if state.zookeeper is not None:  # the rest is as it was before
            return events
        events += _member_events(before, state)
        ownership_events, moved = self._detect_moves(before, state)
        settled, was_settled = is_settled(state), self.since is None
        started = was_settled and (not settled or _claims(before) != _claims(state))
        if started:
            self.since = state.noticed if state.noticed is not None else before.at if settled else state.at
            events.append(Event(state.at, "rebalance-started", f"rebalance started: {_reason(before, state)}"))
        events += ownership_events
        self._moved = (frozenset() if started else self._moved) | moved
        if state.measured:
            if self._measured is not None:
                events += _offset_events(self._measured, state)
            self._measured = state
        if self.since is not None and settled:
            events.append(_end_event(state, self.since, self._moved, at_most=started and state.noticed is None))
            self.since, self._moved = None, frozenset()
        return events

    def _begin(self, state: WatchedGroup) -> list[Event]:
        self._owned = {key: p.owner for key, p in state.partitions.items() if p.owner is not None}
        self._measured = state if state.measured else None
        lag = lag_text(state.partitions.values())
        words = f"{counted(len(state.members), 'member')}, {counted(len(state.partitions), 'partition')}, lag {lag}"
        if state.unreadable:
            words += f"; {counted(state.unreadable, 'node')} of ZooKeeper's may not be read"
        if not state.exists:
            words = "there is no such group yet"
        events = [Event(state.at, "watching", f"watching group {state.group}: {words}")]
        if not is_settled(state):
            self.since = state.at
            events.append(Event(state.at, "rebalance-started", f"a rebalance is under way: {waiting_for(state)}"))
        return events

    def _detect_moves(self, before: WatchedGroup, state: WatchedGroup) -> tuple[list[Event], set[TopicPartition]]:
        """Releases before claims, and the partitions that another owner has now."""
        released: list[Event] = []
        claimed: list[Event] = []
        moved = set()
        for key in sorted({*before.partitions, *state.partitions}):
            was, now = before.partitions.get(key, _NEVER).owner, state.partitions.get(key, _NEVER).owner
            if was == now:
                continue
            if now is None:
                member, words = before.partitions[key].member, f"{key} released by {was}"
                released.append(Event(state.at, "partition-released", words, member, *key, before=was))
                continue
            member = state.partitions[key].member
            last = was if was is not None else self._owned.get(key)
            if last is None or last == now:
                words = f"{key} claimed by {now}"
                claimed.append(Event(state.at, "partition-claimed", words, member, *key, before=was, after=now))
            else:
                moved.add(key)
                words = f"{key} moved from {last} to {now}"
                claimed.append(Event(state.at, "partition-moved", words, member, *key, last, now))
            self._owned[key] = now
        self._owned = {key: owner for key, owner in self._owned.items() if key in state.partitions}
        return released + claimed, moved


def is_settled(state: WatchedGroup) -> bool:
    """Whether no rebalance is under way."""
    if not state.members:
        return True
    return state.phase is None and not any(_is_open(key, p, state) for key, p in state.partitions.items())


def waiting_for(state: WatchedGroup) -> str:
    """What the group still lacks for the end of its rebalance, in words."""
    if state.phase is not None:
        return state.phase
    open_ = [(key, p) for key, p in state.partitions.items() if _is_open(key, p, state)]
    unowned = sum(p.owner is None for _, p in open_)
    words = [f"{counted(unowned, 'partition')} without an owner"] if unowned else []
    late = sorted({p.member for _, p in open_ if p.owner is not None and p.member is not None})
    unregistered = sum(p.owner is not None and (p.member is None or p.member not in state.members) for _, p in open_)
    if late:
        words.append(f"old claims of {listed(late, most=3)}")
    if unregistered:
        words.append(f"{counted(unregistered, 'partition')} owned by no registered member")
    return ", ".join(words) or "nothing"


def _is_open(key: TopicPartition, p: WatchedPartition, state: WatchedGroup) -> bool:
    if not p.is_counted:
        return False
    if p.member is None or p.member not in state.members:
        return True
    ours = p.member.startswith(f"{state.group}_") and p.owner != p.member
    return ours and 0 < p.claimed < state.ids_changed


def _claims(state: WatchedGroup) -> dict[TopicPartition, tuple[str | None, int]]:
    return {key: (p.owner, p.claimed) for key, p in state.partitions.items() if p.is_counted and p.owner is not None}


def _environment_events(before: WatchedGroup, state: WatchedGroup) -> Iterator[Event]:
    at = state.at
    if state.zookeeper is not None:
        if before.zookeeper is None:
            yield Event(at, "zookeeper-away", f"ZooKeeper is away: {state.zookeeper}")
        return
    if before.zookeeper is not None:
        yield Event(at, "zookeeper-back", "ZooKeeper is back")
    if state.kafka is not None and before.kafka is None:
        yield Event(at, "brokers-away", f"brokers do not answer: {state.kafka}")
    if state.kafka is None and before.kafka is not None:
        yield Event(at, "brokers-back", "brokers answer again")
    if before.exists != state.exists:
        kind: Kind = "group-came" if state.exists else "group-gone"
        yield Event(at, kind, f"the group is {'there' if state.exists else 'gone'}")
    for broker in sorted({*before.brokers} ^ {*state.brokers}):
        if broker in state.brokers:
            yield Event(at, "broker-came", f"broker {broker} is registered", after=broker)
        else:
            led = sum(p.leader == broker for p in before.partitions.values())
            words = f"broker {broker} is gone, which led {counted(led, 'partition')} of the group"
            yield Event(at, "broker-gone", words, before=broker)
    for topic in sorted({*before.topics} | {*state.topics}):
        was, now = before.topics.get(topic), state.topics.get(topic)
        if was == now:
            continue
        if was is None:
            yield Event(at, "topic-added", f"topic {topic} is there", topic=topic)
        elif now is None:
            yield Event(at, "topic-gone", f"topic {topic} is gone, or concerns the group no more", topic=topic)
        elif was and now:
            yield Event(at, "topic-recreated", f"topic {topic} was deleted and recreated", topic=topic)
    for key in sorted({*before.partitions} ^ {*state.partitions}):
        added = key in state.partitions
        words = f"partition {key} " + ("came" if added else "is gone, or concerns the group no more")
        yield Event(at, "partition-added" if added else "partition-gone", words, None, *key)


def _member_events(before: WatchedGroup, state: WatchedGroup) -> Iterator[Event]:
    at = state.at
    for member in sorted(before.members.keys() - state.members.keys()):
        had = [key for key, p in before.partitions.items() if p.member == member]
        still = sum(state.partitions.get(key, _NEVER).owner == before.partitions[key].owner for key in had)
        words = f"with its {counted(len(had), 'partition')}" if had else "which owned nothing"
        if still:
            words = f"{still} of its {counted(len(had), 'partition')} still in its name"
        yield Event(at, "member-left", f"{member} left, {words}", member, before=before.members[member].subscription)
    for member in sorted(state.members.keys() - before.members.keys()):
        now = state.members[member]
        words = f" ({now.subscription})" if now.subscription else ""
        yield Event(at, "member-joined", f"{member} joined{words}", member, after=now.subscription)
    for member in sorted(state.members.keys() & before.members.keys()):
        was, now = before.members[member], state.members[member]
        if was.subscription != now.subscription:
            words = f"{member} subscribes to {now.subscription}, no more to {was.subscription}"
            yield Event(at, "member-changed", words, member, before=was.subscription, after=now.subscription)
        if was.session != now.session:
            words = f"{member} registered again under a new session: its old one expired or was closed"
            yield Event(
                at, "session-renewed", words, member, before=session_text(was.session), after=session_text(now.session)
            )


def _reason(before: WatchedGroup, state: WatchedGroup) -> str:
    joined, left = len(state.members.keys() - before.members.keys()), len(before.members.keys() - state.members.keys())
    words = [f"{counted(joined, 'member')} joined"] if joined else []
    if left:
        words.append(f"{counted(left, 'member')} left")
    if any(m in before.members and before.members[m] != now for m, now in state.members.items()):
        words.append("registrations changed")
    if any(p.is_counted and key not in before.partitions for key, p in state.partitions.items()):
        words.append("partitions were added")
    if {*before.brokers} != {*state.brokers}:
        words.append("brokers came or went")
    return ", ".join(words) or state.phase or "owners changed"


def _end_event(state: WatchedGroup, since: int, moved: Iterable[TopicPartition], *, at_most: bool) -> Event:
    """The end of a rebalance. ``at_most``: it began and ended between two states, at an unknown time."""
    seconds = max(0, state.at - since) / 1000
    took = f"{'at most ' if at_most else ''}{seconds:.{1 if seconds >= 1 else 2}f} s"
    changed = f"{counted(len(list(moved)), 'partition')} moved"
    if not state.members:
        return Event(state.at, "rebalance-ended", f"no member is left, after {took}", seconds=seconds)
    words = f"rebalance ended after {took}: {changed}, {counted(len(state.members), 'member')}"
    return Event(state.at, "rebalance-ended", words, seconds=seconds)


def _offset_events(before: WatchedGroup, state: WatchedGroup) -> Iterator[Event]:
    """Changes of offsets that no commit in order makes. Both states have new offsets; states between them may not."""
    at = state.at
    for key, now in sorted(state.partitions.items()):
        was = before.partitions.get(key)
        if was is None:
            continue
        old, new = was.committed, now.committed
        if was.log_end is not None and now.log_end is not None and now.log_end < was.log_end:
            words = f"the log of {key} ends at {now.log_end}, not at {was.log_end} any more"
            yield Event(at, "log-truncated", words, None, *key, was.log_end, now.log_end)
        if old is not None and new is None:
            yield Event(at, "offset-removed", f"the offset of {key} is gone, it was {old}", None, *key, old)
        elif old is not None and new is not None and new < old:
            words = f"the offset of {key} went back from {old} to {new}"
            yield Event(at, "offset-back", words, now.member, *key, old, new)
        elif new is not None and new != old and was.owner is None and now.owner is None:
            words = f"the offset of {key} was set from {'none' if old is None else old} to {new} while it had no owner"
            yield Event(at, "offset-set", words, None, *key, old, new)
        if _is_lost(now) and not _is_lost(was):
            words = f"the offset of {key}, {new}, is before the log's start, {now.log_start}: messages are lost to it"
            yield Event(at, "offset-before-start", words, now.member, *key, new, now.log_start)


def _is_lost(p: WatchedPartition) -> bool:
    return p.committed is not None and p.log_start is not None and p.committed < p.log_start
