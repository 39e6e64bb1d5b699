"""Which owner nodes are a member's, and how sure of it it is.

An owner node vanishes by itself only with its session. But somebody may delete it by hand, and another member may claim
the partition then; so a member watches its owner nodes, and deletes without looking only those of which no change was
told since they were seen, watched, to be its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zkgroup.protocol.names import ConsumerThreadId, TopicPartition


class Holdings:
    """``share`` is what is claimed, each partition with its thread. It is replaced, never changed."""

    def __init__(self) -> None:
        self.share: Mapping[TopicPartition, ConsumerThreadId] = {}
        self._touched: set[TopicPartition] = set()  # owner nodes that this session may have created
        self._doubtful: set[TopicPartition] = set()  # not watched yet, or changed
        self._looking: set[TopicPartition] = set()  # being looked at

    def claim(self, share: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """Owner nodes of ``share`` are about to be created: some or all of them may be ours from now on."""
        self._touched.update(share)

    def claimed(self, share: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """All of ``share`` is ours. It is watched later, when reading has begun."""
        self.share = dict(share)
        self._doubtful = set(share)
        self._looking.clear()

    def doubt(self, partitions: Iterable[TopicPartition]) -> None:
        """Something has happened to these owner nodes."""
        self._doubtful.update(partition for partition in partitions if partition in self.share)

    def doubt_all(self) -> None:
        """Watches were lost."""
        self._doubtful = set(self.share)

    @property
    def doubtful(self) -> bool:
        """Whether there is something to look at."""
        return bool(self._doubtful)

    def look(self) -> Mapping[TopicPartition, ConsumerThreadId]:
        """What is to be looked at now. Doubts that arise meanwhile are kept for another look."""
        self._looking = self._doubtful & self.share.keys()
        self._doubtful = set()
        return {partition: self.share[partition] for partition in sorted(self._looking)}

    def looked(self, *, kept: bool) -> None:
        """All that was looked at is ours and watched, or not all of it (or it is not known)."""
        if not kept:
            self.doubt(self._looking)
        self._looking.clear()

    def let_go(self) -> tuple[list[TopicPartition], set[TopicPartition]]:
        """Give up the share. Returns the owner nodes that may be ours, and those of them that surely are.

        When it is asked again, after an interruption, nothing is sure any more.
        """
        sure = self.share.keys() - self._doubtful - self._looking
        self.share = {}
        return sorted(self._touched), sure

    def forget(self) -> None:
        """Nothing is ours any more: it was deleted, or the session is over."""
        self.share = {}
        self._touched.clear()
        self._doubtful.clear()
        self._looking.clear()
