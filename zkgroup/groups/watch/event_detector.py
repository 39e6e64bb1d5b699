"""From look to look: what has happened to a group. Pure.

``tell(story, look)`` gives the events since the story's last look, and the story as it goes on. A rebalance takes many
looks, so a story remembers since when one is under way, who owned what before it, and what was measured last.

When a rebalance is over: members of the reference (and of zkgroup) release and claim all that they own in every
rebalance, so that at its end each claim is newer, by ZooKeeper's transaction numbers, than the coming or going that
began it. Members of other kinds may keep what does not change: of them it is enough that everything is owned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from zkgroup.groups.watch.timeline import Event, Look, WatchedPartition, told_lag
from zkgroup.protocol.names import TopicPartition, session_text
from zkgroup.text import counted, listed

#: A look that has nothing in it: before the first.
_NEVER: Final = WatchedPartition(judged=False)
#: Members that have left, and may come back.
_REMEMBERED: Final = 500


@dataclass(frozen=True, slots=True)
class Story:
    """What has been seen so far. ``since``: when the rebalance that is under way began, None at rest. ``owned``: who
    owned each partition last, whoever does now. ``moved``: what changed hands since then. ``measured``: the last look
    at offsets. ``left``: when members left that have not come back, the last of them."""

    last: Look
    since: int | None = None
    owned: Mapping[TopicPartition, str] = field(default_factory=dict)
    moved: frozenset[TopicPartition] = frozenset()
    measured: Look | None = None
    left: Mapping[str, int] = field(default_factory=dict)


def begin(look: Look) -> tuple[Story, list[Event]]:
    """A story's first look, and what is told of it."""
    owners = {key: p.owner for key, p in look.partitions.items() if p.owner is not None}
    settled = is_settled(look)
    story = Story(look, None if settled else look.at, owners, frozenset(), look if look.measured else None)
    lag = told_lag(look.partitions.values())
    words = f"{counted(len(look.members), 'member')}, {counted(len(look.partitions), 'partition')}, lag {lag}"
    if look.hidden:
        words += f"; {counted(look.hidden, 'node')} of ZooKeeper's may not be read"
    if not look.exists:
        words = "there is no such group yet"
    events = [Event(look.at, "watching", f"watching group {look.group}: {words}")]
    if not settled:
        events.append(Event(look.at, "rebalance-started", f"a rebalance is under way: {waiting_for(look)}"))
    return story, events


def tell(story: Story, look: Look) -> tuple[Story, list[Event]]:
    """The events between the story's last look and this one, in an order that makes sense, and the story after it."""
    before = story.last
    events = list(_surroundings(before, look))
    if look.zookeeper is not None:  # what is seen is what was seen last
        return replace(story, last=look), events
    events += _members(before, look, story.left)
    owners, owned, moved = _owners(story, look)
    settled, was_settled = is_settled(look), story.since is None
    claimed_anew = was_settled and _claims(before) != _claims(look)
    since = story.since
    started = was_settled and (not settled or claimed_anew)
    if started:
        since = look.noticed if look.noticed is not None else before.at if settled else look.at
        events.append(Event(look.at, "rebalance-started", f"rebalance started: {_reason(before, look)}"))
    events += owners
    moved = (frozenset() if started else story.moved) | moved
    if look.measured and story.measured is not None:
        events += _offsets(story.measured, look)
    if since is not None and settled:
        events.append(_ended(look, since, moved, at_most=started and look.noticed is None))
        since, moved = None, frozenset()
    measured = look if look.measured else story.measured
    gone = dict.fromkeys(before.members.keys() - look.members.keys(), look.at)
    left = {name: at for name, at in {**story.left, **gone}.items() if name not in look.members}
    return Story(look, since, owned, moved, measured, dict(list(left.items())[-_REMEMBERED:])), events


def is_settled(look: Look) -> bool:
    """Whether no rebalance is under way."""
    if not look.members:
        return True
    return look.phase is None and not any(_is_open(key, p, look) for key, p in look.partitions.items())


