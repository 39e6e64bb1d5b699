"""Java virtual machines that tests ask what the Scala consumer itself would do.

They are driven through py4j, which comes with pyspark: the Scala consumer's classes are called where they are, no Java
source has to be compiled, and a Java runtime without a compiler is enough.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from py4j import java_gateway, protocol
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from zkgroup.java_runtime import QUICK, find_java

#: Java's own classes behind its interfaces, which py4j calls by reflection.
OPENED = ("java.util", "java.util.regex", "java.util.stream")


@contextlib.contextmanager
def java_machine(class_path: Path | None, folder: Path) -> Iterator[Any]:
    """Start a virtual machine with the jars of a folder, and yield py4j's view of it; it ends with the block.

    ``folder`` takes its logging configuration.
    """
    quiet = folder / "log4j.properties"
    quiet.write_text("log4j.rootLogger=OFF\n", encoding="ascii")
    options = [*QUICK, f"-Dlog4j.configuration=file:{quiet}"]
    options += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    port, token = launch_gateway(
        classpath="" if class_path is None else f"{class_path}{os.sep}*",
        javaopts=options,
        java_path=str(find_java()),
        die_on_exit=True,
        enable_auth=True,
        redirect_stdout=subprocess.DEVNULL,
        redirect_stderr=subprocess.DEVNULL,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    # Once pyspark has run in this process it takes every exception of any Java for one of Spark, and fails at that.
    with mock.patch.object(java_gateway, "get_return_value", protocol.get_return_value):
        try:
            yield gateway.jvm
        finally:
            gateway.shutdown()
