"""Whether data has the types that its declaration names: for documents that are read back, as anybody may have changed
them.

Understood are dataclasses, named tuples, tuples, lists, mappings, unions, literals, None and plain types. A truth value
is no number.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Literal

#: Where a value is of another type than declared (empty: it is the value itself), None where all is right.
Check = Callable[[Any], str | None]


def require(value: object, declared: Any) -> None:
    """Raise ``TypeError``, which names the field, where something in ``value`` is not of its declared type."""
    where = _check(declared)(value)
    if where is not None:
        raise TypeError(f"{where.lstrip('.') or 'it'} is of the wrong type")


@cache
def _check(declared: Any) -> Check:
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if origin is Literal:
        return lambda value: None if isinstance(value, str) and value in arguments else ""
    if origin in (typing.Union, UnionType):
        return partial(_any, tuple(map(_check, arguments)))
    if origin is list:
        return partial(_all, list, _check(arguments[0]))
    if origin is tuple and arguments[1:] != (...,):
        return partial(_each, tuple, [(f"[{n}]", _check(one)) for n, one in enumerate(arguments)])
    if origin is tuple:
        return partial(_all, tuple, _check(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return partial(_mapping, _check(arguments[0]), _check(arguments[1]))
    if isinstance(declared, type) and dataclasses.is_dataclass(declared):
        return partial(_fields, declared, list(_declared(declared, [one.name for one in dataclasses.fields(declared)])))
    if hasattr(declared, "_fields"):
        checks = [(f".{name}", check) for name, check in _declared(declared, declared._fields)]
        return partial(_each, declared, checks)
    return partial(_plain, NoneType if declared is None else declared)


def _declared(declared: Any, names: typing.Iterable[str]) -> Iterator[tuple[str, Check]]:
    hints = typing.get_type_hints(declared)
    return ((name, _check(hints[name])) for name in names)


def _plain(declared: type, value: object) -> str | None:
    return None if isinstance(value, declared) and (declared is bool or not isinstance(value, bool)) else ""


def _any(checks: tuple[Check, ...], value: object) -> str | None:
    where = [check(value) for check in checks]
    return None if None in where else max(filter(None, where), key=len, default="")


def _all(declared: type, check: Check, value: object) -> str | None:
    if not isinstance(value, list | tuple) or not isinstance(value, declared):
        return ""
    return next((f"[{n}]{where}" for n, one in enumerate(value) if (where := check(one)) is not None), None)


def _each(declared: type, checks: list[tuple[str, Check]], value: object) -> str | None:
    if not isinstance(value, declared) or not isinstance(value, tuple) or len(value) != len(checks):
        return ""
    for (name, check), one in zip(checks, value, strict=True):
        if (where := check(one)) is not None:
            return name + where
    return None


def _mapping(key: Check, content: Check, value: object) -> str | None:
    if not isinstance(value, Mapping):
        return ""
    for name, one in value.items():
        if (where := key(name)) is not None or (where := content(one)) is not None:
            return f"[{str(name)[:40]!r}]{where}"
    return None


def _fields(declared: type, checks: list[tuple[str, Check]], value: object) -> str | None:
    if not isinstance(value, declared):
        return ""
    for name, check in checks:
        if (where := check(getattr(value, name))) is not None:
            return f".{name}{where}"
    return None
