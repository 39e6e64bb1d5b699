"""The table of settings. Options, environment variables, keys of profiles and of ``consumer.properties``, librdkafka's
properties, ``ConsumerConfig``'s defaults and ``docs/reference/configuration.md`` are all made from it.

A setting with a ``name`` is the option ``--NAME``, the variable ``ZKGROUP_NAME`` (capitals and underscores) and the key
NAME of a profile, unless its row says otherwise. A secret itself is only taken from the variable; the option and the
key ``NAME-file`` name a file with it, the key ``NAME-env`` another variable.

A setting with a ``key`` is written so in ``consumer.properties`` and after ``-X``. ``kafka.NAME`` is librdkafka's
property NAME. The other keys and their defaults are those of Kafka's ``kafka.consumer.ConsumerConfig`` and
``kafka.utils.ZKConfig``, 0.8.0 to 1.1.1; ``zkgroup.NAME`` are zkgroup's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

#: ``name``: a legal name of a group or client. ``release``: a release of Kafka. ``seconds``: a time-out.
#: ``file``: a file of certificates or keys, which must be readable. ``path``: another file.
Kind = Literal["text", "int", "bool", "name", "release", "choice", "seconds", "file", "path", "secret", "repeated"]
Section = Literal["connection", "brokers", "zookeeper", "member"]
#: The partition assignment strategies of the Scala consumer.
Strategy: TypeAlias = Literal["range", "roundrobin"]
#: What ``auto.offset.reset`` names: an end of the log.
Reset: TypeAlias = Literal["smallest", "largest"]

STRATEGIES: Final[tuple[Strategy, ...]] = get_args(Strategy)

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
#: SASL mechanisms with a user and a password, and Kerberos'.
PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
KERBEROS: Final = "GSSAPI"
MECHANISMS: Final = (*PASSWORD_MECHANISMS, KERBEROS)
ZOOKEEPER_MECHANISMS: Final = ("DIGEST-MD5", KERBEROS)
KAFKA_PREFIX: Final = "kafka."
OWN_PREFIX: Final = "zkgroup."


@dataclass(frozen=True, slots=True)
class LibrdkafkaProperty:
    """The librdkafka property that a key sets, its legal range, and the client that gets it."""

    name: str
    low: int = 0
    high: int = 0
    client: Literal["fetch", "offsets"] = "fetch"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row. ``doc``: one line of documentation; ``short``: the option's letter."""

    section: Section
    kind: Kind
    name: str = ""
    key: str = ""
    doc: str = ""
    default: Any = None
    #: The default as the documentation shows it, where another setting decides it.
    shown_default: str = ""
    choices: tuple[str, ...] = ()
    lowest: int = 0
    librdkafka: LibrdkafkaProperty | None = None
    #: The texts of a bool's property.
    true: str = "true"
    false: str = "false"
    short: str = ""
    metavar: str = "TEXT"
    in_environment: bool = True
    in_profile: bool = True
    #: True if the variable wins over the profile even if a flag names the cluster.
    environment_first: bool = False
    #: True if the key has no effect, which is warned of.
    is_ignored: bool = False
    #: True if the key has no effect on a member of a group in Kafka.
    zookeeper_only: bool = False

    @property
    def option_name(self) -> str:
        """The option's name without dashes. A secret's option names a file."""
        return f"{self.name}-file" if self.kind == "secret" else self.name

    @property
    def option(self) -> str:
        return f"--{self.option_name}"

    @property
    def parameter(self) -> str:
        return self.option_name.replace("-", "_")

    @property
    def variable(self) -> str:
        """The environment variable; of a secret it has the secret itself."""
        return "ZKGROUP_" + self.name.upper().replace("-", "_")

    @property
    def profile_keys(self) -> tuple[str, ...]:
        if not (self.name and self.in_profile):
            return ()
        return (self.option_name, f"{self.name}-env") if self.kind == "secret" else (self.name,)

    @property
    def field(self) -> str:
        """The attribute of ``ConsumerConfig``."""
        return self.key.removeprefix(OWN_PREFIX).replace(".", "_")


def _member(key: str, kind: Kind, default: Any, doc: str = "", **more: Any) -> Setting:
    return Setting("member", kind, key=key, default=default, doc=doc, **more)


def _brokers(name: str, kind: Kind, key: str, doc: str, **more: Any) -> Setting:
    return Setting("brokers", kind, name, key, doc, **more)


def _zookeeper(name: str, kind: Kind, doc: str, **more: Any) -> Setting:
    return Setting("zookeeper", kind, name, doc=doc, **more)


