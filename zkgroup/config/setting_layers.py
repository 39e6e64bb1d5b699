"""Connection settings out of their layers: flags over environment over cluster profile over ``consumer.properties``.

A cluster that a flag names ranks as a flag: ``-c prod`` is not overruled by an exported ``ZKGROUP_ZOOKEEPER``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from zkgroup.config.connection_settings import (
    DEFAULT_TIMEOUT,
    ConnectionSettings,
    ConnectString,
    parse_bootstrap,
    parse_connect_string,
)
from zkgroup.config.consumer_config import KAFKA_PREFIX, unknown_keys
from zkgroup.config.java_properties import Property, read_properties
from zkgroup.config.profiles import Profile, config_file, read_profiles
from zkgroup.config.security_resolution import (
    Ask,
    check_contradictions,
    complete_brokers,
    read_securing,
    zookeeper_tls,
    zookeeper_user,
)
from zkgroup.config.security_settings import BY_NAME, LISTENER, PROTOCOL, PROTOCOLS, has_tls
from zkgroup.config.zookeeper_credentials import read_credentials
from zkgroup.errors import UsageError, did_you_mean

ENV_ZOOKEEPER: Final = "ZKGROUP_ZOOKEEPER"
ENV_AUTH_FILE: Final = "ZKGROUP_ZOOKEEPER_AUTH_FILE"
ENV_CLUSTER: Final = "ZKGROUP_CLUSTER"
ENV_TIMEOUT: Final = "ZKGROUP_CONNECT_TIMEOUT"
SANDBOX: Final = "sandbox"
COMMAND_LINE: Final = "--property"
CONNECTION_TIMEOUT: Final = "zookeeper.connection.timeout.ms"
LONGEST_TIMEOUT: Final = 3600  # seconds


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line gave, before and after the command's name, each as often as it was given."""

    zookeeper: tuple[str, ...] = ()
    zookeeper_auth_file: tuple[str, ...] = ()
    bootstrap_server: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()
    consumer_config: tuple[str, ...] = ()
    property: tuple[str, ...] = field(default=(), repr=False)
    connect_timeout: tuple[float, ...] = ()
    #: Those of ``security.SETTINGS``, by the names of their parameters.
    security: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class _Candidate(NamedTuple):
    text: str
    origin: str


#: What a sandbox is reached by: its connect string, and the file of its profile if it is secured.
FindSandbox = Callable[[str], tuple[str, Path | None]]


def resolve_connection(
    flags: Flags, environ: Mapping[str, str], find_sandbox: FindSandbox, ask: Ask = None
) -> ConnectionSettings:
    """Settle every setting and remember where it came from. Reads ``config.toml`` and ``consumer.properties``.

    ``find_sandbox`` turns a sandbox's name (``""``: the usual one) into its ZooKeeper connect string, and the file of
    its profile. ``ask`` asks a person for a password that is missing. Raises ``UsageError`` for what is contradictory,
    unknown or unreadable.
    """
    by_flag = _only(flags.cluster, "--cluster")
    cluster = by_flag or environ.get(ENV_CLUSTER) or None
    profile = _profile(cluster, environ, find_sandbox) if cluster else Profile(origin="no profile")
    own = [_parse_assignment(text) for text in flags.property]
    securing = read_securing(flags.security, environ, profile.security, profile.origin, profile_first=bool(by_flag))
    properties = [
        *_file_properties(flags, profile),
        *profile.properties,
        *securing.properties(flagged=False),
        *own,
        *securing.properties(flagged=True),
    ]
    _check_protocol([p for p in properties if p.key == PROTOCOL])
    exposed = check_contradictions(securing, own)
    zookeeper, zookeeper_origin = _zookeeper(flags, environ, profile, properties, bool(by_flag))
    origins = {name: values[0].origin for name, values in securing.values.items()}
    if cluster:
        origins["cluster"] = "--cluster" if by_flag else ENV_CLUSTER
    if zookeeper:
        origins["zookeeper"] = zookeeper_origin
    warnings = _overruled(flags, zookeeper, zookeeper_origin, properties)
    bootstrap_text = _only(flags.bootstrap_server, "--bootstrap-server")
    bootstrap = parse_bootstrap(bootstrap_text, "--bootstrap-server") if bootstrap_text else ()
    if bootstrap:
        origins["bootstrap"] = "--bootstrap-server"
    elif profile.bootstrap_server:
        bootstrap = parse_bootstrap(profile.bootstrap_server, profile.origin)
        origins["bootstrap"] = profile.origin
    auth, auth_warnings, auth_origin = _credentials(flags, environ, profile)
    if auth_origin:
        origins["zookeeper-auth-file"] = auth_origin
    if profile.protected:
        origins["protected"] = profile.origin
    if profile.labels:
        origins["labels"] = profile.origin
    timeout, origins["timeout"] = _timeout(flags, environ, profile, properties)
    listener = next((p.value for p in reversed(properties) if p.key == LISTENER), None)
    properties += complete_brokers(_kafka(properties), listener, ask)
    sasl, tls = zookeeper_user(securing, ask), zookeeper_tls(securing, ask)
    acl = securing.text("zookeeper-acl")
    if acl is not None and acl.startswith("creator") and not (auth or sasl or (tls and tls.certificate_file)):
        raise UsageError(
            f"zookeeper-acl {acl} needs credentials", "give --zookeeper-auth-file or --zookeeper-sasl-user"
        )
    return ConnectionSettings(
        zookeeper=zookeeper,
        bootstrap=bootstrap,
        timeout=timeout,
        kafka=_kafka(properties),
        listener=listener,
        zookeeper_auth=auth,
        zookeeper_tls=tls,
        zookeeper_sasl=sasl,
        zookeeper_acl=acl,
        cluster=cluster,
        protected=profile.protected,
        labels=profile.labels,
        properties=tuple(properties),
        origins=origins,
        # Of a file's keys a command reads what concerns it; what was typed for this one is meant for it.
        warnings=(*warnings, *auth_warnings, *securing.warnings, *exposed, *unknown_keys(own)),
    )


