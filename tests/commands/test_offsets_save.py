"""``zkgroup offsets --save`` on real servers: a checkpoint of a group's offsets, and its way back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from cli import run
from group_nodes import commit_in_kafka
from lines import names
from resets import STORES, Kept, OneStore
from support import wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.group_choices import FileFormat
from zkgroup.groups.offset_files.file_formats import parse_offsets
from zkgroup.protocol import znodes
from zkgroup.protocol.names import OFFSETS_TOPIC, TopicPartition
from zkgroup.protocol.operations import Acl, Code, Create, Ensure, Exists, Failure, SetData
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic

MakeTopic = Callable[..., str]
P = TopicPartition


@pytest.fixture
def topic(make_topic: MakeTopic, fill: Callable[..., list[ProducerRecord]]) -> str:
    """A topic of three partitions with 10 messages each."""
    name = make_topic(3)
    fill(name, 30, 3)
    return name


@pytest.fixture
def in_zookeeper(registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str], topic: str) -> Kept:
    """A group at 3 and 7 in the first two partitions."""
    kept = Kept(registry, kafka, unique("saved"), "zookeeper")
    kept.put({P(topic, 0): 3, P(topic, 1): 7})
    return kept


@pytest.mark.parametrize("release", ["1.1.1", "0.8.2.2"])
def test_a_file_of_another_cluster_is_refused(
    cluster: Sandbox,
    make_sandbox: Callable[..., Sandbox],
    kafka: KafkaSettings,
    in_zookeeper: Kept,
    topic: str,
    tmp_path: Path,
    release: str,
) -> None:
    """Its offsets mean other messages there, also where the topics have the same names; unless somebody says that both
    have the same logs. Brokers of 0.8 have no id: their registry is known by its birth."""
    other = make_sandbox(kafka=release)
    with other.registry() as there:
        there.write(Ensure(znodes.consumers()))
        create_topic(there, topic, 3)
    group = in_zookeeper.group
    commit_in_kafka(kafka, group, {P(topic, 0): 3, P(topic, 1): 7})
    through_zookeeper, through_brokers = ("-z", cluster.connect), ("--bootstrap-server", cluster.bootstrap)
    ways = (through_zookeeper, through_brokers) if release == "1.1.1" else (through_zookeeper,)
    for here in ways:
        for form in ("zk", "json"):
            file = tmp_path / f"{form}{here[0]}"
            saved = run("offsets", group, *here, "--save", str(file), "--file-format", form)
            assert saved.returncode == 0, saved.stderr
            reset = ("reset-offsets", group, "--from-file", str(file))
            for way in ways:
                own = run(*reset, *way)
                assert own.returncode == 0, own.stderr
            for options in ((), ("--execute",)):
                refused = run(*reset, "-z", other.connect, *options)
                assert (refused.returncode, refused.stdout) == (5, ""), refused.stderr
                assert names(refused.stderr, file, other.connect, "--same-logs")
            taken = run(*reset, "-z", other.connect, "--same-logs")
            assert taken.returncode == 0, taken.stderr


@pytest.mark.parametrize("form", get_args(FileFormat))
def test_each_format_comes_back(
    cluster: Sandbox, in_zookeeper: Kept, topic: str, tmp_path: Path, form: FileFormat
) -> None:
    """A checkpoint has what is committed, and nothing for the rest; reset-offsets takes it as it is."""
    file = tmp_path / "saved"
    args = (in_zookeeper.group, "-z", cluster.connect)
    result = run("offsets", *args, "--save", str(file), "--file-format", form, "--output", "json")
    assert (result.returncode, result.stderr.count("\n")) == (0, 1), result.stderr
    assert names(result.stderr, 2, in_zookeeper.group, file, form)
    assert [(row["partition"], row["committed"], row["lag"]) for row in json.loads(result.stdout)] == [
        (0, 3, 7),
        (1, 7, 3),
        (2, None, None),
    ]
    assert parse_offsets(file.read_bytes(), "saved").offsets_of(in_zookeeper.group) == {P(topic, 0): 3, P(topic, 1): 7}
    in_zookeeper.put({P(topic, 0): 9, P(topic, 2): 9})
    assert run("reset-offsets", *args, "--from-file", str(file), "--execute").returncode == 0
    assert in_zookeeper.get(*(P(topic, number) for number in range(3))) == [3, 7, 9]


@pytest.mark.parametrize("store", STORES)
def test_either_store(
    cluster: Sandbox, registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str], topic: str,
    store: OneStore, tmp_path: Path,
) -> None:  # fmt: skip
    """Offsets are saved from where the group keeps them; of two stores the larger one, or the one that is named."""
    kept = Kept(registry, kafka, unique("saved"), store)
    kept.put({P(topic, 0): 3, P(topic, 1): 7})
    args = ("offsets", kept.group, "-z", cluster.connect, "--file-format", "rpk", "--save", "-")
    assert run(*args).stdout == f"{topic} 0 3\n{topic} 1 7\n"
    Kept(registry, kafka, kept.group, "kafka" if store == "zookeeper" else "zookeeper").put({P(topic, 0): 5})
    assert run(*args).stdout == f"{topic} 0 5\n{topic} 1 7\n"
    assert run(*args, "--store", store).stdout == f"{topic} 0 3\n{topic} 1 7\n"
    if store == "kafka":
        args = ("offsets", kept.group, "--bootstrap-server", cluster.bootstrap, "--save", str(tmp_path / "a.csv"))
        assert run(*args).returncode == 0
        assert (tmp_path / "a.csv").read_text() == f"{topic},0,3\n{topic},1,7\n"


def test_only_what_is_named(cluster: Sandbox, in_zookeeper: Kept, topic: str) -> None:
    """--topic leaves the others out of rows and file; where nothing is left, nothing is written."""
    args = ("offsets", in_zookeeper.group, "-z", cluster.connect, "--file-format", "csv", "--save")
    assert run(*args, "-", "--topic", f"{topic}:1-2").stdout == f"{topic},1,7\n"
    result = run(*args, "/nowhere/saved", "--topic", f"{topic}:2")
    assert (result.returncode, result.stdout) == (4, "")
    assert names(result.stderr, in_zookeeper.group)


def test_the_name_chooses_the_format(cluster: Sandbox, in_zookeeper: Kept, topic: str, tmp_path: Path) -> None:
    """.csv and .json are written as such, anything else as ExportZkOffsets does."""
    for name, start in (("a.csv", f"{topic},0,3"), ("a.json", "{"), ("a.txt", "/consumers/")):
        file = tmp_path / name
        assert run("offsets", in_zookeeper.group, "-z", cluster.connect, "--save", str(file)).returncode == 0
        assert file.read_text().startswith(start)


def test_an_offset_that_cannot_be_read_stops_it(
    cluster: Sandbox, in_zookeeper: Kept, topic: str, tmp_path: Path
) -> None:
    """Nothing half done: the partition is named, the old file stays as it was; --topic leaves the partition out."""
    file = tmp_path / "saved"
    file.write_text("old")
    in_zookeeper.registry.write(SetData(znodes.offset(in_zookeeper.group, P(topic, 0)), b"malformed"))
    args = ("offsets", in_zookeeper.group, "-z", cluster.connect, "--save", str(file))
    result = run(*args)
    assert (result.returncode, result.stdout) == (1, "")
    assert names(result.stderr, f"{topic}-0", "zookeeper", "'malformed'")
    assert file.read_text() == "old"
    assert run(*args, "--topic", f"{topic}:1").returncode == 0
    assert file.read_text().split("\n\n# ")[0] == f"/consumers/{in_zookeeper.group}/offsets/{topic}/1:7"
    assert list(tmp_path.iterdir()) == [file]


def test_nodes_that_may_not_be_read_stop_it(cluster: Sandbox, in_zookeeper: Kept, topic: str) -> None:
    """A node, or a whole topic, that ZooKeeper does not show is not left out without a word."""
    nobody = (Acl("digest", "somebody:0123456789012345678901234567", 31),)
    registry, group = in_zookeeper.registry, in_zookeeper.group
    path = znodes.offset(group, P(topic, 2))
    assert not isinstance(registry.write(Create(path, b"5", acl=nobody)), Failure)
    args = ("offsets", group, "-z", cluster.connect, "--save", "-")
    result = run(*args)
    assert (result.returncode, result.stdout) == (1, "")
    assert names(result.stderr, f"{topic}-2", "zookeeper", Code.NO_AUTH.value)
    assert run(*args, "--topic", f"{topic}:0-1").returncode == 0
    hidden = znodes.offset_topic(group, "hidden")
    registry.write(Ensure(znodes.offsets(group)))
    assert not isinstance(registry.write(Create(hidden, b"", acl=nobody)), Failure)
    result = run(*args, "--topic", f"{topic}:0-1")
    assert (result.returncode, result.stdout) == (1, "")
    assert names(result.stderr, hidden, Code.NO_AUTH.value)


def test_wrong_usage(cluster: Sandbox, in_zookeeper: Kept, tmp_path: Path) -> None:
    """A format without a file, a file that cannot be written, and a group that is not there, are each distinguished."""
    args = ("offsets", in_zookeeper.group, "-z", cluster.connect)
    result = run(*args, "--file-format", "csv")
    assert (result.returncode, result.stdout) == (2, "")
    assert names(result.stderr, "--file-format", "--save")
    result = run(*args, "--save", str(tmp_path / "none" / "saved"))
    assert (result.returncode, result.stdout) == (1, "")
    assert names(result.stderr, f"{tmp_path}/none/saved", "No such file or directory")
    result = run("offsets", "absent", "-z", cluster.connect, "--save", str(tmp_path / "saved"))
    assert (result.returncode, result.stdout, list(tmp_path.iterdir())) == (4, "", [])


def test_topics_that_are_gone_are_saved(cluster: Sandbox, in_zookeeper: Kept) -> None:
    """A checkpoint has every committed offset, also those of topics that do not exist any more."""
    in_zookeeper.put({P("long-gone", 3): 44})
    args = ("offsets", in_zookeeper.group, "-z", cluster.connect, "--save", "-", "--topic", "long-gone")
    saved, _, _ = run(*args).stdout.partition("\n\n# ")
    assert saved == f"/consumers/{in_zookeeper.group}/offsets/long-gone/3:44"


def test_without_brokers_zookeeper_is_saved(
    cluster: Sandbox, registry: Registry, kafka: KafkaSettings, in_zookeeper: Kept, topic: str
) -> None:
    """Logs are not needed: with the brokers away the offsets in ZooKeeper are saved where those are meant. Where the
    cluster keeps offsets in Kafka as well, what is saved without asking for them may be half of the group."""
    commit_in_kafka(kafka, "somebody", {TopicPartition(topic, 0): 1})
    wait_until(lambda: registry.read([Exists(znodes.topic(OFFSETS_TOPIC))])[0] is not None)
    args = ("offsets", in_zookeeper.group, "-z", cluster.connect, "--bootstrap-server", "127.0.0.1:1", "--save", "-")
    result = run(*args, "--connect-timeout", "1")
    assert (result.returncode, result.stdout) == (3, "")
    assert names(result.stderr, in_zookeeper.group, "Kafka")
    result = run(*args, "--connect-timeout", "1", "--store", "zookeeper")
    assert result.returncode == 0
    assert result.stdout.splitlines()[0] == f"/consumers/{in_zookeeper.group}/offsets/{topic}/0:3"
    assert names(result.stderr, "warning", "127.0.0.1:1")
    result = run(*args, "--connect-timeout", "1", "--store", "both")
    assert (result.returncode, result.stdout) == (3, "")
