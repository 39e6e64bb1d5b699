"""``zkgroup assign`` on real servers: plans, what would be, mixes, and options."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from assign_answers import COLUMNS, Build, assigned, builder
from cli import run, run_on_terminal
from lines import names

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.commands.assign import Changes, parse_changes
from zkgroup.errors import UsageError
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children, Ensure, SetData
from zkgroup.sandbox.local_cluster import Sandbox


@pytest.fixture
def build(registry: Registry, unique: Callable[[str], str]) -> Iterator[Build]:
    """Groups of plain nodes, which go with the test."""
    with builder(registry, unique) as make:
        yield make


def by_owner(plan: Mapping[str, Any]) -> dict[str | None, list[str]]:
    found: dict[str | None, list[str]] = {}
    for row in plan["assignment"]:
        found.setdefault(row["owner"], []).append(f"{row['topic']}-{row['partition']}")
    return found


# --- plans ----------------------------------------------------------------------------------------------------------


def test_the_plan_and_the_live_owners(cluster: Sandbox, build: Build, make_topic: Callable[..., str]) -> None:
    """What explains the owners is planned with; what is missing is to be claimed, and the shares say how much."""
    topic = make_topic(6)
    claims = {TopicPartition(topic, n): "G_a-0" for n in (0, 2, 4)}
    group = build({"G_a": {topic: 1}, "G_b": {topic: 1}}, claims)
    plan = assigned(cluster, group)
    assert (plan["strategy"], plan["compat"]) == ("roundrobin", "1.1")
    assert list(plan["assignment"][0]) == COLUMNS
    assert [tuple(row.values()) for row in plan["assignment"]] == [
        (topic, n, f"{group}_a-0", f"{group}_a", f"{group}_a-0", None)
        if n % 2 == 0
        else (topic, n, f"{group}_b-0", f"{group}_b", None, "claim")
        for n in range(6)
    ]
    assert (plan["unassigned"], plan["conflicts"], plan["matches_current"]) == ([], [], False)
    assert plan["changes"] == {"move": 0, "stream": 0, "claim": 3, "release": 0, "tied": 0}
    assert [(s["member"], s["now"], s["planned"], s["gains"]) for s in plan["shares"]] == [
        (f"{group}_a", 3, 3, 0),
        (f"{group}_b", 0, 3, 3),
    ]
    assert plan["explanation"]["exact"] == []
    assert plan["explanation"]["best"] == {"strategy": "roundrobin", "compat": "1.1"}
    assert plan["explanation"]["deviating"] == [f"{group}_b"]


def test_table_and_csv(cluster: Sandbox, build: Build, make_topic: Callable[..., str]) -> None:
    """The same rows in both, nothing else on stdout; with a table the sums are on stderr."""
    topic = make_topic(2)
    group = build({"G_a": {topic: 1}, "G_b": {topic: 1}}, {TopicPartition(topic, 0): "G_a-0"})
    table = run("assign", group, "--strategy", "range", "-z", cluster.connect)
    assert [line.split() for line in table.stdout.splitlines()] == [
        COLUMNS,
        [topic, "0", f"{group}_a-0", f"{group}_a", f"{group}_a-0", "-"],
        [topic, "1", f"{group}_b-0", f"{group}_b", "-", "claim"],
    ]
    assert names(table.stderr, "plan", "range", 2, 2, 1)
    assert names(table.stderr, "live", "range", 1, f"{group}_b")
    assert ["member", "streams", "idle", "now", "planned", "gains", "loses"] in [
        line.split() for line in table.stderr.splitlines()
    ]
    code, shown = run_on_terminal("assign", group, "--strategy", "range", "-z", cluster.connect, env={"COLUMNS": "80"})
    assert (code, f"\r\n      {group}_b\r\n" in shown) == (0, True), shown
    quiet = run("assign", group, "--strategy", "range", "--quiet", "-z", cluster.connect)
    assert (quiet.stdout, quiet.stderr) == (table.stdout, "")
    listed = run("assign", group, "--strategy", "range", "--output", "csv", "-z", cluster.connect)
    assert listed.stderr == ""
    rows = list(csv.DictReader(io.StringIO(listed.stdout)))
    assert list(rows[0]) == COLUMNS
    assert list(rows[1].values()) == [topic, "1", f"{group}_b-0", f"{group}_b", "", "claim"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--strategy", "range"), ("range", "1.1")),
        (("--kafka-version", "0.9.0.1"), ("range", "0.8.2")),
        (("--compat", "0.9.0.1"), ("range", "0.8.2")),
        (("--strategy", "roundrobin", "--kafka-version", "0.11.0.3"), ("roundrobin", "0.10.2")),
        (("--strategy", "roundrobin", "--kafka-version", "1.1"), ("roundrobin", "1.1")),
    ],
)
def test_strategy_and_release_as_given(
    options: tuple[str, ...], expected: tuple[str, str], cluster: Sandbox, build: Build, make_topic: Callable[..., str]
) -> None:
    """Any release is taken, and means the variant that it has."""
    group = build({"G_a": {make_topic(1): 1}}, {})
    plan = assigned(cluster, group, *options)
    assert (plan["strategy"], plan["compat"]) == expected
    assert plan["matches_current"] is False


def test_old_roundrobin_refuses(cluster: Sandbox, build: Build, make_topic: Callable[..., str]) -> None:
    """Where its precondition fails, that is the conflict, and everything stays unassigned."""
    first, second = make_topic(2), make_topic(1)
    group = build({"G_a": {first: 1, second: 1}, "G_b": {first: 1}}, {})
    plan = assigned(cluster, group, "--strategy", "roundrobin", "--kafka-version", "0.8.2")
    (conflict,) = plan["conflicts"]
    assert conflict["kind"] == "refused"
    assert conflict["members"] == [f"{group}_a", f"{group}_b"]
    assert len(plan["unassigned"]) == 3
    assert plan["matches_current"] is False
    assert by_owner(plan).keys() == {None}
    table = run("assign", group, "--strategy", "roundrobin", "--kafka-version", "0.8.2", "-z", cluster.connect)
    assert names(table.stderr, "warning", "roundrobin of 0.8.2 to 0.10.1")


def test_broken_registrations_and_foreign_owners(
    cluster: Sandbox, build: Build, make_topic: Callable[..., str]
) -> None:
    """Both stand in the way of every plan, and are named; the plan is that of the others."""
    topic = make_topic(2)
    group = build({"G_a": {topic: 1}, "G_bad": b"no json"}, {TopicPartition(topic, 1): "G_gone-0"})
    plan = assigned(cluster, group)
    assert {conflict["kind"]: conflict["members"] for conflict in plan["conflicts"]} == {
        "registration": [f"{group}_bad"],
        "owner": [],
    }
    assert by_owner(plan) == {f"{group}_a-0": [f"{topic}-0", f"{topic}-1"]}
    table = run("assign", group, "-z", cluster.connect)
    assert names(table.stderr, "warning", f"{group}_gone-0", f"{topic}-1")


def test_hostile_and_half_built_groups(
    cluster: Sandbox, registry: Registry, build: Build, unique: Callable[[str], str], make_topic: Callable[..., str]
) -> None:
    """Topics that cannot be any, and a group of nothing but its node: a plan, if an empty one, and no escape codes."""
    topic = make_topic(1)
    group = build({"G_a": {topic: 1, "../../brokers": 1, "a/b": 1, "": 1, "\x1b[31m": 2, "é\u202e": 1}}, {})
    plan = assigned(cluster, group)
    assert by_owner(plan) == {f"{group}_a-0": [f"{topic}-0"]}
    table = run("assign", group, "-z", cluster.connect)
    assert table.returncode == 0
    assert "\x1b" not in table.stdout + table.stderr
    bare = unique("bare")
    assert registry.write(Ensure(znodes.group(bare))) is None
    assert assigned(cluster, bare)["assignment"] == []
    assert run("assign", "../brokers", "-z", cluster.connect).returncode == 2


# --- what would be --------------------------------------------------------------------------------------------------


def test_a_group_that_does_not_exist(
    cluster: Sandbox, registry: Registry, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """Members alone make a plan: the Scala consumer's example of ten partitions. Nothing is made in ZooKeeper."""
    topic, group = make_topic(10), unique("notyet")
    plan = assigned(cluster, group, "--strategy", "range", "--member", f"c1={topic}:1", "--member", f"c2={topic}:2")
    pairs = [f"{topic}-{n}" for n in range(10)]
    assert by_owner(plan) == {"c1-0": pairs[:4], "c2-0": pairs[4:7], "c2-1": pairs[7:]}
    assert {row["change"] for row in plan["assignment"]} == {"claim"}
    (groups,) = registry.read([Children(znodes.consumers())])
    assert isinstance(groups, tuple)
    assert group not in groups


