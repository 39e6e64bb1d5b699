"""A schema registry with Confluent's API, over HTTP: what its subjects have."""

from __future__ import annotations

import base64
import http.client
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from zkgroup.clients.connection_security import ssl_context
from zkgroup.clients.kafka.connection_errors import tls_of
from zkgroup.config.connection_settings import ConnectionSettings, TlsSettings
from zkgroup.config.settings_table import CONNECT_TIMEOUT
from zkgroup.errors import NotFoundError, RefusedError, UnreachableError, UsageError, ZkgroupError
from zkgroup.schemas.field_schema import FieldSchema, RegisteredSchema, SchemaFormat

_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
_MAX_BYTES: Final = 64 << 20
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """How to reach a registry. ``user``: name and password. ``timeout`` is in seconds."""

    url: str
    user: tuple[str, str] | None = field(default=None, repr=False)
    tls: TlsSettings = field(default_factory=TlsSettings)
    timeout: float = CONNECT_TIMEOUT


def registry_settings(settings: ConnectionSettings) -> RegistrySettings:
    """The settings, with the TLS files and checks of the brokers. Raises ``UsageError`` where no registry is named, or
    a part is missing."""
    url = settings.schema_registry
    if not url:
        raise UsageError("no schema registry is named", "give --schema-registry URL")
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query and parts.port != 0
    except ValueError:  # of a port, or of brackets
        is_url = False
    if not is_url:
        raise UsageError(f"--schema-registry {url[:120]!r} is no URL", "write it as http://HOST:8081")
    if parts.username is not None:
        raise UsageError("--schema-registry has a user", "give --schema-registry-user, and no user in the URL")
    user = None
    if settings.schema_registry_user is not None:
        if settings.schema_registry_password is None:
            raise UsageError(
                f"no password of {settings.schema_registry_user} for the schema registry was given",
                "name a file with it by --schema-registry-password-file, or set ZKGROUP_SCHEMA_REGISTRY_PASSWORD",
            )
        user = settings.schema_registry_user, settings.schema_registry_password
    return RegistrySettings(url, user, tls_of(settings.kafka), settings.timeout)


def read_schema(settings: RegistrySettings, form: SchemaFormat, topics: Iterable[str], field: str) -> FieldSchema:
    """The schema of all versions of the subjects TOPIC-key or TOPIC-value. ``field``: "key" or "value"."""
    from zkgroup.schemas.field_decoder import join_schemas  # pyarrow takes 0.1 s

    return join_schemas(form, read_subjects(settings, [f"{topic}-{field}" for topic in sorted(topics)]))


def read_subjects(settings: RegistrySettings, subjects: Sequence[str]) -> list[list[RegisteredSchema]]:
    """All versions of each subject, the newest first, and deleted ones last. Raises ``NotFoundError`` for one that the
    registry does not have, ``UnreachableError``, ``RefusedError`` for a user that may not read it."""
    parts = urlsplit(settings.url)
    host, port = parts.hostname or "", parts.port
    connection = (
        http.client.HTTPSConnection(host, port, timeout=settings.timeout, context=ssl_context(settings.tls, "registry"))
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, port, timeout=settings.timeout)
    )
    with closing(connection):
        return [_read_subject(settings, connection, subject) for subject in subjects]


def _read_subject(
    settings: RegistrySettings, connection: http.client.HTTPConnection, subject: str
) -> list[RegisteredSchema]:
    path = f"/subjects/{quote(subject, safe='')}/versions"
    numbers = _get(settings, connection, f"{path}?deleted=true", subject, list[int])
    try:
        live = _get(settings, connection, path, subject, list[int])
    except NotFoundError:  # all are deleted
        live = []
    found = []
    for number in sorted(numbers, key=lambda number: (number in live, number), reverse=True):
        one = _get(settings, connection, f"{path}/{number}?deleted=true", subject, _Version)
        refers, is_deleted = bool(one.references), number not in live
        found.append(RegisteredSchema(subject, number, one.id, one.schema_type, one.schema, refers, is_deleted))
    return found


class _Version(msgspec.Struct):
    """A version of a subject, as the registry answers; of Avro there is no type."""

    id: int
    schema: str
    schema_type: str = msgspec.field(name="schemaType", default="AVRO")
    references: list[Any] = []


def _get(
    settings: RegistrySettings, connection: http.client.HTTPConnection, path: str, subject: str, shape: type[_Answer]
) -> _Answer:
    headers = {"Accept": _ACCEPT}
    if settings.user is not None:
        headers["Authorization"] = f"Basic {base64.b64encode(':'.join(settings.user).encode()).decode()}"
    where = f"the schema registry {settings.url}"
    try:
        connection.request("GET", urlsplit(settings.url).path.rstrip("/") + path, headers=headers)
        response = connection.getresponse()
        data = response.read(_MAX_BYTES)
    except (OSError, UnicodeError, http.client.HTTPException) as error:
        why = str(error) or type(error).__name__
        raise UnreachableError(f"{where}: {why}", "check --schema-registry, and that it runs") from None
    match response.status:
        case 200:
            try:
                return msgspec.json.decode(data, type=shape)
            except msgspec.DecodeError as error:  # no JSON, or of another shape
                raise ZkgroupError(f"{where} is none: {error}", "check --schema-registry") from None
        case 404:
            raise NotFoundError(f"{where} has no subject {subject}", "register it, or give --value-schema FILE")
        case 401 | 403:
            raise RefusedError(
                f"{where} refuses the user", "check --schema-registry-user and --schema-registry-password-file"
            )
    raise ZkgroupError(f"{where} answers {response.status} {response.reason}", "read its log")
