"""Which brokers there are: see ``zkgroup.servers.brokers``."""

from __future__ import annotations

from zkgroup.servers.brokers import Brokers

__all__ = ["Brokers"]
