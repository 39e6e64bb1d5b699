"""Which brokers there are, as ZooKeeper tells it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from zkgroup.errors import MalformedZnodeError, UnreachableError
from zkgroup.protocol import znodes
from zkgroup.protocol.brokers import BrokerRegistration, decode_broker
from zkgroup.protocol.ops import Children, Code, Failure, Get, Node, Op, Result
from zkgroup.servers.kafka import KafkaSettings, settings_from_brokers


class Brokers:
    """Reads the registered brokers when asked for them, unless they are ``given``. Thread-safe if ``read`` is."""

    def __init__(
        self,
        read: Callable[[Sequence[Op]], list[Result]],
        properties: Mapping[str, str],
        given: KafkaSettings | None = None,
    ) -> None:
        self._read = read
        self._given = given
        self._properties = dict(properties)

    def settings(self) -> KafkaSettings:
        """How to reach the brokers that are registered now.

        Raises UnreachableError where there is none, or ZooKeeper does not answer; MalformedZnodeError where none of
        their nodes can be read.
        """
        if self._given is not None:
            return self._given
        (listed,) = self._read([Children(znodes.broker_ids())])
        if isinstance(listed, Failure) and listed.code is not Code.NO_NODE:
            raise UnreachableError(f"ZooKeeper does not tell the brokers: {listed.code.value}", "check ZooKeeper")
        ids = sorted((name for name in listed if name.isdigit()), key=int) if isinstance(listed, tuple) else []
        paths = [znodes.broker(int(name)) for name in ids]
        nodes = self._read([Get(path) for path in paths]) if paths else []
        brokers: list[BrokerRegistration] = []
        malformed: list[MalformedZnodeError] = []
        for path, node in zip(paths, nodes, strict=True):
            if isinstance(node, Node):
                try:
                    brokers.append(decode_broker(path, node.data))
                except MalformedZnodeError as error:
                    malformed.append(error)
        if malformed and not brokers:
            raise malformed[0]
        return settings_from_brokers(brokers, self._properties)
