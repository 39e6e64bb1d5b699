"""What brokers write into the registry, in every version of theirs."""

from __future__ import annotations

import json

import pytest

from zkgroup.errors import MalformedZnodeError
from zkgroup.protocol.broker_znodes import (
    BrokerRegistration,
    Endpoint,
    PartitionState,
    TopicRegistration,
    decode_broker,
    decode_partition_state,
    decode_topic,
    parse_endpoints,
)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            b'{"jmx_port":-1,"timestamp":"1416974968782","host":"h1","version":1,"port":9092}',
            BrokerRegistration(3, 1, (Endpoint("PLAINTEXT", "PLAINTEXT", "h1", 9092),)),
        ),
        (
            b'{"version":2,"host":"h1","port":9092,"jmx_port":-1,"timestamp":"1","endpoints":["PLAINTEXT://h1:9092","SSL://h1:9093"]}',
            BrokerRegistration(
                3, 2, (Endpoint("PLAINTEXT", "PLAINTEXT", "h1", 9092), Endpoint("SSL", "SSL", "h1", 9093))
            ),
        ),
        (
            b'{"version":3,"host":null,"port":-1,"jmx_port":-1,"timestamp":"1","endpoints":["SASL_SSL://h-1.x:9093"],"rack":"r1"}',
            BrokerRegistration(3, 3, (Endpoint("SASL_SSL", "SASL_SSL", "h-1.x", 9093),), "r1"),
        ),
        (
            b'{"listener_security_protocol_map":{"CLIENT":"SSL","INSIDE":"PLAINTEXT"},"endpoints":["CLIENT://h:1","INSIDE://[::1]:2"],"host":null,"port":-1,"version":4}',
            BrokerRegistration(3, 4, (Endpoint("CLIENT", "SSL", "h", 1), Endpoint("INSIDE", "PLAINTEXT", "::1", 2))),
        ),
        (
            b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://h:1"],"jmx_port":-1,"port":1,"host":"h","version":5,"timestamp":"1"}',
            BrokerRegistration(3, 5, (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 1),)),
        ),
        (
            b'{"version":2,"host":"h","port":9092,"endpoints":[]}',
            BrokerRegistration(3, 2, (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),)),
        ),
    ],
)  # fmt: skip
def test_broker_registrations(data: bytes, expected: BrokerRegistration) -> None:
    """Versions 1 to 5, with and without a plain listener; the id is the node's name."""
    assert decode_broker("/brokers/ids/3", data) == expected


@pytest.mark.parametrize(
    "data",
    [
        b'{"jmx_port":-1,"timestamp":"1","host":"::1","version":1,"port":9092}',
        b'{"jmx_port":-1,"timestamp":"1","host":"[::1]","version":1,"port":9092}',
        b'{"version":2,"host":"::1","port":9092,"endpoints":["PLAINTEXT://[::1]:9092"]}',
        b'{"version":2,"host":"::1","port":9092,"endpoints":["PLAINTEXT://::1:9092"]}',
        b'{"version":3,"host":"::1","port":9092,"endpoints":["PLAINTEXT://[::1]:9092"],"rack":null}',
        b'{"listener_security_protocol_map":{"A":"PLAINTEXT"},"endpoints":["A://[::1]:9092"],"version":4}',
        b'{"features":{},"listener_security_protocol_map":{"A":"PLAINTEXT"},"endpoints":["A://[::1]:9092"],"version":5}',
    ],
)
def test_an_address_of_ipv6_has_brackets(data: bytes) -> None:
    """In every version, however it is registered; and it is read as it is written."""
    (endpoint,) = decode_broker("/brokers/ids/3", data).endpoints
    assert (endpoint.host, str(endpoint)) == ("::1", "[::1]:9092")
    assert [(one.host, one.port) for one in parse_endpoints("[::1]:9092,h:1")] == [("::1", 9092), ("h", 1)]


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b'{"host":"h","port":"9092"}',
        b'{"host":null,"port":-1}',
        b'{"host":"h","port":99999}',
        b'{"host":"h","port":1,"endpoints":["h:1"]}',
        b'{"host":"h","port":1,"endpoints":[1]}',
        b'{"host":"h","port":1,"endpoints":["SSL://h:99999"]}',
    ],
)
def test_a_broker_without_address_is_malformed(data: bytes) -> None:
    """A broker that shows no host and port is an error, not a broker at None."""
    with pytest.raises(MalformedZnodeError):
        decode_broker("/brokers/ids/3", data)


def test_a_broker_is_named_by_its_id() -> None:
    """A child of /brokers/ids that is no number is malformed."""
    with pytest.raises(MalformedZnodeError):
        decode_broker("/brokers/ids/x", b'{"host":"h","port":1}')


def test_topic_partitions_are_in_numeric_order() -> None:
    """Keys are strings, and 10 comes after 9."""
    data = json.dumps({"version": 1, "partitions": {str(p): [p, 1] for p in (10, 9, 0, 2)}}).encode()
    decoded = decode_topic("/brokers/topics/t", data)
    assert decoded == TopicRegistration({0: (0, 1), 2: (2, 1), 9: (9, 1), 10: (10, 1)})
    assert list(decoded.partitions) == [0, 2, 9, 10]


def test_newer_topic_registrations() -> None:
    """Version 2 adds reassignment, version 3 the topic's id."""
    data = (
        b'{"removing_replicas":{},"partitions":{"0":[1]},"topic_id":"N0pRxq5ETJuYZ7x","adding_replicas":{},"version":3}'
    )
    assert decode_topic("/t", data) == TopicRegistration({0: (1,)}, "N0pRxq5ETJuYZ7x", 3)


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b'{"partitions":[]}',
        b'{"partitions":{"x":[1]}}',
        b'{"partitions":{"0":1}}',
        b'{"partitions":{"0":["1"]}}',
        b'{"partitions":{"-1":[1]}}',
        b'{"partitions":{"99999999999":[1]}}',
    ],
)
def test_malformed_topics(data: bytes) -> None:
    """A topic whose partitions are unknown is malformed."""
    with pytest.raises(MalformedZnodeError):
        decode_topic("/brokers/topics/t", data)


def test_partition_states() -> None:
    """Leader, epochs and in-sync replicas; leader −1 is none; later keys are ignored."""
    data = b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":0,"isr":[2,1]}'
    assert decode_partition_state("/s", data) == PartitionState(2, 0, (2, 1), 1)
    data = b'{"controller_epoch":9,"leader":-1,"version":1,"leader_epoch":4,"isr":[],"leader_recovery_state":0}'
    assert decode_partition_state("/s", data) == PartitionState(-1, 4, (), 9)


@pytest.mark.parametrize(
    "data", [b"{}", b'{"leader":1}', b'{"leader":"1","leader_epoch":0,"isr":[]}', b'{"leader":1,"leader_epoch":0}']
)
def test_malformed_partition_states(data: bytes) -> None:
    """A state without leader, epoch or replicas is malformed."""
    with pytest.raises(MalformedZnodeError):
        decode_partition_state("/s", data)
