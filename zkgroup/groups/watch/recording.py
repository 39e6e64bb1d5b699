"""A watch in a file of JSON lines; ``docs/reference/watching.md`` describes the format.

The first line is the header. A state of the group is written whole now and then (``snapshot``), else as its changes
since the one before (``next``); an event (``event``) follows its state. Each line is written at once and whole: a file
whose writer was killed lacks its last line at most. Writer and reader hold one state in memory, and the places of whole
ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, cast

import orjson

from zkgroup.errors import UsageError, ZkgroupError
from zkgroup.groups.watch.timeline import KINDS, Event, Observation, WatchedGroup, WatchedMember, WatchedPartition
from zkgroup.protocol.names import TopicPartition

FORMAT: Final = "zkgroup-timeline"
VERSION: Final = 1
#: A state is written whole once in so many.
WHOLE: Final = 200
#: A longer line is none of ours: a group of 100,000 partitions makes some ten megabytes.
_LONGEST: Final = 256 << 20
_NEW: Final = WatchedPartition()
_SCALARS: Final = ("exists", "phase", "ids_changed", "zookeeper", "kafka", "measured", "unreadable")
_EVENT: Final = ("kind", "message", "member", "topic", "partition", "before", "after", "seconds")


class Header(NamedTuple):
    """What a recording is of. ``interval`` in seconds, ``started`` in milliseconds since 1970."""

    group: str
    started: int
    interval: float


class Recorder:
    """Writes a recording; a context manager. Raises ``UsageError`` for an existing file, ``ZkgroupError``."""

    def __init__(self, path: Path, header: Header) -> None:
        self._path = path
        self._header = header
        self._file: int | None = None
        self._last: WatchedGroup | None = None
        self._count = 0

    def __enter__(self) -> Recorder:
        try:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            raise _is_there(self._path) from None
        except (OSError, ValueError) as error:
            raise self._failed(error) from None
        header = self._header
        self._write({FORMAT: VERSION, "group": header.group, "started": header.started, "interval": header.interval})
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the recording. May be called again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def add(self, state: WatchedGroup, events: Iterable[Event]) -> None:
        if self._last is None or self._count % WHOLE == 0:
            self._write({"snapshot": _whole(state)})
        else:
            self._write({"next": _changes(self._last, state)})
        self._last = state
        self._count += 1
        for event in events:
            values = {name: value for name in _EVENT if (value := getattr(event, name)) is not None}
            self._write({"event": {"at": event.at, **values}})

    def _write(self, value: dict[str, Any]) -> None:
        line = _encoded(value) + b"\n"
        assert self._file is not None
        try:
            while line:
                line = line[os.write(self._file, line) :]
        except OSError as error:
            raise self._failed(error) from None

    def _failed(self, error: Exception) -> ZkgroupError:
        why = getattr(error, "strerror", None) or str(error)
        return ZkgroupError(f"the recording {self._path} cannot be written: {why}", "name a file that can be")


def check_target(path: Path) -> None:
    """Raise ``UsageError`` where a recording cannot begin, before anything is opened."""
    if path.exists():
        raise _is_there(path)
    check_folder(path)


def check_folder(path: Path) -> None:
    """Raise ``UsageError`` where no file of this name can be made: hours later it would be too late to tell."""
    if not os.access(path.parent, os.W_OK | os.X_OK):
        why = "may not be written to" if path.parent.is_dir() else "is no folder that is there"
        raise UsageError(f"{path}: {path.parent} {why}", "name a file in another folder")


def _is_there(path: Path) -> UsageError:
    return UsageError(f"{path} is there already", "name another file, or remove it first")


class Recording:
    """Reads a recording; a context manager. Raises ``UsageError`` for what is no recording, or none of this version.

    ``states``: how many there are; ``times``: when the first and the last were taken (milliseconds since 1970).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header = Header("", 0, 0.0)
        self.states = 0
        self.times = (0, 0)
        self._file: BinaryIO | None = None
        self._place = 0
        self._whole: list[tuple[int, int]] = []  # of each whole state its number and its place

    def __enter__(self) -> Recording:
        try:
            self._file = self.path.open("rb")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise UsageError(f"the recording {self.path} cannot be read: {why}") from None
        try:
            self._survey()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def entries(self, start: int = 0, *, offsets: bool = True) -> Iterator[Observation]:
        """The states from this number on (the first is 0), each with its events. Without ``offsets`` those are not
        updated, which takes a fraction of the time; ``partitions`` then is the same object until an owner changes."""
        begin = max((one for one in self._whole if one[0] <= max(0, start)), default=(0, 0))
        number = begin[0] - 1
        entry: Observation | None = None
        for value in self._lines(begin[1]):
            if "event" in value:
                if entry is not None:
                    entry = Observation(entry.state, (*entry.events, self._event(value["event"])))
                continue
            if entry is not None and number >= start:
                yield entry
            number += 1
            entry = Observation(self._state(value, entry and entry.state, offsets), ())
        if entry is not None and number >= start:
            yield entry

    def _survey(self) -> None:
        """Read the file once: what it is, and where its whole states are."""
        lines = self._lines(0)
        header = next(lines, {})
        if FORMAT not in header:
            raise UsageError(f"{self.path} is no recording", "give a file that inspect-group --watch --record wrote")
        if header[FORMAT] != VERSION:
            raise UsageError(
                f"the recording {self.path} is of version {str(header[FORMAT])[:20]}, and this zkgroup reads {VERSION}",
                "replay it with the zkgroup that recorded it, or a newer one",
            )
        try:
            self.header = Header(str(header["group"]), int(header["started"]), float(header["interval"]))
        except (KeyError, TypeError, ValueError):
            raise self._broken() from None
        begin = end = None
        for value in lines:
            try:
                if "snapshot" in value:
                    self._whole.append((self.states, self._place))
                elif "next" not in value:
                    continue
                end = int(value["snapshot" if "snapshot" in value else "next"]["at"])
            except (KeyError, TypeError, ValueError):
                raise self._broken() from None
            if not self._whole:
                raise self._broken()
            begin = end if begin is None else begin
            self.states += 1
        if begin is None or end is None:
            raise UsageError(f"the recording {self.path} has no state", "it ended before the first one")
        self.times = (begin, end)

    def _lines(self, place: int) -> Iterator[dict[str, Any]]:
        """The lines from that place on, but for a last one that is cut off."""
        assert self._file is not None
        while True:
            self._file.seek(place)
            self._place = place
            line = self._file.readline(_LONGEST)
            if not line.endswith(b"\n"):
                return  # the end, or what was being written when the writer was killed
            place += len(line)
            try:
                value = orjson.loads(line)
            except orjson.JSONDecodeError:
                value = None
            if not isinstance(value, dict):
                if self._place == 0:
                    value = {}
                elif not self._file.read(1):
                    return  # a machine that went down may leave anything at the end
                else:
                    raise self._broken()
            yield value

    def _broken(self) -> UsageError:
        return UsageError(f"the recording {self.path} is damaged at byte {self._place}", "restore it")

    def _state(self, value: dict[str, Any], last: WatchedGroup | None, offsets: bool) -> WatchedGroup:
        try:
            if "snapshot" in value:
                return _applied(WatchedGroup(0), value["snapshot"], self.header.group, offsets=True)
            if last is None:
                raise ValueError
            return _applied(last, value["next"], self.header.group, offsets=offsets)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            raise self._broken() from None

    def _event(self, value: Any) -> Event:
        try:
            if value["kind"] not in KINDS:
                raise ValueError
            return Event(int(value["at"]), *(value.get(name) for name in _EVENT))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self._broken() from None


