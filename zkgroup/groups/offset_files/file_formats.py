"""Offset files: read in every format that operators have, written in all of them.

| format | a line, or the whole | from |
|---|---|---|
| zk | ``/consumers/G/offsets/T/P:123`` | Kafka's ExportZkOffsets and ImportZkOffsets (0.8.0 to 0.10.2) |
| csv | ``T,P,123``; ``G,T,P,123``; with a head line, any order of columns | kafka-consumer-groups (KIP-122, KIP-222) |
| json | ``{"groupid": "G", "offsets": {"T": {"0": 123}}}``; a list of rows | kafka-utils; ``zkgroup … --output json`` |
| rpk | ``T P 123``; a table with a head line | ``rpk group seek --to-file``; ``zkgroup offsets``; describe |
| spark | ``{"T": {"0": 123}}``; −2 is earliest, −1 latest | Spark's startingOffsets |

A file is recognised by its content.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import re
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

from zkgroup.errors import UsageError, ZkgroupError
from zkgroup.groups.group_choices import FileFormat
from zkgroup.groups.group_model import Cluster
from zkgroup.groups.offset_files.atomic_file import write_atomically
from zkgroup.groups.offset_files.format_readers import (
    CLUSTER_KEYS,
    ELSEWHERE,
    MAX_LINES,
    Entries,
    OffsetFile,
    first_line,
    parse_json,
    read_cluster,
    read_columns,
    read_csv,
    read_json,
    read_zk,
)
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition, validate_topic

#: 100,000 partitions are some 10 MB: what is larger is no offset file, and may be a device without an end.
MAX_BYTES: Final = 256 << 20
STDIO: Final = "-"
_UNPACK: Final = "see whether it is the right file; unpack a compressed one first, as in: gunzip -c FILE | zkgroup …"
#: The line of a ``zk`` file that says of which cluster it is, below a blank one, at which Kafka's own tool stops.
_CLUSTER: Final = re.compile(rf'^# (\{{"{CLUSTER_KEYS[0]}": .{{1,500}}\}})$', re.MULTILINE)


def parse_offsets(data: bytes, name: str, form: FileFormat | None = None) -> OffsetFile:
    """Parse the content of a file called ``name``; ``form`` forces a format.

    Raises ``UsageError``, which names the file and the place in it, for anything malformed.
    """
    text = _decode(data, name)
    entries = Entries(name)
    first = first_line(text)
    if form in ("json", "spark") or (form is None and first[:1] in ("{", "[")):
        return entries.finished(read_json(text, entries, form))
    if text.count("\n") > MAX_LINES:
        entries.refuse_many(MAX_LINES, "lines")
    if form is None:
        is_zk = first.startswith("/") and "/offsets/" in first
        form = "zk" if is_zk else "csv" if "," in first else "rpk"
    {"zk": read_zk, "csv": read_csv, "rpk": read_columns}[form](text, entries)
    for match in _CLUSTER.finditer(text):
        read_cluster(parse_json(match[1], entries), entries)
    return entries.finished(form)


def read_offsets(path: str, form: FileFormat | None = None) -> OffsetFile:
    """Read a file, or stdin for ``-``. Raises ``UsageError`` where it cannot be opened or parsed."""
    name = "standard input" if path == STDIO else path
    try:
        with nullcontext(sys.stdin.buffer) if path == STDIO else Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}", "check the name and the permissions") from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"{name} is larger than {MAX_BYTES >> 20} MiB", ELSEWHERE)
    return parse_offsets(data, name, form)


def _decode(data: bytes, name: str) -> str:
    """The text; a byte order mark is honoured, as Windows' tools write it."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
        wrong, why = text.find("\0"), "a zero byte"
    except UnicodeDecodeError as error:
        text, wrong = data[: error.start].decode("latin-1"), error.start
        why = f"byte {wrong} is no {encoding.removesuffix('-sig').upper()}"
    if wrong >= 0:
        line = text.count("\n", 0, wrong) + 1
        raise UsageError(f"{name}, line {line}: {why}, so it is no text", _UNPACK)
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def format_for(path: str) -> FileFormat:
    """The format to write to a file of that name: by its ending, else ``zk``."""
    ending = Path(path).suffix.lower()
    return "csv" if ending == ".csv" else "json" if ending == ".json" else "zk"


