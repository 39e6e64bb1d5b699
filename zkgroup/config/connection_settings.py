"""Where the servers are: connect strings and the settings every command shares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from zkgroup.config.java_properties import Property
from zkgroup.config.security_settings import TlsSettings
from zkgroup.errors import UsageError

ZOOKEEPER_PORT: Final = 2181
KAFKA_PORT: Final = 9092
DEFAULT_TIMEOUT: Final = 5.0

_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\]", re.ASCII)
# What ZooKeeper refuses in a path (org.apache.zookeeper.common.PathUtils, 3.9).
_BAD_PATH = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]|//|/\.{1,2}(?=/|\Z)")
# What makes a part of a path look like one more server.
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

    def same_as(self, other: ConnectString) -> bool:
        """Whether both name the same ensemble and chroot; the order of the servers does not matter."""
        return self.chroot == other.chroot and set(self.addresses) == set(other.addresses)


def parse_connect_string(text: str, origin: str) -> ConnectString:
    """Read a connect string; ``origin`` is where it was written, for messages. Raises ``UsageError``."""
    servers, slash, path = text.strip().partition("/")
    remedy = "write HOST:PORT,HOST:PORT/CHROOT"
    if servers.rstrip().endswith(":") and path.startswith("/"):
        raise UsageError(f"{origin}: {text[:120]!r} is a URL, not a connect string", remedy)
    if _SERVER.search(path):
        raise UsageError(
            f"{origin}: {text[:120]!r} has its chroot before the last server",
            f"{remedy}: the chroot comes once, at the end",
        )
    addresses = tuple(_address(part.strip(), text, origin, ZOOKEEPER_PORT, remedy) for part in servers.split(","))
    return ConnectString(tuple(dict.fromkeys(addresses)), parse_chroot(slash + path, origin))


def parse_chroot(text: str, origin: str) -> str:
    """Read what a connect string may end with: ``/name/name``, or ``""`` where it is nothing but slashes. Raises
    ``UsageError``, which names it and ``origin``, for what no connect string can end with."""
    chroot = text.rstrip("/")
    begins = not chroot or chroot.startswith("/")
    if not begins or chroot != chroot.rstrip() or _BAD_PATH.search(chroot) or _SERVER.search(chroot):
        raise UsageError(f"{origin}: {text[:120]!r} cannot be a chroot", "write it as /name or /name/name")
    return chroot


def parse_bootstrap(text: str, origin: str) -> tuple[Address, ...]:
    """Read a list of brokers, ``HOST:PORT,HOST:PORT``. Raises ``UsageError``."""
    remedy = "write HOST:PORT,HOST:PORT"
    # PLAINTEXT://host:9092 is how brokers write it themselves.
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


@dataclass(frozen=True)
class ConnectionSettings:
    """What was found out about the servers before anything was opened. ``timeout`` is in seconds.

    ``kafka`` holds raw librdkafka properties and may hold secrets, so it is not shown. ``origins`` says for each field
    where its value came from.
    """

    zookeeper: ConnectString | None = None
    bootstrap: tuple[Address, ...] = ()
    timeout: float = DEFAULT_TIMEOUT
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: The brokers' listener, if it was named.
    listener: str | None = None
    #: Schemes and credentials for ZooKeeper.
    zookeeper_auth: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    zookeeper_tls: TlsSettings | None = None
    #: User and password.
    zookeeper_sasl: tuple[str, str] | None = field(default=None, repr=False)
    #: The access list of what is made in ZooKeeper, in words, if one was asked for.
    zookeeper_acl: str | None = None
    cluster: str | None = None
    #: A profile may ask for a confirmation before anything is changed.
    protected: bool = False
    #: What a profile calls its cluster besides: for people.
    labels: tuple[str, ...] = ()
    #: Settings of a member, in the order of their rank, the strongest last.
    properties: tuple[Property, ...] = field(default=(), repr=False)
    origins: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def require_zookeeper(self) -> ConnectString:
        """The ZooKeeper to use, or ``UsageError``."""
        if self.zookeeper is None:
            raise UsageError(
                "no ZooKeeper was named",
                "give --zookeeper HOST:PORT/CHROOT or --cluster NAME, or set ZKGROUP_ZOOKEEPER",
            )
        return self.zookeeper
