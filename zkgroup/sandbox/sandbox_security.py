"""What a secured sandbox has: certificates, users with passwords, and the configuration of its servers and clients.

All of it lies in one folder that only its owner may read. ``profile.toml`` there is the profile of a client, complete:
``--cluster sandbox:NAME`` uses it, and it shows an example of a profile.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.errors import UsageError
from zkgroup.sandbox.certificates import STORE_PASSWORD, Authority, write_private
from zkgroup.sandbox.kafka_releases import RELEASES, KafkaRelease
from zkgroup.sandbox.kerberos_realm import KerberosRealm
from zkgroup.sandbox.server_probe import HOST

#: The user that operates groups: in Kafka by PLAIN and SCRAM, in ZooKeeper by DIGEST-MD5, and the name in the
#: certificate.
USER: Final = "zkgroup"
#: As whom the brokers, and what makes topics for them, come to ZooKeeper.
BROKERS: Final = "kafka"
#: The profile's name in ``profile.toml``.
PROFILE: Final = "secured"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
#: Name and protocol of the brokers' listeners. The first is for the brokers themselves and for members of the
#: reference, which speak nothing else.
LISTENERS: Final = (("PLAINTEXT", "PLAINTEXT"), ("SSL", "SSL"), ("SASL_SSL", "SASL_SSL"), ("CLIENTS", "SASL_PLAINTEXT"))
_ITERATIONS: Final = 4096


@dataclass(frozen=True)
class Security:
    """The secrets of one sandbox, in files of ``folder``."""

    folder: Path
    listeners = LISTENERS

    # Files

    @property
    def ca(self) -> Path:
        """The authority's certificate."""
        return self.folder / "ca.pem"

    @property
    def certificate(self) -> Path:
        """The certificate of ``USER``."""
        return self.folder / "client.pem"

    @property
    def key(self) -> Path:
        return self.folder / "client.key"

    @property
    def profile(self) -> Path:
        """The profile of a client, as ``config.toml`` has it."""
        return self.folder / "profile.toml"

    @property
    def jaas(self) -> Path:
        """What Java's clients and servers find their names and passwords in."""
        return self.folder / "jaas.conf"

    def password_file(self, of: str) -> Path:
        """The password of ``sasl`` (``USER`` at the brokers), ``zookeeper`` (``USER`` there) or ``brokers``."""
        return self.folder / f"{of}.password"

    def password(self, of: str) -> str:
        """As ``password_file``."""
        return self.password_file(of).read_text(encoding="utf-8").strip()

    # Making

    def make(self, name: str) -> Authority:
        """Make certificates and passwords anew. Returns the authority, which is kept nowhere."""
        self.folder.mkdir(parents=True, mode=0o700)
        authority = Authority.make(f"sandbox {name}")
        write_private(self.ca, authority.own.pem)
        server = authority.issue(HOST, [HOST, "localhost"])
        write_private(self.folder / "server.p12", server.key_store(authority.own))
        write_private(self.folder / "trust.p12", authority.trust_store())
        authority.issue(USER).write(self.certificate, self.key)
        for of in ("sasl", "zookeeper", "brokers"):
            write_private(self.password_file(of), secrets.token_urlsafe(18) + "\n")
        write_private(self.jaas, self._jaas())
        write_private(self.folder / "member.conf", _section("Client", self._zookeeper_user(USER)))
        return authority

    def _jaas(self) -> str:
        users = {f"user_{USER}": self.password("sasl")}
        zookeeper = {f"user_{BROKERS}": self.password("brokers"), f"user_{USER}": self.password("zookeeper")}
        return (
            _section("Server", zookeeper)
            + _section("Client", self._zookeeper_user(BROKERS))
            + "KafkaServer {\n"
            + _module("org.apache.kafka.common.security.plain.PlainLoginModule", users)
            + _module("org.apache.kafka.common.security.scram.ScramLoginModule", {})
            + "};\n"
        )

    def _zookeeper_user(self, user: str) -> dict[str, str]:
        return {"username": user, "password": self.password("brokers" if user == BROKERS else "zookeeper")}

    def java_options(self, *, member: bool = False) -> list[str]:
        """Where a JVM finds its names and passwords; ``member``: one of the Scala consumer's, which is ``USER``."""
        return [f"-Djava.security.auth.login.config={self.folder / 'member.conf' if member else self.jaas}"]

    # The configuration of servers

    def zookeeper_properties(self, tls_port: int) -> dict[str, object]:
        """For ``zoo.cfg``: a port with TLS, at which a client must show a certificate, and DIGEST-MD5 at both."""
        return {
            "secureClientPort": tls_port,
            "secureClientPortAddress": HOST,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "ssl.keyStore.location": self.folder / "server.p12",
            "ssl.keyStore.password": STORE_PASSWORD,
            "ssl.keyStore.type": "PKCS12",
            "ssl.trustStore.location": self.folder / "trust.p12",
            "ssl.trustStore.password": STORE_PASSWORD,
            "ssl.trustStore.type": "PKCS12",
            "ssl.clientAuth": "need",
        }

    def broker_properties(self, ports: Mapping[str, int]) -> dict[str, object]:
        """For ``server.properties``: all listeners, by their names; what the brokers keep in ZooKeeper is theirs."""
        return {
            "listeners": ",".join(f"{name}://{HOST}:{ports[name]}" for name, _ in LISTENERS),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS),
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "ssl.keystore.location": self.folder / "server.p12",
            "ssl.keystore.password": STORE_PASSWORD,
            "ssl.keystore.type": "PKCS12",
            "ssl.key.password": STORE_PASSWORD,
            "ssl.truststore.location": self.folder / "trust.p12",
            "ssl.truststore.password": STORE_PASSWORD,
            "ssl.truststore.type": "PKCS12",
            "ssl.client.auth": "required",
            "zookeeper.set.acl": "true",
        }

    def users(self) -> dict[str, bytes]:
        """Nodes of ZooKeeper, below the chroot, that hold what brokers know of SCRAM's users (0.10.2 to 3.9)."""
        credentials = {name: _scram(name, self.password("sasl")) for name in MECHANISMS if name.startswith("SCRAM")}
        return {f"/config/users/{USER}": json.dumps({"version": 1, "config": credentials}).encode()}

    # The configuration of clients

    def write_profile(self, connect: str) -> None:
        """Write the profile of a client; ``connect`` names ZooKeeper's port with TLS, and the chroot."""
        lines = {
            "zookeeper": connect,
            "zookeeper-tls": True,
            "zookeeper-ca-file": str(self.ca),
            "zookeeper-certificate-file": str(self.certificate),
            "zookeeper-key-file": str(self.key),
            "zookeeper-sasl-user": USER,
            "zookeeper-sasl-password-file": str(self.password_file("zookeeper")),
            "zookeeper-acl": "creator-read-world",
            "security-protocol": "SASL_SSL",
            "ssl-ca-file": str(self.ca),
            "sasl-mechanism": "SCRAM-SHA-512",
            "sasl-user": USER,
            "sasl-password-file": str(self.password_file("sasl")),
        }
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items())
        write_private(self.profile, f"[clusters.{PROFILE}]\n{text}")


