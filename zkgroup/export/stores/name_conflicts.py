"""A final name that another file has: no file is ever replaced."""

from __future__ import annotations

from typing import Final

from zkgroup.errors import RefusedError

#: What helps where a file is in the way of one that is to be published.
CONFLICT_REMEDY: Final = "move that file out of the destination, then run the same command again"


def name_conflict(where: object) -> RefusedError:
    """The error for a file under the name that one of this run was to have."""
    return RefusedError(f"{where} exists already, and is not this run's", CONFLICT_REMEDY)