def test_partitions_of_what_nobody_reads(cluster: Sandbox, build: Build, make_topic: Callable[..., str]) -> None:
    """A topic that does not exist, and that nobody subscribes to, is misspelt: exit code 4; one that exists
    is a warning."""
    read, other = make_topic(2), make_topic(1)
    group = build({"G_a": {read: 1}}, {})
    misspelt = run("assign", group, "--partitions", "nosuch=4", "-z", cluster.connect)
    assert (misspelt.returncode, misspelt.stdout) == (4, "")
    assert names(misspelt.stderr, "--partitions nosuch", group)
    unread = run("assign", group, "--partitions", f"{other}=4", "-z", cluster.connect)
    assert unread.returncode == 0, unread.stderr
    assert names(unread.stderr, "warning", group, other)
    right = run("assign", group, "--partitions", f"{read}=4", "-z", cluster.connect)
    assert (right.returncode, "warning" in right.stderr) == (0, False)


def test_members_streams_and_partitions(cluster: Sandbox, build: Build, make_topic: Callable[..., str]) -> None:
    """One goes, one comes by a filter, one gets another stream, and the topic grows."""
    topic = make_topic(4)
    claims = {TopicPartition(topic, n): f"G_{name}-0" for n, name in enumerate("aabb")}
    group = build({"G_a": {topic: 1}, "G_b": {topic: 1}}, claims)
    assert assigned(cluster, group)["matches_current"] is True
    plan = assigned(
        cluster,
        group,
        *("--without", "a", "--streams", f"{group}_b=2", "--partitions", f"{topic}=6"),
        *("--member", f"{group}_c=~{topic}:1"),
    )
    pairs = [f"{topic}-{n}" for n in range(6)]
    assert by_owner(plan) == {f"{group}_b-0": pairs[:2], f"{group}_b-1": pairs[2:4], f"{group}_c-0": pairs[4:]}
    assert [row["change"] for row in plan["assignment"]] == ["move", "move", "stream", "stream", "claim", "claim"]
    assert plan["matches_current"] is False