def _check_protocol(named: Sequence[Property]) -> None:
    """Raise ``UsageError`` where a layer takes off the TLS that a weaker one asks for: only its option may."""
    asking = next((prop for prop in named if has_tls(prop.value)), None)
    if asking is None or has_tls(named[-1].value) or named[-1].origin == BY_NAME["security-protocol"].option:
        return
    if named[-1].value.upper() in PROTOCOLS:  # what is none is not shown: it may be a secret. It is refused later
        raise UsageError(
            f"{named[-1].origin} asks for {named[-1].value}, and {asking.origin} for {asking.value}",
            f"correct one of them; --security-protocol {named[-1].value} permits to go without encryption",
        )


def _kafka(properties: Sequence[Property]) -> dict[str, str]:
    return {p.key.removeprefix(KAFKA_PREFIX): p.value for p in properties if p.key.startswith(KAFKA_PREFIX)}


def _profile(cluster: str, environ: Mapping[str, str], find_sandbox: FindSandbox) -> Profile:
    name, colon, rest = cluster.partition(":")
    if name == SANDBOX:
        if colon and not rest:
            raise UsageError(f"--cluster {cluster} names no sandbox", "write sandbox or sandbox:NAME")
        connect, secured = find_sandbox(rest)
        if secured is None:
            return Profile(origin=f"{cluster}", zookeeper=connect)
        return next(iter(read_profiles(secured, must_exist=True).values()))
    path, asked_for = config_file(environ)
    profiles = read_profiles(path, must_exist=asked_for)
    found = profiles.get(cluster)
    if found is None:
        known = sorted(profiles)
        remedy = did_you_mean(cluster, known, f"known: {', '.join([*known, SANDBOX])}")
        raise UsageError(f"no cluster profile {cluster!r} in {path}", remedy)
    return found


def _file_properties(flags: Flags, profile: Profile) -> list[Property]:
    path = _only(flags.consumer_config, "--consumer-config") or profile.consumer_config
    return read_properties(Path(path).expanduser()) if path else []


def _parse_assignment(text: str) -> Property:
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        # The text may be a secret that lost its key: it is not repeated.
        raise UsageError("--property wants KEY=VALUE", "for example -X auto.offset.reset=smallest")
    return Property(key.strip(), value.strip(), COMMAND_LINE)


