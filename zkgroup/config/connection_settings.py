"""The addresses of the servers, the settings of a connection, and these as they are shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from zkgroup.config.setting_files import Property
from zkgroup.config.settings_table import BY_NAME, CONNECT_TIMEOUT, SETTINGS
from zkgroup.errors import Notice, UsageError

ZOOKEEPER_PORT: Final = 2181
KAFKA_PORT: Final = 9092

# Python resolves no name with an empty label, or one of more than 63 characters: it raises UnicodeError.
_HOST = re.compile(r"[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?|\[[0-9A-Fa-f:.%]+\]", re.ASCII)
# Characters and parts that ZooKeeper refuses in a path (org.apache.zookeeper.common.PathUtils, 3.9).
_BAD_PATH = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]|//|/\.{1,2}(?=/|\Z)")
# A part of a path that looks like another server.
_SERVER = re.compile(r",[^/,]+:[0-9]+")


class Address(NamedTuple):
    """A server's address; an IPv6 host is in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ConnectString:
    """ZooKeeper's ``h1:2181,h2:2181/chroot``. ``chroot`` is ``""`` where there is none, else starts with ``/``."""

    addresses: tuple[Address, ...]
    chroot: str = ""

    def __str__(self) -> str:
        return ",".join(map(str, self.addresses)) + self.chroot

    def is_same_as(self, other: ConnectString) -> bool:
        """Whether both name the same ensemble and chroot; the order of the servers does not matter."""
        return self.chroot == other.chroot and set(self.addresses) == set(other.addresses)


def parse_connect_string(text: str, origin: str) -> ConnectString:
    """Parse a connect string; ``origin`` is where it was written, for messages. Raises ``UsageError``."""
    servers, slash, path = text.strip().partition("/")
    remedy = "write HOST:PORT,HOST:PORT/CHROOT"
    addresses = tuple(_address(part.strip(), text, origin, ZOOKEEPER_PORT, remedy) for part in servers.split(","))
    return ConnectString(tuple(dict.fromkeys(addresses)), parse_chroot(slash + path, origin))


def parse_chroot(text: str, origin: str) -> str:
    """Parse a chroot: ``/name/name``, or ``""`` for slashes alone. Raises ``UsageError``."""
    chroot = text.rstrip("/")
    begins = not chroot or chroot.startswith("/")
    if not begins or chroot != chroot.rstrip() or _BAD_PATH.search(chroot) or _SERVER.search(chroot):
        raise UsageError(
            f"{origin}: {text[:120]!r} cannot be a chroot", "write it as /name or /name/name, once, behind all servers"
        )
    return chroot


def parse_bootstrap(text: str, origin: str) -> tuple[Address, ...]:
    """Parse a list of brokers, ``HOST:PORT,HOST:PORT``. Raises ``UsageError``."""
    remedy = "write HOST:PORT,HOST:PORT"
    # Brokers write PLAINTEXT://host:9092 themselves.
    parts = [re.sub(r"^[A-Z_]+://", "", part.strip()) for part in text.split(",")]
    return tuple(dict.fromkeys(_address(part, text, origin, KAFKA_PORT, remedy) for part in parts))


