"""Spark's Python daemon imports the installed pyspark, which has bytecode, and not Spark's zip of it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from zkgroup.export.spark import python_daemon

_AT_THE_END = """
import atexit, sys
atexit.register(lambda: sys.stderr.write(sys.modules["pyspark"].__file__))
"""


@pytest.mark.parametrize("module", ["pyspark.daemon", python_daemon.__name__])
def test_the_daemon_has_the_installed_pyspark(tmp_path: Path, module: str) -> None:
    """With the path that Spark sets; its workers are forked from it. It ends with its standard input."""
    spec = find_spec("pyspark")
    assert spec is not None
    installed = Path(str(spec.origin)).parent
    (tmp_path / "sitecustomize.py").write_text(_AT_THE_END)
    path = [*sorted((installed / "python/lib").glob("py*.zip"), reverse=True), tmp_path]
    assert len(path) == 3
    done = subprocess.run(
        [sys.executable, "-m", module, "pyspark.worker"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    imported = Path(done.stderr.decode()).parent
    assert imported == (installed if module == python_daemon.__name__ else path[0] / "pyspark")