def _encoded(value: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(value)
    except (orjson.JSONEncodeError, TypeError):  # lone surrogates, which stand for bytes that were no UTF-8
        return orjson.dumps(_encodable(value))


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list | tuple) else value


def _whole(state: WatchedGroup) -> dict[str, Any]:
    return _changes(WatchedGroup(0, exists=not state.exists, measured=not state.measured), state)


def _changes(last: WatchedGroup, state: WatchedGroup) -> dict[str, Any]:
    """What is other than in the last state. Members, topics: name → value, null for what is gone. Owners: topic →
    partition → [owner, member, claimed, judged, leader]. Offsets: topic → partition → [committed, log start, log end],
    null for a partition that is gone."""
    found: dict[str, Any] = {"at": state.at}
    for name in _SCALARS:
        if getattr(last, name) != getattr(state, name):
            found[name] = getattr(state, name)
    if last.brokers != state.brokers:
        found["brokers"] = list(state.brokers)
    if topics := _difference(last.topics, state.topics):
        found["topics"] = topics
    if members := _difference(last.members, state.members):
        found["members"] = members
    if last.partitions is state.partitions:
        return found
    owners: dict[str, dict[str, Any]] = {}
    offsets: dict[str, dict[str, Any]] = {}
    for key in last.partitions.keys() - state.partitions.keys():
        offsets.setdefault(key.topic, {})[str(key.partition)] = None
    for key, p in state.partitions.items():
        was = last.partitions.get(key)
        if was is None or _held(was) != _held(p):
            owners.setdefault(key.topic, {})[str(key.partition)] = _held(p)
        if was is None or was[4:7] != p[4:7]:
            offsets.setdefault(key.topic, {})[str(key.partition)] = p[4:7]
    found |= {name: value for name, value in (("owners", owners), ("offsets", offsets)) if value}
    return found


