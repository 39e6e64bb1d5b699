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

#: In the file ``release`` of an installation, and in what ``java -version`` prints.
_RELEASE = re.compile(r'(?:^JAVA_VERSION=|version )"([^"]+)"', re.MULTILINE)

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
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    places = [*([Path(home) / "bin" / "java"] if home else []), *([Path(on_path)] if on_path else [])]
    for candidate in [place for place in dict.fromkeys(places) if place.is_file()]:
        version = java_version(candidate)
        if version is not None and version >= MINIMUM:
            return candidate
        too_old.append(f"{candidate} is {'not usable' if version is None else f'Java {version}'}")
    found = f" ({'; '.join(too_old)})" if too_old else ""
    raise UsageError(f"Java {MINIMUM} or later is needed{found}", HINT)


def java_version(java: Path) -> int | None:
    """The feature release of ``java`` (8, 11, 17 …), or None where it does not run."""
    numbers = re.findall(r"\d+", (java_release(java) or "").removeprefix("1."))  # 1.8.0_392 is Java 8
    return int(numbers[0]) if numbers else None


def java_release(java: Path) -> str | None:
    """The release of ``java`` as it calls itself (``17.0.12``), or None where it does not run."""
    try:
        text = (java.resolve().parent.parent / "release").read_text(encoding="utf-8")
    except OSError:
        try:
            result = run_child([java, "-version"], 30)
        except (OSError, subprocess.TimeoutExpired):
            return None
        text = result.stderr + result.stdout
    match = _RELEASE.search(text)
    return match[1] if match else None


#: Seconds for which an archive is kept that nobody uses.
_MONTH: Final = 30 * 24 * 60 * 60.0


def use_archive(archive: Path) -> bool:
    """True if the archive exists; it then counts as used now."""
    if not archive.is_file():
        return False
    with contextlib.suppress(OSError):  # of another user's folder
        os.utime(archive)
    return True


def remove_old_archives(folder: Path, pattern: str) -> None:
    """Remove archives that were not used for a month, and the marks and remains of killed processes beside them. A
    process that has mapped one keeps it."""
    oldest = time.time() - _MONTH
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):  # removed meanwhile
            if path.stat().st_mtime < oldest:
                path.unlink()
