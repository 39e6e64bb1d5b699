"""Access lists of znodes, parsed from settings and written as such."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from zkgroup.errors import UsageError
from zkgroup.protocol.operations import OPEN, Acl

EVERYTHING: Final = 31
#: All permissions for the credentials of the creator: ZooKeeper puts them in place of ``auth``.
CREATOR: Final[tuple[Acl, ...]] = (Acl("auth", "", EVERYTHING),)
#: The Scala consumer (0.9 to 1.1.1) gives this to its nodes where it has credentials, and so do brokers with
#: ``zookeeper.set.acl``.
CREATOR_READ_WORLD: Final[tuple[Acl, ...]] = (*CREATOR, Acl("world", "anyone", 1))
NAMED: Final = {"open": OPEN, "creator": CREATOR, "creator-read-world": CREATOR_READ_WORLD}
LETTERS: Final = {"r": 1, "w": 2, "c": 4, "d": 8, "a": 16}


def parse_acl(text: str) -> tuple[Acl, ...]:
    """The value of zookeeper-acl: a name, or entries with commas between, as ZooKeeper's shell takes them:
    ``SCHEME:ID:PERMISSIONS``, permissions being letters of ``cdrwa``. Raises ``UsageError``."""
    if text in NAMED:
        return NAMED[text]
    entries = []
    for entry in text.split(","):
        scheme, _, rest = entry.strip().partition(":")
        name, _, letters = rest.rpartition(":")
        known = bool(letters) and set(letters) <= LETTERS.keys()
        if not scheme or not known or (not name and scheme != "auth") or (scheme == "world" and name != "anyone"):
            raise UsageError(
                f"zookeeper-acl: {entry.strip()[:80]!r} is no entry of an access list",
                f"write {', '.join(NAMED)}, or SCHEME:ID:cdrwa with commas between",
            )
        entries.append(Acl(scheme, name, sum(LETTERS[letter] for letter in set(letters))))
    return tuple(entries)


def format_acl(acl: Iterable[Acl]) -> str:
    """An access list as ``parse_acl`` reads it, without digests, which could be tried against words."""
    entries = []
    for entry in acl:
        name = entry.id.partition(":")[0] if entry.scheme == "digest" else entry.id
        letters = "".join(letter for letter in "cdrwa" if entry.permissions & LETTERS[letter])
        entries.append(f"{entry.scheme}:{name}:{letters}")
    return ",".join(entries)
