"""ZooKeeper's operations, their results, and access lists, as data.

The same state machine runs over a real session and over a simulated one. Paths are relative to the chroot. A batch is
sent in its order, pipelined, and answered by one result per operation, in the same order.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from zkgroup.errors import UsageError


class Code(enum.Enum):
    """Why an operation did not succeed."""

    NO_NODE = "no node"
    NODE_EXISTS = "node exists"
    BAD_VERSION = "bad version"
    NOT_EMPTY = "not empty"
    EPHEMERAL = "an ephemeral node has no children"
    NO_AUTH = "not authorised"
    CONNECTION_LOSS = "connection lost"  # may or may not have been applied
    SESSION_EXPIRED = "session expired"
    OTHER = "failed"


#: Refusals that say that a node was created, changed or deleted since it was read.
CHANGED: Final = (Code.BAD_VERSION, Code.NODE_EXISTS, Code.NO_NODE, Code.NOT_EMPTY, Code.EPHEMERAL)


@dataclass(frozen=True, slots=True)
class Stat:
    """A znode's stat. Times are milliseconds since 1970; ``owner`` is 0 for a persistent node.

    ``pzxid``: the transaction in which a child came or went last, or else the node itself came; it has no time.
    ``deletions``: how many children have been deleted.
    """

    czxid: int
    mzxid: int
    version: int
    ctime: int
    mtime: int
    owner: int
    children: int = 0
    pzxid: int = 0
    deletions: int = 0


@dataclass(frozen=True, slots=True)
class Acl:
    """One entry of a znode's access list. ``permissions``: read 1, write 2, create 4, delete 8, admin 16."""

    scheme: str
    id: str
    permissions: int


#: Anyone may do anything, as the Scala consumer creates its nodes.
OPEN: tuple[Acl, ...] = (Acl("world", "anyone", 31),)


#: The session's own access list for nodes that it creates, by default ``OPEN``.
DEFAULT_ACL: tuple[Acl, ...] = ()


@dataclass(frozen=True, slots=True)
class Get:
    """Read data and stat → ``Node``. With ``watch``, the next change of the node sends an event."""

    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class Children:
    """List the names below a node → ``tuple[str, ...]`` (unsorted)."""

    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class Exists:
    """→ ``Stat``, or None where there is no node. With ``watch``, its creation, change or deletion sends an event."""

    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class GetAcl:
    """Read a node's access list → ``Acls``.

    To a client that may not administer the node, servers from 3.4.14 and 3.5.5 on show digests as ``USER:x``; such a
    list cannot be written back.
    """

    path: str


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node → None. Missing parents are an error (``NO_NODE``): ensure them first."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    acl: tuple[Acl, ...] = DEFAULT_ACL


@dataclass(frozen=True, slots=True)
class Ensure:
    """Create a persistent node and all its missing parents → None. An existing node is left as it is."""

    path: str


@dataclass(frozen=True, slots=True)
class SetData:
    """Write if the node's version is ``version`` (−1: any) → ``Stat``."""

    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete if the node's version is ``version`` (−1: any) → None."""

    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Check:
    """Only in a transaction: fail unless the node's version is ``version``."""

    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Sync:
    """Bring the connected server up to date with its leader → None. Answered only while there is a quorum."""

    path: str = "/"


@dataclass(frozen=True, slots=True)
class Transaction:
    """Apply all of ``ops`` or none → None, or the ``Failure`` of the first that failed (``index``)."""

    ops: tuple[Create | SetData | Delete | Check, ...]

    @property
    def path(self) -> str:
        """The first path, for messages."""
        return self.ops[0].path


Op: TypeAlias = Get | Children | Exists | GetAcl | Create | Ensure | SetData | Delete | Sync | Transaction
#: Operations that go through the leader and its quorum: answered only while the session lives.
WRITES = (Create, Ensure, SetData, Delete, Transaction)


def writes(ops: Iterable[Op]) -> bool:
    """Whether any of these is a write."""
    return any(isinstance(op, WRITES) for op in ops)


@dataclass(frozen=True, slots=True)
class Node:
    """A znode's data and stat."""

    data: bytes
    stat: Stat


@dataclass(frozen=True, slots=True)
class Acls:
    """A znode's access list, in its order."""

    acl: tuple[Acl, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """An operation that did not succeed. ``detail`` is text; ``index`` is the failed operation of a transaction."""

    code: Code
    detail: str = ""
    index: int | None = None

    @property
    def words(self) -> str:
        """The reason as text; with the detail where the code does not say it already."""
        return f"{self.code.value} ({self.detail})" if self.code is Code.OTHER and self.detail else self.code.value


Result: TypeAlias = Node | Stat | Acls | tuple[str, ...] | Failure | None


@dataclass(frozen=True, slots=True)
class Connected:
    """The session is established, or its connection is back. ``timeout`` is the negotiated one, in seconds; ``server``
    the address, where it is known."""

    session_id: int
    timeout: float
    server: str = ""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection to ``server`` dropped; the session may live on. Watches set before are gone."""

    server: str = ""


@dataclass(frozen=True, slots=True)
class Expired:
    """The session is over: expired, closed, or ``is_refused``. It never comes back."""

    reason: str
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class Changed:
    """A watched node was created, changed or deleted, or a watched list of children changed."""

    path: str


SessionEvent: TypeAlias = Connected | Disconnected | Expired | Changed


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
