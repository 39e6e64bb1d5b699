"""Kafka brokers, through confluent-kafka. The only place that imports it; others take its names from here.

librdkafka is used for fetching, log offsets and offsets kept in Kafka. It never sees a group in ZooKeeper as a member:
nothing subscribes but ``GroupMembership``, and nothing is committed behind the caller's back.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    libversion,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    BrokerMetadata,
    ClusterMetadata,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    PartitionMetadata,
    TopicMetadata,
)

from zkgroup.clients import connection_security
from zkgroup.clients.connection_security import ConnectionFailure, FailureCause
from zkgroup.clients.kafka import connection_errors, wire_protocol
from zkgroup.clients.kafka.connection_errors import ClientLog
from zkgroup.clients.kafka.wire_protocol import NoAnswer
from zkgroup.config.settings_table import KERBEROS, PASSWORD_MECHANISMS
from zkgroup.errors import NoAnswerError, UsageError, ZkgroupError
from zkgroup.protocol.broker_znodes import parse_endpoints

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "AdminClient",
    "ClusterMetadata",
    "ConfigResource",
    "Consumer",
    "ConsumerGroupTopicPartitions",
    "IsolationLevel",
    "KafkaError",
    "KafkaException",
    "KafkaTopicPartition",
    "Message",
    "NewTopic",
    "OffsetSpec",
    "Producer",
    "libversion",
]

log = logging.getLogger(__name__)

T = TypeVar("T")

# librdkafka wants a group id even from a consumer that only assigns. Nothing is ever stored under this one.
NO_GROUP: Final = "zkgroup-reader"
#: Partitions in one request: librdkafka's work on a request grows with their square (10,000 at once took
#: 65 µs of CPU each, 1,000 take 20).
MAX_REQUEST_PARTITIONS: Final = 1000
#: Seconds to wait for the controller's answer; after that any broker serves, half a second slower.
CONTROLLER_TIMEOUT: Final = 1.0
#: So many brokers with a hopeless connection stand for all.
_MIN_HOPELESS: Final = 3
_TOKEN: Final = "give -X kafka.sasl.oauthbearer.method=oidc, and librdkafka's properties for it (sasl.oauthbearer.…)"
#: What librdkafka runs before its first login, and then every minute; its own has words for stderr.
_KINIT: Final = 'kinit -k -t "%{sasl.kerberos.keytab}" "%{sasl.kerberos.principal}" >/dev/null 2>&1'
#: How many brokers that gave no answer are probed for the reason.
_MAX_PROBED: Final = 5
#: Seconds between two polls for an answer.
_LISTEN: Final = 0.005
#: Codes that say that a broker cannot be reached, or did not answer.
UNREACHABLE: Final = (
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
)
#: The errors of a broker that does not lead the partition any more, or not yet, as after a restart.
MOVING: Final = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
)
#: The errors of a partition that brokers, or librdkafka, do not know.
UNKNOWN: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How to reach the brokers. Picklable: export ships it to Spark's executors.

    ``properties`` are librdkafka's and win over everything; they may hold passwords, so they are not shown.
    ``legacy_release``: the release to assume of brokers (0.9 and older) that cannot be asked for their versions.
    ``others``: more listeners that speak the same, by their names, each with the address of a broker's.
    """

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    legacy_release: str | None = None
    others: tuple[tuple[str, str], ...] = ()

    @property
    def protocol(self) -> str:
        """The security protocol, by Kafka's name."""
        return self.properties.get("security.protocol", "PLAINTEXT").upper()

    @property
    def is_old_and_plain(self) -> bool:
        """Whether ``wire_protocol`` serves better than librdkafka, which may take a silent broker for one that
        works."""
        return self.legacy_release is not None and self.protocol == "PLAINTEXT"

    @property
    def isolation(self) -> str:
        """``isolation.level``: which messages of transactions are read."""
        return self.properties.get("isolation.level", "read_committed")

    def with_isolation(self, level: str) -> KafkaSettings:
        """The same with this ``isolation.level``."""
        return replace(self, properties={**self.properties, "isolation.level": level})

    def portable(self) -> KafkaSettings:
        """The same for another machine: with the content of certificate and key files instead of their names.

        Raises ``UsageError`` where one cannot be read.
        """
        properties = dict(self.properties)
        for name in ("ssl.ca", "ssl.certificate", "ssl.key"):
            path = properties.get(f"{name}.location")
            if path is None or (name == "ssl.ca" and not Path(path).is_file()):  # a folder, or librdkafka's "probe"
                continue
            try:
                properties[f"{name}.pem"] = Path(path).read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", None) or "it is no text"
                raise UsageError(f"cannot read {path}: {why}", "name a PEM file") from None
            del properties[f"{name}.location"]
        return replace(self, properties=properties)

    def base(self) -> dict[str, Any]:
        """The properties that every client shares."""
        conf: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            # Brokers drop idle connections; a dropped one is re-opened when needed.
            "log.connection.close": False,
            "socket.keepalive.enable": True,
            # With the defaults brokers that are all gone are tried twenty times a second, or no more after ten seconds.
            # (Beware of metadata.recovery.strategy=none: in 2.16 every tenth client never came back.)
            "reconnect.backoff.ms": 1000,
            "reconnect.backoff.max.ms": 1000,
            # A broker that has just started may know no topic yet: librdkafka then reads nothing until it asks again.
            "topic.metadata.refresh.interval.ms": 5_000,
        }
        if mechanism_of(self.properties).upper() == KERBEROS:
            # Without a keytab the ticket cache is as the user keeps it.
            conf["sasl.kerberos.kinit.cmd"] = _KINIT if "sasl.kerberos.keytab" in self.properties else "true"
        if self.legacy_release is not None:
            conf |= {"api.version.request": False, "broker.version.fallback": self.legacy_release}
        return conf


