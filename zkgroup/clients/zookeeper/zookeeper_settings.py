"""How to reach a ZooKeeper."""

from __future__ import annotations

from dataclasses import dataclass, field

from zkgroup.config.connection_settings import KerberosSettings, TlsSettings
from zkgroup.config.settings_table import DEFAULTS
from zkgroup.protocol.operations import OPEN, Acl


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """How to reach a ZooKeeper. ``hosts`` is a connect string with its chroot; times are seconds.

    ``auth``: schemes and credentials, as ``addauth`` takes them. ``tls``: used if given. ``sasl``: user and password
    for DIGEST-MD5, or Kerberos. ``acl``: the access list of created nodes. By default a member's nodes are open to
    everyone, as the Scala consumer's, and commands copy the list of the parent, or of the copied node.
    """

    hosts: str
    session_timeout: float = DEFAULTS["zookeeper_session_timeout_ms"] / 1000
    connect_timeout: float = 5.0
    auth: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    tls: TlsSettings | None = None
    sasl: tuple[str, str] | KerberosSettings | None = field(default=None, repr=False)
    acl: tuple[Acl, ...] | None = None

    @property
    def chroot(self) -> str:
        """The chroot, ``/`` if there is none."""
        return "/" + self.hosts.partition("/")[2].strip("/")

    @property
    def servers(self) -> int:
        """The number of servers in the connect string."""
        return self.hosts.partition("/")[0].count(",") + 1

    @property
    def default_acl(self) -> tuple[Acl, ...]:
        """The access list of a node that is created without one."""
        return self.acl or OPEN
