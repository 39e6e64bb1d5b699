"""Changes on brokers that cannot do all that is asked of Kafka today. Private sandboxes of old releases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli import run
from guarded_changes import P, values
from lines import names

from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.clients.kafka.group_coordinator import Coordinators
from zkgroup.clients.kafka.registered_brokers import Brokers
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Create, Ensure
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import create_topic


@pytest.mark.parametrize("release", ["0.8.2.2", pytest.param("0.10.2.2", marks=pytest.mark.long)])
def test_groups_that_no_broker_deletes(make_cluster: Callable[..., Sandbox], tmp_path: Path, release: str) -> None:
    """Brokers before 1.1 delete no groups: the plan says so, and --execute leaves both stores as they are, with an exit
    code of its own and not that of a process that librdkafka has aborted."""
    sandbox = make_cluster(kafka=release)
    with sandbox.registry(30.0) as registry:
        create_topic(registry, "orders", 4)
        settings = Brokers(registry.read, {}).settings()
        offsets = GroupOffsets(settings, "both")
        offsets.commit({P("orders", 1): 5}, 20.0)
        offsets.close()
        registry.write(Ensure(znodes.offset_topic("both", "orders")))
        registry.write(Create(znodes.offset("both", P("orders", 1)), b"4"))
        for command in (("delete-group", "both"), ("rename-group", "both", "other")):
            planned = run(*command, "-z", sandbox.connect)
            assert planned.returncode == 0, planned.stderr
            assert names(planned.stderr, "--execute", "both", "Kafka", "1.1")
            backup = tmp_path / command[0]
            refused = run(*command, "-z", sandbox.connect, "--execute", "--backup", str(backup))
            assert (refused.returncode, backup.exists()) == (5, False), refused.stderr
            assert names(refused.stderr.splitlines()[-1], "both", "Kafka", "1.1")
        assert values(registry, "both", P("orders", 1)) == [4]
        kafka_group = Coordinators(settings, 20.0).read_group("both", by_partition=True)
        assert kafka_group.offsets[P("orders", 1)].offset == 5
        deleted = run("delete-group", "both", "-z", sandbox.connect, "--store", "zookeeper", "--execute")
        assert deleted.returncode == 0, deleted.stderr
        refused = run("delete-group", "both", "-z", sandbox.connect, "--execute")
        assert refused.returncode in (4, 5), refused.stderr
        assert "--store zookeeper" not in refused.stderr  # where it has nothing