def waiting_for(look: Look) -> str:
    """What a rebalance that is under way waits for, in words."""
    if look.phase is not None:
        return look.phase
    open_ = [(key, p) for key, p in look.partitions.items() if _is_open(key, p, look)]
    unowned = sum(p.owner is None for _, p in open_)
    words = [f"{counted(unowned, 'partition')} without an owner"] if unowned else []
    late = sorted({p.member for _, p in open_ if p.owner is not None and p.member is not None})
    strangers = sum(p.owner is not None and (p.member is None or p.member not in look.members) for _, p in open_)
    if late:
        words.append(f"old claims of {listed(late, most=3)}")
    if strangers:
        words.append(f"{counted(strangers, 'partition')} owned by nobody who is registered")
    return ", ".join(words) or "nothing"


def _is_open(key: TopicPartition, p: WatchedPartition, look: Look) -> bool:
    """Whether members still have to see to this partition."""
    if not p.judged:
        return False
    if p.member is None or p.member not in look.members:
        return True
    ours = p.member.startswith(f"{look.group}_") and p.owner != p.member
    return ours and 0 < p.claimed < look.ids_changed


def _claims(look: Look) -> dict[TopicPartition, tuple[str | None, int]]:
    return {key: (p.owner, p.claimed) for key, p in look.partitions.items() if p.judged and p.owner is not None}


def _surroundings(before: Look, look: Look) -> Iterator[Event]:
    """Servers, the group itself, brokers, topics."""
    at = look.at
    if look.zookeeper is not None:
        if before.zookeeper is None:
            yield Event(at, "zookeeper-away", f"ZooKeeper is away: {look.zookeeper}")
        return
    if before.zookeeper is not None:
        yield Event(at, "zookeeper-back", "ZooKeeper is back")
    if look.kafka is not None and before.kafka is None:
        yield Event(at, "brokers-away", f"brokers do not answer: {look.kafka}")
    if look.kafka is None and before.kafka is not None:
        yield Event(at, "brokers-back", "brokers answer again")
    if before.exists != look.exists:
        yield Event(at, "group-came" if look.exists else "group-gone", "the group is " + _here(look.exists))
    for broker in sorted({*before.brokers} ^ {*look.brokers}):
        if broker in look.brokers:
            yield Event(at, "broker-came", f"broker {broker} is registered", after=broker)
        else:
            led = sum(p.leader == broker for p in before.partitions.values())
            words = f"broker {broker} is gone, which led {counted(led, 'partition')} of the group"
            yield Event(at, "broker-gone", words, before=broker)
    for topic in sorted({*before.topics} | {*look.topics}):
        was, now = before.topics.get(topic), look.topics.get(topic)
        if was == now:
            continue
        if was is None:
            yield Event(at, "topic-added", f"topic {topic} is there", topic=topic)
        elif now is None:
            yield Event(at, "topic-gone", f"topic {topic} is gone, or concerns the group no more", topic=topic)
        elif was and now:
            yield Event(at, "topic-recreated", f"topic {topic} was deleted and made again", topic=topic)
    for key in sorted({*before.partitions} ^ {*look.partitions}):
        added = key in look.partitions
        words = f"partition {key} " + ("came" if added else "is gone, or concerns the group no more")
        yield Event(at, "partition-added" if added else "partition-gone", words, None, *key)


def _here(exists: bool) -> str:
    return "there" if exists else "gone"


def _members(before: Look, look: Look, left: Mapping[str, int]) -> Iterator[Event]:
    at = look.at
    for member in sorted(before.members.keys() - look.members.keys()):
        had = [key for key, p in before.partitions.items() if p.member == member]
        still = sum(look.partitions.get(key, _NEVER).owner == before.partitions[key].owner for key in had)
        words = f"with its {counted(len(had), 'partition')}" if had else "which owned nothing"
        if still:
            words = f"{still} of its {counted(len(had), 'partition')} still in its name"
        yield Event(at, "member-left", f"{member} left, {words}", member, before=before.members[member].subscription)
    for member in sorted(look.members.keys() - before.members.keys()):
        now = look.members[member]
        words = f" ({now.subscription})" if now.subscription else ""
        if member in left:  # a new process of the reference has a new id, unless its configuration names one
            words = f" again under the same id, {max(0, at - left[member]) / 1000:.1f} s after it left{words}"
        yield Event(at, "member-joined", f"{member} joined{words}", member, after=now.subscription)
    for member in sorted(look.members.keys() & before.members.keys()):
        was, now = before.members[member], look.members[member]
        if was.subscription != now.subscription:
            words = f"{member} subscribes to {now.subscription}, no more to {was.subscription}"
            yield Event(at, "member-changed", words, member, before=was.subscription, after=now.subscription)
        if was.session != now.session:
            words = f"{member} registered again under a new session: its old one expired or was closed"
            yield Event(
                at, "session-renewed", words, member, before=session_text(was.session), after=session_text(now.session)
            )


