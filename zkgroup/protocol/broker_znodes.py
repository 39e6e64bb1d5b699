"""The znodes of brokers: registrations, topics, partition leaders. Read, never written.

Layouts are those of Kafka 0.8.0 to 3.9 (``kafka.utils.ZkUtils``, later ``kafka.zk.ZkData``). Every ``decode_*`` takes
the znode's path (for messages; the broker's also for its id) and its data, and raises nothing but MalformedZnodeError.
The paths are in ``znodes``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from zkgroup.errors import MalformedZnodeError
from zkgroup.protocol.znodes import INT32_MAX, as_int, excerpt, has_other_numbers, parse_object

#: Brokers write the cluster's id there, from 0.10.1 on.
CLUSTER_ID: Final = "/cluster/id"


def decode_cluster_id(data: bytes) -> str | None:
    """Read ``/cluster/id``; None where it names none."""
    with suppress(MalformedZnodeError):
        found = parse_object(CLUSTER_ID, data).get("id")
        return found if isinstance(found, str) else None
    return None


def address(host: str, port: int) -> str:
    """``HOST:PORT``, as clients take it: an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A listener of a broker. ``protocol`` is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, ``host`` without brackets."""

    listener: str
    protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        return address(self.host, self.port)


def parse_endpoints(addresses: str) -> list[Endpoint]:
    """The servers of a list of addresses, as settings hold it."""
    pairs = [address.rpartition(":") for address in addresses.split(",")]
    return [Endpoint("PLAINTEXT", "PLAINTEXT", host.strip("[]"), int(port)) for host, _, port in pairs]


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A live broker. Version 1 is Kafka 0.8, 2 is 0.9 (or a newer one held back), 3 and more 0.10 or later."""

    broker_id: int
    version: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class TopicRegistration:
    """A topic's partitions, in numeric order, each with the ids of the brokers that hold it."""

    partitions: dict[int, tuple[int, ...]]
    topic_id: str | None = None
    version: int = 1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition's leader and in-sync replicas; ``leader`` is −1 where there is none."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int


_ENDPOINT = re.compile(r"([^:/]+)://\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]{1,5})", re.ASCII)


def decode_broker(path: str, data: bytes | None) -> BrokerRegistration:
    """Read ``/brokers/ids/B``, versions 1 to 5 and what later ones keep of them."""
    broker_id = path.rsplit("/", 1)[-1]
    if not re.fullmatch(r"[0-9]{1,10}", broker_id, re.ASCII):
        raise MalformedZnodeError(path, "is not named by a broker id")
    parsed = parse_object(path, data)
    version = as_int(parsed.get("version"), low=1) or 1
    rack = parsed.get("rack")
    listed = parsed.get("endpoints")
    endpoints: tuple[Endpoint, ...] = ()
    if isinstance(listed, list) and listed:
        protocols = parsed.get("listener_security_protocol_map")
        known = protocols if isinstance(protocols, dict) else {}
        endpoints = tuple(_endpoint(path, entry, known) for entry in listed)
    if not endpoints:
        host, port = parsed.get("host"), as_int(parsed.get("port"), 0, 65535)
        if not isinstance(host, str) or not host or port is None:
            raise MalformedZnodeError(path, "names no host and port")
        endpoints = (Endpoint("PLAINTEXT", "PLAINTEXT", host.strip("[]"), port),)
    return BrokerRegistration(int(broker_id), version, endpoints, rack if isinstance(rack, str) else None)


def _endpoint(path: str, entry: object, protocols: Mapping[str, object]) -> Endpoint:
    match = _ENDPOINT.fullmatch(entry) if isinstance(entry, str) else None
    if match is None or int(match[3]) > 65535:
        raise MalformedZnodeError(path, f"{excerpt(str(entry)[:41])} is no endpoint")
    protocol = protocols.get(match[1])
    return Endpoint(match[1], protocol if isinstance(protocol, str) else match[1], match[2], int(match[3]))


class Releases(NamedTuple):
    """The first and the last of some releases of Kafka; None where 0.8.2, or 1.1, is among them."""

    first: str | None
    last: str | None

    def __str__(self) -> str:
        if self.first is None:
            return f"up to {self.last}"
        if self.last is None:
            return f"from {self.first} on"
        return f"of {self.first}" + (f" to {self.last}" if self.last != self.first else "")


class BrokerFault(NamedTuple):
    """The part of a broker's registration that makes Scala consumers fail, whichever broker leads their partitions.
    ``releases``: whose consumers; None for all. ``rebalances``: a rebalance succeeds and they read nothing; otherwise
    every rebalance fails, after they have released their share."""

    why: str
    releases: Releases | None
    rebalances: bool


_SINCE_0_9: Final = Releases("0.9", None)
#: Listeners may have other names from 0.10.2 on.
_PROTOCOLS: Final = frozenset({"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"})


def broker_fault(data: bytes) -> BrokerFault | None:
    """The worst fault for Scala consumers in a broker's registration, as seen with members of 0.8.2.2, 0.9.0.1 and
    1.1.1; None where they read on. They parse *all* registrations, and need a PLAINTEXT listener of each."""
    try:
        parsed = parse_object("", data)
    except MalformedZnodeError as malformed:
        return BrokerFault(malformed.why, None, rebalances=False)
    found = list(_broker_faults(parsed))
    return next((fault for fault in found if fault.releases is None), next(iter(found), None))


