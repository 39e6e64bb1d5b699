"""kazoo's log, without credentials."""

from __future__ import annotations

import logging
import re
from typing import Any, Final

from kazoo.protocol import serialization as wire

# Without a handler Python would print its warnings.
KAZOO_LOG = logging.getLogger("kazoo.zkgroup")
KAZOO_LOG.addHandler(logging.NullHandler())


# In an access list: the digest of a password, against which guesses could be tried.
_DIGEST: Final = re.compile(r"""(Id\(scheme='digest', id=(['"]).*?):[A-Za-z0-9+/=]*\2\)""")


class _Shown(str):
    """An argument as it is logged, with any format."""

    __repr__ = str.__str__


def _hide_credentials(record: logging.LogRecord) -> bool:
    """kazoo logs each request and answer as it is, with passwords and their digests."""
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
