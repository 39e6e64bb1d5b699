"""An export through Spark as a process of its own, in small tasks, so that it can be hurt in the middle.

``python spark_driver.py '{"connect": …, "bootstrap": …, "request": {…}}'``: ``request`` has the fields of
``ExportRequest``. Prints how many rows were exported; or the error, with its exit code.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from pathlib import Path

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import ZkgroupError
from zkgroup.export.planning.export_request import EARLIEST
from zkgroup.export.run.run_export import ExportRequest, run_export


def main(wish: dict) -> int:
    """Run the export that ``wish`` describes."""
    fields = {**wish["request"], "root": Path(wish["request"]["root"]), "topics": tuple(wish["request"]["topics"])}
    try:
        with Registry(ZooKeeperSettings(wish["connect"]), 20.0) as registry:
            rows = run_export(
                ExportRequest(begin=EARLIEST, **fields), registry, lambda: KafkaSettings(wish["bootstrap"])
            )
    except ZkgroupError as error:
        print(error)
        return error.exit_code
    print(sum(row.rows for row in rows))
    return 0


if __name__ == "__main__":
    # As the command does, unless it is asked.
    logging.getLogger().addHandler(logging.NullHandler())
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\.")
    sys.exit(main(json.loads(sys.argv[1])))
