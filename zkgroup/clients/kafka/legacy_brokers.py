"""Requests to brokers of 0.8 and 0.9 without librdkafka (``wire_protocol`` says why): metadata and log offsets."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from zkgroup.clients.kafka import wire_protocol
from zkgroup.protocol.broker_znodes import Endpoint
from zkgroup.protocol.names import TopicPartition

#: Seconds to wait for the others after the first answer.
GRACE: Final = 1.0
#: Seconds to find out why a broker gives no answer.
PROBE: Final = 0.5


@dataclass(frozen=True, slots=True)
class LegacyProbe:
    """The brokers that answered, and those that did not, each in the order given."""

    answering: tuple[Endpoint, ...]
    silent: tuple[Endpoint, ...]


def ask(endpoints: Sequence[Endpoint], timeout: float, *, hopeless: Collection[Endpoint] = ()) -> LegacyProbe:
    """Ask all of them, for at most ``timeout`` seconds if none answers, and ``GRACE`` once one has. ``hopeless`` ones
    are asked, too, but not waited for when others have answered."""

    def wait(answers: Mapping[Endpoint, bytes], missing: set[Endpoint]) -> float:
        if not answers:
            return timeout
        return GRACE if missing - set(hopeless) else 0.0

    question = wire_protocol.offsets_request((), -1)
    answers = wire_protocol.exchange({endpoint: (endpoint, question) for endpoint in endpoints}, timeout, wait)
    return LegacyProbe(
        tuple(endpoint for endpoint in endpoints if endpoint in answers),
        tuple(endpoint for endpoint in endpoints if endpoint not in answers),
    )


def troubles(endpoints: Sequence[Endpoint], *, plain: bool) -> tuple[dict[Endpoint, str], list[Endpoint]]:
    """Why each broker does not answer, as text, and the other brokers in the metadata of those that do.

    All are asked at once, for ``PROBE`` seconds; those that end the connection are asked once more, whether they are
    brokers, and those that are none, or silent, whether they speak HTTP. Without ``plain`` text they are only connected
    to.
    """
    failures: dict[Endpoint, str] = {}
    question = wire_protocol.metadata_request() if plain else b""
    answers = wire_protocol.exchange({one: (one, question) for one in endpoints}, PROBE, failures=failures)
    if not plain:
        return failures, []
    others: dict[Endpoint, None] = {}
    for endpoint, answer in answers.items():
        try:
            others |= dict.fromkeys(wire_protocol.read_metadata(answer).brokers.values())
        except struct.error:
            failures[endpoint] = wire_protocol.NOT_KAFKA
    versions = wire_protocol.versions_request()
    ended = {one: (one, versions) for one, why in failures.items() if why == wire_protocol.ENDED}
    brokers = wire_protocol.exchange(ended, PROBE)
    failures |= {one: wire_protocol.NOT_KAFKA for one in ended if one not in brokers}
    unknown = [one for one, why in failures.items() if why in (wire_protocol.NOT_KAFKA, wire_protocol.SILENT)]
    found: dict[Endpoint, str] = {}
    wire_protocol.exchange({one: (one, wire_protocol.HTTP_REQUEST) for one in unknown}, PROBE, failures=found)
    failures |= {one: why for one, why in found.items() if why == wire_protocol.HTTP}
    return failures, [one for one in others if str(one) not in set(map(str, endpoints))]


def in_words(failures: Mapping[Endpoint, str], *, named: bool = False) -> str:
    """The result of ``troubles`` as text; a single server is named only if ``named``."""
    if len(failures) == 1 and not named:
        return next(iter(failures.values()))
    return "; ".join(f"{endpoint}: {why}" for endpoint, why in failures.items())


def metadata(endpoints: Sequence[Endpoint], timeout: float, *topics: str) -> wire_protocol.Metadata | None:
    """The metadata of the first broker that answers, of all topics where none is named (``metadata_request``); None if
    none does within ``timeout`` seconds."""
    question = wire_protocol.metadata_request(*topics)
    requests = {endpoint: (endpoint, question) for endpoint in endpoints}
    answers = wire_protocol.exchange(requests, timeout, lambda answers, _: 0.0 if answers else timeout)
    for answer in answers.values():
        try:
            return wire_protocol.read_metadata(answer)
        except struct.error:
            continue
    return None


def offsets(
    led: Mapping[Endpoint, Sequence[TopicPartition]], times: Sequence[int], timeout: float
) -> list[dict[TopicPartition, tuple[int, int]]]:
    """For each of ``times`` (as in ``wire_protocol.offsets_request``) Kafka's error code and the offset of each
    partition. Partitions whose leader does not answer within ``timeout`` seconds are missing."""
    requests = {
        (number, leader): (leader, wire_protocol.offsets_request(partitions, at))
        for number, at in enumerate(times)
        for leader, partitions in led.items()
    }
    found: list[dict[TopicPartition, tuple[int, int]]] = [{} for _ in times]
    for (number, _), answer in wire_protocol.exchange(requests, timeout).items():
        try:
            found[number] |= wire_protocol.read_offsets(answer)
        except struct.error:
            continue
    return found
