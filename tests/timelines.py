"""Reads a group for tests of watching: made by hand, and drawn at random."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from hypothesis import strategies as st

from zkgroup.groups.watch.timeline import Event, WatchedGroup, WatchedMember, WatchedPartition
from zkgroup.protocol.names import TopicPartition

A, B = "g_a", "g_b"


def state(at: int, owners: dict[int, str | None], members: str = "", changed: int = 0, **more: object) -> WatchedGroup:
    """Partitions of ``t`` by number; an owner is ``a@7``: stream 0 of member ``g_a``, claimed in transaction 7."""
    partitions = {}
    for number, owner in owners.items():
        name, _, claimed = (owner or "").partition("@")
        member = f"g_{name}" if name else None
        partitions[TopicPartition("t", number)] = WatchedPartition(
            member and f"{member}-0", member, int(claimed or 0), committed=10, log_start=0, log_end=15
        )
    registered = {f"g_{name}": WatchedMember("t:1", 7) for name in members}
    made = WatchedGroup(at, "g", registered, partitions, {"t": 1}, (1,), ids_changed=changed)
    return replace(made, **more)  # type: ignore[arg-type]


names = st.sampled_from("abc")
claims = st.none() | st.tuples(names, st.integers(1, 20)).map(lambda pair: f"{pair[0]}@{pair[1]}")


@st.composite
def any_state(draw: st.DrawFn) -> WatchedGroup:
    """Anything that could be seen: members that come and go, owners that are not registered, offsets at random."""
    members = "".join(sorted(draw(st.sets(names))))
    one = state(draw(st.integers(0, 9)), draw(st.dictionaries(st.integers(0, 5), claims)), members)
    registered = {
        name: WatchedMember(draw(st.sampled_from(["t:1", "t:2"])), draw(st.integers(0, 2))) for name in one.members
    }
    offsets = {
        key: p._replace(committed=draw(st.none() | st.integers(0, 20)), log_end=draw(st.none() | st.integers(0, 20)))
        for key, p in one.partitions.items()
    }
    return replace(
        one,
        members=registered,
        partitions=offsets,
        ids_changed=draw(st.integers(0, 20)),
        phase=draw(st.sampled_from([None, None, "PreparingRebalance"])),
        measured=draw(st.booleans()),
        zookeeper=draw(st.sampled_from([None, None, None, "away"])),
    )


def replay(
    members: Mapping[str, str], owners: Mapping[TopicPartition, str], events: Iterable[Event]
) -> tuple[dict[str, str], dict[TopicPartition, str]]:
    """Members (with their subscriptions) and owners after the events, by the events alone."""
    registered, held = dict(members), dict(owners)
    for event in events:
        if event.kind == "member-left" and event.member is not None:
            del registered[event.member]
        elif event.kind in ("member-joined", "member-changed") and event.member is not None:
            registered[event.member] = str(event.after)
        elif event.topic is not None and event.partition is not None:
            key = TopicPartition(event.topic, event.partition)
            if event.kind == "partition-released":
                del held[key]
            elif event.kind in ("partition-claimed", "partition-moved"):
                held[key] = str(event.after)
    return registered, held
