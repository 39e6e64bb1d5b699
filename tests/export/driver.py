"""An export as a process of its own, without Spark, that does itself harm at one point of the protocol.

``python driver.py '{"connect": …, "bootstrap": …, "group": …, "topics": […], "out": …, "kill_at": POINT}'`` prints each
point as it is passed. ``fsize``: no file may become larger, as on a disk that is full. ``join``: as a member.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from exports import InProcess, joining

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import ZkgroupError
from zkgroup.export.model.address import parse_address
from zkgroup.export.run.run_export import ExportRequest, run_export


def main(wish: dict) -> int:
    """Run the export that ``wish`` describes; the error's exit code, and its text as the last line."""
    if "fsize" in wish:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (wish["fsize"], wish["fsize"]))

    def passed(point: str) -> None:
        print(point, flush=True)
        if point == wish.get("kill_at"):
            os.kill(os.getpid(), signal.SIGKILL)

    request = ExportRequest(
        wish["group"],
        parse_address(wish["out"]),
        tuple(wish["topics"]),
        begin="earliest",
        range_messages=10,
        on_mismatch=wish.get("on_mismatch", "fail"),
        join=joining(wish["group"]) if wish.get("join") else None,
    )
    settings = ZooKeeperSettings(wish["connect"], session_timeout=1.0)
    try:
        with Registry(settings, 10.0) as registry:
            run_export(request, registry, lambda: KafkaSettings(wish["bootstrap"]), passed=passed, runner=InProcess)
    except ZkgroupError as error:
        print(error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