def mechanism_of(properties: Mapping[str, str]) -> str:
    """The SASL mechanism of librdkafka's properties; "" if none is named."""
    return properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or ""


def check_properties(properties: Mapping[str, str]) -> None:
    """Raise ``UsageError`` where settings are missing for the protocol."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if not protocol.startswith("SASL"):
        return
    mechanism = mechanism_of(properties)
    if not mechanism:
        raise UsageError(f"{protocol} needs a mechanism", "give --sasl-mechanism, such as SCRAM-SHA-512")
    if mechanism.upper() == "OAUTHBEARER" and not (
        properties.get("sasl.oauthbearer.method", "").lower() == "oidc"
        or properties.get("enable.sasl.oauthbearer.unsecure.jwt", "").lower() == "true"
    ):
        raise UsageError(f"{protocol} with OAUTHBEARER has no token, and nothing to get one with", _TOKEN)
    if mechanism.upper() == KERBEROS:
        if not has_gssapi():
            raise UsageError(
                "the librdkafka that comes with confluent-kafka knows no Kerberos",
                "preload one that does (LD_PRELOAD=…/librdkafka.so.1), or install confluent-kafka on top of it "
                "(pip install --no-binary confluent-kafka confluent-kafka)",
            )
        if "sasl.kerberos.keytab" in properties and "sasl.kerberos.principal" not in properties:
            raise UsageError(f"{protocol} with a keytab needs its principal", "give --sasl-kerberos-principal")
    if mechanism.upper() in PASSWORD_MECHANISMS:
        for name, what, option in (
            ("sasl.username", "user", "--sasl-user"),
            ("sasl.password", "password", "--sasl-password-file, or set ZKGROUP_SASL_PASSWORD"),
        ):
            if not properties.get(name):
                raise UsageError(f"{protocol} with {mechanism} needs a {what}", f"give {option}")


def consumer_properties(settings: KafkaSettings, overrides: Mapping[str, Any], group: str = NO_GROUP) -> dict[str, Any]:
    """librdkafka's properties for a consumer that commits and resets nothing by itself. Names in ``overrides`` have
    underscores for dots; the properties of ``settings`` win over them."""
    return (
        settings.base()
        | {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            # The default of 1000 ms pauses a full queue for a second: it costs a factor of 12.
            "fetch.queue.backoff.ms": 5,
            "fetch.wait.max.ms": 100,
            "allow.auto.create.topics": False,
        }
        | {key.replace("_", "."): value for key, value in overrides.items()}
        | dict(settings.properties)
    )


def consumer(
    settings: KafkaSettings,
    *,
    group: str = NO_GROUP,
    on_commit: Callable[[KafkaError | None, list[Any]], None] | None = None,
    on_error: Callable[[KafkaError], None] | None = None,
    client_log: ClientLog | None = None,
    made: type[Consumer] = Consumer,
    **overrides: Any,
) -> Consumer:
    """A librdkafka consumer, which commits and resets nothing by itself. Names of properties have underscores for dots.

    ``consume`` calls ``on_error`` with errors of the client as a whole, such as that no broker can be reached.

    Close it: nothing else ends its threads. It logs to ``client_log``, or to this module's logger, from ``poll`` and
    ``consume``.
    """
    conf = consumer_properties(settings, overrides, group)
    if on_commit is not None:
        conf["on_commit"] = on_commit
    if on_error is not None:
        conf["error_cb"] = on_error
    return _create(made, conf, settings, client_log or ClientLog(log))


def producer(settings: KafkaSettings, **overrides: Any) -> Producer:
    """A librdkafka producer, for filling topics of sandboxes."""
    conf = settings.base()
    conf |= {key.replace("_", "."): value for key, value in overrides.items()}
    conf |= settings.properties
    return _create(Producer, conf, settings, ClientLog(log))


def has_gssapi() -> bool:
    """Whether this librdkafka knows Kerberos, which the one that comes with confluent-kafka does not. Raises
    ``UsageError`` for one that is too old for confluent-kafka."""
    try:
        AdminClient({"builtin.features": "sasl_gssapi", "log_level": 0})
    except KafkaException:
        return False
    except RuntimeError as error:
        why = str(error).partition(". ")[0]
        raise UsageError(f"the preloaded librdkafka is too old: {why}", "preload another (LD_PRELOAD)") from None
    return True


def _create(kind: Callable[..., T], conf: Mapping[str, Any], settings: KafkaSettings, client_log: ClientLog) -> T:
    try:
        return kind(conf, logger=client_log)
    except (KafkaException, ValueError, TypeError) as error:
        raise bad_properties(error, settings) from None


def bad_properties(error: Exception, settings: KafkaSettings) -> UsageError:
    """The error for properties that librdkafka refuses, which does not show their values."""
    if settings.protocol.endswith("SSL"):
        try:
            connection_security.ssl_context(connection_errors.tls_of(settings.properties), "TLS with brokers")
        except UsageError as better:
            return better
    detail = error.args[0] if error.args else error
    text = detail.str() if isinstance(detail, KafkaError) else str(detail)
    text = re.sub(r'"[^"]*"(?= for configuration property)', "(not shown)", text)  # it may be a secret
    return UsageError(f"librdkafka refuses its configuration: {text}", "see the properties given with kafka.NAME=…")


def admin_client(settings: KafkaSettings, timeout: float, client_log: ClientLog | None = None) -> AdminClient:
    """A client that knows the cluster's brokers. It logs to ``client_log``, or to this module's logger. Raises
    ``UnreachableError``.

    librdkafka (2.16) drops its bootstrap connections as soon as it knows the brokers; a look-up of leaders that is
    under way then is only tried again after one or three seconds (seen with one new client in twenty-five).
    """
    kafka_log = client_log or ClientLog(log)
    # ``connection_errors`` needs the reason of a closed connection; ``ClientLog`` leaves it out otherwise.
    conf = settings.base() | {"log.connection.close": True, "error_cb": kafka_log.on_error} | dict(settings.properties)
    admin = _create(AdminClient, conf, settings, kafka_log)
    deadline = time.monotonic() + timeout
    kafka_log.quiet = True
    try:
        if settings.legacy_release is None and _has_controller(
            admin, kafka_log, settings, min(timeout, CONTROLLER_TIMEOUT)
        ):
            return admin
        # 0.8 and 0.9 do not report the controller, which the above waits for, and a dead one does not answer.
        admin.list_topics(timeout=max(0.1, deadline - time.monotonic()))
    except KafkaException as error:
        if error.args[0].code() in UNREACHABLE:
            admin.poll(0)
            raise connection_errors.explain(kafka_log.failure, settings.properties) or no_answer(
                settings, timeout
            ) from None
        log.debug("describing the cluster: %s", error)  # the request to come may succeed all the same
    finally:
        kafka_log.quiet = False
    return admin


def _has_controller(admin: AdminClient, kafka_log: ClientLog, settings: KafkaSettings, timeout: float) -> bool:
    """Whether the controller answers. Raises ``UnreachableError`` as soon as enough connections have failed for reasons
    that trying again does not change."""
    asked = admin.describe_cluster(request_timeout=timeout)
    deadline = time.monotonic() + timeout + 1
    explained = ""
    hopeless: set[str] = set()  # brokers
    enough = min(_MIN_HOPELESS, settings.bootstrap.count(",") + 1)
    while not asked.done() and time.monotonic() < deadline:
        admin.poll(_LISTEN)
        if kafka_log.no_token:
            message = f"no OAUTHBEARER token was had: {kafka_log.no_token}"
            raise ConnectionFailure(FailureCause.NO_TOKEN, message, "check sasl.oauthbearer.…")
        if kafka_log.failure != explained:
            explained = kafka_log.failure
            trouble = connection_errors.explain(explained, settings.properties)
            if trouble is None:
                continue
            hopeless.add(trouble.server)
            if len(hopeless) >= enough:
                try:
                    raise trouble
                finally:
                    del trouble  # or both are garbage, with the client: one that is freed on its own thread aborts
    try:
        asked.result(0)
    except TimeoutError:
        return False
    except KafkaException as error:
        if error.args[0].code() in UNREACHABLE:
            return False
        raise
    return True


def admin_and_metadata(settings: KafkaSettings, timeout: float) -> tuple[AdminClient, ClusterMetadata]:
    """A client that knows the cluster's brokers, and all topics with their leaders. Raises ``UnreachableError``."""
    deadline = time.monotonic() + timeout
    admin = admin_client(settings, timeout)
    return admin, metadata_of(admin, settings, timeout, max(0.1, deadline - time.monotonic()))


