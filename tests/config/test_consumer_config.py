"""A member's configuration: defaults, checks, warnings, and what librdkafka gets of it."""

from __future__ import annotations

import dataclasses
import pickle
import re
from typing import Any

import pytest
from confluent_kafka import Consumer
from hypothesis import assume, given
from hypothesis import strategies as st
from lines import names

from zkgroup.config import ConsumerConfig, librdkafka_properties, load_consumer_config
from zkgroup.config.consumer_config import LoadedConfig
from zkgroup.config.setting_files import Property, parse_properties
from zkgroup.config.settings_table import BY_KEY, RESERVED
from zkgroup.errors import UsageError

#: Of the characters of a name, those that are no letters and digits.
NAME_CHARACTERS = ("'.'", "'_'", "'-'")


def load(text: str, group: str | None = None) -> LoadedConfig:
    return load_consumer_config(parse_properties(text.encode(), "c.properties"), group=group)


def test_defaults_are_the_scala_consumers() -> None:
    """An empty file gives every default of the Scala consumer, the derived ones included."""
    loaded = load("", "g")
    assert loaded.warnings == ()
    config = loaded.config
    assert dataclasses.asdict(config) == {
        "group_id": "g",
        "consumer_id": None,
        "client_id": "g",
        "zookeeper_connect": "",
        "zookeeper_session_timeout_ms": 6000,
        "zookeeper_connection_timeout_ms": 6000,
        "zookeeper_sync_time_ms": 2000,
        "auto_commit_enable": True,
        "auto_commit_interval_ms": 60000,
        "auto_offset_reset": None,
        "offsets_storage": "zookeeper",
        "dual_commit_enabled": False,
        "offsets_commit_max_retries": 5,
        "offsets_channel_backoff_ms": 1000,
        "offsets_channel_socket_timeout_ms": 10000,
        "partition_assignment_strategy": "range",
        "rebalance_max_retries": 4,
        "rebalance_backoff_ms": 2000,
        "consumer_timeout_ms": -1,
        "exclude_internal_topics": True,
        "refresh_leader_backoff_ms": 200,
        "queued_max_message_chunks": 2,
        "fetch_message_max_bytes": 1048576,
        "fetch_min_bytes": 1,
        "fetch_wait_max_ms": 100,
        "socket_timeout_ms": 30000,
        "socket_receive_buffer_bytes": 65536,
        "num_consumer_fetchers": 1,
        "keep_trying": False,
        "quiesce_timeout_ms": 3000,
        "kafka_version": "1.1",
        "listener": "",
        "kafka": {},
        "explicit": frozenset(),
    }


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("zookeeper.session.timeout.ms=9000", "zookeeper_connection_timeout_ms", 9000),
        ("zookeeper.sync.time.ms=500", "rebalance_backoff_ms", 500),
        ("zookeeper.sync.time.ms=500\nrebalance.backoff.ms=700", "rebalance_backoff_ms", 700),
        ("offsets.storage=kafka", "dual_commit_enabled", True),
        ("offsets.storage=KAFKA\ndual.commit.enabled=false", "dual_commit_enabled", False),
        ("client.id=c", "client_id", "c"),
        ("auto.offset.reset=smallest", "auto_offset_reset", "smallest"),
        ("auto.offset.reset=largest", "auto_offset_reset", "largest"),
        ("consumer.timeout.ms=-1", "consumer_timeout_ms", -1),
        ("fetch.min.bytes=+5", "fetch_min_bytes", 5),
        ("zkgroup.keep.trying=true", "keep_trying", True),
        ("zkgroup.kafka.version=0.8.2", "kafka_version", "0.8.2"),
    ],
)
def test_values_and_what_follows_from_them(text: str, field: str, value: object) -> None:
    """Set values are taken, and derived defaults follow the keys they derive from."""
    assert getattr(load(text, "g").config, field) == value