def _owners(story: Story, look: Look) -> tuple[list[Event], dict[TopicPartition, str], frozenset[TopicPartition]]:
    """Releases before claims; who owned what last; what changed hands."""
    at, before = look.at, story.last
    released: list[Event] = []
    claimed: list[Event] = []
    owned = dict(story.owned)
    moved = set()
    for key in sorted({*before.partitions, *look.partitions}):
        was, now = before.partitions.get(key, _NEVER).owner, look.partitions.get(key, _NEVER).owner
        if was == now:
            continue
        if now is None:
            event = Event(at, "partition-released", f"{key} released by {was}", None, *key, before=was)
            released.append(replace(event, member=before.partitions[key].member))
            continue
        last = was if was is not None else owned.get(key)
        if last is None or last == now:
            event = Event(at, "partition-claimed", f"{key} claimed by {now}", None, *key, before=was, after=now)
        else:
            moved.add(key)
            event = Event(at, "partition-moved", f"{key} moved from {last} to {now}", None, *key, last, now)
        claimed.append(replace(event, member=look.partitions[key].member))
        owned[key] = now
    for key in [key for key in owned if key not in look.partitions]:
        del owned[key]
    return released + claimed, owned, frozenset(moved)


def _reason(before: Look, look: Look) -> str:
    """What a rebalance began with, in words."""
    joined, left = len(look.members.keys() - before.members.keys()), len(before.members.keys() - look.members.keys())
    words = [f"{counted(joined, 'member')} joined"] if joined else []
    if left:
        words.append(f"{counted(left, 'member')} left")
    if any(m in before.members and before.members[m] != now for m, now in look.members.items()):
        words.append("registrations changed")
    if any(p.judged and key not in before.partitions for key, p in look.partitions.items()):
        words.append("partitions were added")
    if {*before.brokers} != {*look.brokers}:
        words.append("brokers came or went")
    return ", ".join(words) or look.phase or "owners changed"


def _ended(look: Look, since: int, moved: Iterable[TopicPartition], *, at_most: bool) -> Event:
    """``at_most``: it began and ended between two looks, and nobody told when, so that only so much is known."""
    seconds = max(0, look.at - since) / 1000
    took = f"{'at most ' if at_most else ''}{seconds:.{1 if seconds >= 1 else 2}f} s"
    changed = f"{counted(len(list(moved)), 'partition')} moved"
    if not look.members:
        return Event(look.at, "rebalance-ended", f"nobody is left to rebalance, after {took}", seconds=seconds)
    words = f"rebalance ended after {took}: {changed}, {counted(len(look.members), 'member')}"
    return Event(look.at, "rebalance-ended", words, seconds=seconds)


def _offsets(before: Look, look: Look) -> Iterator[Event]:
    """What commits in order do not do. Both looks are at offsets; in between there may have been others."""
    at = look.at
    for key, now in sorted(look.partitions.items()):
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
            words = f"the offset of {key} was set from {'none' if old is None else old} to {new} while nobody owned it"
            yield Event(at, "offset-set", words, None, *key, old, new)
        if _is_lost(now) and not _is_lost(was):
            words = f"the offset of {key}, {new}, is before the log's start, {now.log_start}: messages are lost to it"
            yield Event(at, "offset-before-start", words, now.member, *key, new, now.log_start)


def _is_lost(p: WatchedPartition) -> bool:
    return p.committed is not None and p.log_start is not None and p.committed < p.log_start