def old_metadata(settings: KafkaSettings, timeout: float) -> ClusterMetadata:
    """All topics with their leaders, from brokers that are old and plain. Raises ``UnreachableError``."""
    answer = wire_protocol.fetch_metadata(parse_endpoints(settings.bootstrap), timeout)
    if answer is None:
        raise no_answer(settings, timeout)
    found = ClusterMetadata()
    found.brokers = {number: BrokerMetadata() for number in answer.brokers}
    for number, at in answer.brokers.items():
        broker: Any = found.brokers[number]
        broker.id, broker.host, broker.port = number, at.host, at.port
    for name, (code, partitions) in answer.topics.items():
        topic: Any = TopicMetadata()
        found.topics[name] = topic
        topic.topic, topic.error = name, KafkaError(code) if code else None
        for number, led in partitions.items():
            partition: Any = PartitionMetadata()
            topic.partitions[number] = partition
            partition.id, partition.leader = number, led.leader
            partition.error = KafkaError(led.error) if led.error else None
            partition.replicas, partition.isrs = list(led.replicas), list(led.in_sync)
    return found


def metadata_of(
    admin: AdminClient, settings: KafkaSettings, timeout: float, left: float | None = None
) -> ClusterMetadata:
    """All topics: asking for one by its name would make brokers create it (0.8 to 0.10 always, if they are so set).
    ``left``: the rest of ``timeout``, in seconds; errors name ``timeout``."""
    try:
        return admin.list_topics(timeout=timeout if left is None else left)
    except KafkaException as error:
        if error.args[0].code() in UNREACHABLE:
            raise no_answer(settings, timeout) from None
        raise ZkgroupError(f"brokers at {settings.bootstrap}: {error.args[0].str()}") from None