def test_a_topic_that_does_not_exist(cluster: Sandbox, unique: Callable[[str], str]) -> None:
    """It is said, unless it is given partitions."""
    group, topic = unique("notyet"), unique("notopic")
    command = ("assign", group, "--member", f"c1={topic}", "-z", cluster.connect)
    assert names(run(*command).stderr, "warning", topic)
    assert len(assigned(cluster, group, "--member", f"c1={topic}", "--partitions", f"{topic}=3")["assignment"]) == 3


def test_thousands_of_topics_that_do_not_exist_are_one_warning(cluster: Sandbox, build: Build) -> None:
    """The first few are named."""
    group = build({"G_a": {f"nothing-{number:05}": 1 for number in range(30_000)}}, {})
    result = run("assign", group, "--strategy", "range", "-z", cluster.connect)
    assert result.returncode == 0
    (warning,) = [line for line in result.stderr.splitlines() if line.startswith("zkgroup: ")]
    assert names(warning, "warning", *(f"nothing-{number:05}" for number in range(5)), 29_995)
    assert "nothing-00005" not in warning
    assert len(result.stderr.splitlines()) < 20


def test_a_misspelt_name_is_suggested(
    cluster: Sandbox, registry: Registry, build: Build, make_topic: Callable[..., str]
) -> None:
    """Of groups and topics, by every command that is given one."""
    topic = make_topic(1)
    group = build({"G_a": {topic: 1}}, {TopicPartition(topic, 0): "G_a-0"})
    registry.write(Ensure(znodes.offset(group, TopicPartition(topic, 0))))
    registry.write(SetData(znodes.offset(group, TopicPartition(topic, 0)), b"0"))
    wrong = f"{topic[:2]}x{topic[2:]}"
    for command in (
        ("offsets", group, "--topic", wrong),
        ("owners", group, "--topic", wrong),
        ("inspect-group", group, "--topic", wrong),
        ("reset-offsets", group, "--topic", wrong, "--to-latest"),
        ("assign", group, "--strategy", "range", "--partitions", f"{wrong}=3"),
        ("unsubscribe", group, "--topic", wrong),
        ("consume", wrong),
    ):
        result = run(*command, "-z", cluster.connect)
        assert result.returncode == 4, (command, result.stderr)
        assert names(result.stderr, wrong, topic), (command, result.stderr)
    mistyped = f"{group[:2]}x{group[2:]}"
    for command in (
        ("offsets", mistyped),
        ("reset-offsets", mistyped, "--all-topics", "--to-latest"),
        ("copy-group", mistyped, "new"),
    ):
        result = run(*command, "-z", cluster.connect)
        assert result.returncode == 4
        assert names(result.stderr, mistyped, group), (command, result.stderr)