def format_offsets(
    form: FileFormat, group: str, offsets: Mapping[TopicPartition, int], cluster: Cluster | None = None
) -> str:
    """A file's text, partitions in order, with the ``cluster`` where the format has a place for it. Raises
    ``UsageError`` for a name that the format cannot express."""
    created = cluster.created if cluster is not None else None
    made = None if created is None else dict(zip(("czxid", "ctime"), created, strict=True))
    origin = {} if cluster is None else dict(zip(CLUSTER_KEYS, (cluster.id, made), strict=True))
    ordered = [(key, offsets[key]) for key in sorted(offsets)]
    match form:
        case "zk":
            lines = "".join(f"{znodes.offset(group, key)}:{offset}\n" for key, offset in ordered)
            return f"{lines}\n# {json.dumps(origin)}\n" if origin else lines
        case "csv":
            buffer = io.StringIO()
            csv.writer(buffer, lineterminator="\n").writerows(
                (_plain(key.topic, form), key.partition, offset) for key, offset in ordered
            )
            return buffer.getvalue()
        case "rpk":
            return "".join(f"{_plain(key.topic, form)} {key.partition} {offset}\n" for key, offset in ordered)
    topics: dict[str, dict[str, int]] = {}
    for key, offset in ordered:
        topics.setdefault(key.topic, {})[str(key.partition)] = offset
    document: Mapping[str, Any] = {"groupid": group, "offsets": topics, **origin} if form == "json" else topics
    return json.dumps(document, indent=None if form == "spark" else 2) + "\n"


def _plain(topic: str, form: FileFormat) -> str:
    """Check a topic's name by Kafka's rules; foreign ones, which only ZooKeeper has, could be misread."""
    try:
        return validate_topic(topic)
    except UsageError as error:
        raise UsageError(
            f"as {form} it cannot be written: {error.message}", "choose --file-format zk or json"
        ) from None


# --- a file for each run ---------------------------------------------------------------------------------------------

#: Every name has milliseconds, three digits: so the order of names (``ls``, in any locale) is that of time.
_STAMP: Final = "%Y-%m-%dT%H%M%S.%f"
_NAME: Final = r"\.([12]\d{3}-[01]\d-[0-3]\dT[0-2]\d{5}\.\d{3})Z\.(?:txt|csv|json)"
_ENDINGS: Final = {"csv": "csv", "json": "json", "spark": "json"}


class Series:
    """The files of a group in ``folder``."""

    def __init__(self, folder: Path, group: str, form: str | None) -> None:
        self._folder = folder
        # One folder may serve many groups, whose names may have any character.
        name = quote(group, safe="")
        self._stem = name if len(name) <= 180 else f"{name[:160]}~{hashlib.sha256(group.encode()).hexdigest()[:16]}"
        self._pattern = re.compile(re.escape(self._stem) + _NAME, re.ASCII)
        self._ending = _ENDINGS.get(form or "zk", "txt")

    @classmethod
    def of(cls, path: str, group: str, form: str | None) -> Self | None:
        """The series, where ``path`` is a folder; None where it is a file."""
        folder = Path(path)
        return cls(folder, group, form) if path.endswith("/") or folder.is_dir() else None

    def add(self, text: str, keep: int | None) -> Path:
        """Write one more, and remove all but the ``keep`` newest. Raises ``ZkgroupError``; nothing is removed then."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._next_name()
            write_atomically(str(path), text)
            if keep is not None:
                for old in self.files()[:-keep]:  # another run may have done so
                    old.unlink(missing_ok=True)
        except OSError as error:
            raise ZkgroupError(f"cannot write to {self._folder}: {error.strerror}", "choose another folder") from None
        return path

    def files(self) -> list[Path]:
        """The group's files, oldest first; files with other names are ignored."""
        return sorted(path for path in self._folder.iterdir() if self._pattern.fullmatch(path.name))

    def _next_name(self) -> Path:
        """A name that sorts behind those of all files, even if the clock went back."""
        moment = datetime.now(UTC)
        if (files := self.files()) and (match := self._pattern.fullmatch(files[-1].name)):
            with contextlib.suppress(ValueError):  # digits that are no date
                moment = max(
                    moment, datetime.strptime(match[1], _STAMP).replace(tzinfo=UTC) + timedelta(milliseconds=1)
                )
        return self._folder / f"{self._stem}.{moment.strftime(_STAMP)[:-3]}Z.{self._ending}"