def test_every_key_has_a_field_and_every_field_a_key() -> None:
    """The table of settings and the dataclass cannot drift apart."""
    fields = {field.name for field in dataclasses.fields(ConsumerConfig)}
    assert fields == {key.field for key in BY_KEY.values()} | {"kafka", "explicit"}


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("a=1\nfetch.wait.max.ms=40000", ["line 2", "fetch.wait.max.ms=40000", "socket.timeout.ms=30000"]),
        ("socket.timeout.ms=50", ["line 1", "fetch.wait.max.ms=100", "socket.timeout.ms=50"]),
        ("partition.assignment.strategy=sticky", ["partition.assignment.strategy=sticky", "range", "roundrobin"]),
        ("offsets.storage=hbase", ["offsets.storage=hbase", "zookeeper", "kafka"]),
        ("auto.offset.reset=anything", ["auto.offset.reset=anything", "smallest", "largest"]),
        ("auto.commit.enable=yes", ["auto.commit.enable=yes", "true", "false"]),
        ("auto.commit.enable=True", ["auto.commit.enable=True", "true", "false"]),
        (r"auto.commit.enable=a\nb", [r"auto.commit.enable='a\nb'", "true", "false"]),
        ("zookeeper.session.timeout.ms=6s", ["zookeeper.session.timeout.ms=6s", "32-bit"]),
        ("zookeeper.session.timeout.ms=4294967296", ["zookeeper.session.timeout.ms=4294967296", "32-bit"]),
        ("zookeeper.session.timeout.ms=0", ["zookeeper.session.timeout.ms=0", 100]),
        ("consumer.timeout.ms=-2", ["consumer.timeout.ms=-2", -1]),
        ("rebalance.backoff.ms=-1", ["rebalance.backoff.ms=-1", 0]),
        ("group.id=a b", ["group.id=a b", *NAME_CHARACTERS]),
        ("group.id=", ["group.id=", *NAME_CHARACTERS]),
        ("group.id=.", ["group.id=."]),
        ("consumer.id=a/b", ["consumer.id=a/b", *NAME_CHARACTERS]),
        ("zookeeper.connect=", ["zookeeper.connect="]),
        ("zkgroup.kafka.version=new", ["zkgroup.kafka.version=new", "0.8.2", "1.1"]),
        ("kafka.=1", ["kafka."]),
        ("kafka.enable.auto.commit=true", ["kafka.enable.auto.commit", "auto.commit.enable"]),
        ("kafka.group.id=x", ["kafka.group.id", "--group"]),
        (
            "socket.timeout.ms=1000\nkafka.socket.timeout.ms=2000",
            ["line 2", "kafka.socket.timeout.ms", "socket.timeout.ms"],
        ),
    ],
)
def test_what_cannot_be_meant_is_an_error(text: str, facts: list[object]) -> None:
    """Each message names file, line and key and says what to do; the exit code is 2."""
    with pytest.raises(UsageError) as caught:
        load(text, None if text.startswith("group.id") else "g")
    assert names(str(caught.value), *facts), caught.value
    assert str(caught.value).startswith("c.properties, line ")
    assert caught.value.exit_code == 2


def test_the_files_group_must_be_the_command_lines() -> None:
    """A group on the command line may repeat the file's, but not contradict it."""
    assert load("group.id=g", "g").config.group_id == "g"
    assert load("group.id=g").config.group_id == "g"
    with pytest.raises(UsageError, match=r"^c\.properties, line 1: group\.id=g\b.*--group other\b"):
        load("group.id=g", "other")


