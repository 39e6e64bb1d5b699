"""What kazoo says: heard by who listens to "kazoo"."""

from __future__ import annotations

import logging
import re
from typing import Any, Final

from kazoo.protocol import serialization as wire

# Nobody set up logging: then Python would print its warnings.
KAZOO_LOG = logging.getLogger("kazoo.zkgroup")
KAZOO_LOG.addHandler(logging.NullHandler())


# In an access list: what is made of a password, against which words could be tried.
_DIGEST: Final = re.compile(r"""(Id\(scheme='digest', id=(['"]).*?):[A-Za-z0-9+/=]*\2\)""")


class _Shown(str):
    """What an argument is logged as, by whatever format."""

    __repr__ = str.__str__


def _hide_credentials(record: logging.LogRecord) -> bool:
    """kazoo logs each request and answer as it is, passwords and what is made of them too."""
    if isinstance(record.args, tuple):
        record.args = tuple(map(_shown, record.args))
    return True


def _shown(one: Any) -> Any:
    if isinstance(one, wire.Auth | wire.SASL):
        return f"{type(one).__name__}(…)"
    if isinstance(one, str | int | float | None):
        return one
    shown, hidden = _DIGEST.subn(r"\1:…\2)", repr(one))
    return _Shown(shown) if hidden else one


KAZOO_LOG.addFilter(_hide_credentials)
