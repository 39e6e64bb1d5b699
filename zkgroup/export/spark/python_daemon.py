"""Spark's Python daemon with the installed pyspark: starts a second sooner.

Spark puts its ``pyspark.zip`` and py4j's first on the path. They have no bytecode: Python compiles them in each run.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[:] = [entry for entry in sys.path if not Path(entry).match("python/lib/py*.zip")]
    from pyspark.daemon import manager

    manager()
