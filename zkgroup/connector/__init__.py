"""A member of a consumer group.

from zkgroup.connector import Connector
"""

from zkgroup.clients.kafka.start_position import StartAt, parse_start
from zkgroup.connector.kafka_connector import KafkaConnector
from zkgroup.connector.member_driver import Statistics
from zkgroup.connector.rebalance_listener import Rebalance, RebalanceListener
from zkgroup.connector.stream import Batch, DecodingError, Record, Stream, StreamStatistics
from zkgroup.connector.zookeeper_connector import Connector
from zkgroup.protocol.topic_filter import TopicFilter

__all__ = [
    "Batch",
    "Connector",
    "DecodingError",
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
