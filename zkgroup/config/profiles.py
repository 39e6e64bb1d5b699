"""Cluster profiles in ``config.toml``: tables ``[clusters.NAME]`` with the settings of
``zkgroup.config.settings_table``, ``protected`` and ``labels``, and tables below them, ``kafka`` (librdkafka's
properties) and ``properties`` (the Scala consumer's keys).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from zkgroup.config.setting_files import Property, read_settings, unreadable
from zkgroup.config.settings_table import KAFKA_PREFIX, SETTINGS
from zkgroup.errors import UsageError, did_you_mean
from zkgroup.text import one_line

ENV_CONFIG: Final = "ZKGROUP_CONFIG"


@dataclass(frozen=True, slots=True)
class Profile:
    """One cluster's settings. ``values``: the texts of the settings of ``zkgroup.config.settings_table`` by their keys
    here; ``properties``: the tables ``properties`` and ``kafka``."""

    origin: str
    values: Mapping[str, str] = field(default_factory=dict)
    protected: bool = False
    labels: tuple[str, ...] = ()
    properties: tuple[Property, ...] = ()


def config_file(environ: Mapping[str, str]) -> tuple[Path, bool]:
    """The path of ``config.toml``; True if ``$ZKGROUP_CONFIG`` names it."""
    asked_for = environ.get(ENV_CONFIG)
    if asked_for:
        return Path(asked_for).expanduser(), True
    xdg = environ.get("XDG_CONFIG_HOME", "")
    # The XDG specification: relative paths are ignored.
    base = Path(xdg) if xdg.startswith("/") else Path(environ.get("HOME") or "/", ".config")
    return base / "zkgroup" / "config.toml", False


def read_profiles(path: Path, *, must_exist: bool) -> dict[str, Profile]:
    """All profiles by their names; none if there is no file. Raises ``UsageError`` for an invalid file."""
    import tomllib  # 9 ms at start-up

    try:
        if not path.exists():
            if must_exist:
                raise UsageError(f"no file {path}", f"{ENV_CONFIG} names it: correct or unset it")
            return {}
        data = tomllib.loads(read_settings(path).decode("utf-8"))
    except OSError as error:
        raise unreadable(path, error) from None
    except (ValueError, RecursionError) as error:  # also of what is no UTF-8, or a number of thousands of digits
        raise UsageError(f"{path}: {one_line(str(error))}", "correct the TOML") from None
    unknown = data.keys() - {"clusters"}
    if unknown:
        raise UsageError(f"{path}: unknown key {min(unknown)[:80]!r}", "profiles stand under [clusters.NAME]")
    clusters = _table(data.get("clusters", {}), f"{path}: clusters")
    return {
        name: _profile(_table(value, f"{path}: clusters.{one_line(name)}"), name, path)
        for name, value in clusters.items()
    }


def _profile(table: Mapping[str, Any], name: str, path: Path) -> Profile:
    where = f"{path}: clusters.{one_line(name)}"
    if name.partition(":")[0] == "sandbox":
        raise UsageError(f"{where} has a reserved name", "--cluster sandbox means the sandbox: call it otherwise")
    unknown = sorted(table.keys() - _FIELDS.keys())
    if unknown:
        # A misspelt `protected` must not pass in silence.
        remedy = did_you_mean(
            unknown[0][:80],
            _FIELDS,
            "name the keys as the options, without their dashes, or protected, labels, kafka, properties",
        )
        raise UsageError(f"{where}: unknown key {unknown[0][:80]!r}", remedy)
    for key, value in table.items():
        wanted, accepts = _FIELDS[key]
        if not accepts(value):
            raise UsageError(f"{where}: {key} has a value of the wrong type", f"give {wanted}")
    properties = [
        Property(f"{prefix}{key}", _scalar(value, f"{where}.{section}: {one_line(key)}"), f"{where}.{section}")
        for section, prefix in (("properties", ""), ("kafka", KAFKA_PREFIX))
        for key, value in table.get(section, {}).items()
    ]
    return Profile(
        origin=f"profile {one_line(name)} in {path}",
        values={key: _scalar(value, where) for key, value in table.items() if key not in _OTHER_FIELDS},
        protected=table.get("protected", False),
        labels=tuple(table.get("labels", ())),
        properties=tuple(properties),
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_number(value: object) -> bool:
    """TOML's integers have 64 bits; Python reads more, and then cannot show thousands of digits."""
    return isinstance(value, float) or (type(value) is int and -(2**63) <= value < 2**63)


_Field = tuple[str, Callable[[object], bool]]  # the wanted type in words, and a check
_KINDS: Final[dict[str, _Field]] = {
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "seconds": ("seconds", _is_number),
    "path": ("a path", _is_text),
}
_OTHER_FIELDS: Final[dict[str, _Field]] = {
    "protected": ("true or false", lambda value: isinstance(value, bool)),
    "labels": ("a list of texts", lambda value: isinstance(value, list) and all(map(_is_text, value))),
    "kafka": ("a table", lambda value: isinstance(value, dict)),
    "properties": ("a table", lambda value: isinstance(value, dict)),
}
_FIELDS: Final = {
    key: _KINDS.get(one.kind, ("a text", _is_text)) for one in SETTINGS for key in one.profile_keys
} | _OTHER_FIELDS


def _table(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{where} is no table", "write [clusters.NAME]")
    return value


def _scalar(value: object, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) or _is_number(value):
        return str(value)
    raise UsageError(f"{where} is neither text nor number nor truth value", 'quote dotted keys: "a.b" = …')
