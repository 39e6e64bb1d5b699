"""Settings as they are in force, and where each comes from; secrets are hidden. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from zkgroup.config.connection_settings import ConnectionSettings
from zkgroup.config.security_settings import BROKERS, ZOOKEEPER, Setting

HIDDEN: Final = "(hidden)"
DEFAULT: Final = "default"
#: Keys with one of these in their names may hold what nobody is to see.
_SECRET: Final = ("password", "secret", "jaas", "token", "credential", "key.pem")


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """One setting, by the name of its option or key."""

    setting: str
    value: str | None
    source: str


def shown_settings(settings: ConnectionSettings) -> list[ShownSetting]:
    """Everything that is in force: the cluster, how it is reached, and each key of a member that somebody has set."""
    origins = settings.origins

    def shown(name: str, value: object, origin: str) -> ShownSetting:
        return ShownSetting(name, None if value in (None, "") else str(value), origins.get(origin, DEFAULT))

    rows = [
        shown("cluster", settings.cluster, "cluster"),
        shown("protected", "true" if settings.protected else "false", "protected"),
        shown("zookeeper", settings.zookeeper, "zookeeper"),
        shown("bootstrap-server", ",".join(map(str, settings.bootstrap)), "bootstrap"),
        shown("connect-timeout", f"{settings.timeout:g}", "timeout"),
    ]
    if settings.labels:
        rows.insert(1, shown("labels", ", ".join(settings.labels), "labels"))
    if settings.zookeeper_auth:
        users = ", ".join(credential.partition(":")[0] for _, credential in settings.zookeeper_auth)
        rows.append(shown("zookeeper-auth-file", f"{users} ({HIDDEN[1:-1]} passwords)", "zookeeper-auth-file"))
    rows += [
        shown(setting.name, _of_zookeeper(settings, setting), setting.name)
        for setting in ZOOKEEPER
        if setting.name in origins
    ]
    named = {setting.key: setting.name for setting in BROKERS if setting.key is not None}
    strongest = {each.key: each for each in settings.properties}
    rows += [
        ShownSetting(named.get(key, key), HIDDEN if is_secret(key) else each.value, each.origin)
        for key, each in sorted(strongest.items())
        if key != "zookeeper.connect"  # shown above, and perhaps overruled
    ]
    return rows


def is_secret(key: str) -> bool:
    """Whether a key may hold what nobody is to see."""
    return any(part in key.lower() for part in _SECRET)


def _of_zookeeper(settings: ConnectionSettings, setting: Setting) -> str | None:
    if setting.kind == "secret":
        return HIDDEN
    tls = settings.zookeeper_tls
    found: dict[str, object] = {
        "zookeeper-tls": tls is not None,
        "zookeeper-sasl-user": settings.zookeeper_sasl[0] if settings.zookeeper_sasl else None,
        "zookeeper-acl": settings.zookeeper_acl,
    }
    if tls is not None:
        found |= {
            "zookeeper-ca-file": tls.ca_file,
            "zookeeper-certificate-file": tls.certificate_file,
            "zookeeper-key-file": tls.key_file,
            "zookeeper-check-hostname": tls.check_hostname,
            "zookeeper-verify": tls.verify,
        }
    value = found.get(setting.name)
    return str(value).lower() if isinstance(value, bool) else None if value is None else str(value)
