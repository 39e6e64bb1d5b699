"""Access lists of znodes: reading them whole, and what they allow a session."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from typing import Final

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.config.connection_settings import KerberosSettings
from zkgroup.errors import RefusedError
from zkgroup.protocol.operations import OPEN, Acl, Acls, Code, Failure, GetAcl, Result

READ: Final = 1
WRITE: Final = 2
CREATE: Final = 4
DELETE: Final = 8
ANYONE: Final = ("world", "anyone")

CREDENTIALS: Final = "connect with credentials that may read and administer the group's nodes"


def readable_acl(path: str, result: Result) -> tuple[Acl, ...]:
    """The access list of ``path``, open where there is no node. Raises ``RefusedError`` where it is not shown whole."""
    if isinstance(result, Failure):
        if result.code is Code.NO_NODE:
            return OPEN
        raise RefusedError(f"the access list of {path} cannot be read: {result.code.value}", CREDENTIALS)
    acl = result.acl if isinstance(result, Acls) else OPEN
    if any(entry.scheme == "digest" and entry.id.endswith(":x") for entry in acl):
        raise RefusedError(f"the access list of {path} is shown only to its administrators", CREDENTIALS)
    return acl


def read_acls(registry: Registry, paths: Iterable[str]) -> tuple[dict[str, tuple[Acl, ...]], dict[str, RefusedError]]:
    """The access lists of these nodes, and for each that is not shown whole the reason. Raises ``UnreachableError``."""
    wanted = list(paths)
    acls: dict[str, tuple[Acl, ...]] = {}
    unreadable: dict[str, RefusedError] = {}
    for path, result in zip(wanted, registry.read([GetAcl(path) for path in wanted]), strict=True):
        try:
            acls[path] = readable_acl(path, result)
        except RefusedError as refused:
            unreadable[path] = refused
    return acls, unreadable


def require_acls(registry: Registry, paths: Iterable[str]) -> dict[str, tuple[Acl, ...]]:
    """The access lists of these nodes. Raises ``RefusedError`` where one is not shown whole."""
    acls, unreadable = read_acls(registry, paths)
    for refused in unreadable.values():
        raise refused
    return acls


def digest_of(credentials: str) -> str:
    """The name by which access lists have a user: ``USER:HASH`` of ``USER:PASSWORD``."""
    hashed = base64.b64encode(hashlib.sha1(credentials.encode(), usedforsecurity=False).digest()).decode()
    return f"{credentials.partition(':')[0]}:{hashed}"


def identities(settings: ZooKeeperSettings) -> set[tuple[str, str]]:
    """Schemes and names of a session with these settings, as far as they are known here: ``unknown_schemes``. Of a
    principal the whole and its first part."""
    match settings.sasl:
        case KerberosSettings(principal=str(principal)):
            found = {("sasl", principal), ("sasl", re.split("[/@]", principal)[0])}
        case (user, _):
            found = {("sasl", user)}
        case _:
            found = set()
    return found | {("digest", digest_of(credentials)) for scheme, credentials in settings.auth if scheme == "digest"}


def unknown_schemes(settings: ZooKeeperSettings) -> set[str]:
    """Schemes of which the server alone knows the name of a session with these settings: that in a client certificate,
    and what its rules make of a Kerberos principal."""
    certified = settings.tls is not None and settings.tls.certificate_file is not None
    kerberos = isinstance(settings.sasl, KerberosSettings)
    return ({"x509"} if certified else set()) | ({"sasl"} if kerberos else set())


def admits_anyone(acl: Iterable[Acl], permission: int) -> bool:
    """Whether an entry of the list gives this permission to anyone."""
    return any(entry.permissions & permission and (entry.scheme, entry.id) == ANYONE for entry in acl)
