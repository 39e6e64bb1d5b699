"""The settings that secure connections: one table, from which options, variables, profiles and the docs are made.

A setting NAME is given as the option ``--NAME``, the variable ``ZKGROUP_NAME`` (in capitals, with underscores) or the
key NAME of a profile. A secret is never given itself but in the variable ``ZKGROUP_NAME``: the option and the key
``NAME-file`` name a file that holds it, the key ``NAME-env`` a variable of one's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
#: The property that names a listener, for ``consumer.properties`` and ``-X``.
LISTENER: Final = "zkgroup.listener"
#: As ``consumer.properties`` names the security protocol.
PROTOCOL: Final = "kafka.security.protocol"


def has_tls(protocol: str) -> bool:
    """Whether a security protocol encrypts."""
    return protocol.upper() in ("SSL", "SASL_SSL")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. ``key`` is the one that it becomes, as ``consumer.properties`` has it; None for ZooKeeper's."""

    name: str
    kind: Literal["text", "file", "choice", "truth", "secret"]
    help: str
    key: str | None = None
    choices: tuple[str, ...] = ()

    @property
    def given_as(self) -> str:
        """The name of the option, without dashes: a secret is named by its file."""
        return f"{self.name}-file" if self.kind == "secret" else self.name

    @property
    def option(self) -> str:
        """The option, for messages."""
        return f"--{self.given_as}"

    @property
    def variable(self) -> str:
        """The environment's variable that holds the value, or the secret itself."""
        return "ZKGROUP_" + self.name.upper().replace("-", "_")

    @property
    def field(self) -> str:
        """As Python's parameters are named."""
        return self.given_as.replace("-", "_")

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of a profile."""
        return (self.given_as, f"{self.name}-env") if self.kind == "secret" else (self.name,)


BROKERS: Final = (
    Setting(
        "security-protocol",
        "choice",
        "What is spoken with the brokers, PLAINTEXT by default; a named listener may speak TLS instead, never less:",
        PROTOCOL,
        PROTOCOLS,
    ),
    Setting(
        "listener",
        "text",
        "The brokers' listener, by its name; by default one that speaks the security protocol.",
        LISTENER,
    ),
    Setting(
        "ssl-ca-file", "file", "The authorities that brokers' certificates must be of (PEM).", "kafka.ssl.ca.location"
    ),
    Setting("ssl-certificate-file", "file", "The client certificate to show (PEM).", "kafka.ssl.certificate.location"),
    Setting("ssl-key-file", "file", "Its key (PEM).", "kafka.ssl.key.location"),
    Setting("ssl-key-password", "secret", "Holds the password of the key.", "kafka.ssl.key.password"),
    Setting(
        "ssl-check-hostname",
        "truth",
        "Whether a broker's certificate must be for its host; it must by default.",
        "kafka.ssl.endpoint.identification.algorithm",
    ),
    Setting(
        "ssl-verify",
        "truth",
        "Whether brokers' certificates are looked at at all; they are by default.",
        "kafka.enable.ssl.certificate.verification",
    ),
    Setting("sasl-mechanism", "choice", "How the user logs in:", "kafka.sasl.mechanism", MECHANISMS),
    Setting("sasl-user", "text", "The user, for the brokers.", "kafka.sasl.username"),
    Setting("sasl-password", "secret", "Holds the user's password.", "kafka.sasl.password"),
)
ZOOKEEPER: Final = (
    Setting("zookeeper-tls", "truth", "Whether TLS is spoken with ZooKeeper; it is where one of its files is named."),
    Setting("zookeeper-ca-file", "file", "The authorities that ZooKeeper's certificates must be of (PEM)."),
    Setting("zookeeper-certificate-file", "file", "The client certificate to show to ZooKeeper (PEM)."),
    Setting("zookeeper-key-file", "file", "Its key (PEM)."),
    Setting("zookeeper-key-password", "secret", "Holds the password of the key."),
    Setting(
        "zookeeper-check-hostname", "truth", "Whether ZooKeeper's certificate must be for its host; it must by default."
    ),
    Setting("zookeeper-verify", "truth", "Whether ZooKeeper's certificate is looked at at all; it is by default."),
    Setting("zookeeper-sasl-user", "text", "The user, for ZooKeeper (SASL, DIGEST-MD5)."),
    Setting("zookeeper-sasl-password", "secret", "Holds the user's password."),
    Setting(
        "zookeeper-acl",
        "text",
        "Who may do what with the nodes that are made: open, creator, creator-read-world, or entries as in "
        "sasl:app:cdrwa,world:anyone:r.",
    ),
)
SETTINGS: Final = BROKERS + ZOOKEEPER
BY_NAME: Final = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Whom TLS trusts, and what it shows; PEM files. Without ``ca_file`` the system's authorities are trusted."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    verify: bool = True
