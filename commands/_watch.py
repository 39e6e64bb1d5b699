"""``zkgroup inspect-group --watch`` and ``--replay``: their options, the watch, and events as lines."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ._context import connection, done, zookeeper_settings
from ._error_output import reader_is_gone, stdout_descriptor
from ._group_views import StoreChoice, brokers_of, open_stores
from ._output import Output, escape_line, is_table, iso_utc, stream_head, stream_line
from ._shared_options import option
from ._signals import StopRequest, before_start
from ._terminal_text import one_line, rewrites

if TYPE_CHECKING:
    from zkgroup.clients.zookeeper.registry import WatchingRegistry
    from zkgroup.config import ConnectionSettings
    from zkgroup.groups.group_model import GroupSnapshot
    from zkgroup.groups.watch.group_watch import GroupWatch
    from zkgroup.groups.watch.timeline import Event, Observation, WatchedFinding

    from ._watch_view import View

#: Seconds between checks for a reader.
_POLL: Final = 0.2
DEFAULT_INTERVAL: Final = 2.0  # seconds
_option = partial(option, panel="Watching")


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """The options of a watch, as they are given."""

    watch: Annotated[
        bool,
        _option(
            "--watch",
            help="Watch the group: a screen on a terminal, else a line for each event (JSON Lines with --output json).",
        ),
    ] = False
    interval: Annotated[
        float | None,
        _option(
            "--interval",
            metavar="SECONDS",
            min=0.2,
            max=3600,
            help=f"With --watch: the interval of offsets and log ends (default: {DEFAULT_INTERVAL:g}). Members and "
            "owners change at once.",
        ),
    ] = None
    record: Annotated[
        Path | None,
        _option("--record", metavar="FILE", help="With --watch: record the events and offsets in this new file."),
    ] = None
    replay: Annotated[
        Path | None,
        _option(
            "--replay",
            metavar="FILE",
            help="Replay a recording; on a terminal keys step and jump.",
        ),
    ] = None
    picture: Annotated[
        Path | None,
        _option(
            "--picture",
            metavar="FILE",
            help="With --replay: draw the owners over time, as SVG. With --history: draw lag, rates and commits.",
        ),
    ] = None


def watch_group(
    ctx: typer.Context,
    group: str,
    output: Output,
    *,
    options: WatchOptions = WatchOptions(),  # it is frozen
    store: StoreChoice = None,
    topics: Sequence[str] = (),
    view: View | None = None,
) -> int:
    """Watch until a key, a signal or a closed pipe; returns the exit code. ``view``: the state of the screen."""
    from zkgroup.groups.watch.recording import Header, Recorder, check_target

    record, interval = options.record, options.interval or DEFAULT_INTERVAL
    if record is not None:
        check_target(record)
    settings = connection(ctx)
    on_screen = has_screen(output)
    with (
        StopRequest() as stop,
        _opened(settings, group, store, topics, interval, on_screen=on_screen) as watch,
    ):
        first: Observation | None = None  # its errors are those of any command
        while first is None:
            if stop:
                return stop.exit_code
            first = watch.next(_POLL)
        with Recorder(record, Header(group, first.state.at, interval)) if record else nullcontext() as recorder:
            waiting = [first]

            def next_observation(timeout: float = 0.0) -> Observation | None:
                found = waiting.pop() if waiting else watch.next(timeout)
                if found is not None and recorder is not None:
                    recorder.add(found.state, found.events)
                return found

            if on_screen:
                from ._watch_screen import show_live
                from ._watch_view import View

                return show_live(view or View(group), watch, next_observation, stop)
            return _lines(output, next_observation, stop)


def has_screen(output: Output) -> bool:
    """True if the output is a screen, on a terminal that has keys."""
    return is_table(output) and rewrites(sys.stdout) and sys.stdin.isatty()


def _lines(output: Output, next_observation: Callable[[float], Observation | None], stop: StopRequest) -> int:
    lines = EventLines(output, stop)
    while not stop:
        entry = next_observation(_POLL)
        if entry is not None:
            lines.write(entry.events)
        elif reader_is_gone(lines.descriptor):
            return 0
    return stop.exit_code


def _opened(
    settings: ConnectionSettings,
    group: str,
    store: StoreChoice,
    topics: Sequence[str],
    interval: float,
    *,
    on_screen: bool,
) -> GroupWatch:
    with before_start():
        from zkgroup.clients.zookeeper.registry import WatchingRegistry
        from zkgroup.groups.watch.group_watch import GroupWatch

    def opener(on_change: Callable[[str], None]) -> WatchingRegistry:
        registry = WatchingRegistry(zookeeper_settings(settings), on_change)
        registry.__enter__()
        return registry

    in_kafka = settings.zookeeper is None and bool(settings.bootstrap) and store != "zookeeper"
    if not in_kafka:
        with open_stores(settings, store, [group]):
            pass  # raises for a wrong address, chroot or name before a thread starts
    return GroupWatch(
        group,
        None if in_kafka else opener,
        lambda registry: brokers_of(settings, registry)(),
        interval=interval,
        timeout=settings.timeout,
        store="kafka" if in_kafka else store,
        topics=frozenset(topics),
        diagnose=_watched_findings if on_screen else lambda snapshot: (),
        ages=on_screen,
    )


def _watched_findings(snapshot: GroupSnapshot) -> tuple[WatchedFinding, ...]:
    from zkgroup.groups.findings.inspection import inspect
    from zkgroup.groups.watch.timeline import WatchedFinding

    return tuple(
        WatchedFinding(finding.severity, f"{finding.code}: {finding.subject}: {finding.message}")
        for finding in inspect(snapshot).findings
        if finding.severity != "info"
    )


def replay_recording(ctx: typer.Context, path: Path, output: Output, *, picture: Path | None) -> int:
    """Replay a recording, or draw it; returns the exit code."""
    from zkgroup.groups.offset_files.atomic_file import write_atomically
    from zkgroup.groups.watch.recording import Recording
    from zkgroup.groups.watch.timeline_picture import picture as timeline

    with StopRequest() as stop, Recording(path) as recording:
        if picture is not None:
            drawn = timeline(recording.entries(), *recording.times, recording.header.group)
            write_atomically(str(picture), drawn)
            done(ctx, f"drawn: {picture}")
            return 0
        if has_screen(output):
            from ._watch_screen import show_recording
            from ._watch_view import View

            return show_recording(View(recording.header.group), recording, stop)
        lines = EventLines(output, stop)
        for entry in recording.entries():
            lines.write(entry.events)
            if stop:
                break
        return stop.exit_code


COLUMNS: Final = ("time", "event", "member", "topic", "partition", "from", "to", "seconds", "message")
#: Bytes that a ready pipe takes at once: a longer write could block, and signals would wait.
_MAX_WRITE: Final = 4096


class EventLines:
    """Writes events to stdout, one per line. ``stop`` ends the wait for a reader that does not read."""

    def __init__(self, output: Output, stop: StopRequest) -> None:
        self._output = output
        self._stop = stop
        self.descriptor = stdout_descriptor()
        self._terminal = os.isatty(self.descriptor)
        self._write(stream_head(COLUMNS, output))

    def write(self, events: Iterable[Event]) -> None:
        """Write these events. Raises ``BrokenPipeError`` if the reader has closed the pipe."""
        self._write("".join(map(self._line, events)))

    def _line(self, event: Event) -> str:
        time = iso_utc(event.at)
        if is_table(self._output):
            # Names may hold control characters and line breaks.
            return f"{time}  {event.kind:<18}  {one_line(event.message)}\n"
        values = (event.kind, event.member, event.topic, event.partition, event.before, event.after, event.seconds)
        line = stream_line(dict(zip(COLUMNS, (time, *values, event.message), strict=True)), self._output)
        return escape_line(line, self._output) if self._terminal else line

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        while data and not self._stop:
            if select.select([], [self.descriptor], [], _POLL)[1]:
                data = data[os.write(self.descriptor, data[:_MAX_WRITE]) :]