def _held(p: WatchedPartition) -> tuple[Any, ...]:
    return p.owner, p.member, p.claimed, p.judged, p.leader


def _difference(last: Any, new: Any) -> dict[str, Any]:
    changed = {name: value for name, value in new.items() if last.get(name) != value}
    return changed | dict.fromkeys(last.keys() - new.keys())


def _applied(last: WatchedGroup, changes: dict[str, Any], group: str, *, offsets: bool) -> WatchedGroup:
    """The state that comes out of the last one and what changed. Raises what comes of values that are no such thing."""
    partitions, changed, added = dict(last.partitions), False, False
    for topic, numbers in changes.get("offsets", {}).items():
        for number, values in numbers.items():
            key = TopicPartition(topic, int(number))
            known = partitions.get(key)
            if values is None:
                del partitions[key]
            elif known is None or offsets:
                known, added = (_NEW, True) if known is None else (known, added)
                committed, start, end = map(_number, values)
                partitions[key] = WatchedPartition(*known[:4], committed, start, end, known.leader)
            else:
                continue
            changed = True
    for topic, numbers in changes.get("owners", {}).items():
        for number, (owner, member, claimed, judged, leader) in numbers.items():
            key = TopicPartition(topic, int(number))
            claim = (_text(owner), _text(member), int(claimed), bool(judged))
            partitions[key] = WatchedPartition(*claim, *partitions[key][4:7], _number(leader))
            changed = True
    members = dict(last.members)
    for name, value in changes.get("members", {}).items():
        members.pop(name, None)
        if value is not None:
            subscription, session, host = value
            members[name] = WatchedMember(str(subscription), int(session), _text(host))
    topics = {**last.topics, **changes.get("topics", {})}
    scalars = {name: changes[name] for name in _SCALARS if name in changes}
    return replace(
        last,
        at=int(changes["at"]),
        group=group,
        members=members,
        partitions=last.partitions if not changed else dict(sorted(partitions.items())) if added else partitions,
        topics={name: int(value) for name, value in topics.items() if value is not None},
        brokers=tuple(map(int, changes["brokers"])) if "brokers" in changes else last.brokers,
        **cast("dict[str, Any]", scalars),
    )


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