def _broker_faults(parsed: dict[str, Any]) -> Iterator[BrokerFault]:
    if has_other_numbers(parsed):
        yield BrokerFault("has a number that is no 32-bit integer", Releases(None, "0.11"), rebalances=False)
    version = as_int(parsed.get("version"), low=1)
    host, port = parsed.get("host"), as_int(parsed.get("port"))
    if version is None or version == 1:
        if "host" not in parsed or port is None:
            yield BrokerFault("names no host and port", None, rebalances=False)
        elif version is None:
            yield BrokerFault("has no version", _SINCE_0_9, rebalances=False)
        return
    endpoints = parsed.get("endpoints")
    if not isinstance(endpoints, list):
        yield BrokerFault("has no endpoints", _SINCE_0_9, rebalances=False)
        return
    listeners = []
    hosts: dict[str, str] = {}
    for entry in endpoints:
        match = _ENDPOINT.fullmatch(entry) if isinstance(entry, str) else None
        if match is None:
            yield BrokerFault(f"{excerpt(str(entry))} is no endpoint", _SINCE_0_9, rebalances=False)
            return
        listeners.append(match[1])
        hosts[match[1]] = match[2]
    protocols = parsed.get("listener_security_protocol_map")
    known = protocols if isinstance(protocols, dict) else {name: name for name in listeners}
    if missing := [name for name in listeners if known.get(name) not in _PROTOCOLS]:
        yield BrokerFault(
            f"has no protocol for its listener {excerpt(missing[0])}", Releases("0.10.2", None), rebalances=False
        )
    if "PLAINTEXT" not in {known.get(name, name) for name in listeners}:
        yield BrokerFault("has no PLAINTEXT endpoint", None, rebalances=True)
    if any(known.get(name, name) == "PLAINTEXT" and not named for name, named in hosts.items()):
        yield BrokerFault("has a PLAINTEXT endpoint without a host", _SINCE_0_9, rebalances=True)
    for letter, last in (("_", "0.10.0"), ("%", "0.9")):  # what their expression does not take
        if strange := [name for name in hosts.values() if letter in name]:
            yield BrokerFault(
                f"has a host with {letter}, {excerpt(strange[0])}", Releases("0.9", last), rebalances=False
            )
    if named := [name for name in listeners if name not in _PROTOCOLS]:
        yield BrokerFault(f"has a listener {excerpt(named[0])}", Releases("0.9", "0.10.1"), rebalances=False)
    if not isinstance(host, str):
        yield BrokerFault("names no host", Releases(None, "0.8.2"), rebalances="host" in parsed)


def partitions_to_read(path: str, data: bytes | None) -> tuple[tuple[int, ...], MalformedZnodeError | None]:
    """A topic's partitions in numeric order, and why there are none where its node is damaged.

    As Scala consumers read it (``ZkUtils.getPartitionAssignmentForTopics``; seen with 0.8.2.2 and 1.1.1): a node that
    is no JSON, or names no partitions, is a topic without partitions, and they go on with the others. Raises
    MalformedZnodeError for other damage, on which every attempt of theirs fails.
    """
    try:
        return tuple(decode_topic(path, data).partitions), None
    except MalformedZnodeError as error:
        try:
            parsed = orjson.loads(data or b"")
        except orjson.JSONDecodeError:
            return (), error
        if isinstance(parsed, dict) and "partitions" not in parsed:
            return (), error
        raise


def decode_topic(path: str, data: bytes | None) -> TopicRegistration:
    """Read ``/brokers/topics/T``, versions 1 to 3."""
    parsed = parse_object(path, data)
    written = parsed.get("partitions")
    if not isinstance(written, dict):
        raise MalformedZnodeError(path, "has no partitions")
    partitions: dict[int, tuple[int, ...]] = {}
    for name, replicas in written.items():
        if not re.fullmatch(r"[0-9]{1,10}", name, re.ASCII) or int(name) > INT32_MAX:
            raise MalformedZnodeError(
                path, f"{excerpt(name)} is no partition", "partitions are numbers from 0: correct the node"
            )
        partitions[int(name)] = _broker_list(path, replicas, f"the replicas of partition {int(name)}")
    topic_id = parsed.get("topic_id")
    return TopicRegistration(
        dict(sorted(partitions.items())),
        topic_id if isinstance(topic_id, str) else None,
        as_int(parsed.get("version"), low=1) or 1,
    )


def decode_cleanup_policy(data: bytes | None) -> str | None:
    """The ``cleanup.policy`` in ``/config/topics/T``; None where it has none that can be read."""
    try:
        policy = orjson.loads(data or b"")["config"].get("cleanup.policy")
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return None
    return policy if isinstance(policy, str) else None


def decode_partition_state(path: str, data: bytes | None) -> PartitionState:
    """Read ``/brokers/topics/T/partitions/P/state``."""
    parsed = parse_object(path, data)
    leader = as_int(parsed.get("leader"), low=-2)
    leader_epoch = as_int(parsed.get("leader_epoch"))
    if leader is None or leader_epoch is None:
        raise MalformedZnodeError(path, "names no leader with its epoch")
    isr = _broker_list(path, parsed.get("isr"), "the in-sync replicas")
    return PartitionState(leader, leader_epoch, isr, as_int(parsed.get("controller_epoch")) or 0)


def _broker_list(path: str, value: object, what: str) -> tuple[int, ...]:
    ids = [as_int(entry, low=0) for entry in value] if isinstance(value, list) else [None]
    if any(entry is None for entry in ids):
        raise MalformedZnodeError(path, f"{what} are no list of broker ids")
    return tuple(entry for entry in ids if entry is not None)
