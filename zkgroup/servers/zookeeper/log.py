"""What kazoo says: heard by who listens to "kazoo"."""

from __future__ import annotations

import logging

from kazoo.protocol import serialization as wire

# Nobody set up logging: then Python would print its warnings.
KAZOO_LOG = logging.getLogger("kazoo.zkgroup")
KAZOO_LOG.addHandler(logging.NullHandler())


def _hide_credentials(record: logging.LogRecord) -> bool:
    """kazoo logs each request as it is, passwords and what is made of them too."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            f"{type(one).__name__}(…)" if isinstance(one, wire.Auth | wire.SASL) else one for one in record.args
        )
    return True


KAZOO_LOG.addFilter(_hide_credentials)