@pytest.mark.parametrize("group", [None, "g", "b", "c"])
def test_no_layer_replaces_anothers_group(group: str | None) -> None:
    """A member of another group than the file says is surely not meant, whoever says so: the command line's property, a
    profile, a second line. The same twice is no matter."""
    in_file = list(parse_properties(b"group.id=g", "c.properties"))
    for origin in ("--property", "profile p in config.toml"):
        with pytest.raises(UsageError, match=rf"^c\.properties, line 1: group\.id=g\b.*{origin} group\.id=b\b"):
            load_consumer_config([*in_file, Property("group.id", "b", origin)], group=group)
        twice = load_consumer_config([*in_file, Property("group.id", "g", origin)], group="g")
        assert twice.config.group_id == "g"
    with pytest.raises(UsageError, match=r"line 1: group\.id=g\b.*c\.properties, line 2 group\.id=b\b"):
        load("group.id=g\ngroup.id=b")


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("no.such.key=1", ["c.properties, line 1", "'no.such.key'"]),
        ("auto.offset.rest=smallest", ["'auto.offset.rest'", "auto.offset.reset"]),
        ("security.protocol=SSL", ["'security.protocol'", "kafka.security.protocol"]),
        ("num.consumer.fetchers=4", ["line 1", "num.consumer.fetchers", "librdkafka"]),
        ("rebalance.max.retries=1", ["line 1", "rebalance.max.retries × rebalance.backoff.ms", "2000 ms", "6000 ms"]),
        ("fetch.min.bytes=0", ["line 1", "fetch.min.bytes", "fetch.min.bytes=1"]),
    ],
)
def test_what_is_surely_not_meant_is_a_warning(text: str, facts: list[object]) -> None:
    """Warnings are data: the core prints nothing."""
    warnings = load(text, "g").warnings
    assert [found for found in warnings if names(str(found), *facts)], warnings


def test_a_flag_replaces_a_files_value_in_silence() -> None:
    """The last of equal keys wins."""
    properties = [*parse_properties(b"fetch.min.bytes=5", "f"), *parse_properties(b"fetch.min.bytes=6", "--property")]
    loaded = load_consumer_config(properties, group="g")
    assert (loaded.config.fetch_min_bytes, loaded.warnings) == (6, ())


def test_librdkafka_gets_what_was_set_and_nothing_else() -> None:
    """Unset keys leave librdkafka its defaults, which are faster than the Scala consumer's."""
    assert librdkafka_properties(ConsumerConfig()) == {}
    loaded = load(
        "client.id=c\nfetch.min.bytes=7\nfetch.wait.max.ms=200\nfetch.message.max.bytes=2097152\n"
        "socket.receive.buffer.bytes=1000\nsocket.timeout.ms=400000\nqueued.max.message.chunks=3\n"
        "refresh.leader.backoff.ms=300\noffsets.channel.socket.timeout.ms=5000\noffsets.channel.backoff.ms=50\n"
        "kafka.security.protocol=ssl",
        "g",
    )
    assert librdkafka_properties(loaded.config) == {
        "client.id": "c",
        "fetch.min.bytes": "7",
        "fetch.wait.max.ms": "200",
        "fetch.message.max.bytes": "2097152",
        "socket.receive.buffer.bytes": "1000",
        "socket.timeout.ms": "300000",
        "queued.max.messages.kbytes": "6144",
        "topic.metadata.refresh.fast.interval.ms": "300",
        "security.protocol": "ssl",
    }
    assert librdkafka_properties(loaded.config, "offsets") == {
        "client.id": "c",
        "socket.timeout.ms": "5000",
        "retry.backoff.ms": "50",
        "security.protocol": "ssl",
    }


@pytest.mark.parametrize("value", ["lowest", "highest"])
def test_librdkafka_takes_every_mapped_value(value: str) -> None:
    """The ranges in the table are librdkafka's own: a client starts with the outermost legal values."""
    for key in BY_KEY.values():
        if key.librdkafka is None or key.kind != "int" or key.key in ("fetch.wait.max.ms", "queued.max.message.chunks"):
            continue
        number = max(key.lowest, 0) if value == "lowest" else 2**31 - 1
        extra = "fetch.wait.max.ms=0\n" if key.key == "socket.timeout.ms" else ""
        config = load(f"{extra}{key.key}={number}", "g").config
        properties: dict[str, Any] = dict(librdkafka_properties(config, key.librdkafka.client))
        Consumer({"group.id": "g", **properties}).close()