def test_a_mix(cluster: Sandbox, build: Build, make_topic: Callable[..., str]) -> None:
    """Both outcomes with what stays unread; the rows are the one that the live owners show."""
    topic = make_topic(24)
    group = build({"G_a": {topic: 1}, "G_b": {topic: 1}}, {TopicPartition(topic, n): "G_a-0" for n in range(12)})
    plan = assigned(cluster, group, "--mix", "b=roundrobin@0.8.2")
    assert [(o["holders"], o["losers"], len(o["unread"]), o["matches_current"]) for o in plan["outcomes"]] == [
        ([f"{group}_b"], [f"{group}_a"], 12, False),
        ([f"{group}_a"], [f"{group}_b"], 12, True),
    ]
    assert (plan["matches_current"], plan["more_outcomes"]) == (True, False)
    assert {row["change"] for row in plan["assignment"]} == {None}
    assert len(plan["unassigned"]) == 12
    assert [conflict["kind"] for conflict in plan["conflicts"]] == ["claim"]
    mixed = assigned(cluster, group, "--mix", "a=range", "--strategy", "roundrobin", "--kafka-version", "0.8.2")
    assert mixed["outcomes"] == plan["outcomes"]
    table = run("assign", group, "--mix", "b=roundrobin@0.8.2", "-z", cluster.connect)
    shown = [line.split() for line in table.stderr.splitlines()]
    assert ["outcome", "unread", "live", "holders", "losers"] in shown
    assert ["2", "12", "now", f"{group}_a", f"{group}_b"] in shown


