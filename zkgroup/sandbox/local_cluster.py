"""A sandbox: a real ZooKeeper and real Kafka brokers on free loopback ports, with a folder of their own."""

from __future__ import annotations

import base64
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from zkgroup.child_processes import Watchdog
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.config.connection_settings import parse_chroot
from zkgroup.config.setting_files import CACHE_VARIABLE, STATE_VARIABLE
from zkgroup.errors import RefusedError, UsageError, ZkgroupError
from zkgroup.java_runtime import find_java
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import CREATOR, Create, Ensure, Failure
from zkgroup.sandbox import server_configuration
from zkgroup.sandbox.kafka_releases import DEFAULT_RELEASE, kafka_class_path, release, zookeeper_class_path
from zkgroup.sandbox.processes import (
    HOST,
    Server,
    free_port,
    metadata_brokers,
    run_tool,
    wait_for,
    zookeeper_data,
)
from zkgroup.sandbox.sandbox_security import NAME, KerberosRealm, SandboxSecurity, Security, registry_settings
from zkgroup.sandbox.sandbox_state import (
    SandboxState,
    ServerState,
    locked,
    read_left_state,
    read_state,
    sandbox_folder,
    write_state,
)

if TYPE_CHECKING:
    from zkgroup.sandbox.certificates import Certificate

START_TIMEOUT = 120.0  # seconds for each server: it takes a few, on a machine with a load of 30 more than 60

#: The profile of brokers in KRaft mode, in the sandbox's folder.
PROFILE_FILE = "profile.toml"


