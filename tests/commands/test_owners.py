"""``zkgroup owners`` on a real ZooKeeper."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping

import pytest
from cli import run
from group_nodes import joined
from lines import names

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Create, Ensure, Exists, Failure
from zkgroup.protocol.znodes import Registration, encode_registration
from zkgroup.sandbox.local_cluster import Sandbox

STAMP = 1411294187842
Build = Callable[..., str]


def static(**topics: int) -> bytes:
    return encode_registration(Registration("static", topics, STAMP))


@pytest.fixture
def build(registry: Registry, unique: Callable[[str], str]) -> Iterator[Build]:
    """``build(members, owners)`` writes a group's nodes and returns its name; they go with the test."""
    made: list[Registry] = []

    def make(
        members: Mapping[str, bytes] | None = None, owners: Mapping[tuple[str, int | str], str] | None = None
    ) -> str:
        group = unique("owned")
        session = Registry(registry.settings, 30.0)
        session.__enter__()
        made.append(session)
        parents = [znodes.group(group)]
        if members is not None:
            parents.append(znodes.ids(group))
        parents += [znodes.owner_topic(group, topic) for topic, _ in owners or ()]
        for path in parents:
            assert session.write(Ensure(path)) is None
        for name, data in (members or {}).items():
            path = znodes.member_id(group, name.replace("G", group))
            assert not isinstance(session.write(Create(path, data, ephemeral=True)), Failure)
        for (topic, partition), owner in (owners or {}).items():
            path = f"{znodes.owner_topic(group, topic)}/{partition}"
            data = owner.replace("G", group).encode()
            assert not isinstance(session.write(Create(path, data, ephemeral=True)), Failure)
        return group

    yield make
    for session in made:
        session.close()


def owners(cluster: Sandbox, *args: str) -> tuple[int, list[dict[str, object]], str]:
    """Run it with JSON rows: exit code, rows, stderr."""
    result = run("owners", *args, "-z", cluster.connect, "--output", "json")
    return result.returncode, json.loads(result.stdout) if result.stdout else [], result.stderr


def test_who_owns_what(cluster: Sandbox, build: Build, make_topic: Callable[..., str]) -> None:
    """Every partition of the subscribed topics, in numeric order, with its owner, the member behind it and its host."""
    topic = make_topic(11)
    first, second = "G_host-one-1411294187842-ab12cd34", "G_two-1411294187842-1"
    claims = {(topic, n): f"{first if n < 6 else second}-0" for n in range(11)}
    group = build({first: static(**{topic: 1}), second: static(**{topic: 1})}, claims)
    code, rows, stderr = owners(cluster, group, "--verify")
    assert (code, stderr) == (0, "")
    assert [row["partition"] for row in rows] == list(range(11))
    since = rows[0].pop("since")
    assert isinstance(since, str)
    assert since.startswith("20")
    assert since.endswith("Z")
    assert rows[0] == {
        "topic": topic,
        "partition": 0,
        "owner": f"{first}-0".replace("G", group),
        "member": first.replace("G", group),
        "host": "host-one",
        "registered": True,
    }
    assert rows[10]["host"] == "two"


def test_formats(cluster: Sandbox, build: Build, make_topic: Callable[..., str]) -> None:
    """A table for grep and awk, and CSV, of the same rows; an unowned partition has - or nothing."""
    topic = make_topic(2)
    group = build({"G_c": static(**{topic: 1})}, {(topic, 0): "G_c-0"})
    lines = run("owners", group, "-z", cluster.connect).stdout.splitlines()
    assert lines[0].split() == ["topic", "partition", "owner", "member", "host", "registered", "since"]
    assert lines[1].split()[:6] == [topic, "0", f"{group}_c-0", f"{group}_c", "-", "true"]
    assert lines[2].split() == [topic, "1", "-", "-", "-", "false", "-"]
    rows = list(csv.DictReader(io.StringIO(run("owners", group, "-z", cluster.connect, "--output", "csv").stdout)))
    assert rows[1] == {
        "topic": topic, "partition": "1", "owner": "", "member": "", "host": "", "registered": "false", "since": "",
    }  # fmt: skip


