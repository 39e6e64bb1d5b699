"""Files of settings, secrets and credentials, up to a size limit; and zkgroup's folders.

A ``consumer.properties`` is read as ``java.util.Properties.load`` does (JDK 17). Two things differ: bytes are UTF-8
where they are valid UTF-8 and ISO-8859-1 otherwise (Java: always the latter), and blanks at the end of a value are
dropped, as the Scala consumer does when it reads one.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from zkgroup.errors import Notice, Remedy, UsageError

MAX_SIZE: Final = 1 << 20  # bytes
MAX_SECRET_SIZE: Final = 64 << 10
#: ZooKeeper's own scheme that takes credentials.
DIGEST: Final = "digest"


def unreadable(path: Path, error: OSError, origin: str = "") -> UsageError:
    """The error for a file that cannot be read. ``origin``: where it was named."""
    named = f"{origin}: " if origin else ""
    return UsageError(f"{named}cannot read {path}: {error.strerror or error}", "name a file that can be read")


def read_settings(path: Path) -> bytes:
    """A file's bytes. Raises ``UsageError`` if it is unreadable, or larger than 1 MiB."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SIZE + 1)
    except OSError as error:
        raise unreadable(path, error) from None
    if len(data) > MAX_SIZE:
        raise UsageError(f"{path} is larger than {MAX_SIZE >> 20} MiB", "check that it is the right file")
    return data


def read_secrets(file: str, origin: str) -> tuple[str | None, list[Notice]]:
    """A secret file's text, None if it is no UTF-8 or longer than 64 KiB; and a warning if other users may read it.

    Raises ``UsageError``, which shows nothing of the text; ``origin`` is where the file was named.
    """
    path = Path(file).expanduser()
    try:
        with path.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            data = opened.read(MAX_SECRET_SIZE + 1)
    except OSError as error:
        raise unreadable(path, error, origin) from None
    try:
        text = data.decode("utf-8") if len(data) <= MAX_SECRET_SIZE else None
    except UnicodeDecodeError:
        text = None
    is_exposed = stat.S_ISREG(mode) and bool(mode & (stat.S_IRGRP | stat.S_IROTH))
    return text, [Notice(f"{path} has a secret, and others may read it", Remedy("chmod 600"))] if is_exposed else []


def read_auth_file(file: str, origin: str) -> tuple[tuple[tuple[str, str], ...], list[Notice]]:
    """Scheme and credentials, one per line as ``addauth`` of ZooKeeper's shell takes them: ``digest USER:PASSWORD``, or
    ``USER:PASSWORD``. Blank lines, and those that begin with ``#``, are skipped.

    Also returns warnings. Raises ``UsageError``, which shows nothing of the file; ``origin`` is where the file was
    named.
    """
    text, warnings = read_secrets(file, origin)
    lines = ["?"] if text is None else text.splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        scheme, _, credentials = entry.partition(" ")
        if ":" in scheme:  # none is named; a password may have blanks
            scheme, credentials = DIGEST, entry
        user, colon, password = credentials.strip().partition(":")
        if scheme != DIGEST or not user or not colon or not password:
            raise UsageError(f"{origin}: line {number} of {file} is no credentials", "write USER:PASSWORD, one a line")
        found.append((scheme, f"{user}:{password}"))
    if not found:
        raise UsageError(f"{origin}: {file} has no credentials", "write USER:PASSWORD, one a line")
    return tuple(found), warnings


def is_encrypted(key_file: str) -> bool:
    """True if a PEM file has a key that needs a password; False if it cannot be read."""
    try:
        with Path(key_file).open("rb") as file:
            return b"ENCRYPTED" in file.read(MAX_SECRET_SIZE)
    except OSError:
        return False


_BLANKS = " \t\f"
_TRIMMED = "".join(map(chr, range(33)))  # what String.trim takes off
_NATURAL_LINE = re.compile(r"\r\n|\r|\n")
_KEY = re.compile(r"((?:[^\\=: \t\f]|\\.?)*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)  # and what separates it from the value
_ESCAPE = re.compile(r"\\(?:u(?P<hex>[0-9A-Fa-f]{4})|(?P<bad>u)|(?P<other>.?))", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """One setting and where it was written, for messages: ``consumer.properties, line 3``."""

    key: str
    value: str
    origin: str


def read_properties(path: Path) -> list[Property]:
    """Read a file. Raises ``UsageError`` where it cannot be read or has a malformed escape."""
    return parse_properties(read_settings(path), str(path))


def parse_properties(data: bytes, name: str) -> list[Property]:
    """Every setting in the order of the file, repeated keys included; ``name`` is the file's, for messages.

    Raises ``UsageError`` for what is no text (it has null bytes, as UTF-16 would) and for malformed escapes.
    """
    if b"\0" in data:
        raise UsageError(f"{name} is no properties file: it has binary data", "give a text file of KEY=VALUE lines")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("iso-8859-1")
    found = []
    for number, line in _logical_lines(text):
        origin = f"{name}, line {number}"
        _, key, value = _KEY.split(line, 1)
        found.append(Property(_unescape(key, origin), _unescape(value, origin).strip(_TRIMMED), origin))
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Logical lines without comments, each with the number of its first natural line."""
    parts: list[str] = []
    first = 0
    begun = False  # whether the parts have a character
    for number, natural in enumerate(_NATURAL_LINE.split(text), 1):
        line = natural.lstrip(_BLANKS)
        if not begun:
            if not line or line[0] in "#!":
                continue
            first = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            parts.append(line[:-1])
            begun = begun or len(line) > 1
            continue
        parts.append(line)
        yield first, "".join(parts)
        parts, begun = [], False
    if begun:
        yield first, "".join(parts)


def _unescape(text: str, origin: str) -> str:
    def replace(match: re.Match[str]) -> str:
        if match["hex"] is not None:
            return chr(int(match["hex"], 16))
        if match["bad"] is not None:
            raise UsageError(
                f"{origin}: malformed \\uXXXX escape", "write four hexadecimal digits, or double the backslash"
            )
        return _LETTERS.get(match["other"], match["other"])

    if "\\" not in text:
        return text
    # Java's escapes are UTF-16 units: a pair of them is one character.
    return _ESCAPE.sub(replace, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


CACHE_VARIABLE: Final = "ZKGROUP_CACHE_DIR"
STATE_VARIABLE: Final = "ZKGROUP_STATE_DIR"


def cache_dir() -> Path:
    """The folder for downloads: ``$ZKGROUP_CACHE_DIR``, else in the user's cache folder."""
    return _folder(CACHE_VARIABLE, "XDG_CACHE_HOME", ".cache")


def state_dir() -> Path:
    """The folder for sandboxes and backups: ``$ZKGROUP_STATE_DIR``, else in the user's state folder."""
    return _folder(STATE_VARIABLE, "XDG_STATE_HOME", ".local/state")


def _folder(variable: str, xdg: str, otherwise: str) -> Path:
    if own := os.environ.get(variable):
        return Path(own).expanduser().absolute()
    base = os.environ.get(xdg, "")
    if base.startswith("/"):  # the XDG specification: relative paths are ignored
        return Path(base) / "zkgroup"
    return Path.home() / otherwise / "zkgroup"
