"""Recordings: what is written is read again, whatever end the writer came to."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import scaled
from timelines import any_state

from zkgroup.errors import UsageError, ZkgroupError
from zkgroup.groups.watch import recording
from zkgroup.groups.watch.event_detector import EventDetector
from zkgroup.groups.watch.recording import Header, Recorder, Recording
from zkgroup.groups.watch.timeline import Event, Observation, WatchedGroup, WatchedMember, WatchedPartition
from zkgroup.protocol.names import TopicPartition

HEADER = Header("g", 1411294187842, 2.0)
_files = itertools.count()


def written(folder: Path, entries: list[Observation]) -> Path:
    path = folder / f"{next(_files)}.jsonl"
    with Recorder(path, HEADER) as recorder:
        for entry in entries:
            recorder.add(*entry)
    return path


def read(path: Path, start: int = 0) -> list[Observation]:
    with Recording(path) as found:
        return list(found.entries(start))


def course(states: list[WatchedGroup]) -> list[Observation]:
    """Looks with their events."""
    detector = EventDetector()
    events = detector.detect(states[0])
    entries = [Observation(states[0], tuple(events))]
    for state in states[1:]:
        events = detector.detect(state)
        entries.append(Observation(state, tuple(events)))
    return entries


@settings(max_examples=scaled(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(states=st.lists(any_state(), min_size=1, max_size=8), whole=st.integers(1, 4), cut=st.integers(0, 200))
def test_what_was_recorded_is_read(
    states: list[WatchedGroup], whole: int, cut: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All states and events come back, from any state on; of a file that is cut off anywhere, all whole lines."""
    monkeypatch.setattr(recording, "WHOLE", whole)
    entries = course(states)
    path = written(tmp_path, entries)
    assert read(path) == entries
    assert read(path, len(states) // 2) == entries[len(states) // 2 :]
    with Recording(path) as found:
        assert (found.states, found.times, found.header) == (len(states), (states[0].at, states[-1].at), HEADER)
        owners = [
            sorted((key, str(p.owner), str(p.member)) for key, p in entry.state.partitions.items())
            for entry in found.entries()
        ]
    assert owners == [
        sorted((key, str(p.owner), str(p.member)) for key, p in state.partitions.items()) for state in states
    ]
    data = path.read_bytes()
    path.write_bytes(data[: max(data.index(b"\n", data.index(b"\n") + 1) + 1, len(data) - cut)])
    left = read(path)
    assert [entry.state for entry in left] == states[: len(left)]
    for ours, theirs in zip(left, entries, strict=False):
        assert ours.events == theirs.events[: len(ours.events)]


def test_hostile_names_survive(tmp_path: Path) -> None:
    """What ZooKeeper lets anybody write: line breaks, control characters, bytes that are no text."""
    name = "a\n\x1b[31m\u202eb</text>&\"'"
    state = WatchedGroup(
        1, "g", {name: WatchedMember(name)}, {TopicPartition(name, 0): WatchedPartition(name, name)}, {name: 1}
    )
    event = Event(1, "member-joined", name, name)
    assert read(written(tmp_path, [Observation(state, (event,))])) == [Observation(state, (event,))]
    odd = WatchedGroup(1, "g", {"\ud800": WatchedMember("t:1")})
    (entry,) = read(written(tmp_path, [Observation(odd, ())]))
    assert list(entry.state.members) == ["?"]


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"hello\n", b"[1]\n", b'{"a": 1}\n', b"\x00" * 100 + b"\n", b'{"zkgroup-timeline": 2}\n',
     b'{"zkgroup-timeline": 1}\n', b'{"zkgroup-timeline": 1, "group": "g", "started": 1, "interval": 2}\n'],
)  # fmt: skip
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    """What is no recording, or none that this version reads, is refused with its name."""
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="other"):
        read(path)


def test_damage_in_the_middle_is_reported(tmp_path: Path) -> None:
    """Only the end of a file may be missing: what is damaged before it is no timeline that anybody should trust."""
    state = WatchedGroup(1, "g", {"m": WatchedMember("t:1")})
    path = written(tmp_path, [Observation(state, ()), Observation(state, ()), Observation(state, ())])
    lines = path.read_bytes().split(b"\n")
    where = rf"{path}\b.*\b{len(lines[0]) + len(lines[1]) + 2}\b"
    path.write_bytes(b"\n".join([*lines[:2], b"{x", *lines[3:]]))
    with pytest.raises(UsageError, match=where):
        read(path)
    for value in (b'{"next": {"at": 1, "members": 3}}', b'{"next": 3}', b'{"event": {"kind": "x", "at": 1}}'):
        path.write_bytes(b"\n".join([*lines[:2], value, *lines[3:]]))
        with pytest.raises(UsageError, match=where):
            read(path)


def test_files_that_are_there_and_files_that_cannot_be(tmp_path: Path) -> None:
    """Nothing is overwritten; what cannot be written is said in a line."""
    path = written(tmp_path, [])
    with pytest.raises(UsageError, match=str(path)), Recorder(path, HEADER):
        pass
    with pytest.raises(ZkgroupError, match="/no/file"), Recorder(tmp_path / "no" / "file", HEADER):
        pass
    with pytest.raises(UsageError, match="/nothing"), Recording(tmp_path / "nothing"):
        pass


def test_a_quiet_interval_costs_little(tmp_path: Path) -> None:
    """A state in which nothing has changed takes a few bytes, whatever the group's size; commits take some ten each."""
    partitions = {
        TopicPartition("orders", n): WatchedPartition("g_a-0", "g_a", 5, True, 7, 0, 9, 1) for n in range(1000)
    }
    first = WatchedGroup(1411294187842, "g", {"g_a": WatchedMember("orders:1")}, partitions)
    quiet = WatchedGroup(1411294189842, "g", first.members, dict(partitions))
    moving = {key: p._replace(committed=123456, log_end=123460) for key, p in partitions.items()}
    path = written(
        tmp_path,
        [
            Observation(first, ()),
            Observation(quiet, ()),
            Observation(WatchedGroup(1411294191842, "g", first.members, moving), ()),
        ],
    )
    _, _, second, third, _ = path.read_bytes().split(b"\n")
    assert len(second) < 40
    assert len(third) < 30 * 1000