def test_a_filter_is_applied_to_the_topics_that_exist(
    cluster: Sandbox, build: Build, make_topic: Callable[..., str]
) -> None:
    """A white list's partitions are those of the topics it matches, Java's expression meant."""
    topic = make_topic(2, "filtered")
    pattern = "[a-z]+-" + topic.partition("-")[2]
    data = encode_registration(Registration("white_list", {pattern: 1}, STAMP))
    group = build({"G_c": data}, {(topic, 0): "G_c-0", (topic, 1): "G_c-0"})
    code, rows, stderr = owners(cluster, group, "--verify")
    assert (code, stderr) == (0, "")
    assert [(row["topic"], row["partition"]) for row in rows] == [(topic, 0), (topic, 1)]


@pytest.mark.parametrize(
    ("claim", "named"),
    [
        (None, ""),
        ("G_gone-0", r"G_gone-0\b.*\b0x[0-9a-f]+\b"),  # not registered
        ("G_other-0", r"G_other-0\b"),  # not subscribed to the topic
        ("G_c-1", r"G_c-1\b.*\b1\b"),  # of one stream
        ("", ""),
    ],
)
def test_verify_finds_what_is_wrong(
    cluster: Sandbox, build: Build, make_topic: Callable[..., str], claim: str | None, named: str
) -> None:
    """--verify still shows the rows, names partition and owner in one line, and exits with 6; without it the exit is
    0."""
    topic = make_topic(2)
    claims = {(topic, 0): "G_c-0"} | ({} if claim is None else {(topic, 1): claim})
    group = build({"G_c": static(**{topic: 1}), "G_other": static(elsewhere=1)}, claims)
    code, rows, stderr = owners(cluster, group, "--verify")
    assert (code, len(rows), rows[1]["owner"]) == (6, 2, claim.replace("G", group) if claim else None)
    assert re.fullmatch(rf".*\b{group}\b.*\b{topic}-1\b.*{named.replace('G', group)}.*\n", stderr), stderr
    assert f"{topic}-0" not in stderr
    assert owners(cluster, group)[0] == 0


def test_half_built_groups_are_shown_as_they_are(
    cluster: Sandbox, registry: Registry, build: Build, make_topic: Callable[..., str]
) -> None:
    """Anything may be missing or broken: rows are shown for what is there, warnings name the rest, nothing is made."""
    empty = build()
    assert owners(cluster, empty) == (0, [], "")
    assert registry.read([Exists(znodes.ids(empty))])[0] is None

    topic = make_topic(1)
    broken = {
        "G_text": b"no JSON",
        "G_none": b"",
        "G_re": b'{"version":1,"subscription":{"(":1},"pattern":"white_list"}',
    }
    group = build(
        {**broken, "G_c": static(**{topic: 1}), "G_lost": static(absent=1)},
        {(topic, 0): "G_c-0", ("deleted", 3): "G_c-0", ("deleted", "leader-x"): "G_c", ("deleted", "1-7"): "host:uuid"},
    )
    code, rows, stderr = owners(cluster, group)
    assert code == 0
    assert [(row["topic"], row["partition"], row["registered"]) for row in rows] == [
        ("deleted", 3, True),
        ("deleted", 7, False),
        (topic, 0, True),
    ]
    assert all("warning" in line for line in stderr.splitlines())
    for fact in (f"{group}_text", f"{group}_none", f"{group}_re", f"{znodes.owner_topic(group, 'deleted')}/leader-x"):
        assert names(stderr, fact), stderr
    assert owners(cluster, group, "--verify")[0] == 6


def test_one_topic(cluster: Sandbox, build: Build, make_topic: Callable[..., str]) -> None:
    """--topic keeps what was asked for; a topic that does not concern the group exits with 4."""
    one, two = make_topic(1), make_topic(1)
    group = build({"G_c": static(**{one: 1, two: 1})}, {(one, 0): "G_c-0", (two, 0): "G_c-0"})
    code, rows, _ = owners(cluster, group, "--topic", two)
    assert (code, [row["topic"] for row in rows]) == (0, [two])
    code, rows, stderr = owners(cluster, group, "--topic", "nonsense")
    assert (code, rows) == (4, [])
    assert names(stderr, group, "'nonsense'", *sorted((one, two)))


def test_an_unknown_group(cluster: Sandbox, build: Build) -> None:
    """Exit code 4, with the names that are near."""
    group = build()
    code, rows, stderr = owners(cluster, group + "x")
    assert (code, rows) == (4, [])
    assert names(stderr, f"'{group}x'", "ZooKeeper", cluster.address, group)


