"""The brokers that are registered in ZooKeeper."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from zkgroup.clients.kafka.client import KafkaSettings, no_answer, settings_from_brokers
from zkgroup.clients.kafka.legacy_brokers import ask
from zkgroup.errors import MalformedZnodeError, UnreachableError
from zkgroup.protocol import znodes
from zkgroup.protocol.broker_znodes import BrokerRegistration, decode_broker
from zkgroup.protocol.operations import Children, Code, Failure, Get, Node, Op, Result

log = logging.getLogger(__name__)

#: How long old brokers may take to answer, in seconds.
TIMEOUT: Final = 5.0


class Brokers:
    """Reads the registered brokers at each call, unless they are ``given``. Thread-safe if ``read`` is.

    ``timeout``: how many seconds old brokers may take to answer. ``listener``: the name of the listener to use.
    ``silent_level``: the level at which those are logged that do not answer.
    """

    def __init__(
        self,
        read: Callable[[Sequence[Op]], list[Result]],
        properties: Mapping[str, str],
        given: KafkaSettings | None = None,
        timeout: float = TIMEOUT,
        *,
        listener: str | None = None,
        silent_level: int = logging.WARNING,
    ) -> None:
        self._timeout = timeout
        self._silent_level = silent_level
        self._silent: frozenset[str] = frozenset()  # addresses that did not answer the last time
        self._read = read
        self._given = given
        self._properties = dict(properties)
        self._listener = listener or None

    def settings(self) -> KafkaSettings:
        """How to reach the brokers that are registered now; of old ones, those that answer (see ``legacy_brokers``).

        Raises UnreachableError where there is none, ZooKeeper does not answer, or none of several old brokers does;
        MalformedZnodeError where none of their nodes can be read.
        """
        if self._given is not None:
            return self._given
        (listed,) = self._read([Children(znodes.broker_ids())])
        if isinstance(listed, Failure) and listed.code is not Code.NO_NODE:
            raise UnreachableError(f"ZooKeeper does not list the brokers: {listed.code.value}", "check ZooKeeper")
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
        settings = settings_from_brokers(brokers, self._properties, self._listener)
        if settings.legacy_release is None or len(brokers) == 1 or settings.protocol != "PLAINTEXT":
            return settings
        return self._answering_brokers(brokers, settings)

    def _answering_brokers(self, brokers: Sequence[BrokerRegistration], all_of_them: KafkaSettings) -> KafkaSettings:
        wanted = set(all_of_them.bootstrap.split(","))
        listening = {e: broker for broker in brokers for e in broker.endpoints if str(e) in wanted}
        asked = ask(list(listening), self._timeout, hopeless={e for e in listening if str(e) in self._silent})
        if not asked.answering:
            raise no_answer(all_of_them, self._timeout)
        silent = frozenset(map(str, asked.silent))
        for address in sorted(silent - self._silent):
            log.log(
                self._silent_level, "the broker at %s is registered and does not answer: asking the others", address
            )
        for address in sorted(self._silent - silent):
            log.log(self._silent_level, "the broker at %s answers again, or is not registered any more", address)
        self._silent = silent
        answering = [listening[endpoint] for endpoint in asked.answering]
        return settings_from_brokers(answering, self._properties, self._listener)