class Sandbox:
    """A ZooKeeper and ``brokers`` brokers of one Kafka release, started by ``start`` and ended by ``stop``.

    ``owned``: everything ends with this process, however it ends, and the folder goes too. Otherwise the servers run on
    by themselves, and ``sandbox_state.stop`` ends them. ``zookeeper``: the address (host:port, no chroot) of a
    ZooKeeper to use instead of one of its own. ``chroot`` (``/path``) is where the cluster lives. ``tick_ms``:
    ZooKeeper grants session timeouts of 2 to 20 ticks. ``properties`` are added to every broker's. Ports that are not
    given are chosen; with ``broker_port`` the brokers take it and those that follow. ``java_options`` are for the
    brokers. ``secure``: with TLS, users and access lists, in addition to what every sandbox has. ``kerberos``: with a
    KDC, and Kerberos at ZooKeeper and brokers.
    """

    def __init__(
        self,
        name: str = "default",
        *,
        kafka: str = DEFAULT_RELEASE,
        brokers: int = 1,
        zookeeper: str | None = None,
        chroot: str = "",
        tick_ms: int = 500,
        owned: bool = True,
        properties: Mapping[str, str] | None = None,
        zookeeper_port: int | None = None,
        broker_port: int | None = None,
        java_options: Sequence[str] = (),
        secure: bool = False,
        kerberos: bool = False,
    ) -> None:
        self.name = name
        self.release = release(kafka)
        self.folder = sandbox_folder(name)
        self.security: SandboxSecurity | None = None
        if secure and kerberos:
            raise UsageError("a sandbox has TLS and passwords, or Kerberos", "leave one of them out")
        if secure or kerberos:
            self.security = (Security if secure else KerberosRealm)(self.folder / "secure")
            self.security.check_release(self.release)
        if self.release.kraft and (brokers != 1 or chroot or self.security or zookeeper is not None or zookeeper_port):
            raise UsageError(
                f"Kafka {kafka} has no ZooKeeper: its sandbox is one broker, without TLS and users",
                "leave the options out that are about ZooKeeper, security and more brokers",
            )
        self.chroot = parse_chroot(chroot, f"sandbox {name}")
        self.owned = owned
        self._tick_ms = tick_ms
        self._count = brokers
        self._properties = dict(properties or {})
        self._zookeeper_address = zookeeper
        self._zookeeper_port = zookeeper_port
        self._broker_port = broker_port
        self._java_options = java_options
        self._watchdog = Watchdog()
        #: Of a secured sandbox that was started here.
        self.authority: Certificate | None = None
        #: Further ports, by the server's own and a name: ZooKeeper's ``tls``, a listener's.
        self._more_ports: dict[tuple[int, str], int] = {}
        self._kdc: Server | None = None
        self._zookeeper: Server | None = None
        #: By their ids: 1, 2, …
        self.brokers: dict[int, Server] = {}
        self._started = False

    # What others connect to

    @property
    def zookeeper(self) -> Server:
        """The ZooKeeper of a started sandbox that has one of its own."""
        assert self._zookeeper is not None
        return self._zookeeper

    @property
    def address(self) -> str:
        """The ZooKeeper's host and port."""
        host = NAME if isinstance(self.security, KerberosRealm) else HOST
        return self._zookeeper_address or f"{host}:{self.zookeeper.port}"

    @property
    def connect(self) -> str:
        """The ZooKeeper connect string, with the chroot; empty in KRaft mode."""
        return "" if self.release.kraft else self.address + self.chroot

    @property
    def bootstrap(self) -> str:
        """The brokers, as a bootstrap list."""
        return ",".join(f"{HOST}:{broker.port}" for broker in self.brokers.values())

    @property
    def secured_connect(self) -> str:
        """The connect string of ZooKeeper's port with TLS, which a secured sandbox has."""
        return f"{HOST}:{self._port(self.zookeeper.port, 'tls')}{self.chroot}"

    def _port(self, port: int, name: str) -> int:
        """The port called ``name`` of the server whose own is ``port``. It is kept as long as that."""
        return port if name == "PLAINTEXT" else self._more_ports.setdefault((port, name), free_port())

    @property
    def guard(self) -> Watchdog | None:
        """What ends processes that belong to the sandbox when its owner dies; None where they run on."""
        return self._watchdog if self.owned else None

    def registry(self, timeout: float = 10.0) -> Registry:
        """A registry on the sandbox's ZooKeeper, to be used as a context manager."""
        return Registry(registry_settings(self.connect, self.security, timeout))

    # Starting and stopping

    def start(self) -> Self:
        """Start everything and wait until the brokers serve. What was begun is ended again where something fails."""
        try:
            return self._start()
        except OSError as error:
            place = error.filename or self.folder
            raise ZkgroupError(
                f"cannot write {place}: {error.strerror}",
                f"make room, or set {STATE_VARIABLE} and {CACHE_VARIABLE} to other folders",
            ) from error

    def _start(self) -> Self:
        with locked(self.name):
            left = read_left_state(self.folder)
            if left is not None and left.is_alive:
                raise RefusedError(f"sandbox {self.name} runs already", "stop it first, or give another --name")
            shutil.rmtree(self.folder, ignore_errors=True)  # what a crash left
            self.folder.mkdir(parents=True, mode=0o700)
            self._watchdog.start()
            self._watchdog.send(f"rm {self.folder}")
            if self.security is not None:
                self.authority = self.security.make(self.name)
            try:
                self._start_servers()
                self._started = True
                self._record()
            except BaseException:
                self._end_everything()
                raise
            if not self.owned:
                self._watchdog.close(release=True)
        return self

    def _start_servers(self) -> None:
        java = find_java()
        zookeeper_jars = zookeeper_class_path()
        kafka_jars = kafka_class_path(self.release.version) if self._count else ""
        if isinstance(self.security, KerberosRealm):
            self._kdc = self.security.kdc(self.folder / "kdc", self._watchdog)
            self._kdc.start(START_TIMEOUT)
        if self._zookeeper_address is None and not self.release.kraft:
            self._zookeeper = self._zookeeper_server(java, zookeeper_jars)
            self._zookeeper.launch()
            self._record()
            self._zookeeper.wait(START_TIMEOUT)
        if self.security is not None:
            self._make_users(self.security)
        for broker_id in range(1, self._count + 1):
            self.brokers[broker_id] = self._broker_server(java, kafka_jars, broker_id)
        for broker in self.brokers.values():
            broker.launch()
        self._record()
        for broker in self.brokers.values():
            broker.wait(START_TIMEOUT)
        if self.release.tells_brokers:  # until each knows all others a client may get half a cluster
            wait_for(
                lambda: all(metadata_brokers(one.port) == frozenset(self.brokers) for one in self.brokers.values()),
                START_TIMEOUT,
                "not every broker knows all others",
            )
        if self.release.kraft:
            profile = f'[clusters.kraft]\nbootstrap-server = "{self.bootstrap}"\n'
            (self.folder / PROFILE_FILE).write_text(profile, encoding="utf-8")

    def _make_users(self, security: SandboxSecurity) -> None:
        """What brokers learn of users from ZooKeeper is there before the first starts, and nobody else's. Groups are
        kept where everybody may make some, as by brokers to 1.0; 1.1.1 would keep that to itself."""
        with self.registry(START_TIMEOUT) as registry:
            made = [registry.write(Ensure(znodes.consumers()))]
            for path, data in security.users().items():
                made.append(registry.write(Ensure(path.rpartition("/")[0])))
                made.append(registry.write(Create(path, data, acl=CREATOR)))
            if any(isinstance(one, Failure) for one in made):
                raise ZkgroupError(f"cannot make users: {made}", f"see the log {self.zookeeper.log}")
        security.write_profile(self.secured_connect if isinstance(security, Security) else self.connect)

    def _zookeeper_server(self, java: Path, class_path: str) -> Server:
        folder = self.folder / "zookeeper"

        def prepare(port: int) -> Sequence[str]:
            properties = server_configuration.zookeeper_properties(port, folder / "data", self._tick_ms)
            options: Sequence[str] = ()
            if self.security is not None:
                properties |= self.security.zookeeper_properties(self._port(port, "tls"))
                options = self.security.java_options()
            (folder / "zoo.cfg").write_text(server_configuration.properties_file(properties), encoding="utf-8")
            return server_configuration.zookeeper_command(java, class_path, folder, 256, *options)

        def serves(port: int) -> bool:
            data = zookeeper_data(port)
            return data is not None and data.resolve() == (folder / "data").resolve()

        return Server("ZooKeeper", folder, prepare, serves, self._watchdog, self._zookeeper_port)

    def _broker_server(self, java: Path, class_path: str, broker_id: int) -> Server:
        folder = self.folder / f"broker-{broker_id}"

        def prepare(port: int) -> Sequence[str]:
            own = server_configuration.broker_properties(
                self.release, broker_id, port, folder / "data", self.connect, self._count
            )
            options: list[str] = []
            if self.security is not None:
                own |= self.security.broker_properties(
                    {name: self._port(port, name) for name, _ in self.security.listeners}
                )
                options = self.security.java_options()
            if self.release.kraft:
                own |= server_configuration.kraft_properties(broker_id, port, self._port(port, "CONTROLLER"))
            file = server_configuration.properties_file(own | self._properties)
            (folder / "server.properties").write_text(file, encoding="utf-8")
            options.append(server_configuration.write_logging(folder, log4j2=self.release.kraft))
            if self.release.kraft and not (folder / "data" / "meta.properties").exists():
                cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
                tool = ("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", folder / "server.properties")
                run_tool([*server_configuration.jvm(java, class_path, 256, *options), *map(str, tool)], START_TIMEOUT)
            options += self._java_options
            machine = server_configuration.jvm(java, class_path, 256, *options)
            return [*machine, "kafka.Kafka", str(folder / "server.properties")]

        def serves(port: int) -> bool:
            known = metadata_brokers(port)
            if known is None or (self.release.tells_brokers and broker_id not in known):
                return False
            return server_configuration.STARTED in server.new_log()  # or another broker of this number would do

        port = None if self._broker_port is None else self._broker_port + broker_id - 1
        name = f"Kafka {self.release.version} broker {broker_id}"
        server = Server(name, folder, prepare, serves, self._watchdog, port)
        return server

    def stop(self) -> None:
        """End every process and remove the folder. May be called again, and after a failed start."""
        if self._started:
            with locked(self.name):
                self._end_everything()

    def run_on(self) -> None:
        """Leave the servers running by themselves, as if they had not been owned."""
        self.owned = False
        self._record()
        self._watchdog.close(release=True)
        self._started = False

    def _end_everything(self) -> None:
        for server in (*self.brokers.values(), self._zookeeper, self._kdc):
            if server is not None:
                server.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._watchdog.close()
        self._started = False

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # What is written down

    @property
    def state(self) -> SandboxState:
        """The sandbox as it is written down for other processes."""
        running = [(None, self._zookeeper), *self.brokers.items(), (None, self._kdc)]
        servers = tuple(
            ServerState(server.name, HOST, server.port, server.process_id, str(server.log), broker_id)
            for broker_id, server in running
            if server is not None
        )
        return SandboxState(
            name=self.name,
            kafka=self.release.version,
            connect=self.connect,
            bootstrap=self.bootstrap,
            folder=str(self.folder),
            servers=servers,
            ready=self._started,
            secure=str(self.security.folder) if self.security else None,
        )

    def _record(self) -> None:
        before = read_state(self.folder)
        write_state(replace(self.state, members=before.members if before else ()))
