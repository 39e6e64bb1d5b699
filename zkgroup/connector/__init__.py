"""A member of a consumer group.

from zkgroup.connector import Connector
"""

from zkgroup.clients.kafka.start_position import StartAt, parse_start
from zkgroup.connector.consumer_connector import Statistics
from zkgroup.connector.kafka_connector import KafkaConnector, Rebalance
from zkgroup.connector.stream import Batch, Record, Stream, StreamStatistics
from zkgroup.connector.zookeeper_connector import Connector
from zkgroup.connector.zookeeper_driver import RebalanceListener
from zkgroup.protocol.topic_filter import TopicFilter

__all__ = [
    "Batch",
    "Connector",
    "KafkaConnector",
    "Rebalance",
    "RebalanceListener",
    "Record",
    "StartAt",
    "Statistics",
    "Stream",
    "StreamStatistics",
    "TopicFilter",
    "parse_start",
]