def security_in(folder: str | None) -> Security | KerberosRealm | None:
    """What a sandbox has in the folder of its secrets; None without one."""
    if folder is None:
        return None
    realm = KerberosRealm(Path(folder))
    return realm if realm.config.exists() else Security(Path(folder))


def check_release(release: KafkaRelease) -> None:
    """Raise ``UsageError`` for a release that knows neither SCRAM nor names for listeners."""
    known = list(RELEASES)
    if known.index(release.version) < known.index("0.10.2.2"):
        raise UsageError(
            f"Kafka {release.version} cannot be secured here: it knows no SCRAM and no names for listeners",
            f"use one of {', '.join(known[known.index('0.10.2.2') :])}",
        )


_DIGEST: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"


def _module(name: str, options: Mapping[str, str]) -> str:
    return f"  {name} required" + "".join(f'\n    {key}="{value}"' for key, value in options.items()) + ";\n"


def _section(name: str, options: Mapping[str, str]) -> str:
    return f"{name} {{\n{_module(_DIGEST, options)}}};\n"


def _scram(mechanism: str, password: str) -> str:
    """What a broker keeps of a password (RFC 5802)."""
    kind = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac(kind, password.encode(), salt, _ITERATIONS)
    client = hmac.digest(salted, b"Client Key", kind)
    parts: Sequence[tuple[str, bytes]] = (
        ("salt", salt),
        ("stored_key", hashlib.new(kind, client).digest()),
        ("server_key", hmac.digest(salted, b"Server Key", kind)),
    )
    return ",".join([*(f"{key}={base64.b64encode(v).decode()}" for key, v in parts), f"iterations={_ITERATIONS}"])


def registry_settings(
    connect: str, security: Security | KerberosRealm | None, timeout: float = 5.0
) -> ZooKeeperSettings:
    """How what belongs to the sandbox comes to its ZooKeeper: it may do what the brokers may, but in a realm, where it
    may do what everybody may."""
    user = (BROKERS, security.password("brokers")) if isinstance(security, Security) else None
    return ZooKeeperSettings(connect, connect_timeout=timeout, sasl=user)
