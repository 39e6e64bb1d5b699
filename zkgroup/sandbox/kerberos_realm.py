"""What a sandbox with Kerberos has: a realm with its KDC, keytabs, and the configuration of its servers and clients.

Servers are named ``localhost``, as their principals are: an address has none. ``profile.toml`` is the profile of a
client, as in ``sandbox_security``.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zkgroup.child_processes import Watchdog, run_child
from zkgroup.clients.kafka.client import has_gssapi
from zkgroup.errors import UsageError, ZkgroupError
from zkgroup.sandbox.certificates import write_private
from zkgroup.sandbox.kafka_releases import RELEASES, KafkaRelease
from zkgroup.sandbox.server_probe import HOST
from zkgroup.sandbox.server_process import Server, telling_line

REALM: Final = "ZKGROUP.SANDBOX"
#: The host of the servers' principals.
NAME: Final = "localhost"
#: The user that operates groups, and that Scala members are.
USER: Final = "zkgroup"
_PRINCIPALS: Final = {"zookeeper": f"zookeeper/{NAME}", "kafka": f"kafka/{NAME}", USER: USER}
#: The KDC, and the tools that make its database; where distributions put them, which may be outside of ``PATH``.
_PROGRAMS: Final = ("krb5kdc", "kdb5_util", "kadmin.local")
_PLACES: Final = "/usr/sbin:/usr/local/sbin:/usr/lib/mit/sbin"
_TIMEOUT: Final = 30.0
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
_MODULE: Final = """\
{section} {{
  com.sun.security.auth.module.Krb5LoginModule required
    useKeyTab=true storeKey=true useTicketCache=false doNotPrompt=true
    keyTab="{keytab}" principal="{principal}@{realm}";
}};
"""


@dataclass(frozen=True)
class KerberosRealm:
    """The realm of one sandbox, in files of ``folder``."""

    folder: Path
    #: The brokers' listeners, as ``sandbox_security.LISTENERS``.
    listeners = (("PLAINTEXT", "PLAINTEXT"), ("SASL_PLAINTEXT", "SASL_PLAINTEXT"))

    @property
    def config(self) -> Path:
        """What ``KRB5_CONFIG`` of a client names."""
        return self.folder / "krb5.conf"

    @property
    def profile(self) -> Path:
        """The profile of a client, as ``config.toml`` has it."""
        return self.folder / "profile.toml"

    def keytab(self, of: str) -> Path:
        """The keytab of ``zookeeper``, ``kafka`` or ``USER``."""
        return self.folder / f"{of}.keytab"

    # Making

    def make(self, name: str) -> None:
        """Write what servers and members log in with. ``name``: the sandbox's. The KDC makes the rest."""
        _find_programs()
        self.folder.mkdir(parents=True, mode=0o700)
        servers = {"Server": "zookeeper", "Client": "kafka", "KafkaServer": "kafka"}
        write_private(self.folder / "jaas.conf", "".join(self._login(*pair) for pair in servers.items()))
        write_private(self.folder / "member.conf", self._login("Client", USER))

    def _login(self, section: str, of: str) -> str:
        return _MODULE.format(section=section, keytab=self.keytab(of), principal=_PRINCIPALS[of], realm=REALM)

    def kdc(self, folder: Path, guard: Watchdog | None) -> Server:
        """The KDC, to be started, with its database in ``folder``."""

        def prepare(port: int) -> Sequence[str]:
            write_private(self.config, _KRB5_CONF.format(host=HOST, port=port, realm=REALM))
            write_private(folder / "kdc.conf", _KDC_CONF.format(host=HOST, port=port, realm=REALM, folder=folder))
            variables = {"KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(folder / "kdc.conf")}
            kdc, util, admin = _find_programs()
            if not (folder / "stash").exists():
                _run([util, "create", "-s", "-r", REALM, "-P", os.urandom(16).hex()], "", variables)
                lines = [
                    f"addprinc -randkey +requires_preauth {principal}\nktadd -k {self.keytab(of)} {principal}\n"
                    for of, principal in _PRINCIPALS.items()
                ]
                _run([admin, "-r", REALM], "".join(lines), variables)
            assigned = [f"{name}={value}" for name, value in variables.items()]
            return ["env", *assigned, kdc, "-n", "-r", REALM, "-P", str(folder / "kdc.pid")]

        server = Server("KDC", folder, prepare, lambda port: _STARTED in server.new_log(), guard)
        return server

    def users(self) -> dict[str, bytes]:
        """As of ``Security``: ZooKeeper holds nothing of them."""
        return {}

    # The configuration of servers

    def java_options(self, *, member: bool = False) -> list[str]:
        """Where a JVM finds its keytab and the KDC; ``member``: one of the Scala consumer's, which is ``USER``."""
        return [
            f"-Djava.security.auth.login.config={self.folder / ('member.conf' if member else 'jaas.conf')}",
            f"-Djava.security.krb5.conf={self.config}",
            # Brokers to 2.x ask Java's own classes for the realm; they end each connection if they may not.
            "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
        ]

    def zookeeper_properties(self, tls_port: int) -> dict[str, object]:
        """For ``zoo.cfg``: its users are named by the first part of their principals. ``tls_port`` is not used."""
        return {
            "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "kerberos.removeHostFromPrincipal": "true",
            "kerberos.removeRealmFromPrincipal": "true",
        }

    def broker_properties(self, ports: Mapping[str, int]) -> dict[str, object]:
        """For ``server.properties``: all listeners; what the brokers keep in ZooKeeper is theirs."""
        hosts = {"PLAINTEXT": HOST, "SASL_PLAINTEXT": NAME}
        return {
            "listeners": ",".join(f"{name}://{HOST}:{ports[name]}" for name in hosts),
            "advertised.listeners": ",".join(f"{name}://{host}:{ports[name]}" for name, host in hosts.items()),
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "zookeeper.set.acl": "true",
        }

    # The configuration of clients

    def write_profile(self, connect: str) -> None:
        """Write the profile of a client. Brokers are asked without Kerberos if librdkafka has none."""
        lines = {
            "zookeeper": connect,
            "zookeeper-sasl-mechanism": "GSSAPI",
            "zookeeper-kerberos-keytab": str(self.keytab(USER)),
            "zookeeper-kerberos-principal": USER,
            "zookeeper-acl": "creator-read-world",
        }
        if has_gssapi():
            lines |= {
                "security-protocol": "SASL_PLAINTEXT",
                "sasl-mechanism": "GSSAPI",
                "sasl-kerberos-keytab": str(self.keytab(USER)),
                "sasl-kerberos-principal": USER,
            }
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items())
        write_private(self.profile, f"[clusters.kerberos]\n{text}")


def check_release(release: KafkaRelease) -> None:
    """Raise ``UsageError`` for a release without SASL."""
    if release.version == "0.8.2.2":
        known = [name for name, one in RELEASES.items() if name != release.version and not one.kraft]
        raise UsageError(f"Kafka {release.version} knows no Kerberos", f"use one of {', '.join(known)}")


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


def _run(command: Sequence[str], lines: str, variables: Mapping[str, str]) -> None:
    """Run a tool with ``lines`` as its input. Raises ``ZkgroupError`` with its last word."""
    done = run_child(command, _TIMEOUT, lines, variables)
    if done.returncode:
        raise ZkgroupError(f"{Path(command[0]).name} failed: {telling_line(done.stdout + done.stderr)}", "try again")
