"""How to reach a ZooKeeper."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """How to reach a ZooKeeper. ``hosts`` is a connect string with its chroot; times are seconds."""

    hosts: str
    session_timeout: float = 6.0
    connect_timeout: float = 5.0
    auth: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def chroot(self) -> str:
        """The chroot, ``/`` if there is none."""
        return "/" + self.hosts.partition("/")[2].strip("/")