def _connection(name: str, kind: Kind, metavar: str, doc: str, **more: Any) -> Setting:
    return Setting("connection", kind, name, doc=doc, metavar=metavar, **more)


SETTINGS: Final[tuple[Setting, ...]] = (
    _connection(
        "zookeeper",
        "text",
        "CONNECT",
        "ZooKeeper, as HOST:PORT,HOST:PORT/CHROOT.",
        key="zookeeper.connect",
        default="",
        shown_default="none",
        short="-z",
    ),
    _connection(
        "zookeeper-auth-file",
        "path",
        "FILE",
        "USER:PASSWORD for ZooKeeper's access lists (digest), one per line.",
        environment_first=True,
    ),
    _connection(
        "cluster", "text", "NAME", "A profile in config.toml, or sandbox[:NAME].", short="-c", in_profile=False
    ),
    _connection(
        "bootstrap-server", "text", "LIST", "Brokers, instead of those registered in ZooKeeper.", in_environment=False
    ),
    _connection("consumer-config", "path", "FILE", "A consumer.properties file.", in_environment=False),
    _connection(
        "property",
        "repeated",
        "KEY=VALUE",
        "A key of consumer.properties; kafka.NAME=VALUE sets librdkafka's NAME. Repeatable.",
        short="-X",
        in_environment=False,
        in_profile=False,
    ),
    _connection(
        "connect-timeout",
        "seconds",
        "SECONDS",
        "Time-out for ZooKeeper and brokers.",
        default=5.0,
        environment_first=True,
    ),
    _connection("schema-registry", "text", "URL", "A schema registry with Confluent's API, as http://HOST:8081."),
    _connection("schema-registry-user", "text", "TEXT", "The user for the schema registry."),
    _connection("schema-registry-password", "secret", "FILE", "A file with the user's password."),
    _brokers(
        "security-protocol",
        "choice",
        "kafka.security.protocol",
        "The brokers' security protocol. A named listener may add TLS, never remove it.",
        choices=PROTOCOLS,
        shown_default="PLAINTEXT",
    ),
    _brokers(
        "listener",
        "text",
        "zkgroup.listener",
        "The name of the brokers' listener. Default: a listener with the security protocol.",
        default="",
        shown_default="none",
    ),
    _brokers("ssl-ca-file", "file", "kafka.ssl.ca.location", "Authorities for the brokers' certificates (PEM)."),
    _brokers("ssl-certificate-file", "file", "kafka.ssl.certificate.location", "The client certificate (PEM)."),
    _brokers("ssl-key-file", "file", "kafka.ssl.key.location", "The client certificate's key (PEM)."),
    _brokers("ssl-key-password", "secret", "kafka.ssl.key.password", "A file with the key's password."),
    _brokers(
        "ssl-check-hostname",
        "bool",
        "kafka.ssl.endpoint.identification.algorithm",
        "Check that a broker's certificate is for its host.",
        default=True,
        true="https",
        false="none",
    ),
    _brokers(
        "ssl-verify",
        "bool",
        "kafka.enable.ssl.certificate.verification",
        "Verify the brokers' certificates.",
        default=True,
    ),
    _brokers(
        "sasl-mechanism",
        "choice",
        "kafka.sasl.mechanism",
        "The SASL mechanism.",
        choices=MECHANISMS,
    ),
    _brokers("sasl-user", "text", "kafka.sasl.username", "The user for the brokers."),
    _brokers("sasl-password", "secret", "kafka.sasl.password", "A file with the user's password."),
    _brokers(
        "sasl-kerberos-keytab",
        "file",
        "kafka.sasl.kerberos.keytab",
        "A keytab for the brokers, with a principal. Default: the ticket cache.",
    ),
    _brokers("sasl-kerberos-principal", "text", "kafka.sasl.kerberos.principal", "The principal of the keytab."),
    _brokers(
        "sasl-kerberos-service",
        "text",
        "kafka.sasl.kerberos.service.name",
        "The service in the brokers' principals.",
        default="kafka",
    ),
    _zookeeper("zookeeper-tls", "bool", "Use TLS with ZooKeeper. Default: if one of its TLS files is named."),
    _zookeeper("zookeeper-ca-file", "file", "Authorities for ZooKeeper's certificates (PEM)."),
    _zookeeper("zookeeper-certificate-file", "file", "The client certificate for ZooKeeper (PEM)."),
    _zookeeper("zookeeper-key-file", "file", "The client certificate's key (PEM)."),
    _zookeeper("zookeeper-key-password", "secret", "A file with the key's password."),
    _zookeeper("zookeeper-check-hostname", "bool", "Check that ZooKeeper's certificate is for its host.", default=True),
    _zookeeper("zookeeper-verify", "bool", "Verify ZooKeeper's certificate.", default=True),
    _zookeeper(
        "zookeeper-sasl-mechanism",
        "choice",
        "The SASL mechanism for ZooKeeper. GSSAPI: Kerberos. Default: DIGEST-MD5, if a user is named.",
        choices=ZOOKEEPER_MECHANISMS,
    ),
    _zookeeper("zookeeper-sasl-user", "text", "The user for ZooKeeper (SASL, DIGEST-MD5)."),
    _zookeeper("zookeeper-sasl-password", "secret", "A file with the user's password."),
    _zookeeper("zookeeper-kerberos-keytab", "file", "A keytab for ZooKeeper. Default: the ticket cache."),
    _zookeeper(
        "zookeeper-kerberos-principal",
        "text",
        "The principal for ZooKeeper. Default: that of the ticket cache, or the first of the keytab.",
    ),
    _zookeeper(
        "zookeeper-kerberos-service",
        "text",
        "The service in the principals of ZooKeeper's servers.",
        default="zookeeper",
    ),
    _zookeeper(
        "zookeeper-acl",
        "text",
        "The access list of created nodes: open, creator, creator-read-world, or entries as in "
        "sasl:app:cdrwa,world:anyone:r.",
    ),
    _member("group.id", "name", "", "`--group` may repeat it, but not contradict it", shown_default="none"),
    _member(
        "consumer.id",
        "name",
        None,
        "the member registers as `GROUP_CONSUMERID`",
        shown_default="generated",
        zookeeper_only=True,
    ),
    _member("client.id", "name", "", shown_default="= group.id", librdkafka=LibrdkafkaProperty("client.id")),
    _member(
        "zookeeper.session.timeout.ms",
        "int",
        6000,
        "the server bounds it to 2–20 of its ticks",
        lowest=100,
        zookeeper_only=True,
    ),
    _member(
        "zookeeper.connection.timeout.ms",
        "int",
        -1,
        "if set, also how long every command waits for ZooKeeper (otherwise 5 s)",
        shown_default="= zookeeper.session.timeout.ms",
        lowest=1,
    ),
    _member(
        "zookeeper.sync.time.ms",
        "int",
        2000,
        "only as the default of `rebalance.backoff.ms`, as in Kafka's own consumer",
        zookeeper_only=True,
    ),
    _member("auto.commit.enable", "bool", True),
    _member("auto.commit.interval.ms", "int", 60000, lowest=1),
    _member(
        "auto.offset.reset",
        "choice",
        None,
        "`smallest` or `largest`; `earliest` and `latest` are accepted. Without a committed offset the "
        "default is used; an offset out of range is an error unless the key is set",
        shown_default="largest",
        choices=("smallest", "largest"),
    ),
    _member("offsets.storage", "choice", "zookeeper", "`zookeeper` or `kafka`", choices=("zookeeper", "kafka")),
    _member(
        "dual.commit.enabled",
        "bool",
        None,
        "no effect without Kafka storage",
        shown_default="true with offsets.storage=kafka, else false",
    ),
    _member(
        "offsets.commit.max.retries",
        "int",
        5,
        "of a commit on shutdown and before a release, in both stores",
        zookeeper_only=True,
    ),
    _member(
        "offsets.channel.backoff.ms",
        "int",
        1000,
        "for the connection that commits to Kafka",
        librdkafka=LibrdkafkaProperty("retry.backoff.ms", 1, 300_000, "offsets"),
    ),
    _member(
        "offsets.channel.socket.timeout.ms",
        "int",
        10000,
        "for the connection that commits to Kafka",
        librdkafka=LibrdkafkaProperty("socket.timeout.ms", 10, 300_000, "offsets"),
        lowest=1,
    ),
    _member("partition.assignment.strategy", "choice", "range", "`range` or `roundrobin`", choices=STRATEGIES),
    _member("rebalance.max.retries", "int", 4, "attempts of one rebalance", lowest=1, zookeeper_only=True),
    _member(
        "rebalance.backoff.ms",
        "int",
        -1,
        "the longest pause; it ends when the conflicting owner node is deleted",
        shown_default="= zookeeper.sync.time.ms",
        zookeeper_only=True,
    ),
    _member("consumer.timeout.ms", "int", -1, "−1: wait for ever", lowest=-1),
    _member("exclude.internal.topics", "bool", True, "for topic filters"),
    _member(
        "refresh.leader.backoff.ms",
        "int",
        200,
        librdkafka=LibrdkafkaProperty("topic.metadata.refresh.fast.interval.ms", 1, 60_000),
    ),
    _member(
        "queued.max.message.chunks",
        "int",
        2,
        "as chunks × `fetch.message.max.bytes`, in KiB",
        librdkafka=LibrdkafkaProperty("queued.max.messages.kbytes", 1, 2_097_151),
        lowest=1,
    ),
    _member(
        "fetch.message.max.bytes",
        "int",
        1048576,
        "a larger message is fetched all the same; Kafka's own consumer fails",
        librdkafka=LibrdkafkaProperty("fetch.message.max.bytes", 1, 1_000_000_000),
        lowest=1,
    ),
    _member("fetch.min.bytes", "int", 1, librdkafka=LibrdkafkaProperty("fetch.min.bytes", 1, 100_000_000)),
    _member(
        "fetch.wait.max.ms",
        "int",
        100,
        "more than `socket.timeout.ms` is an error, as in Kafka's own consumer",
        librdkafka=LibrdkafkaProperty("fetch.wait.max.ms", 0, 300_000),
    ),
    _member(
        "socket.timeout.ms", "int", 30000, librdkafka=LibrdkafkaProperty("socket.timeout.ms", 10, 300_000), lowest=1
    ),
    _member(
        "socket.receive.buffer.bytes",
        "int",
        65536,
        "unless set, the system sizes the buffer",
        librdkafka=LibrdkafkaProperty("socket.receive.buffer.bytes", 0, 100_000_000),
    ),
    _member("num.consumer.fetchers", "int", 1, "librdkafka keeps one connection to each broker", is_ignored=True),
    _member(
        "zkgroup.keep.trying",
        "bool",
        False,
        "after a failed rebalance the member tries again, with growing pauses, instead of leaving",
        zookeeper_only=True,
    ),
    _member(
        "zkgroup.quiesce.timeout.ms", "int", 3000, "how long a rebalance waits until a reader has finished its batch"
    ),
    _member(
        "zkgroup.kafka.version",
        "release",
        "1.1",
        "the Kafka release, such as 0.8.2 or 0.10.2: its roundrobin, and the internal topics that filters leave out",
    ),
)

