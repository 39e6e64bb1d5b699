"""The state of a screen: what was read last, and the order, filter and position that keys have set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from zkgroup.groups.watch.timeline import Event, LagTrends, Rates, WatchedGroup, WatchedPartition
from zkgroup.protocol.names import TopicPartition

if TYPE_CHECKING:
    from ._watch_terminal import Key

Sort: TypeAlias = Literal["lag", "name", "owner", "rate"]
SORTS: Final[tuple[Sort, ...]] = get_args(Sort)
#: Events that are kept for the screen.
MAX_EVENTS: Final = 500
#: Keys that choose an order at once.
_DIRECT: Final[dict[str, Sort]] = {"l": "lag", "n": "name", "o": "owner", "r": "rate"}


class FilteredView(ABC):
    """The state of a screen with a filter."""

    def __init__(self) -> None:
        self.filter = ""
        self.typing = False
        self.scroll = 0
        #: The rows that fitted the last frame.
        self.shown = 1
        #: One line about servers, or about a replay.
        self.note = ""

    @abstractmethod
    def press(self, key: Key) -> bool:
        """Handle a key; True if it has a meaning here."""

    def _type(self, key: Key) -> None:
        """Handle a key while the filter is typed."""
        if key in ("enter", "escape"):
            self.typing = False
            self.filter = "" if key == "escape" else self.filter
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1 and key.isprintable():
            self.filter = (self.filter + key)[:100]


class View(FilteredView):
    """The state of a watch's screen. ``keys`` change it, states change it; ``frame`` draws it. ``is_inner``: ``q`` goes
    back to another screen."""

    def __init__(self, group: str, *, is_inner: bool = False) -> None:
        super().__init__()
        self.group = group
        self.is_inner = is_inner
        #: The key that ended the screen; empty after a signal.
        self.ended_by: Key = ""
        self.state: WatchedGroup | None = None
        self.trends = LagTrends()
        self.events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self.rebalancing_since: int | None = None
        self.sort: Sort = "lag"
        self.paused = False
        self.help = False
        #: Keys in the last line besides those of every screen.
        self.more_keys = ""

    def add(self, state: WatchedGroup, events: Iterable[Event]) -> None:
        """Take up the next state."""
        self.state = state
        self.trends.add(state)
        for event in events:
            self.events.append(event)
            if event.kind == "rebalance-started":
                self.rebalancing_since = event.at
            elif event.kind == "rebalance-ended":
                self.rebalancing_since = None

    def restart(self) -> None:
        """Drop the snapshots; order and filter stay."""
        self.state, self.trends, self.rebalancing_since = None, LagTrends(), None
        self.events.clear()

    def rows(self) -> list[tuple[TopicPartition, WatchedPartition, Rates]]:
        """The filtered partitions in their order."""
        if self.state is None:
            return []
        wanted = self.filter.lower()
        rows = [
            (key, p, self.trends.rates(key))
            for key, p in self.state.partitions.items()
            if not wanted or wanted in f"{key} {p.owner or '-'}".lower()
        ]
        match self.sort:
            case "lag":
                rows.sort(key=lambda row: (row[1].lag is None, -(row[1].lag or 0), row[0]))
            case "name":
                rows.sort(key=lambda row: row[0])
            case "owner":
                rows.sort(key=lambda row: (row[1].owner is not None, row[1].owner or "", row[0]))
            case "rate":
                rows.sort(key=lambda row: (row[2].consumed is None, -(row[2].consumed or 0), row[0]))
        return rows

    def press(self, key: Key) -> bool:
        if self.typing:
            self._type(key)
            self.scroll = 0
            return True
        match key:
            case "s":
                self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
                self.scroll = 0
            case "l" | "n" | "o" | "r":
                self.sort, self.scroll = _DIRECT[key], 0
            case "/":
                self.typing = True
            case "escape":
                self.filter, self.help = "", False
            case "p" | " ":
                self.paused = not self.paused
            case "?" | "h":
                self.help = not self.help
            case "up" | "k":
                self.scroll -= 1
            case "down" | "j":
                self.scroll += 1
            case "page-up":
                self.scroll -= self.shown
            case "page-down":
                self.scroll += self.shown
            case "home":
                self.scroll = 0
            case "end":
                self.scroll = len(self.state.partitions) if self.state is not None else 0
            case _:
                return False
        self.scroll = max(0, self.scroll)
        return True
