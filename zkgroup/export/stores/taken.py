"""A final name that is another run's: no file is ever replaced."""

from __future__ import annotations

from typing import Final

from zkgroup.errors import RefusedError

#: What helps where a name is taken that a file of this run was to have.
TAKEN_REMEDY: Final = (
    "--settle withdraw takes back what this run has published and ends it; or move that file away, and run the same "
    "command again; --status tells what is unfinished"
)


def taken_name(where: object) -> RefusedError:
    """The error for a file of another run under the name that one of ours was to have."""
    return RefusedError(f"{where} exists already, and is another run's", TAKEN_REMEDY)