def _zookeeper(
    flags: Flags, environ: Mapping[str, str], profile: Profile, properties: Sequence[Property], profile_is_flag: bool
) -> tuple[ConnectString | None, str]:
    settings = [p for p in properties if p.key == "zookeeper.connect"]
    typed = [_Candidate(text, "--zookeeper") for text in flags.zookeeper]
    typed += [_Candidate(p.value, f"{COMMAND_LINE} zookeeper.connect") for p in settings if p.origin == COMMAND_LINE]
    parsed = [(parse_connect_string(candidate.text, candidate.origin), candidate) for candidate in typed]
    for value, candidate in parsed[1:]:
        if not value.same_as(parsed[0][0]):
            raise UsageError(
                f"two different ZooKeepers on one command line, {parsed[0][0]} ({parsed[0][1].origin}) and {value} "
                f"({candidate.origin})",
                "give one",
            )
    if parsed:
        return parsed[0][0], parsed[0][1].origin
    candidates: list[_Candidate] = []
    if environ.get(ENV_ZOOKEEPER):
        candidates.append(_Candidate(environ[ENV_ZOOKEEPER], ENV_ZOOKEEPER))
    if profile.zookeeper:
        candidates.insert(0 if profile_is_flag else len(candidates), _Candidate(profile.zookeeper, profile.origin))
    candidates += [_Candidate(p.value, p.origin) for p in reversed(settings)]
    if not candidates:
        return None, ""
    return parse_connect_string(*candidates[0]), candidates[0].origin


def _credentials(
    flags: Flags, environ: Mapping[str, str], profile: Profile
) -> tuple[tuple[tuple[str, str], ...], list[str], str]:
    """What is in the file, warnings about it, and who named it."""
    candidates = (
        (_only(flags.zookeeper_auth_file, "--zookeeper-auth-file"), "--zookeeper-auth-file"),
        (environ.get(ENV_AUTH_FILE), ENV_AUTH_FILE),
        (profile.zookeeper_auth_file, profile.origin),
    )
    for path, origin in candidates:
        if path:
            return *read_credentials(Path(path).expanduser(), origin), origin
    return (), [], ""


def _overruled(flags: Flags, zookeeper: ConnectString | None, origin: str, properties: Sequence[Property]) -> list[str]:
    """Somebody who names a file by hand expects its ZooKeeper: say so when the environment or a profile wins."""
    if zookeeper is None or not flags.consumer_config or origin.startswith("--"):
        return []
    return [
        f"{p.origin}: zookeeper.connect is overruled by {origin} ({zookeeper})"
        for p in properties
        if p.key == "zookeeper.connect"
        and p.origin not in (COMMAND_LINE, origin)
        and not parse_connect_string(p.value, p.origin).same_as(zookeeper)
    ]


def _timeout(
    flags: Flags, environ: Mapping[str, str], profile: Profile, properties: Sequence[Property]
) -> tuple[float, str]:
    typed = _only(tuple(map(str, flags.connect_timeout)), "--connect-timeout")
    if typed:
        return _seconds(typed, "--connect-timeout"), "--connect-timeout"
    if environ.get(ENV_TIMEOUT):
        return _seconds(environ[ENV_TIMEOUT], ENV_TIMEOUT), ENV_TIMEOUT
    if profile.connect_timeout is not None:
        return _seconds(str(profile.connect_timeout), profile.origin), profile.origin
    for prop in reversed(properties):
        if prop.key == CONNECTION_TIMEOUT and prop.value.isascii() and prop.value.isdigit():
            digits = prop.value.lstrip("0")  # thousands of them are no number for Python
            if not digits or len(digits) > 9 or int(digits) > 1000 * LONGEST_TIMEOUT:
                why, remedy = ("large", "at most an hour, 3600000") if digits else ("small", "at least 1")
                raise UsageError(f"{prop.origin}: {prop.key}={prop.value[:40]} is too {why}", remedy)
            return _seconds(str(int(digits) / 1000), prop.origin), prop.origin
    return DEFAULT_TIMEOUT, "default"


def _seconds(text: str, origin: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= LONGEST_TIMEOUT:
        raise UsageError(f"{origin}: {text[:40]!r} is no time to wait", "give seconds, more than 0 and at most 3600")
    return value


def _only(values: Sequence[str], name: str) -> str | None:
    different = list(dict.fromkeys(values))
    if len(different) > 1:
        raise UsageError(f"{name} was given twice, as {different[0]} and {different[1]}", "give it once")
    if different and not different[0]:
        raise UsageError(f"{name} is empty", "give a value or leave it out")
    return different[0] if different else None
