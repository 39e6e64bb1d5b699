"""The brokers that are registered in ZooKeeper, and the choice of their listener."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from zkgroup.clients.kafka.client import KafkaSettings, check_properties, mechanism_of, no_answer
from zkgroup.clients.kafka.wire_protocol import answering
from zkgroup.config.settings_table import CONNECT_TIMEOUT, PROTOCOLS, has_tls
from zkgroup.errors import MalformedZnodeError, NoListenerError, UnreachableError, UsageError
from zkgroup.protocol import znodes
from zkgroup.protocol.broker_znodes import BrokerRegistration, Endpoint, decode_broker
from zkgroup.protocol.operations import Children, Code, Failure, Get, Node, Op, Result


def choose_listener(
    brokers: Sequence[BrokerRegistration], protocol: str | None, listener: str | None
) -> list[Endpoint]:
    """The listener of each broker that has it, in their order; all have one name, and one protocol.

    A broker sends the clients of a listener the addresses of that listener alone: one name for all brokers keeps a
    client on one network. Without ``listener`` the listeners with ``protocol`` (PLAINTEXT by default) are candidates:
    the one that is named like the protocol, which is the brokers' default, else the one that most brokers have, among
    equals the first. ``listener`` is compared in capitals, as brokers do.

    TLS is a floor: any client with access to ZooKeeper can write a registration, which must not decide that passwords
    are sent unencrypted. A named listener with TLS is accepted; one without must have ``protocol``.

    Raises ``UsageError`` where no broker has such a listener, and where the named one speaks less; ``NoListenerError``
    where neither ``protocol`` nor ``listener`` is given.
    """
    offered = [endpoint for broker in brokers for endpoint in broker.endpoints]
    wanted = (protocol or "PLAINTEXT").upper()
    if listener is not None:
        named = [endpoint for endpoint in offered if endpoint.listener.upper() == listener.upper()]
        if not named:
            raise UsageError(
                f"no registered broker has a listener {listener[:80]} ({_offered(offered)})", "name one of these"
            )
        for spoken in (endpoint.protocol for endpoint in named):
            if spoken not in PROTOCOLS and not has_tls(spoken):
                raise UsageError(
                    f"the protocol of listener {listener[:80]} is unknown: the registration of a broker names none "
                    f"of {', '.join(PROTOCOLS)} for it",
                    "name another listener",
                )
            if not has_tls(spoken) and spoken != wanted:
                raise UsageError(
                    f"the listener {listener[:80]} speaks {spoken[:80]}, not {wanted}",
                    f"name another listener; --security-protocol {spoken[:80]} permits this one, without encryption",
                )
        return [endpoint for endpoint in named if endpoint.protocol == named[0].protocol]
    fitting = [endpoint for endpoint in offered if endpoint.protocol == wanted]
    if not fitting:
        raise (UsageError if protocol else NoListenerError)(
            f"no registered broker has a {wanted} listener ({_offered(offered)})", "choose with --security-protocol"
        )
    names = Counter(endpoint.listener for endpoint in fitting)  # the first of equals comes first
    name = wanted if wanted in names else names.most_common(1)[0][0]
    return [endpoint for endpoint in fitting if endpoint.listener == name]


def _offered(offered: Sequence[Endpoint]) -> str:
    kinds = dict.fromkeys(
        f"{one.listener}: not known"
        if one.protocol.upper() not in PROTOCOLS
        else one.protocol
        if one.listener == one.protocol
        else f"{one.listener}: {one.protocol}"
        for one in offered
    )
    return f"they offer {', '.join(kinds) or 'none'}"


log = logging.getLogger(__name__)


def settings_from_brokers(
    brokers: Sequence[BrokerRegistration], properties: Mapping[str, str] | None = None, listener: str | None = None
) -> KafkaSettings:
    """How to reach the brokers that are registered in ZooKeeper.

    ``listener`` names the listener, and with it the protocol. Without it ``choose_listener`` chooses one by
    ``security.protocol`` (PLAINTEXT by default). A registration of version 1 is a 0.8 broker's, of version 2 a 0.9
    one's (or a newer one's with an old ``inter.broker.protocol.version``); neither is asked for its versions.

    Raises ``UnreachableError`` when no broker is registered, ``UsageError`` when none has such a listener, or settings
    are missing for its protocol.
    """
    properties = dict(properties or {})
    if properties.get("security.protocol", "PLAINTEXT").upper() not in PROTOCOLS:
        # The value is not shown: it may be a secret that belongs to another property.
        raise UsageError("kafka.security.protocol is none that Kafka has", f"use {', '.join(PROTOCOLS)}")
    if not brokers:
        raise UnreachableError(
            "no broker is registered in ZooKeeper", "check that the brokers are up and the chroot is right"
        )
    found = choose_listener(brokers, properties.get("security.protocol"), listener)
    if found[0].protocol != "PLAINTEXT" or "security.protocol" in properties:
        properties["security.protocol"] = found[0].protocol
    if not found[0].protocol.startswith("SASL"):  # or librdkafka warns of what is for other listeners
        properties = {name: value for name, value in properties.items() if not name.startswith("sasl.")}
    check_properties(properties)
    oldest = min(broker.version for broker in brokers)
    legacy = {1: "0.8.2.2", 2: "0.9.0.1"}.get(oldest)
    if legacy is not None and found[0].protocol.startswith("SASL") and mechanism_of(properties).upper() != "GSSAPI":
        # No broker of 0.9 knows these: it must be a newer one that is held back, and can be asked for its versions.
        legacy = None
    # Endpoints of brokers that registered later do not replace earlier ones.
    same = [e for broker in reversed(brokers) for e in broker.endpoints if e.protocol == found[0].protocol]
    others = {e.listener: str(e) for e in same if e.listener != found[0].listener}
    return KafkaSettings(",".join(map(str, found)), properties, legacy, tuple(others.items()))


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
        timeout: float = CONNECT_TIMEOUT,
        *,
        listener: str | None = None,
        silent_level: int = logging.WARNING,
    ) -> None:
        self._timeout = timeout
        self._silent_level = silent_level
        self._silent: set[str] = set()  # addresses that did not answer the last time
        self._read = read
        self._given = given
        self._properties = dict(properties)
        self._listener = listener or None

    def settings(self) -> KafkaSettings:
        """How to reach the brokers that are registered now; of old ones, those that answer (see ``wire_protocol``).

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
        found = answering(list(listening), self._timeout)
        if not found:
            raise no_answer(all_of_them, self._timeout)
        silent = {str(endpoint) for endpoint in listening if endpoint not in found}
        for address in sorted(silent - self._silent):
            log.log(
                self._silent_level, "the broker at %s is registered and does not answer: asking the others", address
            )
        self._silent = silent
        return settings_from_brokers([listening[endpoint] for endpoint in found], self._properties, self._listener)