def test_secrets_do_not_show() -> None:
    """Raw librdkafka properties may hold passwords: neither repr nor a message has their values."""
    config = load("kafka.sasl.password=hunter2", "g").config
    assert "hunter2" not in repr(config)
    assert config.kafka == {"sasl.password": "hunter2"}
    with pytest.raises(UsageError) as caught:
        load("kafka.group.id=hunter2", "g")
    assert "hunter2" not in str(caught.value)


def test_the_configuration_is_frozen() -> None:
    """Settings do not change under a running member, and can be sent to another process."""
    raw = {"a": "1"}
    config = ConsumerConfig(group_id="g", kafka=raw)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.group_id = "other"  # type: ignore[misc]
    raw["a"] = "2"
    assert config.kafka == {"a": "1"}
    assert pickle.loads(pickle.dumps(config)) == config


def test_reserved_properties_name_a_way_out() -> None:
    """Whoever is refused learns what to use instead, and the keys named there exist."""
    for remedy in RESERVED.values():
        name = remedy.removeprefix("use ")
        assert name == remedy or name.startswith("--") or name in BY_KEY


def test_a_session_that_no_server_grants_is_refused() -> None:
    """Milliseconds that were meant as seconds, say; 400 ms, as in Kafka's own example, are taken."""
    with pytest.raises(UsageError, match=r"zookeeper\.session\.timeout\.ms=1\b.*\b100\b"):
        load("zookeeper.session.timeout.ms=1")
    assert load("zookeeper.session.timeout.ms=400").config.zookeeper_session_timeout_ms == 400


def test_an_empty_group_is_no_group() -> None:
    """An unset variable in a script does not turn a member into a plain reader."""
    with pytest.raises(UsageError, match=r"--group\b"):
        load("", group="")


# --- what code says ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "facts"),
    [
        ({"offsets_storage": "x"}, ["offsets.storage=x", "zookeeper", "kafka"]),
        (
            {"partition_assignment_strategy": "sticky"},
            ["partition.assignment.strategy=sticky", "range", "roundrobin"],
        ),
        ({"auto_offset_reset": "none"}, ["auto.offset.reset=none", "smallest", "largest"]),
        ({"zookeeper_session_timeout_ms": -5}, ["zookeeper.session.timeout.ms=-5", 100]),
        ({"zookeeper_connection_timeout_ms": 0}, ["zookeeper.connection.timeout.ms=0", 1]),
        ({"auto_commit_interval_ms": 0}, ["auto.commit.interval.ms=0", 1]),
        ({"rebalance_max_retries": 0}, ["rebalance.max.retries=0", 1]),
        ({"consumer_timeout_ms": -2}, ["consumer.timeout.ms=-2", -1]),
        ({"auto_commit_interval_ms": "1000"}, ["auto.commit.interval.ms=1000", "32-bit"]),
        ({"auto_commit_interval_ms": 2**31}, [f"auto.commit.interval.ms={2**31}", "32-bit"]),
        ({"auto_commit_interval_ms": True}, ["auto.commit.interval.ms=True", "32-bit"]),
        ({"auto_commit_enable": "false"}, ["auto.commit.enable=false", "true"]),
        ({"group_id": "a b"}, ["group.id=a b", *NAME_CHARACTERS]),
        ({"group_id": "a/b"}, ["group.id=a/b", *NAME_CHARACTERS]),
        ({"group_id": ".."}, ["group.id=.."]),
        ({"group_id": None}, ["group.id=None"]),
        ({"consumer_id": "a/b"}, ["consumer.id=a/b", *NAME_CHARACTERS]),
        ({"consumer_id": ""}, ["consumer.id=", *NAME_CHARACTERS]),
        ({"client_id": "a b"}, ["client.id=a b", *NAME_CHARACTERS]),
        ({"kafka_version": "new"}, ["zkgroup.kafka.version=new", "0.8.2", "1.1"]),
        ({"fetch_wait_max_ms": 40000}, ["fetch.wait.max.ms=40000", "socket.timeout.ms=30000"]),
        ({"kafka": {"group.id": "x"}}, ["kafka.group.id", "--group"]),
        ({"kafka": {"": "x"}}, ["kafka."]),
        (
            {"kafka": {"socket.timeout.ms": "5"}, "socket_timeout_ms": 900},
            ["kafka.socket.timeout.ms", "socket.timeout.ms"],
        ),
    ],
)
def test_code_can_say_no_more_than_a_file(fields: dict[str, Any], facts: list[object]) -> None:
    """The dataclass has the checks that files have, at its construction; the error names key, value and remedy."""
    with pytest.raises(UsageError) as refused:
        ConsumerConfig(**({"group_id": "g"} | fields))
    assert names(str(refused.value), *facts), refused.value


