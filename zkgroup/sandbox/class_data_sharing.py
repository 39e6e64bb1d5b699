"""Class archives: what a Java server has loaded once, it maps the next time. That halves the time it takes to start.

Java makes such an archive when a server ends in an orderly way (``-XX:ArchiveClassesAtExit``, Java 13). ``record`` runs
each kind of server once for that; without archives everything works, only slower. An archive belongs to one Java and
one class path, jars' times included: Java checks that itself, and goes without one that does not fit. Those that nobody
has used for a day, but for the last ones, go when others are made.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from zkgroup.config.files import cache_dir
from zkgroup.java_runtime import QUICK, UNDER_LOAD, tidy, use

# Archives that are kept even if they are not used: those of one Java for every release of Kafka, and more.
_KEPT = 20


def jvm(
    java: Path, class_path: str, heap_mb: int, *options: str, record: bool = False, under_load: bool = False
) -> list[str]:
    """The command line of a virtual machine, up to the class to run.

    ``record``: it makes its archive at its end. ``under_load``: it may take longer to start, and runs faster then.
    """
    archive = archive_of(java, class_path)
    sharing: tuple[str, ...] = ()
    if record:
        sharing = (f"-XX:ArchiveClassesAtExit={_being_made(archive)}",)
    elif use(archive):
        sharing = (f"-XX:SharedArchiveFile={archive}",)
    # Java's own remarks on archives would go to stdout, amid what a member prints.
    flags = UNDER_LOAD if under_load else QUICK
    return [str(java), *flags, f"-Xmx{heap_mb}m", *sharing, "-Xlog:disable", *options, "-cp", class_path]


def archive_of(java: Path, class_path: str) -> Path:
    """Where the archive for this Java and this class path is, or would be."""
    digest = hashlib.sha256(f"{java.resolve()}\n{class_path}".encode())
    for jar in (str(java.resolve()), *class_path.split(os.pathsep)):
        with contextlib.suppress(OSError):
            stat = Path(jar).stat()
            digest.update(f"{stat.st_size} {stat.st_mtime_ns}\n".encode())
    return cache_dir() / "classes" / f"{digest.hexdigest()[:24]}.jsa"


def _being_made(archive: Path) -> Path:
    return archive.with_suffix(f".{os.getpid()}.tmp")


def record(java: Path, class_paths: list[str], run: Callable[[], None]) -> None:
    """Make the archives for ``class_paths`` that are missing: ``run`` runs each server with ``record``, to its end."""
    archives = [archive_of(java, class_path) for class_path in class_paths]
    if all(archive.is_file() for archive in archives):
        return
    archives[0].parent.mkdir(parents=True, exist_ok=True)
    try:
        run()
    finally:
        for archive in archives:
            with contextlib.suppress(FileNotFoundError):
                _being_made(archive).replace(archive)
        tidy(archives[0].parent, "[0-9a-f]*", _KEPT)
