"""What a secured sandbox has: with TLS and passwords (``Security``), or with Kerberos (``KerberosRealm``).

Secrets lie in one folder that only its owner may read. ``profile.toml`` there is the profile of a client, complete:
``--cluster sandbox:NAME`` uses it, and it shows an example of a profile.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from zkgroup.child_processes import Watchdog
from zkgroup.clients.kafka.client import has_gssapi
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.config.settings_table import PASSWORD_MECHANISMS
from zkgroup.errors import MissingExtraError, UsageError
from zkgroup.sandbox.kafka_releases import RELEASES, KafkaRelease
from zkgroup.sandbox.processes import HOST, Server, run_tool
from zkgroup.sandbox.server_configuration import STORE_PASSWORD, write_private

if TYPE_CHECKING:
    from zkgroup.sandbox.certificates import Certificate

#: The user that operates groups: in Kafka by PLAIN and SCRAM, in ZooKeeper by DIGEST-MD5, and the name in the
#: certificate; in a realm its principal.
USER: Final = "zkgroup"
#: As whom the brokers, and what makes topics for them, come to ZooKeeper.
BROKERS: Final = "kafka"
_ITERATIONS: Final = 4096


@dataclass(frozen=True)
class SandboxSecurity(ABC):
    """The secrets of one sandbox, in files of ``folder``. ``listeners``: name and protocol of the brokers' listeners,
    the first of which is for the brokers themselves and for members of the Scala consumer, which speak nothing else;
    ``since``: the first release that knows these."""

    folder: Path
    listeners: ClassVar[tuple[tuple[str, str], ...]]
    since: ClassVar[str]

    @property
    def profile(self) -> Path:
        """The profile of a client, as ``config.toml`` has it."""
        return self.folder / "profile.toml"

    def check_release(self, release: KafkaRelease) -> None:
        """Raise ``UsageError`` for a release that is too old."""
        known = list(RELEASES)
        if known.index(release.version) < (first := known.index(self.since)):
            fitting = ", ".join(one for one in known[first:] if not RELEASES[one].kraft)
            raise UsageError(f"Kafka {release.version} cannot be secured so", f"use one of {fitting}")

    def write_profile(self, connect: str) -> None:
        """Write the profile of a client; ``connect`` is ZooKeeper's address for it, with the chroot."""
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in self._profile(connect).items())
        write_private(self.profile, f"[clusters.secured]\n{text}")

    @abstractmethod
    def _profile(self, connect: str) -> dict[str, str | bool]: ...

    @abstractmethod
    def make(self, name: str) -> Certificate | None:
        """Make the secrets of the sandbox ``name`` anew. Returns the authority, if it has one; it is kept nowhere."""

    def users(self) -> dict[str, bytes]:
        """Nodes of ZooKeeper, below the chroot, that hold what brokers know of users."""
        return {}

    def java_options(self, *, member: bool = False) -> list[str]:
        """Where a JVM finds what it logs in with; ``member``: one of the Scala consumer's, which is ``USER``."""
        return [f"-Djava.security.auth.login.config={self.folder / ('member.conf' if member else 'jaas.conf')}"]

    def zookeeper_properties(self, tls_port: int) -> dict[str, object]:
        """For ``zoo.cfg``; ``tls_port`` is for the port with TLS, if there is one."""
        return {"authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}

    @abstractmethod
    def broker_properties(self, ports: Mapping[str, int]) -> dict[str, object]:
        """For ``server.properties``: all listeners, by their names; what the brokers keep in ZooKeeper is theirs."""


class Security(SandboxSecurity):
    """Certificates, and users with passwords."""

    listeners = (("PLAINTEXT", "PLAINTEXT"), ("SSL", "SSL"), ("SASL_SSL", "SASL_SSL"), ("CLIENTS", "SASL_PLAINTEXT"))
    since = "0.10.2.2"  # knows SCRAM, and names for listeners

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

    def password_file(self, of: str) -> Path:
        """The password of ``sasl`` (``USER`` at the brokers), ``zookeeper`` (``USER`` there) or ``brokers``."""
        return self.folder / f"{of}.password"

    def password(self, of: str) -> str:
        """As ``password_file``."""
        return self.password_file(of).read_text(encoding="utf-8").strip()

    def make(self, name: str) -> Certificate:
        try:
            from zkgroup.sandbox.certificates import make_authority
        except ImportError:
            raise MissingExtraError("a secured sandbox", "cryptography", "sandbox") from None
        self.folder.mkdir(parents=True, mode=0o700)
        authority = make_authority(f"sandbox {name}")
        write_private(self.ca, authority.pem)
        server = authority.issue(HOST, [HOST, "localhost"])
        write_private(self.folder / "server.p12", server.key_store(authority))
        write_private(self.folder / "trust.p12", authority.trust_store())
        client = authority.issue(USER)
        write_private(self.certificate, client.pem)
        write_private(self.key, client.key_pem)
        for of in ("sasl", "zookeeper", "brokers"):
            write_private(self.password_file(of), secrets.token_urlsafe(18) + "\n")
        write_private(self.folder / "jaas.conf", self._jaas())
        write_private(self.folder / "member.conf", _section("Client", _DIGEST, self._zookeeper_user(USER)))
        return authority

    def _jaas(self) -> str:
        users = {f"user_{USER}": self.password("sasl")}
        zookeeper = {f"user_{BROKERS}": self.password("brokers"), f"user_{USER}": self.password("zookeeper")}
        return (
            _section("Server", _DIGEST, zookeeper)
            + _section("Client", _DIGEST, self._zookeeper_user(BROKERS))
            + "KafkaServer {\n"
            + _module("org.apache.kafka.common.security.plain.PlainLoginModule", users)
            + _module("org.apache.kafka.common.security.scram.ScramLoginModule", {})
            + "};\n"
        )

    def _zookeeper_user(self, user: str) -> dict[str, str]:
        return {"username": user, "password": self.password("brokers" if user == BROKERS else "zookeeper")}

    def zookeeper_properties(self, tls_port: int) -> dict[str, object]:
        """A port with TLS, at which a client must show a certificate, and DIGEST-MD5 at both."""
        return super().zookeeper_properties(tls_port) | {
            "secureClientPort": tls_port,
            "secureClientPortAddress": HOST,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": self.folder / "server.p12",
            "ssl.keyStore.password": STORE_PASSWORD,
            "ssl.keyStore.type": "PKCS12",
            "ssl.trustStore.location": self.folder / "trust.p12",
            "ssl.trustStore.password": STORE_PASSWORD,
            "ssl.trustStore.type": "PKCS12",
            "ssl.clientAuth": "need",
        }

    def broker_properties(self, ports: Mapping[str, int]) -> dict[str, object]:
        return {
            "listeners": ",".join(f"{name}://{HOST}:{ports[name]}" for name, _ in self.listeners),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in self.listeners),
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(PASSWORD_MECHANISMS),
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
        scram = [name for name in PASSWORD_MECHANISMS if name.startswith("SCRAM")]
        credentials = {name: _scram(name, self.password("sasl")) for name in scram}
        return {f"/config/users/{USER}": json.dumps({"version": 1, "config": credentials}).encode()}

    def _profile(self, connect: str) -> dict[str, str | bool]:
        return {
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


_DIGEST: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"


def _module(name: str, options: Mapping[str, str]) -> str:
    return f"  {name} required" + "".join(f'\n    {key}="{value}"' for key, value in options.items()) + ";\n"


def _section(name: str, module: str, options: Mapping[str, str]) -> str:
    return f"{name} {{\n{_module(module, options)}}};\n"


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


REALM: Final = "ZKGROUP.SANDBOX"
#: The host of the servers' principals.
NAME: Final = "localhost"
_PRINCIPALS: Final = {"zookeeper": f"zookeeper/{NAME}", "kafka": f"kafka/{NAME}", USER: USER}
#: The KDC, and the tools that make its database; where distributions put them, which may be outside of ``PATH``.
_PROGRAMS: Final = ("krb5kdc", "kdb5_util", "kadmin.local")
_PLACES: Final = "/usr/sbin:/usr/local/sbin:/usr/lib/mit/sbin"
_STARTED: Final = "commencing operation"
_KRB5_CONF: Final = """\
[libdefaults]
 default_realm = {realm}
 dns_lookup_realm = false
 dns_lookup_kdc = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = {host}:{port}
 }}
"""
_KDC_CONF: Final = """\
[kdcdefaults]
 kdc_listen = {host}:{port}
 kdc_tcp_listen = {host}:{port}
[realms]
 {realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
 }}
[logging]
 kdc = STDERR
"""
_KRB5_LOGIN: Final = "com.sun.security.auth.module.Krb5LoginModule"
_BY_KEYTAB: Final = {"useKeyTab": "true", "storeKey": "true", "useTicketCache": "false", "doNotPrompt": "true"}


class KerberosRealm(SandboxSecurity):
    """A realm with its KDC and keytabs. Servers are named ``localhost``, as their principals are: an address has
    none."""

    since = "0.9.0.1"
    listeners = (("PLAINTEXT", "PLAINTEXT"), ("SASL_PLAINTEXT", "SASL_PLAINTEXT"))

    @property
    def config(self) -> Path:
        """What ``KRB5_CONFIG`` of a client names."""
        return self.folder / "krb5.conf"

    def keytab(self, of: str) -> Path:
        """The keytab of ``zookeeper``, ``kafka`` or ``USER``."""
        return self.folder / f"{of}.keytab"

    def make(self, name: str) -> None:
        """Write what servers and members log in with. The KDC makes the rest."""
        _find_programs()
        self.folder.mkdir(parents=True, mode=0o700)
        servers = {"Server": "zookeeper", "Client": "kafka", "KafkaServer": "kafka"}
        write_private(self.folder / "jaas.conf", "".join(self._login(*pair) for pair in servers.items()))
        write_private(self.folder / "member.conf", self._login("Client", USER))

    def _login(self, section: str, of: str) -> str:
        login = {"keyTab": str(self.keytab(of)), "principal": f"{_PRINCIPALS[of]}@{REALM}"}
        return _section(section, _KRB5_LOGIN, _BY_KEYTAB | login)

    def kdc(self, folder: Path, guard: Watchdog | None) -> Server:
        """The KDC, to be started, with its database in ``folder``."""

        def prepare(port: int) -> Sequence[str]:
            write_private(self.config, _KRB5_CONF.format(host=HOST, port=port, realm=REALM))
            write_private(folder / "kdc.conf", _KDC_CONF.format(host=HOST, port=port, realm=REALM, folder=folder))
            variables = {"KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(folder / "kdc.conf")}
            kdc, util, admin = _find_programs()
            if not (folder / "stash").exists():
                run_tool([util, "create", "-s", "-r", REALM, "-P", os.urandom(16).hex()], 30.0, "", variables)
                lines = [
                    f"addprinc -randkey +requires_preauth {principal}\nktadd -k {self.keytab(of)} {principal}\n"
                    for of, principal in _PRINCIPALS.items()
                ]
                run_tool([admin, "-r", REALM], 30.0, "".join(lines), variables)
            assigned = [f"{name}={value}" for name, value in variables.items()]
            return ["env", *assigned, kdc, "-n", "-r", REALM, "-P", str(folder / "kdc.pid")]

        server = Server("KDC", folder, prepare, lambda port: _STARTED in server.new_log(), guard)
        return server

    def java_options(self, *, member: bool = False) -> list[str]:
        return [
            *super().java_options(member=member),
            f"-Djava.security.krb5.conf={self.config}",
            # Brokers to 2.x ask Java's own classes for the realm; they end each connection if they may not.
            "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
        ]

    def zookeeper_properties(self, tls_port: int) -> dict[str, object]:
        """ZooKeeper's users are named by the first part of their principals."""
        return super().zookeeper_properties(tls_port) | {
            "kerberos.removeHostFromPrincipal": "true",
            "kerberos.removeRealmFromPrincipal": "true",
        }

    def broker_properties(self, ports: Mapping[str, int]) -> dict[str, object]:
        hosts = {"PLAINTEXT": HOST, "SASL_PLAINTEXT": NAME}
        return {
            "listeners": ",".join(f"{name}://{HOST}:{ports[name]}" for name in hosts),
            "advertised.listeners": ",".join(f"{name}://{host}:{ports[name]}" for name, host in hosts.items()),
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "zookeeper.set.acl": "true",
        }

    def _profile(self, connect: str) -> dict[str, str | bool]:
        lines: dict[str, str | bool] = {
            "zookeeper": connect,
            "zookeeper-sasl-mechanism": "GSSAPI",
            "zookeeper-kerberos-keytab": str(self.keytab(USER)),
            "zookeeper-kerberos-principal": USER,
            "zookeeper-acl": "creator-read-world",
        }
        if has_gssapi():  # brokers are asked without Kerberos if librdkafka has none
            lines |= {
                "security-protocol": "SASL_PLAINTEXT",
                "sasl-mechanism": "GSSAPI",
                "sasl-kerberos-keytab": str(self.keytab(USER)),
                "sasl-kerberos-principal": USER,
            }
        return lines


def _find_programs() -> list[str]:
    """The paths of ``_PROGRAMS``. Raises ``UsageError`` with those that are missing."""
    path = f"{os.environ.get('PATH', '')}{os.pathsep}{_PLACES}"
    found = {program: shutil.which(program, path=path) for program in _PROGRAMS}
    if missing := [program for program, place in found.items() if place is None]:
        raise UsageError(
            f"a sandbox with Kerberos needs {', '.join(missing)}",
            "install them: apt-get install krb5-kdc krb5-admin-server (Debian), or dnf install krb5-server (Red Hat)",
        )
    return [place for place in found.values() if place]


def security_in(folder: str | None) -> SandboxSecurity | None:
    """What a sandbox has in the folder of its secrets; None without one."""
    if folder is None:
        return None
    realm = KerberosRealm(Path(folder))
    return realm if realm.config.exists() else Security(Path(folder))


def registry_settings(connect: str, security: SandboxSecurity | None, timeout: float = 5.0) -> ZooKeeperSettings:
    """How what belongs to the sandbox comes to its ZooKeeper: it may do what the brokers may, but in a realm, where it
    may do what everybody may."""
    user = (BROKERS, security.password("brokers")) if isinstance(security, Security) else None
    return ZooKeeperSettings(connect, connect_timeout=timeout, sasl=user)