def test_code_may_use_the_later_words_as_a_file_may() -> None:
    """earliest starts where smallest does; kafka is kafka in any case."""
    config = ConsumerConfig(auto_offset_reset="earliest", offsets_storage="KAFKA")  # type: ignore[arg-type]
    assert (config.auto_offset_reset, config.offsets_storage, config.dual_commit_enabled) == ("smallest", "kafka", True)
    assert ConsumerConfig(auto_offset_reset="latest").auto_offset_reset == "largest"  # type: ignore[arg-type]


def test_what_code_sets_reaches_librdkafka_without_being_named() -> None:
    """A field that differs from its default was set by somebody."""
    config = ConsumerConfig(fetch_min_bytes=7, offsets_channel_backoff_ms=50)
    assert librdkafka_properties(config) == {"fetch.min.bytes": "7"}
    assert librdkafka_properties(config, "offsets") == {"retry.backoff.ms": "50"}
    assert dataclasses.replace(config, fetch_min_bytes=8).explicit == config.explicit


@given(fields=st.fixed_dictionaries({}, optional={k.field: st.integers() for k in BY_KEY.values() if k.kind == "int"}))
def test_a_file_and_code_take_the_same_numbers(fields: dict[str, int]) -> None:
    """Whatever a file is refused, code is refused, and the other way round; what both take is the same. (In code -1
    means a default that is derived.)"""
    derived = {"zookeeper_connection_timeout_ms", "rebalance_backoff_ms"}
    assume(not any(fields.get(name) == -1 for name in derived))
    keys = {key.field: key.key for key in BY_KEY.values()}
    text = "\n".join(f"{keys[field]}={number}" for field, number in fields.items())
    try:
        by_file: ConsumerConfig | None = load(text, "g").config
    except UsageError:
        by_file = None
    try:
        explicit = frozenset(keys[field] for field in fields)
        by_code: ConsumerConfig | None = ConsumerConfig("g", explicit=explicit, **fields)  # type: ignore[arg-type]
    except UsageError:
        by_code = None
    assert by_code == by_file


def coordinated(text: str) -> LoadedConfig:
    return load_consumer_config(parse_properties(text.encode(), "c.properties"), group="g", coordinated=True)


def test_a_member_of_a_group_in_kafka() -> None:
    """librdkafka's own properties of a membership are distinguished, and refused to everybody else; keys that mean
    nothing there are named in one warning; those that would keep offsets in ZooKeeper are refused."""
    text = "kafka.session.timeout.ms=7000\nkafka.fetch.min.bytes=2\n"
    loaded = coordinated(text)
    assert (loaded.membership, loaded.config.kafka) == ({"session.timeout.ms": "7000"}, {"fetch.min.bytes": "2"})
    assert "7000" not in repr(loaded)
    with pytest.raises(UsageError, match=r"zookeeper\.session\.timeout\.ms"):
        load(text)
    loaded = coordinated("rebalance.backoff.ms=1\nconsumer.id=me\nauto.commit.enable=false\noffsets.storage=kafka\n")
    (warning,) = loaded.warnings
    assert names(str(warning), "consumer.id, rebalance.backoff.ms")
    for line in ("offsets.storage=zookeeper", "dual.commit.enabled=true"):
        with pytest.raises(UsageError, match=rf"line 1: {re.escape(line)}\b.*--coordinator zookeeper\b"):
            coordinated(line)