BY_NAME: Final = {setting.name: setting for setting in SETTINGS if setting.name}
#: How long servers may take to answer where nobody has set it, in seconds.
CONNECT_TIMEOUT: Final[float] = BY_NAME["connect-timeout"].default
#: The keys of ``ConsumerConfig``.
BY_KEY: Final = {one.key: one for one in SETTINGS if one.key and not one.key.startswith(KAFKA_PREFIX)}
#: ``ConsumerConfig``'s defaults by its fields.
DEFAULTS: Final[dict[str, Any]] = {one.field: one.default for one in BY_KEY.values()}

#: librdkafka properties that zkgroup sets itself, and the replacement.
RESERVED: Final = {
    "bootstrap.servers": "use --bootstrap-server",
    "metadata.broker.list": "use --bootstrap-server",
    "group.id": "use --group",
    "group.instance.id": "zkgroup's members live in ZooKeeper",
    "group.protocol": "zkgroup's members live in ZooKeeper",
    "client.id": "use client.id",
    "partition.assignment.strategy": "use partition.assignment.strategy",
    "session.timeout.ms": "use zookeeper.session.timeout.ms",
    "auto.offset.reset": "use auto.offset.reset",
    "enable.auto.commit": "use auto.commit.enable",
    "auto.commit.interval.ms": "use auto.commit.interval.ms",
    "enable.auto.offset.store": "zkgroup keeps count of what was consumed",
    "enable.partition.eof": "zkgroup sets it where it needs it",
}

#: librdkafka properties that only a member of a group in Kafka has (``consume --coordinator kafka``), and zkgroup's
#: defaults. The session timeout is that of Kafka's own consumer up to 2.8: librdkafka's 45 s are more than brokers
#: before 0.10.1 accept (``group.max.session.timeout.ms``).
MEMBERSHIP: Final[Mapping[str, int | None]] = {
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 1000,
    "max.poll.interval.ms": None,
    "group.instance.id": None,
}


def has_tls(protocol: str) -> bool:
    return protocol.upper() in ("SSL", "SASL_SSL")