@pytest.mark.parametrize(
    ("option", "text", "facts"),
    [
        ("member", ["c1"], ("--member 'c1'", "--member c3=orders:2,payments:1")),
        ("member", ["=t:1"], ("--member '=t:1'", "--member c3=orders:2,payments:1")),
        ("member", ["c1="], ()),
        ("member", ["c1=t:0"], ("--member c1=t:0", "'0'", 1)),
        ("member", ["c1=t:99999999999"], ("t:99999999999",)),
        ("member", ["c1=t,u,t"], ("--member c1=t,u,t", "t")),
        ("member", ["c1=t", "c1=u"], ("--member", "c1")),
        ("member", ["c1=~(:1"], ("(",)),
        ("member", ["c1=../..:1"], ("../..",)),
        ("streams", ["c1=x"], ("--streams c1=x", "'x'")),
        ("streams", ["c1=0"], ("--streams c1=0", "'0'")),
        ("partitions", ["t=-1"], ("--partitions t=-1", "'-1'")),
        ("mix", ["c1=sticky"], ("--mix c1=sticky", "'sticky'", "range", "roundrobin", "roundrobin@0.10.2")),
        ("mix", ["c1=range@"], ("--mix c1=range@", "'range@'", "range", "roundrobin", "roundrobin@0.10.2")),
        ("mix", ["c1=roundrobin@0.8.1"], ("0.8.1", "roundrobin")),
        ("mix", ["c1=range@2.0"], ("2.0",)),
    ],
)
def test_options_that_cannot_be_read(option: str, text: list[str], facts: tuple[object, ...]) -> None:
    """Each is refused with what is wrong with it, before anything is opened."""
    given: dict[str, list[str]] = {"member": [], "without": [], "streams": [], "partitions": [], "mix": []}
    with pytest.raises(UsageError) as caught:
        parse_changes(**(given | {option: text}))
    assert names(str(caught.value), *facts)


def test_options_that_can() -> None:
    """Topics with and without a number; filters, in which commas and colons are part of the expression."""
    changes = parse_changes(
        ["c1=t:2,u", "c2=~a,b:x:3", "h:1-2=!~t.*", "c4=~[a-z]:12"], ["c9", "c9"], ["c1=3"], ["t=4"], ["c1=range"]
    )
    assert {name: (each.pattern, dict(each.subscription)) for name, each in changes.members.items()} == {
        "c1": ("static", {"t": 2, "u": 1}),
        "c2": ("white_list", {"a,b:x": 3}),
        "h:1-2": ("black_list", {"t.*": 1}),
        "c4": ("white_list", {"[a-z]": 12}),
    }
    assert (changes.without, changes.streams, changes.partitions) == (("c9",), {"c1": 3}, {"t": 4})
    assert changes.mix["c1"].variant.strategy == "range"
    assert changes != parse_changes([], [], [], [], []) == Changes()


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        (("--kafka-version", "2.8"), 2, ("2.8",)),
        (("--member", "c1"), 2, ("--member 'c1'", "--member c3=orders:2,payments:1")),
        (("--execute", "--dry-run"), 2, ("--execute", "--dry-run")),
        (("--execute", "--without", "c1"), 2, ("--execute",)),
        (("--without", "nobody"), 4, ("G", "'nobody'", "G_a")),
        (("--streams", "G_a=99999999"), 2, ("G_a", "99999999", "1", "1000000")),
        (("--member", "c=t:99999999"), 2, ("c", "99999999", "1", "1000000")),
        (
            ("--strategy", "roundrobin", "--streams", "G_a=1000000", "--member", "c=t:1"),
            2,
            ("1000001", "roundrobin of 1.0 and 1.1", "1000000"),
        ),
    ],
)
def test_wrong_options(
    options: tuple[str, ...],
    code: int,
    facts: tuple[str, ...],
    cluster: Sandbox,
    build: Build,
    make_topic: Callable[..., str],
) -> None:
    """One line that names the option or the member, and the exit code of it."""
    group = build({"G_a": {"t": 1}}, {})
    result = run("assign", group, *(option.replace("G", group) for option in options), "-z", cluster.connect)
    assert (result.returncode, result.stdout) == (code, "")
    assert names(result.stderr, *(fact.replace("G", group) for fact in facts))
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("options", [(), ("--execute",)])
def test_no_such_group(options: tuple[str, ...], cluster: Sandbox, unique: Callable[[str], str]) -> None:
    """Exit code 4 without a member to plan for."""
    group = unique("nogroup")
    result = run("assign", group, *options, "-z", cluster.connect)
    assert (result.returncode, result.stdout, names(result.stderr, group)) == (4, "", True)
