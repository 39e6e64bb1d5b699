"""``list-groups --watch``: all groups on a screen, read again and again; Enter watches one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import typer

from zkgroup.errors import UsageError, ZkgroupError
from zkgroup.text import counted

from ._context import connection
from ._error_output import Message, render
from ._group_views import brokers_of, open_stores, shown_lag
from ._output import Figure, fitted_lines, shown_age
from ._shared_options import GlobalOptions
from ._signals import StopRequest
from ._terminal_text import fit, width
from ._watch import has_screen, watch_group
from ._watch_screen import MAX_KEY_WAIT, Key, show
from ._watch_view import OF_SEVERITY, FilteredView, Style, View, keys_line

if TYPE_CHECKING:
    from zkgroup.config import ConnectionSettings
    from zkgroup.groups.findings.inspection import Inspection
    from zkgroup.groups.group_model import GroupSnapshot

_HEADS: Final = ("GROUP", "STATE", "MEMBERS", "LAG", "BEHIND", "FINDING")
#: What a narrow screen does without, the least first.
_SPARE: Final = ("MEMBERS", "BEHIND", "STATE")

#: The groups to show in an order, and how many leftover ones are folded.
Select: TypeAlias = "Callable[[Sequence[GroupSnapshot], Any], tuple[list[Inspection], int]]"


class GroupsPoller:
    """A thread that reads all groups once an ``interval`` (seconds); a context manager. ``ages`` as in
    ``read_groups``."""

    def __init__(self, settings: ConnectionSettings, ages: bool | None, interval: float) -> None:
        self._settings = settings
        self._ages = ages
        self._interval = interval
        self._found: SimpleQueue[Sequence[GroupSnapshot] | ZkgroupError] = SimpleQueue()
        self._is_closing = threading.Event()
        #: Called, on the thread, when there is something to take.
        self.news: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="zkgroup-groups", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End. A thread that waits for a server is not waited for: it ends with the server's answer."""
        self._is_closing.set()
        self._thread.join(1.0)

    def next_snapshots(self, timeout: float = 0.0) -> Sequence[GroupSnapshot] | ZkgroupError | None:
        """What was read, once; None where there is nothing new within ``timeout`` seconds."""
        try:
            return self._found.get(timeout=timeout)
        except Empty:
            return None

    def _run(self) -> None:
        from zkgroup.groups.snapshot.group_reader import read_groups  # brings kazoo, which --help must not

        while not self._is_closing.is_set():
            try:
                with open_stores(self._settings, None) as (registry, _):
                    brokers = brokers_of(self._settings, registry)
                    while not self._is_closing.is_set():
                        self._put(read_groups(registry, kafka=brokers, ages=self._ages, timeout=self._settings.timeout))
            except ZkgroupError as error:
                self._put(error)
            except Exception as error:  # noqa: BLE001  # the next reading may do without
                self._put(ZkgroupError(str(error) or type(error).__name__))

    def _put(self, found: Sequence[GroupSnapshot] | ZkgroupError) -> None:
        """Hand this over, and wait for the next time."""
        self._found.put(found)
        self.news()
        self._is_closing.wait(self._interval)


class GroupsView(FilteredView):
    """The state of the screen: the groups, the order, the filter, and the chosen one."""

    def __init__(self, select: Select, sorts: Sequence[str], sort: str, render: Callable[[Message], str] = str) -> None:
        super().__init__(sorts, sort, render)
        self._select = select
        self._snapshots: Sequence[GroupSnapshot] = ()
        self._found: list[Inspection] = []
        self.folded = 0
        self.chosen = ""
        self.at: datetime | None = None

    def update(self, found: Sequence[GroupSnapshot] | ZkgroupError) -> None:
        """Take up what was read; an error leaves the groups as they were."""
        if isinstance(found, ZkgroupError):
            self.note = found
            return
        self._snapshots, self.at = found, datetime.now(UTC)
        warnings = [warning for one in found for warning in (*one.all_warnings, *one.age_warnings)]
        self.note = warnings[0] if warnings else ""
        self._arrange()

    def _arrange(self) -> None:
        self._found, self.folded = self._select(self._snapshots, self.sort)
        self.move(0)

    @property
    def rows(self) -> list[Inspection]:
        return [one for one in self._found if self.filter.lower() in one.snapshot.group.lower()]

    def count(self, severity: str) -> int:
        """The number of groups whose worst finding is so severe."""
        return sum(one.worst is not None and one.worst.severity == severity for one in self._found)

    def move(self, step: int | None) -> None:
        """Choose the group that is ``step`` lines below; the first one, where the chosen one is gone."""
        names = [one.snapshot.group for one in self.rows]
        place = names.index(self.chosen) + (step or 0) if self.chosen in names else 0
        place = max(0, min(place, len(names) - 1))
        self.chosen = names[place] if names else ""
        self.scroll = max(place - self.shown + 1, min(self.scroll, place))

    def ends(self, key: Key) -> bool:
        return super().ends(key) or (key == "enter" and not self.typing and bool(self.chosen))

    def press(self, key: Key) -> bool:
        before = self.sort
        has_meaning = super().press(key)
        if self.sort != before:
            self._arrange()
        return has_meaning


