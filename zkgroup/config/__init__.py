"""Settings: what a group member is configured with, and where the servers are. Frozen once made."""

from zkgroup.config.connection import (
    Address,
    ConnectionSettings,
    ConnectString,
    parse_bootstrap,
    parse_chroot,
    parse_connect_string,
)
from zkgroup.config.consumer import ConsumerConfig, LoadedConfig, librdkafka_properties, load_consumer_config
from zkgroup.config.layers import Flags, resolve_connection
from zkgroup.config.properties import Property, parse_properties, read_properties

__all__ = [
    "Address",
    "ConnectString",
    "ConnectionSettings",
    "ConsumerConfig",
    "Flags",
    "LoadedConfig",
    "Property",
    "librdkafka_properties",
    "load_consumer_config",
    "parse_bootstrap",
    "parse_chroot",
    "parse_connect_string",
    "parse_properties",
    "read_properties",
    "resolve_connection",
]
