"""Spark's JVM: started, watched, ended.

pyspark can start it, too, but then forgets it when it is interrupted meanwhile, waits for ever for one that ends at
once, and leaves it alone when Python is killed: the JVM notices that its standard input ends, and then may take minutes
to stop what it was about to do. Here it is our child from the first moment, and a guard ends it when we do.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import signal
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.conf import SparkConf
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.version import __version__ as spark_version

from zkgroup.child_environment import childs_environment
from zkgroup.child_watchdog import Watchdog
from zkgroup.export.spark.spark_class_archive import ClassArchive
from zkgroup.export.spark.spark_master import PORT, encode_properties
from zkgroup.java_runtime import find_java

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

    def start(self, properties: Mapping[str, str], environment: Mapping[str, str]) -> Any:
        """Start it with these properties of Spark's, and return the gateway to it.

        Raises ``OSError`` where it ended instead: its log says why. ``UsageError`` where there is no Java.
        """
        if PORT in os.environ:  # run by spark-submit: there is one already, and it is not ours
            self._gateway = launch_gateway(SparkConf(loadDefaults=False))  # type: ignore[no-untyped-call]
            return self._gateway
        self._spawn(properties, environment)
        port, secret = self._connection()
        # With these variables pyspark connects to a JVM that runs already.
        with environment_variables({PORT: str(port), SECRET: secret}):
            self._gateway = launch_gateway(SparkConf(loadDefaults=False))  # type: ignore[no-untyped-call]
        _spare_numpy(self._gateway)
        return self._gateway

    def _spawn(self, properties: Mapping[str, str], environment: Mapping[str, str]) -> None:
        # In a file, not in arguments, which every user of the machine can read.
        settings = self._folder / "spark.properties"
        settings.write_text(encode_properties(properties), encoding="ascii")
        home = str(_find_spark_home())
        command = [str(Path(home, "bin", "spark-submit")), "--properties-file", str(settings)]
        if int(spark_version.partition(".")[0]) >= 4:
            command.append("--load-spark-defaults")
        command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        variables = {**childs_environment(), **environment, "SPARK_HOME": home, "SPARK_CONNECT_MODE": "0"}
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

    def _connection(self) -> tuple[int, str]:
        """Port and secret, which the JVM writes to a file once it listens."""
        path = self._folder / "connection"
        while not path.is_file():
            if not self.alive:
                raise OSError(f"Spark's JVM {self.end_of_life}")
            time.sleep(_POLL)
        data = path.read_bytes()
        port, length = struct.unpack(">ii", data[:8])
        return port, data[8 : 8 + length].decode()

    @property
    def alive(self) -> bool:
        """Whether the JVM runs; also where it is not ours."""
        return self._process is None or self._process.poll() is None

    def ends_within(self, timeout: float) -> bool:
        """Whether the JVM ends within ``timeout`` seconds: its connections break before it can be waited for."""
        if self._process is None:
            return False
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    @property
    def was_killed(self) -> bool:
        """Whether a signal has ended it."""
        return self._process is not None and (self._process.poll() or 0) < 0

    @property
    def end_of_life(self) -> str:
        """How it ended."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return "runs"
        return f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with exit code {code}"

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
