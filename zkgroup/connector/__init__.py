"""A member of a consumer group.

from zkgroup.connector import Connector
"""

from zkgroup.connector.start_position import StartAt, parse_start
from zkgroup.connector.stream import Batch, DecodingError, Record, Stream, StreamStatistics
from zkgroup.connector.zookeeper_connector import Connector, RebalanceListener, Statistics
from zkgroup.protocol.topic_filter import TopicFilter

__all__ = [
    "Batch",
    "Connector",
    "DecodingError",
    "RebalanceListener",
    "Record",
    "StartAt",
    "Statistics",
    "Stream",
    "StreamStatistics",
    "TopicFilter",
    "parse_start",
]
