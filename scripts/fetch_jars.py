"""Download the jars of the Kafka releases named on the command line, unless they are there."""

from __future__ import annotations

import sys
import time

from zkgroup.errors import ZkgroupError
from zkgroup.sandbox.jars import is_fetched, kafka_jars


def main(versions: list[str]) -> int:
    """Return 0 if all are there in the end, else the error's exit code."""
    for version in versions:
        try:
            if is_fetched(version):
                continue
            sys.stderr.write(f"downloading Kafka {version} ... ")
            sys.stderr.flush()
            began = time.monotonic()
            kafka_jars(version)
            sys.stderr.write(f"{time.monotonic() - began:.0f} s\n")
        except ZkgroupError as error:
            sys.stderr.write(f"\n{error}\n")
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
