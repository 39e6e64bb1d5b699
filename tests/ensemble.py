"""A ZooKeeper of several servers, for tests of what happens when one of them fails."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from support import wait_until

from zkgroup.child_processes import Watchdog
from zkgroup.java_runtime import find_java
from zkgroup.sandbox import server_configuration
from zkgroup.sandbox.kafka_releases import zookeeper_class_path
from zkgroup.sandbox.processes import HOST, Server, free_port


def four_letters(address: str, word: str, timeout: float = 2.0) -> str:
    """What a server answers to one of its words; empty where it does not answer."""
    host, _, port = address.rpartition(":")
    answer = b""
    try:
        with socket.create_connection((host, int(port)), timeout) as connection:
            connection.settimeout(timeout)
            connection.sendall(word.encode())
            while part := connection.recv(65_536):
                answer += part
    except OSError:
        pass
    return answer.decode(errors="replace")


class Ensemble:
    """``size`` servers that elect a leader; they end with the block. A tick is half a second; a follower that does not
    hear from its leader for 2 s looks for another."""

    def __init__(self, folder: Path, size: int = 3) -> None:
        self._guard = Watchdog()
        self._peers = {number: (free_port(), free_port()) for number in range(1, size + 1)}
        self._java, self._jars = find_java(), zookeeper_class_path()
        self.servers = [self._server(folder / f"zookeeper-{number}", number) for number in self._peers]

    def _server(self, folder: Path, number: int) -> Server:
        def prepare(port: int) -> Sequence[str]:
            properties = server_configuration.zookeeper_properties(port, folder / "data", 500)
            properties |= {"initLimit": 20, "syncLimit": 4}
            properties |= {
                f"server.{peer}": f"{HOST}:{quorum}:{election}" for peer, (quorum, election) in self._peers.items()
            }
            (folder / "data").mkdir(parents=True, exist_ok=True)
            (folder / "data" / "myid").write_text(str(number), encoding="utf-8")
            (folder / "zoo.cfg").write_text(server_configuration.properties_file(properties), encoding="utf-8")
            command = server_configuration.zookeeper_command(self._java, self._jars, folder, 128)
            at = command.index("org.apache.zookeeper.server.ZooKeeperServerMain")
            command[at] = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
            return command

        return Server(f"ZooKeeper {number}", folder, prepare, lambda port: bool(_mode(port)), self._guard)

    def __enter__(self) -> Self:
        self._guard.start()
        with ExitStack() as undo:
            undo.callback(self.close)
            for server in self.servers:
                server.launch()
            for server in self.servers:
                server.wait(120)
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the servers."""
        for server in self.servers:
            server.kill()
        self._guard.close()

    @property
    def address(self) -> str:
        """All servers, as clients name them."""
        return ",".join(f"{HOST}:{server.port}" for server in self.servers)

    def leader(self) -> Server:
        """The server that leads, once one does."""
        return wait_until(lambda: self._in_mode("leader"), 60, "a leader")[0]

    def followers(self) -> list[Server]:
        """All others, once they serve."""
        wait_until(lambda: len(self._in_mode("leader", "follower")) == len(self.servers), 60, "all servers")
        return self._in_mode("follower")

    def _in_mode(self, *modes: str) -> list[Server]:
        return [server for server in self.servers if server.running and _mode(server.port) in modes]


def _mode(port: int) -> str:
    """``leader`` or ``follower``; empty as long as a server does not serve."""
    _, found, rest = four_letters(f"{HOST}:{port}", "srvr").partition("Mode: ")
    return rest.split("\n")[0] if found else ""
