"""The group that exports a topic to a destination: one group of one cluster.

``_zkgroup/topics/TOPIC/GROUP@CLUSTER`` says that a group owns a topic. It is written just before the first decision of
a run with that topic: written first and then listed, so that of two groups at once at most one goes on. A group that
another one has taken the topic over from is ``GROUP@CLUSTER.former``: its records still say what was exported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from zkgroup.errors import RefusedError
from zkgroup.export.destination.run_log import TOPICS, Destination
from zkgroup.export.stores.store import map_parallel
from zkgroup.text import counted

_FORMER: Final = ".former"
_CONTENT: Final = b'{"format": 1}\n'


class Owner(NamedTuple):
    """A group of a cluster."""

    group: str
    cluster: str
    is_former: bool = False

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.group}@{self.cluster}{_FORMER if self.is_former else ''}"


class OwnedError(RefusedError):
    """A topic belongs to another group. ``owner``: that group."""

    def __init__(self, destination: Destination, topics: Sequence[str], owner: Owner) -> None:
        what = f"topic {topics[0]}" if len(topics) == 1 else f"{counted(len(topics), 'topic')}, {topics[0]} among them,"
        super().__init__(
            f"{what} in {destination} belong{'s' * (len(topics) == 1)} to group {owner.group} of cluster "
            f"{owner.cluster}",
            f"export to another --to; or --take-over {owner.group} goes on where its exports end, instead of it",
        )
        self.owner = owner


def read_owners(destination: Destination, topics: Iterable[str]) -> dict[str, list[Owner]]:
    """The owner, and the former owners, of each of these topics."""
    wanted = list(topics)
    if not destination.store.names(TOPICS):
        return {topic: [] for topic in wanted}
    return dict(zip(wanted, map_parallel(partial(_owners, destination), wanted), strict=True))


def _owners(destination: Destination, topic: str) -> list[Owner]:
    found: list[Owner] = []
    for name in destination.store.names(f"{TOPICS}/{topic}"):
        group, at, cluster = name.rpartition("@")
        if at:
            found.append(Owner(group, cluster.removesuffix(_FORMER), cluster.endswith(_FORMER)))
    return found


def refuse_owned(
    destination: Destination,
    owners: Mapping[str, Sequence[Owner]],
    group: str,
    clusters: Collection[str],
    take_over: str | None = None,
) -> list[str]:
    """Raise ``OwnedError`` where another group owns a topic, but for the one to ``take_over`` from. Those topics."""
    others: dict[Owner, list[str]] = {}
    for topic, found in sorted(owners.items()):
        for owner in found:
            if not owner.is_former and not _is_own(owner, group, clusters):
                others.setdefault(owner, []).append(topic)
    for owner, topics in others.items():
        if owner.group != take_over:
            raise OwnedError(destination, topics, owner)
    return sorted({topic for topics in others.values() for topic in topics})


def claim_topics(destination: Destination, topics: Iterable[str], group: str, clusters: Sequence[str]) -> None:
    """Write down that a group owns these topics; may be repeated. Raises ``OwnedError`` where another one does."""
    mine = Owner(group, clusters[0])

    def claim(topic: str) -> None:
        found = [owner for owner in _owners(destination, topic) if not owner.is_former]
        has_own = any(_is_own(owner, group, clusters) for owner in found)
        name = f"{TOPICS}/{topic}/{mine.name}"
        if not has_own:
            destination.store.write(name, _CONTENT)
            found = [owner for owner in _owners(destination, topic) if not owner.is_former]
        if others := [owner for owner in found if not _is_own(owner, group, clusters)]:
            if not has_own:
                destination.store.remove_file(name)
            raise OwnedError(destination, [topic], others[0])

    for _ in map_parallel(claim, sorted(topics)):
        pass


def replace_owner(destination: Destination, topic: str, owner: Owner, group: str, cluster: str) -> None:
    """Have a ``group`` own a topic instead of ``owner``, which becomes a former one; may be repeated."""
    folder = f"{TOPICS}/{topic}"
    destination.store.write(f"{folder}/{owner._replace(is_former=True).name}", _CONTENT)
    destination.store.write(f"{folder}/{Owner(group, cluster).name}", _CONTENT)
    destination.store.remove_file(f"{folder}/{owner.name}")


def _is_own(owner: Owner, group: str, clusters: Collection[str]) -> bool:
    return owner.group == group and owner.cluster in clusters
