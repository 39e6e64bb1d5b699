"""An export as a member of its group: it joins, owns partitions, and can prove that it still owns them.

Spark's tasks read, not the member. The group assigns partitions to it, and a transaction can depend on them. A member
that claims a partition makes its owner node, with version 0. This member writes the same data again to the nodes that
it owns, which makes their version 1. So a condition on version 1 fails once the node was deleted: also where this
member has released the partition and got it back, or was cut off, and another one has made a node of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Final, Self

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.config import ConsumerConfig
from zkgroup.connector import Connector
from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.export.run.claim import HELD_VERSION
from zkgroup.protocol import znodes
from zkgroup.protocol.member import Phase
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Get, Node, SetData

log = logging.getLogger(__name__)

_POLL: Final = 0.1
_REBALANCE: Final = 30.0  # seconds that a rebalance may take before what it would give us is given up


class ExportMember:
    """A member that subscribes to topics and reads nothing: a context manager, which joins and leaves.

    ``config``: of the group; offsets are never committed by the member itself. Raises what kept it from joining.
    """

    def __init__(self, config: ConsumerConfig, registry: Registry, kafka: KafkaSettings, topics: Sequence[str]) -> None:
        self._topics = list(topics)
        self._connector = Connector(config, registry.settings, kafka=kafka)

    def __enter__(self) -> Self:
        self._connector.merged_streams(self._topics)
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self._connector.close()
        except ZkgroupError as error:
            log.info("leaving the group: %s", error)  # its nodes go with its session

    def owned(self, registry: Registry) -> set[TopicPartition]:
        """The partitions that are this member's now, marked so that ``HELD_VERSION`` proves it from here on.

        Waits for a rebalance that is under way. Raises ``RefusedError`` where the member has left the group.
        """
        deadline = time.monotonic() + _REBALANCE
        while (found := self._connector.statistics()).phase != Phase.OWNING.value:
            if (error := self._connector.error) is not None or time.monotonic() > deadline:
                why = getattr(error, "message", error) or f"it rebalances for more than {_REBALANCE:g} s"
                raise RefusedError(
                    f"{self._connector.consumer_id} does not get its share of group {self._group}: {why}",
                    "nothing was committed: export again",
                )
            time.sleep(_POLL)
        fresh = self._mine(registry, found.owned, found.session_id, 0)
        registry.read([SetData(znodes.owner(self._group, partition), data, 0) for partition, data in fresh.items()])
        # Again: what was marked may have become another's just before.
        return set(self._mine(registry, found.owned, found.session_id, HELD_VERSION))

    @property
    def _group(self) -> str:
        return self._connector.config.group_id

    def _mine(
        self, registry: Registry, partitions: Iterable[TopicPartition], session: int, version: int
    ) -> dict[TopicPartition, bytes]:
        """Those whose owner node is of this version and our session's, with its data."""
        wanted = list(partitions)
        nodes = registry.read([Get(znodes.owner(self._group, partition)) for partition in wanted])
        return {
            partition: node.data
            for partition, node in zip(wanted, nodes, strict=True)
            if isinstance(node, Node) and node.stat.owner == session != 0 and node.stat.version == version
        }
