"""Settings of group members and of connections, made from one table. Frozen."""

from zkgroup.config.connection_resolution import resolve_connection
from zkgroup.config.connection_settings import ConnectionSettings
from zkgroup.config.consumer_config import ConsumerConfig, librdkafka_properties, load_consumer_config

__all__ = [
    "ConnectionSettings",
    "ConsumerConfig",
    "librdkafka_properties",
    "load_consumer_config",
    "resolve_connection",
]