def _address(part: str, whole: str, origin: str, default_port: int, remedy: str) -> Address:
    host, colon, port = part.rpartition(":")
    if not colon or part.endswith("]"):
        host, port = part, str(default_port)
    if not part:
        raise UsageError(f"{origin}: {whole[:120]!r} names an empty address", remedy)
    if not _HOST.fullmatch(host) or not re.fullmatch(r"[0-9]{1,5}", port, re.ASCII) or not 0 < int(port) < 65536:
        raise UsageError(f"{origin}: {part[:120]!r} is no address", remedy)
    return Address(host, int(port))


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """PEM files and checks of a TLS client. Without ``ca_file`` the system's authorities are trusted."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    verify: bool = True


@dataclass(frozen=True, slots=True)
class KerberosSettings:
    """A login with Kerberos at the service ``SERVICE/HOST``.

    ``keytab`` names a file; without one the default ticket cache is used. ``principal``: by default that of the cache,
    or the first of the keytab.
    """

    service: str = "zookeeper"
    keytab: str | None = None
    principal: str | None = None


@dataclass(frozen=True)
class ConnectionSettings:
    """The resolved settings of a connection. ``timeout`` is in seconds.

    ``kafka``: librdkafka's properties, which may hold secrets and are not shown. ``origins``: where a setting's value
    was given, by the setting's name.
    """

    zookeeper: ConnectString | None = None
    bootstrap: tuple[Address, ...] = ()
    timeout: float = CONNECT_TIMEOUT
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: The name of the brokers' listener.
    listener: str | None = None
    #: Schemes and credentials for ZooKeeper.
    zookeeper_auth: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    zookeeper_tls: TlsSettings | None = None
    #: User and password, or Kerberos.
    zookeeper_sasl: tuple[str, str] | KerberosSettings | None = field(default=None, repr=False)
    #: The access list of created nodes, in words.
    zookeeper_acl: str | None = None
    schema_registry: str | None = None
    schema_registry_user: str | None = None
    schema_registry_password: str | None = field(default=None, repr=False)
    cluster: str | None = None
    #: True if the profile asks for a confirmation before every change.
    protected: bool = False
    #: The profile's names of the cluster for people.
    labels: tuple[str, ...] = ()
    #: A member's settings, the strongest last.
    properties: tuple[Property, ...] = field(default=(), repr=False)
    origins: Mapping[str, str] = field(default_factory=dict)
    #: The texts of the settings of ZooKeeper that were given, but for secrets.
    zookeeper_texts: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[Notice, ...] = ()

    def require_zookeeper(self) -> ConnectString:
        """The ZooKeeper to use, or ``UsageError``."""
        if self.zookeeper is None:
            raise UsageError(
                "no ZooKeeper was named",
                "give --zookeeper HOST:PORT/CHROOT or --cluster NAME, or set ZKGROUP_ZOOKEEPER",
            )
        return self.zookeeper


_HIDDEN: Final = "(hidden)"
#: Parts of keys that may hold a secret.
_SECRET: Final = ("password", "secret", "jaas", "token", "credential", "key.pem")


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """One setting, by the name of its option or key."""

    setting: str
    value: str | None
    source: str


def shown_settings(settings: ConnectionSettings) -> list[ShownSetting]:
    """The cluster, the settings of the connection, and each key of a member that was given."""
    values: dict[str, object] = {
        "cluster": settings.cluster,
        **({"labels": ", ".join(settings.labels)} if settings.labels else {}),
        "protected": settings.protected,
        "zookeeper": settings.zookeeper,
        "bootstrap-server": ",".join(map(str, settings.bootstrap)),
        "connect-timeout": f"{settings.timeout:g}",
    }
    rows = [ShownSetting(name, _text(value), settings.origins.get(name, "default")) for name, value in values.items()]
    rows += [
        ShownSetting(one.name, settings.zookeeper_texts.get(one.name, _HIDDEN), settings.origins[one.name])
        for one in SETTINGS
        if one.name in settings.origins and (one.section == "zookeeper" or one.name == "zookeeper-auth-file")
    ]
    names = {setting.key: setting.name for setting in BY_NAME.values()}
    strongest = {each.key: each for each in settings.properties}
    return rows + [
        ShownSetting(
            names.get(key, key), _HIDDEN if any(part in key.lower() for part in _SECRET) else each.value, each.origin
        )
        for key, each in sorted(strongest.items())
        if key != "zookeeper.connect"  # a row above, and perhaps overruled
    ]


def _text(value: object) -> str | None:
    return str(value).lower() if isinstance(value, bool) else None if value in (None, "") else str(value)
