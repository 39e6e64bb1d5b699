"""A member in a process of its own (``python -m faults.noting_member``), which notes every record before it asks for
the next.

Lines of its journals, one journal for each stream: monotonic nanoseconds, the number of the share (counted by the
rebalance listener), partition, offset. One more, ``.ended``, has when the member gave up a session.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.config import ConsumerConfig
from zkgroup.connector import Connector, Stream
from zkgroup.connector.zookeeper_driver import ZooKeeperDriver
from zkgroup.errors import ZkgroupError
from zkgroup.protocol.names import ConsumerThreadId, TopicPartition


def note_ended_sessions(journal: Path) -> None:
    """Note when the member gives up a session, as it heard that it is over: it delivers nothing more under it then."""
    close_session = ZooKeeperDriver._close_session

    def note(driver: ZooKeeperDriver) -> None:
        with journal.open("ab") as out:
            out.write(b"%d\n" % time.monotonic_ns())
        close_session(driver)

    ZooKeeperDriver._close_session = note  # type: ignore[method-assign]


class Shares:
    """Counts shares."""

    count = 0

    def before_releasing(self, partitions: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """Nothing to do."""

    def before_starting(self, assignment: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """The next share."""
        self.count += 1


def read(stream: Stream, shares: Shares, journal: Path) -> None:
    """Note all that the stream delivers."""
    out = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for record in stream:
            os.write(out, b"%d %d %d %d\n" % (time.monotonic_ns(), shares.count, record.partition, record.offset))
    except ZkgroupError:
        pass  # the member's own error, which main shows
    finally:
        os.close(out)


def main() -> int:
    """Join, read until SIGTERM, leave."""
    connect, group, topic, name, streams, timeout_ms, journal = sys.argv[1:]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s.%(msecs)03d %(message)s", datefmt="%H:%M:%S")
    config = ConsumerConfig(
        group_id=group,
        consumer_id=name,
        auto_offset_reset="smallest",
        auto_commit_interval_ms=500,
        rebalance_backoff_ms=1000,
    )
    zookeeper = ZooKeeperSettings(connect, int(timeout_ms) / 1000, 20.0)
    note_ended_sessions(Path(f"{journal}.ended"))
    shares = Shares()
    connector = Connector(config, zookeeper, listener=shares)
    asked = threading.Event()

    def leave(_signum: int, _frame: object) -> None:
        asked.set()
        connector.leave()

    signal.signal(signal.SIGTERM, leave)
    try:
        made = connector.merged_streams([topic], int(streams), native=True)
        threads = [
            threading.Thread(target=read, args=(stream, shares, Path(f"{journal}.{number}")))
            for number, stream in enumerate(made)
        ]
        for thread in threads:
            thread.start()
        if asked.is_set():
            connector.leave()  # it was asked to before there was anything to leave
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)
        connector.close()
    except ZkgroupError as error:
        print(f"gave up: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
