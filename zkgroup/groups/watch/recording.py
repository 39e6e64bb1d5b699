"""A watch in a file of JSON lines; ``docs/reference/watching.md`` describes the format.

The first line is the header. A state of the group is written whole now and then (``snapshot``), else as its changes
since the one before (``next``); an event (``event``) follows its state. Each line is written at once and whole: a file
whose writer was killed lacks its last line at most. Writer and reader hold one state in memory, and the places of whole
ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from zkgroup.errors import UsageError, ZkgroupError
from zkgroup.groups.watch.timeline import Event, Observation, WatchedGroup, WatchedMember, WatchedPartition
from zkgroup.protocol.names import TopicPartition

T = TypeVar("T")
FORMAT: Final = "zkgroup-timeline"
VERSION: Final = 1
#: A state is written whole once in so many.
WHOLE: Final = 200
#: A longer line is none of ours: a group of 100,000 partitions makes some ten megabytes.
_LONGEST: Final = 256 << 20
_NEW: Final = WatchedPartition()
_SCALARS: Final = ("brokers", "exists", "phase", "ids_changed", "zookeeper", "kafka", "measured", "unreadable")
#: Owner, member, claimed, judged, leader.
_Held: TypeAlias = tuple[str | None, str | None, int, bool, int | None]
#: Committed offset, log start and end.
_Offsets: TypeAlias = tuple[int | None, int | None, int | None]


class Header(msgspec.Struct, frozen=True):
    """What a recording is of. ``interval`` in seconds, ``started`` in milliseconds since 1970."""

    group: str
    started: int
    interval: float


class _Changes(msgspec.Struct, omit_defaults=True):
    """What is other than in the last state. Members, topics: name → value; owners, offsets: topic → partition → value.
    None for what is gone."""

    at: int
    members: dict[str, WatchedMember | None] = {}
    owners: dict[str, dict[int, _Held]] = {}
    offsets: dict[str, dict[int, _Offsets | None]] = {}
    topics: dict[str, int | None] = {}
    brokers: tuple[int, ...] | UnsetType = UNSET
    exists: bool | UnsetType = UNSET
    phase: str | UnsetType | None = UNSET
    ids_changed: int | UnsetType = UNSET
    zookeeper: str | UnsetType | None = UNSET
    kafka: str | UnsetType | None = UNSET
    measured: bool | UnsetType = UNSET
    unreadable: int | UnsetType = UNSET


class _Line(msgspec.Struct):
    snapshot: _Changes | None = None
    next: _Changes | None = None
    event: Event | None = None


_LINES: Final = msgspec.json.Decoder(_Line)


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
        self._write({FORMAT: VERSION, **msgspec.structs.asdict(self._header)})
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
            self._write({"snapshot": _changes(None, state)})
        else:
            self._write({"next": _changes(self._last, state)})
        self._last = state
        self._count += 1
        for event in events:
            values = ((field.name, getattr(event, field.name)) for field in fields(event))
            self._write({"event": {name: value for name, value in values if value is not None}})

    def _write(self, value: dict[str, Any]) -> None:
        try:
            line = msgspec.json.encode(value) + b"\n"
        except UnicodeEncodeError:  # lone surrogates, which stand for bytes that were no UTF-8
            line = msgspec.json.encode(_encodable(msgspec.to_builtins(value))) + b"\n"
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
        number, place = max(one for one in self._whole if one[0] <= max(0, start))
        entry: Observation | None = None
        for line in self._lines(place):
            changes = line.snapshot or line.next
            if entry is not None and line.event is not None:
                entry = Observation(entry.state, (*entry.events, line.event))
            elif changes is not None:
                if entry is not None:
                    if number >= start:
                        yield entry
                    number += 1
                last = WatchedGroup(0, self.header.group) if entry is None or line.snapshot else entry.state
                entry = Observation(_applied(last, changes, offsets=offsets or line.snapshot is not None), ())
        if entry is not None and number >= start:
            yield entry

    def _survey(self) -> None:
        """Read the file once: what it is, and where its whole states are."""
        assert self._file is not None
        try:
            header = msgspec.json.decode(self._file.readline(_LONGEST), type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            header = {}
        if FORMAT not in header:
            raise UsageError(f"{self.path} is no recording", "give a file that inspect-group --watch --record wrote")
        if header[FORMAT] != VERSION:
            raise UsageError(
                f"the recording {self.path} is of version {str(header[FORMAT])[:20]}, and this zkgroup reads {VERSION}",
                "replay it with the zkgroup that recorded it, or a newer one",
            )
        try:
            self.header = msgspec.convert(header, Header)
        except msgspec.ValidationError:
            raise self._broken() from None
        for line in self._lines(self._file.tell()):
            if line.snapshot is not None:
                self._whole.append((self.states, self._place))
            if (changes := line.snapshot or line.next) is None:
                continue
            if not self._whole:
                raise self._broken()
            self.times = (self.times[0] if self.states else changes.at, changes.at)
            self.states += 1
        if not self.states:
            raise UsageError(f"the recording {self.path} has no state", "it ended before the first one")

    def _lines(self, place: int) -> Iterator[_Line]:
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
                value = _LINES.decode(line)
            except msgspec.ValidationError:
                raise self._broken() from None
            except (msgspec.DecodeError, UnicodeDecodeError):
                if not self._file.read(1):
                    return  # a machine that went down may leave anything at the end
                raise self._broken() from None
            yield value

    def _broken(self) -> UsageError:
        return UsageError(f"the recording {self.path} is damaged at byte {self._place}", "restore it")


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list | tuple) else value


def _changes(last: WatchedGroup | None, state: WatchedGroup) -> _Changes:
    """The changes since the last state; the whole state without one."""
    scalars = {name: getattr(state, name) for name in _SCALARS}
    if last is None:
        last = WatchedGroup(0)
    else:
        scalars = {name: value for name, value in scalars.items() if getattr(last, name) != value}
    members, topics = _difference(last.members, state.members), _difference(last.topics, state.topics)
    found = _Changes(state.at, members, topics=topics, **scalars)
    if last.partitions is state.partitions:
        return found
    for key in last.partitions.keys() - state.partitions.keys():
        found.offsets.setdefault(key.topic, {})[key.partition] = None
    for key, p in state.partitions.items():
        was = last.partitions.get(key)
        if was is None or _held(was) != _held(p):
            found.owners.setdefault(key.topic, {})[key.partition] = _held(p)
        if was is None or was[4:7] != p[4:7]:
            found.offsets.setdefault(key.topic, {})[key.partition] = p[4:7]
    return found


def _held(p: WatchedPartition) -> _Held:
    return p.owner, p.member, p.claimed, p.judged, p.leader


def _difference(last: Mapping[str, T], new: Mapping[str, T]) -> dict[str, T | None]:
    changed: dict[str, T | None] = {name: value for name, value in new.items() if last.get(name) != value}
    return changed | dict.fromkeys(last.keys() - new.keys())


def _merged(last: Mapping[str, T], changes: Mapping[str, T | None]) -> dict[str, T]:
    return {name: value for name, value in {**last, **changes}.items() if value is not None}


def _applied(last: WatchedGroup, changes: _Changes, *, offsets: bool) -> WatchedGroup:
    """The state that comes out of the last one and what changed."""
    partitions, changed, added = dict(last.partitions), False, False
    for topic, numbers in changes.offsets.items():
        for number, values in numbers.items():
            key = TopicPartition(topic, number)
            known = partitions.get(key)
            if values is None:
                partitions.pop(key, None)
            elif known is None or offsets:
                added = added or known is None
                known = known or _NEW
                partitions[key] = WatchedPartition(*known[:4], *values, known.leader)
            else:
                continue
            changed = True
    for topic, claims in changes.owners.items():
        for number, held in claims.items():
            key = TopicPartition(topic, number)
            partitions[key] = WatchedPartition(*held[:4], *partitions.get(key, _NEW)[4:7], held[4])
            changed = True
    scalars: dict[str, Any] = {name: value for name in _SCALARS if (value := getattr(changes, name)) is not UNSET}
    return replace(
        last,
        at=changes.at,
        members=_merged(last.members, changes.members),
        partitions=last.partitions if not changed else dict(sorted(partitions.items())) if added else partitions,
        topics=_merged(last.topics, changes.topics),
        **scalars,
    )