def test_a_wrong_chroot_is_named(cluster: Sandbox, zookeeper: Sandbox) -> None:
    """One that does not exist, and one that exists but has no Kafka."""
    result = run("owners", "g", "-z", f"{zookeeper.address}/no/such")
    assert (result.returncode, names(result.stderr, zookeeper.address, "/no/such")) == (2, True)
    result = run("owners", "g", "-z", f"{zookeeper.address}/zookeeper")
    assert (result.returncode, result.stderr.count("\n")) == (4, 1)
    assert names(result.stderr, f"{zookeeper.address}/zookeeper", "/consumers")


def test_a_group_with_an_odd_name(cluster: Sandbox, registry: Registry, unique: Callable[[str], str]) -> None:
    """Foreign clients write names that Kafka would refuse; they can still be read."""
    group = unique("so und so é")
    assert registry.write(Ensure(znodes.group(group))) is None
    assert owners(cluster, group)[0] == 0


def test_a_group_in_kafka(
    cluster: Sandbox, kafka: KafkaSettings, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """Its members with their share, in the same columns; with ZooKeeper and without."""
    topic, group = make_topic(2), unique("in-kafka")
    with joined(kafka, group, [topic]):
        code, rows, stderr = owners(cluster, group, "--verify")
        without = run("owners", group, "--bootstrap-server", cluster.bootstrap, "--output", "json")
    assert (code, stderr) == (0, "")
    assert [(row["topic"], row["partition"], row["host"], row["registered"], row["since"]) for row in rows] == [
        (topic, 0, "127.0.0.1", True, None),
        (topic, 1, "127.0.0.1", True, None),
    ]
    assert {str(row["owner"]).partition("-")[0] for row in rows} == {"tester"}
    assert all(row["owner"] == row["member"] for row in rows)
    assert (without.returncode, json.loads(without.stdout)) == (0, rows)


def test_members_in_both_stores(
    cluster: Sandbox, kafka: KafkaSettings, build: Build, make_topic: Callable[..., str]
) -> None:
    """--store both distinguishes the owners of each store, or chooses one; without it ZooKeeper's are shown."""
    topic = make_topic(2)
    group = build({"G_c": static(**{topic: 1})}, {(topic, 0): "G_c-0", (topic, 1): "G_c-0"})
    with joined(kafka, group, [topic]):
        shown = {
            store: owners(cluster, group, *(["--store", store] if store else []))[1]
            for store in ("", "zookeeper", "kafka", "both")
        }
        verified = {
            store: owners(cluster, group, "--verify", *(["--store", store] if store else []))
            for store in ("", "zookeeper", "both")
        }
    both = shown["both"]
    assert [(row["partition"], row["store"]) for row in both] == [
        (0, "zookeeper"), (0, "kafka"), (1, "zookeeper"), (1, "kafka"),
    ]  # fmt: skip
    for row in both:
        assert str(row["owner"]).startswith("tester-" if row.pop("store") == "kafka" else f"{group}_c-0")
    assert shown[""] == shown["zookeeper"] == both[::2]
    assert shown["kafka"] == both[1::2]
    assert {store: code for store, (code, _, _) in verified.items()} == {"": 6, "zookeeper": 0, "both": 6}
    assert verified[""][1] == shown[""]
    for store in ("", "both"):
        assert names(verified[store][2], f"{topic}-0..1", "ZooKeeper", "Kafka")


def test_verifying_without_brokers(
    cluster: Sandbox, kafka: KafkaSettings, build: Build, make_topic: Callable[..., str]
) -> None:
    """Where brokers are out of reach --verify goes by ZooKeeper, and says what it could not ask."""
    topic = make_topic(1)
    group = build({"G_c": static(**{topic: 1})}, {(topic, 0): "G_c-0"})
    with joined(kafka, f"{group}-other", [topic]):  # there is no question where nothing is kept in Kafka
        away = ("--bootstrap-server", "127.0.0.1:1", "--connect-timeout", "1")
        code, rows, stderr = owners(cluster, group, "--verify", *away)
    assert (code, len(rows)) == (0, 1)
    assert names(stderr, "warning", "Kafka", "127.0.0.1:1")


def test_a_group_in_kafka_that_no_znode_can_be_named_like(
    cluster: Sandbox, kafka: KafkaSettings, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """Kafka takes names with slashes: such a group is shown as any other there, and none is refused as before."""
    topic, group = make_topic(1), unique("../a/b")
    with joined(kafka, group, [topic]):
        code, rows, stderr = owners(cluster, group)
    assert (code, stderr, [row["topic"] for row in rows]) == (0, "", [topic])
    assert owners(cluster, "../nobody")[0] == 2
