"""Spark's classes in an archive: a JVM that maps them is up in half the time, with half the work.

Java makes such an archive at the end of a process with ``-XX:ArchiveClassesAtExit``. That takes it some
seconds more, once, and 70 MB of the cache folder. So the first export on a machine only leaves a mark there, the next
makes the archive, and all others use it: where the cache folder does not outlive a run, none is made. An archive is for
one Java, one Spark and one class path; Java checks that itself, and goes without one that does not fit. The
export that makes one removes those without a use for a day, but for the last three: upgrades would fill the disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from zkgroup.config.class_archives import tidy, use
from zkgroup.config.state_folders import cache_dir

log = logging.getLogger(__name__)

# A run that is interrupted makes none; one that cannot make any (a class path with folders) is not asked for ever.
_ATTEMPTS: Final = 3
# Archives that are kept even if they are not used.
_KEPT: Final = 3
# Options about sharing classes.
_WORDS: Final = ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit", "AutoCreateSharedArchive")
# What the class path of Spark's JVM depends on.
_VARIABLES: Final = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH", "CLASSPATH")
# Java's options besides those on its command line.
_OPTIONS: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


class ClassArchive:
    """The archive for a JVM that is about to start: used, made, or left alone.

    ``folder`` is the run's own, where an archive is made. ``properties``: what is set of Spark's; ``options`` for Java
    that are given with them.
    """

    def __init__(self, java: Path, spark: Path, folder: Path, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self._path = cache_dir() / "classes" / f"spark-{_digest(java, spark, properties)}.jsa"
        self._made = folder / "classes.jsa"
        self.is_making = False

    def options(self) -> list[str]:
        """Options for Java; decides whether this run makes the archive."""
        given = [self._properties.get("spark.driver.extraJavaOptions", "")]
        given += [os.environ.get(name, "") for name in _OPTIONS]
        if any(word in text for word in _WORDS for text in given):
            return []
        if any(separator in f"{self._path}{self._made}" for separator in (":", '"', "\\")):
            return []  # Java takes a colon for two archives
        if use(self._path):
            # What it has to say of an archive that does not fit.
            return [f'"-XX:SharedArchiveFile={self._path}"', "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
        self.is_making = self._is_time()
        return [f'"-XX:ArchiveClassesAtExit={self._made}"'] if self.is_making else []

    def _is_time(self) -> bool:
        """Leave a mark; whether there was one, and not too many."""
        mark = self._path.with_suffix(".seen")
        try:
            mark.parent.mkdir(parents=True, exist_ok=True)
            with mark.open("ab") as file:
                seen = file.tell()
                if seen <= _ATTEMPTS:
                    file.write(b".")
        except OSError:
            return False
        return 0 < seen <= _ATTEMPTS

    def keep(self) -> None:
        """The JVM has ended: what it has made is for those to come."""
        if not self.is_making or not self._made.is_file():
            return
        temporary = self._path.with_suffix(f".{os.getpid()}.tmp")
        try:
            with self._made.open("rb") as made, temporary.open("wb") as file:
                shutil.copyfileobj(made, file)
                file.flush()
                os.fsync(file.fileno())  # before it has its name
            temporary.replace(self._path)
            tidy(self._path.parent, "spark-*", _KEPT)
        except OSError as error:
            log.info("Spark's classes are not kept: %s", error)
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def _digest(java: Path, spark: Path, properties: Mapping[str, str]) -> str:
    digest = hashlib.sha256(properties.get("spark.driver.extraClassPath", "").encode())
    for name in _VARIABLES:
        digest.update(f"\n{name}={os.environ.get(name, '')}".encode())
    for path in (java.resolve(), spark / "jars"):
        digest.update(f"\n{path}".encode())
        with contextlib.suppress(OSError):
            stat = path.stat()
            digest.update(f" {stat.st_size} {stat.st_mtime_ns}".encode())
    return digest.hexdigest()[:24]
