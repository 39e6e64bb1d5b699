"""Settings of group members and of connections, made from one table. Frozen."""

from zkgroup.config.connection_resolution import resolve_connection
from zkgroup.config.connection_settings import (
    ConnectionSettings,
    TlsSettings,
    parse_bootstrap,
    parse_chroot,
    parse_connect_string,
)
from zkgroup.config.consumer_config import ConsumerConfig, LoadedConfig, librdkafka_properties, load_consumer_config
from zkgroup.config.setting_files import Property, parse_properties

__all__ = [
    "ConnectionSettings",
    "ConsumerConfig",
    "LoadedConfig",
    "Property",
    "TlsSettings",
    "librdkafka_properties",
    "load_consumer_config",
    "parse_bootstrap",
    "parse_chroot",
    "parse_connect_string",
    "parse_properties",
    "resolve_connection",
]
