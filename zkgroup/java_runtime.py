"""Java: one that can run Spark and the servers, and archives of its classes."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Final

from zkgroup.child_processes import run_child
from zkgroup.errors import UsageError

MINIMUM = 17

_RELEASE_FILE = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
_VERSION_LINE = re.compile(r'version "([^"]+)"')

#: What to do where there is none.
HINT: Final = (
    "install one (Debian: default-jre-headless; Red Hat: java-21-openjdk-headless), or set JAVA_HOME or PATH to it"
)

# Small, quick to start, and not worth a compiler thread's second: these servers live for minutes.
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Djava.awt.headless=true")


def find_java() -> Path:
    """The first Java of ``JAVA_HOME`` and ``PATH`` that is recent enough.

    Raises ``UsageError`` where there is none.
    """
    too_old: list[str] = []
    for candidate in _candidates():
        version = java_version(candidate)
        if version is not None and version >= MINIMUM:
            return candidate
        too_old.append(f"{candidate} is {'not usable' if version is None else f'Java {version}'}")
    found = f" ({'; '.join(too_old)})" if too_old else ""
    raise UsageError(f"Java {MINIMUM} or later is needed{found}", HINT)


def _candidates() -> list[Path]:
    places: list[Path] = []
    if home := os.environ.get("JAVA_HOME"):
        places.append(Path(home) / "bin" / "java")
    if on_path := shutil.which("java"):
        places.append(Path(on_path))
    return [place for place in dict.fromkeys(places) if place.is_file()]


def java_version(java: Path) -> int | None:
    """The feature release of ``java`` (8, 11, 17 …), or None where it does not run."""
    release = java_release(java)
    return _feature(release) if release is not None else None


def java_release(java: Path) -> str | None:
    """The release of ``java`` as it calls itself (``17.0.12``), or None where it does not run."""
    try:
        release = (java.resolve().parent.parent / "release").read_text(encoding="utf-8")
    except OSError:
        release = ""
    if match := _RELEASE_FILE.search(release):
        return match[1]
    try:
        result = run_child([java, "-version"], 30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION_LINE.search(result.stderr + result.stdout)
    return match[1] if match else None


def first_java() -> str | None:
    """The release of the Java that would be run: the first that is recent enough, else the first that there is."""
    releases = [release for place in _candidates() if (release := java_release(place)) is not None]
    return next((release for release in releases if (_feature(release) or 0) >= MINIMUM), next(iter(releases), None))


def _feature(version: str) -> int | None:
    numbers = [int(part) for part in re.findall(r"\d+", version)]
    if not numbers:
        return None
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]  # 1.8.0_392 is Java 8


_DAY: Final = 24 * 60 * 60.0


def use_archive(archive: Path) -> bool:
    """True if the archive exists; it then counts as used now."""
    if not archive.is_file():
        return False
    with contextlib.suppress(OSError):  # of another user's folder
        os.utime(archive)
    return True


def remove_old_archives(folder: Path, pattern: str, keep: int) -> None:
    """Remove archives that were not used for a day, and the marks and remains of killed processes beside them. The
    ``keep`` last used ones stay, with their marks. A process that has mapped one keeps it."""
    now = time.time()
    found = {path: _used(path) for path in folder.glob(pattern)}
    archives = sorted((path for path in found if path.suffix == ".jsa"), key=found.__getitem__, reverse=True)
    kept = {path.stem for place, path in enumerate(archives) if place < keep or found[path] >= now - _DAY}
    for path, used in found.items():
        if path.stem not in kept and used < now - _DAY:
            with contextlib.suppress(OSError):
                path.unlink()


def _used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # removed meanwhile
        return time.time()
