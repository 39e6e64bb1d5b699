"""ZooKeeper, through kazoo. The only place that imports it.

``Session`` is one ZooKeeper session, asynchronous, for members. It takes the operations of
``zkgroup.protocol.operations``. ``Registry`` is its synchronous form, for commands.
"""

from zkgroup.clients.connection_security import ConnectionFailure, FailureCause
from zkgroup.clients.zookeeper.kazoo_connection import ZooKeeperSettings
from zkgroup.clients.zookeeper.session import CLOSE_TIMEOUT, Session

__all__ = ["CLOSE_TIMEOUT", "ConnectionFailure", "FailureCause", "Session", "ZooKeeperSettings"]
