"""Spark's JVM: started, watched, ended.

pyspark can start it, too, but then forgets it when it is interrupted meanwhile, waits for ever for one that ends at
once, and leaves it alone when Python is killed: the JVM notices that its standard input ends, and then may take minutes
to stop what it was about to do. Here it is our child from the first moment, and a guard ends it when we do.

A JVM that maps Spark's classes from an archive is up in half the time, with half the work. Java makes such an archive
at the end of a process with ``-XX:ArchiveClassesAtExit``. That takes it some seconds more, once, and 70 MB of the
cache folder. So the first export on a machine only leaves a mark there, the next makes the archive, and all others use
it: where the cache folder does not outlive a run, none is made. An archive is for one Java, one Spark and one class
path; Java checks that itself, and goes without one that does not fit. The export that makes one removes those without a
use for a month: upgrades would fill the disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shlex
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.conf import SparkConf
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

from zkgroup.child_processes import Watchdog, childs_environment
from zkgroup.config.setting_files import cache_dir
from zkgroup.export.spark.spark_properties import PORT, encode_properties
from zkgroup.java_runtime import find_java, remove_old_archives, use_archive

log = logging.getLogger(__name__)

_POLL: Final = 0.05
_STOP: Final = 10.0
_ARCHIVED: Final = 60.0  # seconds for a JVM that makes an archive of its classes
#: ``spark-submit`` gives it, with ``PORT``, to the Python that it runs.
SECRET: Final = "PYSPARK_GATEWAY_SECRET"

# The child reports its id to the watchdog before it becomes Spark: an owner that dies right here leaves nothing behind.
# Ctrl-C is for the driver alone. What was its standard output until then is the guard's pipe.
_REPORT: Final = 'trap "" INT; log=$1; shift; echo "+$$"; exec "$@" >>"$log" 2>&1'


class SparkJvm:
    """One JVM, from ``start`` to ``stop``; ``folder`` is its scratch space, which the guard removes if we are killed.

    ``start`` may run in another thread than ``kill``, which makes it fail at once.
    """

    def __init__(self, folder: Path, log: Path) -> None:
        self._folder = folder
        self._log = log
        self._watchdog: Watchdog | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._gateway: Any = None
        self._classes: ClassArchive | None = None
        self._killed = False

    def options(self, properties: Mapping[str, str]) -> list[str]:
        """Options for Java, with which it is up sooner; ``properties``: what is set of Spark's."""
        self._classes = ClassArchive(find_java(), Path(_find_spark_home()), self._folder, properties)
        return self._classes.options()

    def start(self, properties: Mapping[str, str]) -> Any:
        """Start it with these properties of Spark's, and return the gateway to it.

        Raises ``OSError`` where it ended instead: its log says why. ``UsageError`` where there is no Java.
        """
        variables: Mapping[str, str] = {}
        if PORT not in os.environ:  # else run by spark-submit: there is one already, and it is not ours
            self._spawn(properties)
            variables = self._connection()
        with environment_variables(variables):
            self._gateway = launch_gateway(SparkConf(loadDefaults=False))  # type: ignore[no-untyped-call]
        _spare_numpy(self._gateway)
        return self._gateway

    def _spawn(self, properties: Mapping[str, str]) -> None:
        # In a file, not in arguments, which every user of the machine can read.
        settings = self._folder / "spark.properties"
        settings.write_text(encode_properties(properties), encoding="ascii")
        home = str(_find_spark_home())
        command = [str(Path(home, "bin", "spark-submit")), "--properties-file", str(settings), "--load-spark-defaults"]
        command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        variables = {**childs_environment(), "SPARK_HOME": home, "SPARK_CONNECT_MODE": "0"}
        variables["_PYSPARK_DRIVER_CONN_INFO_PATH"] = str(self._folder / "connection")
        java = find_java()
        if os.environ.get("JAVA_HOME") and Path(os.environ["JAVA_HOME"], "bin", "java") != java:
            del variables["JAVA_HOME"]  # too old: that on the path is not
        self._log.touch()
        self._watchdog = Watchdog()
        self._watchdog.start()
        self._watchdog.send(f"rm {self._folder}")
        if self._killed:
            raise InterruptedError("killed before it began")
        self._process = subprocess.Popen(
            ["sh", "-c", _REPORT, "sh", str(self._log), *command],
            stdin=subprocess.PIPE,
            stdout=self._watchdog.fileno(),
            stderr=subprocess.DEVNULL,
            env=variables,
        )

    def _connection(self) -> dict[str, str]:
        """Port and secret, which the JVM writes to a file once it listens; as variables by which pyspark connects."""
        path = self._folder / "connection"
        while not path.is_file():
            if (code := self.exit_code(_POLL)) is not None:
                raise OSError(end_of_jvm(code))
        data = path.read_bytes()
        port, length = struct.unpack(">ii", data[:8])
        return {PORT: str(port), SECRET: data[8 : 8 + length].decode()}

    def exit_code(self, timeout: float) -> int | None:
        """That of the JVM, if it ends within ``timeout`` seconds: its connections break before it can be waited for.
        None where it runs, or is not ours."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return None if self._process is None else self._process.wait(timeout)
        return None

    def kill(self) -> None:
        """End it at once. A ``start`` in another thread then fails."""
        self._killed = True
        if self._process is not None:
            self._process.kill()

    def stop(self, *, orderly: bool) -> None:
        """End it, by force if it takes long, and all that goes with it. What we did not start is left alone.

        ``orderly``: what it was asked to make at its end, it may make.
        """
        gateway, self._gateway = self._gateway, None
        process, self._process = self._process, None
        guard, self._watchdog = self._watchdog, None
        try:
            if process is not None:
                if gateway is not None:
                    with contextlib.suppress(Py4JError, OSError):
                        gateway.shutdown()
                if process.stdin is not None:
                    with contextlib.suppress(OSError):
                        process.stdin.close()
                self._wait(process, orderly=orderly)
        finally:
            if guard is not None:
                guard.close()

    def _wait(self, process: subprocess.Popen[bytes], *, orderly: bool) -> None:
        classes, self._classes = self._classes, None
        making = classes is not None and classes.is_making
        if making and orderly:
            log.info("an archive of Spark's classes is made, so that the next exports begin sooner")
        elif making:
            process.kill()
        try:
            process.wait(_ARCHIVED if making else _STOP)
        except BaseException as error:  # a signal, if no time-out
            process.kill()
            process.wait(_STOP)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
        if classes is not None and process.returncode == 0:
            classes.keep()


def end_of_jvm(code: int) -> str:
    """How it ended, by its exit code."""
    how = f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with exit code {code}"
    return f"Spark's JVM {how}"


def _spare_numpy(gateway: Any) -> None:
    """Remove the converter of numpy's arrays: it imports the tools of pyspark's tests, with numpy and pandas, where
    these are installed; 0.3 s (pyspark 4.0 to 4.3)."""
    client = getattr(gateway, "_gateway_client", None)
    if client is not None and client.converters:
        client.converters = [one for one in client.converters if "Numpy" not in type(one).__name__]


def is_spark_of_pyspark() -> bool:
    """Whether Spark is the one that the installed pyspark brings, not another one that SPARK_HOME names."""
    return Path(_find_spark_home()) == Path(pyspark.__file__).parent


@contextlib.contextmanager
def environment_variables(wanted: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables meanwhile: pyspark reads some settings nowhere else."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


# A run that is interrupted makes none; one that cannot make any (a class path with folders) is not asked for ever.
_ATTEMPTS: Final = 3
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
        if use_archive(self._path):
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
            remove_old_archives(self._path.parent, "spark-*")
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
