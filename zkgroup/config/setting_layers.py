"""The layers of settings: flags over the environment over the cluster's profile.

A cluster that a flag names ranks as a flag: ``-c prod`` wins over an exported ``ZKGROUP_ZOOKEEPER``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from zkgroup.config.java_properties import Property
from zkgroup.config.profiles import Profile
from zkgroup.config.settings_file import read_secrets
from zkgroup.config.settings_table import BY_NAME, SETTINGS, Setting
from zkgroup.errors import UsageError

#: The options of a command line, before and after the command's name: parameter to values, in their order.
Flags = Mapping[str, Sequence[str]]
MAX_TIMEOUT: Final = 3600  # seconds
_BOOLS: Final = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


class Value(NamedTuple):
    """A setting's value, and its origin for messages."""

    text: str
    origin: str


@dataclass(frozen=True, slots=True)
class Layers:
    """The values of the settings by name. May hold secrets: not shown.

    ``values``: the strongest first. The weaker ones are there only for choices and bools that no flag gave, and for the
    schema registry.
    ``flagged``: the settings that a flag gave.
    """

    values: Mapping[str, tuple[Value, ...]] = field(repr=False)
    flagged: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()

    def properties(self, *, flagged: bool) -> list[Property]:
        """The brokers' settings as properties, the strongest last: those of flags, or the others."""
        return [
            Property(setting.key, _as_property(setting, value), value.origin)
            for setting in SETTINGS
            if setting.section == "brokers" and (setting.name in self.flagged) == flagged
            for value in reversed(self.values.get(setting.name, ()))
        ]

    def find(self, name: str) -> Value | None:
        return self.values[name][0] if name in self.values else None

    def text(self, name: str) -> str | None:
        """The strongest value's text."""
        return self.values[name][0].text if name in self.values else None

    def is_true(self, name: str, default: bool) -> bool:
        """The strongest value of a bool."""
        return parse_bool(name, self.values[name][0]) if name in self.values else default


class _Candidate(NamedTuple):
    """``is_file``: the text names a file with a secret."""

    text: str
    origin: str
    is_file: bool = False


def read_layers(flags: Flags, environ: Mapping[str, str], profile: Profile, *, profile_first: bool) -> Layers:
    """Read all named settings but those that only a command line has.

    ``profile_first``: a flag has named the profile. Raises ``UsageError`` for values that are contradictory or cannot
    be read; it shows nothing of a file with a secret.
    """
    values: dict[str, tuple[Value, ...]] = {}
    flagged = set()
    warnings: list[str] = []
    for setting in SETTINGS:
        if not setting.profile_keys:
            continue
        layers = [_in_environment(setting, environ), _in_profile(setting, profile, environ)]
        if profile_first and not setting.environment_first:
            layers.reverse()
        found = [one for layer in layers for one in layer]
        # Two flags may name the same ZooKeeper in different words.
        typed = None if setting.name == "zookeeper" else single_flag(flags, setting.name)
        if typed is not None:
            flagged.add(setting.name)
            weaker = found if setting.name == "schema-registry" else ()
            found = [_Candidate(typed, setting.option, setting.kind == "secret"), *weaker]
        # Files are read, and warned of, only if they count.
        if setting.kind not in ("choice", "bool") and setting.name != "schema-registry":
            found = found[:1]
        if found:
            values[setting.name] = tuple(_checked(setting, one, warnings) for one in found)
    for servers, verify in (("brokers", "ssl-verify"), ("ZooKeeper", "zookeeper-verify")):
        if verify in values and not parse_bool(verify, values[verify][0]):
            warnings.append(f"certificates of {servers} are not verified ({verify}): anybody may answer in its place")
    return Layers(values, frozenset(flagged), tuple(warnings))


def single_flag(flags: Flags, name: str) -> str | None:
    """The value of an option that may be given once. Raises ``UsageError``."""
    setting = BY_NAME[name]
    typed = list(dict.fromkeys(map(str, flags.get(setting.parameter, ()))))
    if len(typed) > 1:
        raise UsageError(f"{setting.option} was given twice, as {typed[0]} and {typed[1]}", "give it once")
    if typed and not typed[0]:
        raise UsageError(f"{setting.option} is empty", "give a value or leave it out")
    return typed[0] if typed else None


def _in_environment(setting: Setting, environ: Mapping[str, str]) -> Iterator[_Candidate]:
    if not setting.in_environment:
        return
    if environ.get(setting.variable):
        yield _Candidate(environ[setting.variable], setting.variable)
    in_file = f"{setting.variable}_FILE"
    if setting.kind == "secret" and environ.get(in_file):
        yield _Candidate(environ[in_file], in_file, is_file=True)


def _in_profile(setting: Setting, profile: Profile, environ: Mapping[str, str]) -> Iterator[_Candidate]:
    if setting.option_name in profile.values:
        origin = profile.origin if setting.section == "connection" else f"{profile.origin}, {setting.option_name}"
        yield _Candidate(profile.values[setting.option_name], origin, setting.kind == "secret")
    variable = profile.values.get(f"{setting.name}-env") if setting.kind == "secret" else None
    if variable is not None:
        if not environ.get(variable):
            raise UsageError(f"{profile.origin}: {setting.name}-env names {variable}, which is not set", "set it")
        yield _Candidate(environ[variable], variable)


def _checked(setting: Setting, found: _Candidate, warnings: list[str]) -> Value:
    text, origin = found.text, found.origin
    if setting.kind == "secret":
        return Value(_read_secret(found, warnings) if found.is_file else text, origin)
    if setting.kind == "choice":
        if text.upper() not in setting.choices:
            raise UsageError(f"{origin}: {text[:40]!r} is none of {', '.join(setting.choices)}", "choose one")
        text = text.upper()
    if setting.kind == "file":
        path = Path(text).expanduser()
        try:
            with path.open("rb"):
                text = str(path)
        except OSError as error:
            why = error.strerror or error
            raise UsageError(f"{origin}: cannot read {path}: {why}", "name a file that can be read") from None
    value = Value(text, origin)
    if setting.kind == "bool":
        parse_bool(setting.name, value)
    if setting.kind == "seconds":
        parse_seconds(value)
    return value


def _read_secret(found: _Candidate, warnings: list[str]) -> str:
    path = Path(found.text).expanduser()
    text, exposed = read_secrets(path, found.origin)
    text = (text or "").rstrip("\r\n")
    if not text or "\n" in text or "\0" in text:
        raise UsageError(f"{found.origin}: {path} has no secret", "write it as the only line, in UTF-8")
    if exposed:
        warnings.append(f"{path} has a secret, and others may read it: chmod 600")
    return text


def parse_bool(name: str, value: Value) -> bool:
    """A bool's value. Raises ``UsageError``."""
    found = _BOOLS.get(value.text.lower())
    if found is None:
        raise UsageError(f"{value.origin}: {name} is neither true nor false", "write one of the two")
    return found


def parse_seconds(value: Value) -> float:
    """A time-out's value. Raises ``UsageError``."""
    try:
        seconds = float(value.text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= MAX_TIMEOUT:
        raise UsageError(
            f"{value.origin}: {value.text[:40]!r} is no time to wait", "give seconds, more than 0 and at most 3600"
        )
    return seconds


def _as_property(setting: Setting, value: Value) -> str:
    if setting.kind != "bool":
        return value.text
    return setting.true if parse_bool(setting.name, value) else setting.false
