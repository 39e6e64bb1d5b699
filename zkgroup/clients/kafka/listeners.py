"""The choice of a listener, by the brokers' registrations. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from zkgroup.config.settings_table import PROTOCOLS, has_tls
from zkgroup.errors import NoListenerError, UsageError
from zkgroup.protocol.broker_znodes import BrokerRegistration, Endpoint


def choose(brokers: Sequence[BrokerRegistration], protocol: str | None, listener: str | None) -> list[Endpoint]:
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
