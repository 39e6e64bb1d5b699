"""Which owner nodes are this session's, and which of them are verified.

An owner node vanishes by itself only with its session. But an operator may delete it by hand, and another member may
then claim the partition. So a member watches its owner nodes. It deletes a node unread only if it has read the node as
its own, with a watch, and no event has come since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zkgroup.protocol.names import ConsumerThreadId, TopicPartition


class OwnedZnodes:
    """``share``: the claimed partitions, each with its thread. It is replaced, never changed."""

    def __init__(self) -> None:
        self.share: Mapping[TopicPartition, ConsumerThreadId] = {}
        self._maybe_created: set[TopicPartition] = set()  # by this session
        self._unverified: set[TopicPartition] = set()  # not watched yet, or an event came
        self._checking: set[TopicPartition] = set()  # being read

    def claim(self, share: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """The owner nodes of ``share`` are about to be created: some of them may be ours from now on."""
        self._maybe_created.update(share)

    def claimed(self, share: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """All of ``share`` is ours. Its nodes are watched later, when reading has begun."""
        self.share = dict(share)
        self._unverified = set(share)
        self._checking.clear()

    def mark_unverified(self, partitions: Iterable[TopicPartition]) -> None:
        """These owner nodes were changed, or may have been."""
        self._unverified.update(partition for partition in partitions if partition in self.share)

    def mark_all_unverified(self) -> None:
        """All watches are lost."""
        self._unverified = set(self.share)

    @property
    def has_unverified(self) -> bool:
        """Whether owner nodes must be read."""
        return bool(self._unverified)

    def begin_check(self) -> Mapping[TopicPartition, ConsumerThreadId]:
        """The nodes to read now. Events that come meanwhile need another check."""
        self._checking = self._unverified & self.share.keys()
        self._unverified = set()
        return {partition: self.share[partition] for partition in sorted(self._checking)}

    def end_check(self, *, kept: bool) -> None:
        """``kept``: all nodes that were read are ours and watched. Otherwise they stay unverified."""
        if not kept:
            self.mark_unverified(self._checking)
        self._checking.clear()

    def release(self) -> tuple[list[TopicPartition], set[TopicPartition]]:
        """Give up the share. Returns the owner nodes that may be ours, and those of them that surely are.

        When it is called again, after an interruption, no node is sure any more.
        """
        sure = self.share.keys() - self._unverified - self._checking
        self.share = {}
        return sorted(self._maybe_created), sure

    def forget(self) -> None:
        """No node is ours any more: all are deleted, or the session is over."""
        self.share = {}
        self._maybe_created.clear()
        self._unverified.clear()
        self._checking.clear()
