"""Many members of zkgroup in one process, which register, own, and read nothing: as ``LoadMembers.java``.

Arguments: CONNECT GROUP TOPIC KEY=VALUE… Each line of the input is "join NAME" or "leave NAME"; its end ends all.
"""

from __future__ import annotations

import os
import sys
import threading

from zkgroup.config import ConsumerConfig
from zkgroup.connector import Connector
from zkgroup.errors import ZkgroupError


def change(connector: Connector, topic: str, *, join: bool) -> None:
    """One member comes or goes."""
    try:
        if join:
            connector.streams({topic: 1})
        else:
            connector.close()
    except ZkgroupError as error:
        print(f"{connector.consumer_id}: {error}", file=sys.stderr, flush=True)


def main(connect: str, group: str, topic: str, *properties: str) -> None:
    """Do what the input says."""
    settings = {key.replace(".", "_"): int(value) for key, _, value in (one.partition("=") for one in properties)}
    members: dict[str, Connector] = {}
    for line in sys.stdin:
        what, name = line.split()
        if what == "join":
            config = ConsumerConfig(group_id=group, consumer_id=name, zookeeper_connect=connect, **settings)  # type: ignore[arg-type]
            members[name] = Connector(config)
            connector = members[name]
        else:
            connector = members.pop(name)
        threading.Thread(target=change, args=(connector, topic), kwargs={"join": what == "join"}, daemon=True).start()
    os._exit(0)  # sessions of members end with their connections, or by themselves


if __name__ == "__main__":
    main(*sys.argv[1:])
