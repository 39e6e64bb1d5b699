"""The settings in force, and where each was given. Secrets are hidden. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from zkgroup.config.connection_settings import ConnectionSettings, KerberosSettings
from zkgroup.config.settings_table import BY_NAME, KERBEROS, SETTINGS

_HIDDEN: Final = "(hidden)"
#: Parts of keys that may hold a secret.
_SECRET: Final = ("password", "secret", "jaas", "token", "credential", "key.pem")


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """One setting, by the name of its option or key."""

    setting: str
    value: str | None
    source: str


def shown_settings(settings: ConnectionSettings) -> list[ShownSetting]:
    """The cluster, the settings of the connection, and each key of a member that was given."""
    tls = settings.zookeeper_tls
    values: dict[str, object] = {
        "cluster": settings.cluster,
        "protected": settings.protected,
        "zookeeper": settings.zookeeper,
        "bootstrap-server": ",".join(map(str, settings.bootstrap)),
        "connect-timeout": f"{settings.timeout:g}",
    }
    if settings.labels:
        values["labels"] = ", ".join(settings.labels)
    if settings.zookeeper_auth:
        users = ", ".join(credential.partition(":")[0] for _, credential in settings.zookeeper_auth)
        values["zookeeper-auth-file"] = f"{users} (hidden passwords)"
    values["zookeeper-tls"] = tls is not None
    sasl = settings.zookeeper_sasl
    if isinstance(sasl, KerberosSettings):
        values["zookeeper-sasl-mechanism"] = KERBEROS
        values |= {f"zookeeper-kerberos-{name}": value for name, value in asdict(sasl).items()}
    elif sasl is not None:
        values |= {"zookeeper-sasl-mechanism": "DIGEST-MD5", "zookeeper-sasl-user": sasl[0]}
    values["zookeeper-acl"] = settings.zookeeper_acl
    rows = [
        ShownSetting(name, _text(values[name]), settings.origins.get(name, "default"))
        for name in ("cluster", "labels", "protected", "zookeeper", "bootstrap-server", "connect-timeout")
        if name in values
    ]
    for setting in SETTINGS:
        name = setting.name
        if name in settings.origins and (setting.section == "zookeeper" or name == "zookeeper-auth-file"):
            if name not in values:  # a field of TlsSettings
                values[name] = getattr(tls, setting.name.removeprefix("zookeeper-").replace("-", "_"), None)
            value = _HIDDEN if setting.kind == "secret" else _text(values[name])
            rows.append(ShownSetting(name, value, settings.origins[name]))
    names = {setting.key: setting.name for setting in BY_NAME.values()}
    strongest = {each.key: each for each in settings.properties}
    return rows + [
        ShownSetting(
            names.get(key, key), _HIDDEN if any(part in key.lower() for part in _SECRET) else each.value, each.origin
        )
        for key, each in sorted(strongest.items())
        if key != "zookeeper.connect"  # a row above, and perhaps overruled
    ]


def _text(value: object) -> str | None:
    return str(value).lower() if isinstance(value, bool) else None if value in (None, "") else str(value)