def cluster_metadata(settings: KafkaSettings, timeout: float) -> ClusterMetadata:
    """All topics with their leaders. Raises ``UnreachableError``."""
    if settings.is_old_and_plain:
        return old_metadata(settings, timeout)
    return admin_and_metadata(settings, timeout)[1]  # list_topics alone takes a new client half a second


def topics(settings: KafkaSettings, timeout: float) -> dict[str, tuple[int, ...]]:
    """All topics that the brokers know, and their partitions in numeric order.

    Raises ``UnreachableError`` where no broker answers within ``timeout`` seconds.
    """
    found = cluster_metadata(settings, timeout).topics
    return {name: tuple(sorted(topic.partitions)) for name, topic in found.items() if topic.error is None}


def cluster_id(settings: KafkaSettings, timeout: float) -> str | None:
    """Kafka's own id of the cluster, None before 0.10.1. Raises as ``topics``."""
    return cluster_metadata(settings, timeout).cluster_id


def no_answer(settings: KafkaSettings, timeout: float) -> NoAnswerError:
    """The error for brokers that do not answer. Probes them for the reason, and their other listeners, for a second at
    most."""
    plain = settings.protocol == "PLAINTEXT"
    failures, others = wire_protocol.troubles(parse_endpoints(settings.bootstrap)[:_MAX_PROBED], plain=plain)
    why = wire_protocol.in_words(failures) or ("" if plain else "connections are accepted, and no request is answered")
    remedy = "check that they run and that this host may reach them"
    if failures and set(failures.values()) == {NoAnswer.NOT_KAFKA}:
        remedy = "give the address of a broker; that of ZooKeeper goes with --zookeeper"
    if others:
        elsewhere, _ = wire_protocol.troubles(others[:_MAX_PROBED], plain=plain)
        if elsewhere:
            why, remedy = (
                f"they send clients to {wire_protocol.in_words(elsewhere, named=True)}",
                "check what they advertise",
            )
    for name, place in settings.others:
        if not wire_protocol.troubles(parse_endpoints(place), plain=plain)[0]:
            remedy = f"their listener {name} at {place} answers: choose it with --listener"
            break
    silent, why = f"brokers at {settings.bootstrap} gave no answer", why and f": {why}"
    return NoAnswerError(f"{silent} within {round(timeout, 1):g} s{why}", remedy, reason=f"{silent}{why}")
