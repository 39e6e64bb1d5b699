"""ZooKeeper, through kazoo. The only place that imports it.

``Session`` is one ZooKeeper session, asynchronous: what a member runs on. It takes the operations of
``zkgroup.protocol.ops``. For commands, ``zkgroup.servers.registry`` puts a synchronous face on it.
"""

from zkgroup.servers.zookeeper.session import CLOSE_TIMEOUT, Session
from zkgroup.servers.zookeeper.settings import ZooKeeperSettings
from zkgroup.servers.zookeeper.trouble import Trouble

__all__ = ["CLOSE_TIMEOUT", "Session", "Trouble", "ZooKeeperSettings"]
