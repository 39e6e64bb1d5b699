"""The phases of a member, and the transitions between them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class Phase(enum.Enum):
    """The phase of a member. The table in this package's docstring says what each waits for."""

    NEW = "new"
    CONNECTING = "connecting"
    REGISTERING = "registering"
    WAITING = "waiting for its id"
    CHECKING_BROKERS = "checking brokers"
    PAUSING = "pausing streams"
    COMMITTING = "committing"
    NOTIFYING = "notifying"
    RELEASING = "releasing"
    READING = "reading"
    CLAIMING = "claiming"
    ROLLING_BACK = "rolling back"
    BACKING_OFF = "backing off"
    LOADING = "loading offsets"
    STARTING = "starting"
    OWNING = "owning"
    UNREGISTERING = "unregistering"
    CLOSED = "closed"


P = Phase
#: An expired session begins anew; an error, or the end of ``leave_timeout``, ends at once.
_ALWAYS: Final = frozenset({P.CONNECTING, P.CLOSED})

#: Phase → the phases that may follow it.
TRANSITIONS: Final[Mapping[Phase, frozenset[Phase]]] = {
    P.NEW: _ALWAYS,
    P.CONNECTING: _ALWAYS | {P.REGISTERING},
    P.REGISTERING: _ALWAYS | {P.CHECKING_BROKERS, P.WAITING, P.RELEASING},
    P.WAITING: _ALWAYS | {P.REGISTERING, P.RELEASING},
    P.CHECKING_BROKERS: _ALWAYS | {P.PAUSING, P.NOTIFYING, P.RELEASING, P.OWNING},
    P.PAUSING: _ALWAYS | {P.COMMITTING},
    P.COMMITTING: _ALWAYS | {P.NOTIFYING},
    P.NOTIFYING: _ALWAYS | {P.RELEASING},
    P.RELEASING: _ALWAYS | {P.READING, P.UNREGISTERING},
    P.READING: _ALWAYS | {P.CLAIMING, P.REGISTERING, P.ROLLING_BACK, P.RELEASING},
    P.CLAIMING: _ALWAYS | {P.LOADING, P.ROLLING_BACK, P.RELEASING},
    P.ROLLING_BACK: _ALWAYS | {P.BACKING_OFF, P.RELEASING},
    P.BACKING_OFF: _ALWAYS | {P.CHECKING_BROKERS, P.RELEASING},
    P.LOADING: _ALWAYS | {P.STARTING, P.ROLLING_BACK, P.RELEASING},
    P.STARTING: _ALWAYS | {P.OWNING, P.RELEASING},
    P.OWNING: _ALWAYS | {P.CHECKING_BROKERS, P.PAUSING, P.RELEASING},
    P.UNREGISTERING: frozenset({P.CLOSED}),
    P.CLOSED: frozenset(),
}
