"""pyarrow's filesystems by the URI of a destination: opens each, and translates its errors.

Where pyarrow (18 to 26) leaves something open that an export cannot do without, it is set here: a deadline for Google's
client, writes that wait for the network, and a check of Azure's credentials in a process that may die of them.
"""

from __future__ import annotations

import contextlib
import logging
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as pafs

from zkgroup.errors import UnreachableError, UsageError, ZkgroupError
from zkgroup.export.model.address import AZURE, ObjectAddress

log = logging.getLogger(__name__)

#: What pyarrow raises where a store does not do what it is asked for.
FAILURES: Final = (OSError, pa.ArrowException)
# Seconds. A request on which nothing moves for so long is given up, and made again.
_CONNECT: Final = 5.0
_STALL: Final = 20.0
_TRIES: Final = 5
# Options where the URI has none. Google's client tries for 15 minutes; Azure's keeps all of a file in memory where the
# network is slower than the disk.
_DEFAULTS: Final[Mapping[str, str]] = {
    "gs": "retry_limit_seconds=30",
    **dict.fromkeys(AZURE, "background_writes=false"),
}
# Seconds that Azure's client is given to find credentials: it asks the network for some.
_FINDING: Final = 60.0
_LINE: Final = 400


def open_filesystem(address: ObjectAddress) -> Any:
    """pyarrow's filesystem for ``address``. Raises ``UsageError``."""
    try:
        if address.scheme == "s3":
            return _open_s3(address)
        return pafs.FileSystem.from_uri(uri_with_defaults(address))[0]
    except (*FAILURES, ValueError, NotImplementedError) as error:
        raise UsageError(
            f"cannot use {address}: {without_secrets(address, error)}", "check --to and its options"
        ) from None


def uri_with_defaults(address: ObjectAddress) -> str:
    """As pyarrow is given it."""
    option = _DEFAULTS.get(address.scheme, "")
    if not option or option.partition("=")[0] in address.options:
        return address.uri
    return f"{address.uri}{'&' if '?' in address.uri else '?'}{option}"


def _open_s3(address: ObjectAddress) -> Any:
    options = {name: value for name, value in address.options.items() if value}
    if "region" not in options and "endpoint_override" not in options:
        with contextlib.suppress(OSError):  # then AWS's own rules for it apply
            options["region"] = pafs.resolve_s3_region(address.container)
    return pafs.S3FileSystem(
        access_key=address.key,
        secret_key=address.secret,
        # Else all of a file waits in memory where the network is slower than the disk.
        background_writes=False,
        # A small file is one request instead of three.
        allow_delayed_open=True,
        connect_timeout=_CONNECT,
        request_timeout=_STALL,
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=_TRIES),
        **options,
    )


def check_credentials(address: ObjectAddress) -> None:
    """See that the store's client finds credentials, where it may end its process if it does not: Azure's throws what
    pyarrow (26) does not catch. Raises ``ZkgroupError``."""
    if address.scheme not in AZURE or "sig" in address.options or "anonymous" in address.options.values():
        return
    # By the standard input: options may be secret, and arguments are seen by all.
    script = "import sys, pyarrow.fs as fs; fs.FileSystem.from_uri(sys.stdin.read())[0].get_file_info(sys.argv[1])"
    command = [sys.executable, "-c", script, address.container]
    try:
        done = subprocess.run(
            command, input=uri_with_defaults(address).encode(), capture_output=True, timeout=_FINDING, check=False
        )
    except subprocess.TimeoutExpired:
        raise store_failure(address, "cannot read", OSError("timed out")) from None
    if done.returncode < 0:
        text = re.search(r"what\(\): *(.*)", done.stderr.decode(errors="replace"))
        raise store_failure(address, "cannot read", OSError(f"{_NONE}: {text[1] if text else done.returncode}"))


def without_secrets(address: ObjectAddress, error: Exception) -> str:
    """What pyarrow says, on one line of some length, without what may be secret."""
    return _all_of(address, error)[:_LINE] or type(error).__name__


def _all_of(address: ObjectAddress, error: Exception) -> str:
    text = " ".join(str(error).split())
    text = text.replace(uri_with_defaults(address), address.shown).replace(address.uri, address.shown)
    text = re.sub(r"(https?://[^\s?'\"]+)\?[^\s'\"]*", r"\1", text)  # Azure's signatures, written in any way
    for hidden in sorted({address.secret or "", address.key or "", *address.hidden} - {""}, key=len, reverse=True):
        text = text.replace(hidden, "***")
    return re.sub(r" ?\(Request ID: [^)]*\)", "", text)


# Of AWS's client, and of the libraries that Google's, Azure's and Hadoop's are made of.
_SILENT: Final = re.compile(
    r"NETWORK_CONNECTION|curlCode: (?:5|6|7|28|35|52|55|56)\b|REQUEST_TIMEOUT|[Cc]ould ?n[o']t (?:connect|resolve)|"
    r"[Cc]onnection refused|[Tt]imed out|Timeout was reached|UNAVAILABLE|DEADLINE_EXCEEDED|UnknownHostException|"
    r"ConnectException"
)
_NONE: Final = "Azure's client found none"
_DENIED: Final = re.compile(
    rf"{_NONE}|AuthenticationException|Failed to get token|OAuth2 access token|ACCESS_DENIED|INVALID_ACCESS_KEY_ID|"
    r"INVALID_CLIENT_TOKEN_ID|SIGNATURE_DOES_NOT_MATCH|UNRECOGNIZED_CLIENT|MISSING_AUTHENTICATION_TOKEN|EXPIRED_TOKEN|"
    r"ExpiredToken|HTTP status (?:401|403)|Azure Error: \[\w*\] 40[13]\b|PERMISSION_DENIED|UNAUTHENTICATED|"
    r"AuthenticationFailed|Authorization(?:Failure|PermissionMismatch)|AccessControlException"
)
# What to check: the store's address, and the credentials.
_REMEDIES: Final[Mapping[str, tuple[str, str]]] = {
    "s3": ("its endpoint (AWS_ENDPOINT_URL)", "the keys (AWS_ACCESS_KEY_ID, …)"),
    "gs": ("the network", "the credentials (GOOGLE_APPLICATION_CREDENTIALS)"),
    "abfs": ("the account's name and the network", "the credentials (AZURE_CLIENT_ID, …, or a SAS in --to)"),
    "hdfs": ("its name node", "this user's ticket"),
}


def is_denied(text: str) -> bool:
    """Whether a store's words mean that these credentials may not."""
    return _DENIED.search(text) is not None


def store_failure(address: ObjectAddress, what: str, error: Exception, place: str = "") -> ZkgroupError:
    """The error for ``what`` pyarrow could not do at ``place`` (``address`` itself by default), in our words where the
    cause is plain, in the store's own elsewhere. Its words are logged."""
    text, what = _all_of(address, error), f"{what} {place or address}"
    log.info("%s: %s", what, text)
    where, who = _REMEDIES.get("abfs" if address.scheme in AZURE else address.scheme, _REMEDIES["hdfs"])
    if _SILENT.search(text):
        return UnreachableError(f"{what}: the store does not answer", f"check {where}, then run it again")
    if is_denied(text):
        return ZkgroupError(
            f"{what}: the store does not allow it to these credentials, or does not know them",
            f"check {who} and what they may do there, then run it again",
        )
    return ZkgroupError(f"{what}: {text[:_LINE] or type(error).__name__}", "see to the store, then run it again")
