"""ZooKeeper, through kazoo. The only place that imports it.

``Session`` is one ZooKeeper session, asynchronous: what a member runs on. It takes the operations of
``zkgroup.protocol.operations``. For commands, ``zkgroup.clients.zookeeper.registry`` puts a synchronous face on it.
"""

from zkgroup.clients.zookeeper.session import CLOSE_TIMEOUT, Session
from zkgroup.clients.zookeeper.session_errors import Trouble
from zkgroup.clients.zookeeper.zookeeper_settings import ZooKeeperSettings

__all__ = ["CLOSE_TIMEOUT", "Session", "Trouble", "ZooKeeperSettings"]
