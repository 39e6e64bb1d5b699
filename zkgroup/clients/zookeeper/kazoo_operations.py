"""Operations and results, converted to kazoo's and from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from kazoo import exceptions
from kazoo.protocol import serialization as wire
from kazoo.protocol.states import WatchedEvent, ZnodeStat
from kazoo.security import ACL, Id

from zkgroup.protocol.operations import (
    Acl,
    Acls,
    Check,
    Children,
    Code,
    Create,
    Delete,
    Exists,
    Failure,
    Get,
    GetAcl,
    Node,
    Op,
    Result,
    SetData,
    Stat,
    Sync,
    Transaction,
)

_CODES: tuple[tuple[type[BaseException], Code], ...] = (
    (exceptions.NoNodeError, Code.NO_NODE),
    (exceptions.NodeExistsError, Code.NODE_EXISTS),
    (exceptions.BadVersionError, Code.BAD_VERSION),
    (exceptions.NotEmptyError, Code.NOT_EMPTY),
    (exceptions.NoChildrenForEphemeralsError, Code.EPHEMERAL),
    (exceptions.NoAuthError, Code.NO_AUTH),
    (exceptions.AuthFailedError, Code.SESSION_EXPIRED),
    (exceptions.SessionClosedRequireSaslError, Code.SESSION_EXPIRED),
    (exceptions.SessionExpiredError, Code.SESSION_EXPIRED),
    (exceptions.ConnectionLoss, Code.CONNECTION_LOSS),
    (exceptions.ConnectionClosedError, Code.CONNECTION_LOSS),
)


def failure_of(error: BaseException) -> Failure:
    for kind, code in _CODES:
        if isinstance(error, kind):
            return Failure(code, type(error).__name__)
    return Failure(Code.OTHER, f"{type(error).__name__}: {error}".rstrip(": "))


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(
        stat.czxid,
        stat.mzxid,
        stat.version,
        stat.ctime,
        stat.mtime,
        stat.ephemeralOwner,
        stat.numChildren,
        stat.pzxid,
        (stat.cversion - stat.numChildren) // 2,  # it counts creations and deletions
    )


def kazoo_acl(acl: Sequence[Acl]) -> list[Any]:
    return [ACL(entry.permissions, Id(entry.scheme, entry.id)) for entry in acl]


def convert(op: Op, value: object) -> Result:
    match op:
        case Get():
            data, stat = cast("tuple[bytes | None, ZnodeStat]", value)
            return Node(data or b"", _stat(stat))
        case Children():
            return tuple(cast("list[str]", value))
        case GetAcl():
            entries, _ = cast("tuple[list[Any], ZnodeStat]", value)
            return Acls(tuple(Acl(entry.id.scheme, entry.id.id, entry.perms) for entry in entries))
        case Exists() | SetData():
            return None if value is None else _stat(cast("ZnodeStat", value))
        case Transaction():
            return _transaction_result(cast("list[object]", value))
        case _:
            return None


def _transaction_result(answers: Sequence[object]) -> Failure | None:
    for index, answer in enumerate(answers):
        # The failed one comes after those that were rolled back and before those that were never tried.
        if isinstance(answer, Exception) and not isinstance(
            answer, exceptions.RolledBackError | exceptions.RuntimeInconsistency
        ):
            failure = failure_of(answer)
            return Failure(failure.code, failure.detail, index)
    return None


def request_of(op: Op | Check, root: str, watch_with: Callable[[WatchedEvent], None], default: Sequence[Acl]) -> Any:
    """The operation as kazoo's request. ``root``: the chroot, or empty; ``default``: the ACL of created nodes."""
    if isinstance(op, Transaction):
        return wire.Transaction([request_of(one, root, watch_with, default) for one in op.ops])
    path = root + op.path if op.path != "/" else root or "/"
    match op:
        case Get(_, watch):
            return wire.GetData(path, watch_with if watch else None)
        case Children(_, watch):
            return wire.GetChildren(path, watch_with if watch else None)
        case Exists(_, watch):
            return wire.Exists(path, watch_with if watch else None)
        case GetAcl():
            return wire.GetACL(path)
        case Create(_, data, ephemeral, acl):
            return wire.Create(path, data, kazoo_acl(acl or default), int(ephemeral))
        case SetData(_, data, version):
            return wire.SetData(path, data, version)
        case Delete(_, version):
            return wire.Delete(path, version)
        case Check(_, version):
            return wire.CheckVersion(path, version)
        case Sync():
            return wire.Sync(path)
