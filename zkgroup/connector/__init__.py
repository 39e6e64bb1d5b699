"""A member of a consumer group.

from zkgroup.connector import Connector
"""

from zkgroup.connector.connector import Connector, RebalanceListener, Statistics
from zkgroup.connector.start import StartAt, parse_start
from zkgroup.connector.stream import Batch, DecodingError, Record, Stream, StreamStatistics
from zkgroup.protocol.filters import TopicFilter

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