def groups_frame(view: GroupsView, columns: int, lines: int, style: Style) -> list[str]:
    """The screen, as lines no wider than it: totals, a note, the groups, keys."""
    rows = view.rows
    title = f"{counted(len(rows), 'group')}  {view.count('critical')} critical  {view.count('warning')} with warnings"
    title += f"  and {counted(view.folded, 'leftover group')}" if view.folded else ""
    clock = f"{view.at:%H:%M:%S}Z" if view.at is not None else ""
    gap = columns - width(title) - len(clock)
    found = [style.style(fit(f"{title}{' ' * gap}{clock}" if gap >= 2 else title, columns), "title")]
    found.append(style.style(fit(view.note_line, columns), "warn"))
    view.shown = max(1, lines - 4)
    view.move(0)
    visible = rows[view.scroll : view.scroll + view.shown]
    table = fitted_lines(map(_cells, visible), _HEADS, columns - 2, _SPARE)
    for one, line in zip([None, *visible], table, strict=True):
        is_chosen = one is not None and one.snapshot.group == view.chosen
        name = "head" if one is None else OF_SEVERITY.get(one.worst.severity, "") if one.worst is not None else ""
        text = fit(("> " if is_chosen else "  ") + line, columns)
        found.append(style.style(text, "keys" if is_chosen else name))
    found = found[: lines - 1]
    keys = keys_line(view, f"arrows choose  Enter watch  s sort: {view.sort}  / filter  q quit", columns, style)
    return [*found, *[""] * (lines - 1 - len(found)), keys]


def _cells(one: Inspection) -> dict[str, Any]:
    row = one.summary
    cells = (row.group, row.state, row.members, shown_lag(row), row.behind and Figure(shown_age(row.behind)))
    return dict(zip(_HEADS, (*cells, one.worst and one.worst.code), strict=True))


def watch_groups(
    ctx: typer.Context, select: Select, sorts: Sequence[str], sort: str, ages: bool | None, interval: float
) -> int:
    """Show all groups until a key or a signal; Enter watches the chosen one. Returns the exit code."""
    if not has_screen("table"):
        raise UsageError("--watch needs a terminal", "watch one group for events in a pipe")
    settings = connection(ctx)
    view = GroupsView(select, sorts, sort, partial(render, given=ctx.ensure_object(GlobalOptions)))
    while True:
        with StopRequest() as stop, GroupsPoller(settings, ages, interval) as poller:
            group = _show(view, poller, stop)
        if group is None:
            return stop.exit_code
        inner = View(group, is_inner=True)
        try:
            code = watch_group(ctx, group, "table", view=inner)
        except ZkgroupError as error:
            view.note = error
        else:
            if inner.ended_by != "q":
                return code


def _show(view: GroupsView, poller: GroupsPoller, stop: StopRequest) -> str | None:
    """Show the groups; the name of the one to be watched, None to quit. Raises the error of the first reading."""
    while view.at is None and not stop:
        if (first := poller.next_snapshots(MAX_KEY_WAIT)) is not None:
            if isinstance(first, ZkgroupError):
                raise first
            view.update(first)

    def take() -> bool:
        if (found := poller.next_snapshots()) is not None:
            view.update(found)
        return found is not None

    show(view, stop, take, draw=groups_frame, source=poller)
    return view.chosen if view.ended_by == "enter" else None
