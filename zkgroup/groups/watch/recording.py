"""A watch in a file of JSON lines; ``docs/reference/watching.md`` describes the format.

Each line is written at once and whole: a file whose writer was killed lacks its last line at most. Writer and reader
hold one state in memory, and the places of whole ones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import msgspec

from zkgroup.errors import UsageError, ZkgroupError
from zkgroup.groups.watch.timeline import Event, Observation, WatchedGroup, WatchedPartition
from zkgroup.protocol.names import TopicPartition

#: A state is written whole once in so many.
WHOLE: Final = 200
#: A longer line is none of ours: a group of 100,000 partitions makes some ten megabytes.
_MAX_LINE_BYTES: Final = 256 << 20
#: Owner, member, claimed, counted, leader.
_Held: TypeAlias = tuple[str | None, str | None, int, bool, int | None]
#: Committed offset, log start and end.
_Offsets: TypeAlias = tuple[int | None, int | None, int | None]


class Header(msgspec.Struct, frozen=True, tag_field="zkgroup-timeline", tag=1):
    """What a recording is of. ``interval`` in seconds, ``started`` in milliseconds since 1970."""

    group: str
    started: int
    interval: float


class _Partitions(msgspec.Struct):
    """Those of a whole state: topic → partition → value."""

    owners: dict[str, dict[int, _Held]]
    offsets: dict[str, dict[int, _Offsets]]


#: What is written as ``WatchedGroup`` has it.
SAME: Final = (
    *("at", "members", "topics", "brokers", "exists", "phase", "ids_changed"),
    *("zookeeper", "kafka", "measured", "unreadable"),
)


class _Line(msgspec.Struct):
    """``next``: a patch of the state before, as in RFC 7396."""

    snapshot: dict[str, Any] | None = None
    next: dict[str, Any] | None = None
    event: Event | None = None


_HEADERS: Final = msgspec.json.Decoder(Header)
_LINES: Final = msgspec.json.Decoder(_Line)


class Recorder:
    """Writes a recording; a context manager. Raises ``UsageError`` for an existing file, ``ZkgroupError``."""

    def __init__(self, path: Path, header: Header) -> None:
        self._path = path
        self._header = header
        self._file: int | None = None
        self._last: dict[str, Any] = {}
        self._count = 0

    def __enter__(self) -> Recorder:
        try:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            raise _is_there(self._path) from None
        except (OSError, ValueError) as error:
            raise self._failed(error) from None
        self._write(self._header)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.close(self._file)

    def add(self, state: WatchedGroup, events: Iterable[Event]) -> None:
        whole = _as_written(state)
        if self._count % WHOLE == 0:
            self._write({"snapshot": whole})
        else:
            self._write({"next": {"at": state.at} | _difference(self._last, whole)})
        self._last = whole
        self._count += 1
        for event in events:
            values = msgspec.to_builtins(event)
            self._write({"event": {name: value for name, value in values.items() if value is not None}})

    def _write(self, value: object) -> None:
        try:
            line = msgspec.json.encode(value)
        except UnicodeEncodeError:  # lone surrogates, which stand for bytes that were no UTF-8
            line = json.dumps(msgspec.to_builtins(value), ensure_ascii=False).encode("utf-8", "replace")
        line += b"\n"
        assert self._file is not None
        try:
            while line:
                line = line[os.write(self._file, line) :]
        except OSError as error:
            raise self._failed(error) from None

    def _failed(self, error: Exception) -> ZkgroupError:
        why = getattr(error, "strerror", None) or str(error)
        return ZkgroupError(f"the recording {self._path} cannot be written: {why}", "name a file that can be")


def _is_there(path: Path) -> UsageError:
    return UsageError(f"{path} is there already", "name another file, or remove it first")


def check_target(path: Path) -> None:
    """Raise ``UsageError`` where a recording cannot begin, before anything is opened."""
    if path.exists():
        raise _is_there(path)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        why = "may not be written to" if path.parent.is_dir() else "is no folder that is there"
        raise UsageError(f"{path}: {path.parent} {why}", "name a file in another folder")


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
            self._survey(self._file)
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def entries(self, start: int = 0) -> Iterator[Observation]:
        """The states from this number on (the first is 0), each with its events."""
        number, place = max(one for one in self._whole if one[0] <= max(0, start))
        whole: dict[str, Any] = {}
        entry: Observation | None = None
        for line in self._lines(place):
            patch = line.snapshot or line.next
            if entry is not None and line.event is not None:
                entry = Observation(entry.state, (*entry.events, line.event))
            elif patch is not None:
                if entry is not None:
                    if number >= start:
                        yield entry
                    number += 1
                whole = _patched({} if line.snapshot else whole, patch)
                entry = Observation(self._state(whole), ())
        if entry is not None and number >= start:
            yield entry

    def _state(self, whole: dict[str, Any]) -> WatchedGroup:
        try:
            state = msgspec.convert(whole, WatchedGroup)
            found = msgspec.convert(whole, _Partitions, str_keys=True)
            partitions = {
                TopicPartition(topic, number): WatchedPartition(*held[:4], *found.offsets[topic][number], held[4])
                for topic, numbers in sorted(found.owners.items())
                for number, held in sorted(numbers.items())
            }
        except (msgspec.ValidationError, KeyError):
            raise self._broken() from None
        return replace(state, group=self.header.group, partitions=partitions)

    def _survey(self, file: BinaryIO) -> None:
        """Read the file once: what it is, and where its whole states are."""
        try:
            self.header = _HEADERS.decode(file.readline(_MAX_LINE_BYTES))
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise UsageError(
                f"{self.path} is no recording that this zkgroup reads",
                "give a file that a watch has recorded",
            ) from None
        for line in self._lines(file.tell()):
            if line.snapshot is not None:
                self._whole.append((self.states, self._place))
            if (patch := line.snapshot or line.next) is not None:
                if not self._whole or not isinstance(at := patch.get("at"), int):
                    raise self._broken()
                self.times = (self.times[0] if self.states else at, at)
                self.states += 1
        if not self.states:
            raise UsageError(f"the recording {self.path} has no state", "it ended before the first one")

    def _lines(self, place: int) -> Iterator[_Line]:
        """The lines from that place on, but for a last one that is cut off."""
        assert self._file is not None
        while True:
            self._file.seek(place)
            self._place = place
            line = self._file.readline(_MAX_LINE_BYTES)
            if not line.endswith(b"\n"):
                return  # the end, or what was being written when the writer was killed
            place += len(line)
            try:
                value = _LINES.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                raise self._broken() from None
            yield value

    def _broken(self) -> UsageError:
        return UsageError(f"the recording {self.path} is damaged at byte {self._place}", "restore it")


def _as_written(state: WatchedGroup) -> dict[str, Any]:
    """A whole state; what is None is left out."""
    owners: dict[str, dict[str, _Held]] = {}
    offsets: dict[str, dict[str, _Offsets]] = {}
    for (topic, number), p in state.partitions.items():
        owners.setdefault(topic, {})[str(number)] = (p.owner, p.member, p.claimed, p.is_counted, p.leader)
        offsets.setdefault(topic, {})[str(number)] = p[4:7]
    same = {name: value for name in SAME if (value := getattr(state, name)) is not None}
    return {**same, "owners": owners, "offsets": offsets}


def _difference(last: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The patch that makes ``new`` of ``last``; None for what is gone."""
    changed = {
        name: _difference(last.get(name, {}), value) if isinstance(value, dict) else value
        for name, value in new.items()
        if last.get(name) != value
    }
    return changed | dict.fromkeys(last.keys() - new.keys())


def _patched(last: Any, patch: dict[str, Any]) -> dict[str, Any]:
    found = dict(last) if isinstance(last, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = _patched(found.get(name), value) if isinstance(value, dict) else value
    return found
