"""Where an export writes, as its user names it: a folder, or a place in an object store. Pure, and without pyarrow.

Secrets may stand in such a name. They are never part of what is shown, logged or kept: ``ObjectAddress.shown`` is.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from zkgroup.errors import UsageError

#: Of ``--to``, each by the scheme that pyarrow's filesystems have for it.
SCHEMES: Final[Mapping[str, str]] = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfs",
    "abfss": "abfss",
    "hdfs": "hdfs",
    "viewfs": "viewfs",
}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://?", re.ASCII)
# As good as one: behind a blank or a quote that slipped in, or with one of its own characters mistaken.
_NEARLY = re.compile(r"://|^[^\w/.~]*(?:s3a?|gc?s|abfss?|hdfs|viewfs)(?:\s*(?:[:;]|%3a)|\W*//)", re.IGNORECASE)
# A shorter value of an option is no key, but some word.
_KEY: Final = 8
_WITH_PORT = ("hdfs", "viewfs")
#: Of ``SCHEMES``, Azure's.
AZURE: Final = ("abfs", "abfss")
_AZURE_HOSTS: Final = (".dfs.core.windows.net", ".blob.core.windows.net")
#: Replaces a destination that contains a secret.
_SOMEWHERE: Final = "URI"
_S3_OPTIONS = ("region", "scheme", "endpoint_override")


@dataclass(frozen=True, slots=True)
class ObjectAddress:
    """A place in an object store, or in HDFS.

    ``uri`` is complete, with what of it may be secret; ``shown`` is without, and without options. ``container``: the
    bucket, the container (of Azure), or the authority (of HDFS); ``prefix``: below it, without slashes at its ends.
    ``options`` are those of the URI, for S3 with the endpoint and the region of the environment where the URI has none.
    ``hidden``: secret words of the URI, as they are written in it.
    """

    scheme: str
    container: str
    prefix: str
    shown: str
    uri: str = field(repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    key: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)
    hidden: tuple[str, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return self.shown

    @property
    def endpoint(self) -> str | None:
        """The URL of S3's endpoint, None for Amazon's."""
        place = self.options.get("endpoint_override")
        return place if not place or "://" in place else f"{self.options.get('scheme') or 'https'}://{place}"


#: A local folder, or one that is mounted everywhere; or a store.
Address: TypeAlias = Path | ObjectAddress


def parse_address(uri: str, environment: Mapping[str, str] | None = None) -> Address:
    """What ``uri`` names: a path, ``file:``, or one of ``SCHEMES``. ``environment`` is this process's by default.

    Raises ``UsageError`` for what is none of these, and for what would be dropped in silence (``?`` and ``#`` in
    ``file:`` URIs, unknown options).
    """
    scheme = _SCHEME.match(uri)
    if not uri.strip() or "\0" in uri:
        raise UsageError("the destination is empty", "--to FOLDER, --to file:///FOLDER, or --to s3://BUCKET/PREFIX")
    if scheme is None:
        return _local(uri)
    name = scheme[1].lower()
    if name == "file":
        return _folder(uri)
    if name not in SCHEMES:
        raise UsageError(f"cannot write to {scheme[1]}: destinations", f"give a folder, or one of {', '.join(SCHEMES)}")
    return _address(SCHEMES[name], uri, os.environ if environment is None else environment)


def _local(path: str) -> Path:
    """A path. What was to be a URI would be a folder of that name, which shows its keys, and whose messages count as
    exported."""
    if _NEARLY.search(unicodedata.normalize("NFKC", path)):
        raise UsageError(
            "the destination looks like a URI, and does not begin as one",
            "begin it with its scheme, as s3://BUCKET/PREFIX, without blanks or quotes before that; a folder is ./NAME",
        )
    return Path(path).expanduser().absolute()


def _folder(uri: str) -> Path:
    with suppress(ValueError):
        parts = urlsplit(uri)
        path = unquote(parts.path)
        is_plain = not re.search(r"[?#]|%(?![0-9A-Fa-f]{2})|:///?.*://", uri, re.ASCII)
        if is_plain and parts.netloc in ("", "localhost") and "\0" not in path:
            return Path(path).absolute()
    raise UsageError(
        "the file: destination names no local folder",
        "write it like file:///FOLDER, with %3F for ?, %23 for #, %25 for %; or give the folder as a path",
    )


def _refuse_torn(scheme: str, uri: str) -> None:
    """A key with a slash in it, unescaped, is torn: half of it would be taken for the bucket, and be shown everywhere.

    AWS's and Azure's secrets often have one. Nothing of what may be secret is quoted.
    """
    authority, _, rest = uri.partition("://")[2].partition("/")
    authority, question, query = authority.partition("?")
    rest = f"{question}{query}/{rest}"
    host = authority.rpartition("@")[2]
    is_port = scheme in _WITH_PORT and re.fullmatch(r"[^:]*:[0-9]+", host)
    if (":" not in host or is_port) and not ("@" in authority and "@" in rest):
        return
    behind = uri.rpartition("@")[2].partition("?")[0] if "@" in uri else "…"
    raise UsageError(
        f"{scheme}://***@{behind} is no URI: a key, or a name, has characters in it that mean something else there",
        "write %2F for / in a key, %3F for ?, %23 for #, %40 for @, %25 for %; or give the keys in the environment",
    )


def _address(scheme: str, uri: str, environment: Mapping[str, str]) -> ObjectAddress:
    _refuse_torn(scheme, uri)
    try:
        parts = urlsplit(uri)
        host, user, secret = parts.netloc.rpartition("@")[2], parts.username, parts.password
    except ValueError:
        raise _no_place(scheme) from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if scheme == "s3" and (unknown := options.keys() - _S3_OPTIONS):
        raise UsageError(
            f"s3: destinations have no option {min(unknown)[:40]!r}",
            f"{', '.join(_S3_OPTIONS)}; credentials come from the environment (AWS_ACCESS_KEY_ID, …)",
        )
    if options.get("scheme", "https") not in ("http", "https"):
        raise UsageError(f"the {scheme}: destination has another scheme than http or https", "leave it out for https")
    container, prefix = host, unquote(parts.path).strip("/")
    if scheme == "s3":
        options = _s3_environment(environment, options)
    elif scheme in AZURE:
        first, _, rest = prefix.partition("/")
        container, prefix = (unquote(user), prefix) if user else (first, rest)
        _check_azure(scheme, host, container, user, secret)
    is_named = container or scheme in ("hdfs", "viewfs")
    if not is_named or "#" in uri or (prefix and not {"", ".", ".."}.isdisjoint(prefix.split("/"))):
        raise _no_place(scheme)
    # The user's name is S3's access key; Azure's is the container, which belongs to the name.
    named = f"{user}@{host}" if scheme in AZURE and user else host
    shown = f"{scheme}://{named}{parts.path.rstrip('/')}"
    key = unquote(user) if user and scheme == "s3" else None
    hidden = [text for text in (secret, user if scheme == "s3" else None, parts.query) if text]
    if scheme != "s3":  # Azure's keys stand there
        hidden += [
            text
            for _, value in parse_qsl(parts.query)
            if len(value) >= _KEY
            for text in (value, quote(value), quote(value, safe=""))
        ]
    return ObjectAddress(
        scheme, container, prefix, shown, uri, options, key, unquote(secret) if secret else None, tuple(hidden)
    )


def _no_place(scheme: str) -> UsageError:
    return UsageError(
        f"the {scheme}: destination names no place",
        f"write it like {scheme}://BUCKET/PREFIX, with %23 for #, %3F for ? and %25 for %, and no name empty, . or ..",
    )


def _check_azure(scheme: str, host: str, container: str, user: str | None, secret: str | None) -> None:
    """What pyarrow (26) makes of other hosts is another container, and of a password nothing."""
    if secret is not None:
        raise UsageError(
            f"the {scheme}: destination has a key in it, which is not taken from there",
            "give a SAS (?sv=…&sig=…), or what Azure's own clients take: AZURE_TENANT_ID, AZURE_CLIENT_ID, …",
        )
    if not container or not host.endswith(_AZURE_HOSTS) or bool(user) != host.endswith(_AZURE_HOSTS[0]):
        raise UsageError(
            f"the {scheme}: destination names no account, or no container",
            f"write it like {scheme}://CONTAINER@ACCOUNT{_AZURE_HOSTS[0]}/PREFIX; another cloud's hosts are options: "
            "?blob_storage_authority=.blob.HOST&dfs_storage_authority=.dfs.HOST",
        )


def _s3_environment(environment: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """Endpoint and region as AWS's own tools take them, so that tasks elsewhere get what this process has."""
    found = dict(options)
    if "endpoint_override" not in found:
        endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
        if endpoint:
            scheme, separator, rest = endpoint.partition("://")
            found["endpoint_override"] = (rest if separator else endpoint).rstrip("/")
            if separator:
                found.setdefault("scheme", scheme)
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if region:
        found.setdefault("region", region)
    return found


def child(address: ObjectAddress, name: str) -> str:
    """The path of ``name`` below the destination, as pyarrow's filesystems take it: the container first."""
    if address.scheme in ("hdfs", "viewfs"):
        return "/" + "/".join(part for part in (address.prefix, name) if part)
    return "/".join(part for part in (address.container, address.prefix, name) if part)


def name_address(destination: Address) -> str:
    """A place as a command names it: S3's options are no secrets, and without them it is another one."""
    if isinstance(destination, Path):
        return str(destination)
    query = destination.uri.partition("?")[2]
    if query and destination.scheme != "s3":
        return _SOMEWHERE
    return f"{destination.shown}?{query}" if query else destination.shown
