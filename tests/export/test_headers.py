"""Headers whose names are no UTF-8. Kafka does not decode them, and confluent-kafka raises, and later crashes."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from cli import run
from exports import messages_in, root_of
from raw_batches import send_raw

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.export.checks.verify import verify
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.model.layout import LayoutOptions
from zkgroup.export.run.run_export import PartitionSummary
from zkgroup.sandbox.local_cluster import Sandbox

GOOD, BAD = (b"name", b"value"), (b"\xff\xfe", b"value")
UNREADABLE = [{"key": "\ufffd", "value": None}]


@pytest.mark.parametrize("by", [("partition",), ("date",)])
def test_what_has_such_a_name_is_exported_and_counted(
    in_process: Callable[..., list[PartitionSummary]], make_topic: Callable[..., str], unique: Callable[[str], str],
    kafka: KafkaSettings, destination: Destination, by: tuple[str, ...],
) -> None:  # fmt: skip
    """One such message made the export fail, of all topics, with no word on where it is, and so every later one."""
    topic, group = make_topic(), unique("group")
    also_bad = (b"\xed\xa0\x80", b"x")
    send_raw(kafka.bootstrap, topic, [[GOOD], [GOOD, BAD], [], [BAD, BAD], [also_bad, GOOD, BAD], [GOOD, GOOD]])
    (row,) = in_process(group, topic, layout=LayoutOptions(by, None, None, None))  # type: ignore[arg-type]
    assert (row.rows, row.undecodable) == (3, 3)
    message = [{"key": "name", "value": b"value"}]
    found = messages_in(root_of(destination))
    assert [one["headers"] for one in found] == [message, UNREADABLE, None, UNREADABLE, UNREADABLE, message * 2]
    assert [one["value"] for one in found] == [b"%d" % number for number in range(6)]
    assert [one.problem for one in verify(destination) if one.problem] == []


def test_what_has_such_a_name_is_consumed(
    make_topic: Callable[..., str], unique: Callable[[str], str], kafka: KafkaSettings, cluster: Sandbox
) -> None:
    topic, group = make_topic(), unique("group")
    send_raw(kafka.bootstrap, topic, [[GOOD], [BAD, GOOD, BAD, BAD], []])
    options = ("--group", group, "--from-beginning", "--until-end", "--output", "json")
    done = run("-z", cluster.connect, "consume", topic, *options, timeout=60)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["value"] for one in found] == ["0", "1", "2"], done.stdout
    assert ["\ufffd" in json.dumps(one["headers"], ensure_ascii=False) for one in found] == [False, True, False]
