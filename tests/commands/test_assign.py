"""``zkgroup assign`` on real servers: plans, what-if, mixes, and groups that are made to rebalance."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cli import ZKGROUP, environment, run
from members import ReadMember, owners, wait_for_rest
from support import wait_until

from zkgroup.commands._whatif import parse_changes
from zkgroup.errors import UsageError
from zkgroup.groups.explain import Variant, explain
from zkgroup.groups.snapshot import read_group
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import Children, Create, Delete, Ensure, Failure, Get, Node
from zkgroup.protocol.znodes import Registration, encode_registration
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.servers.registry import Registry

STAMP = 1411294187842
COLUMNS = ["topic", "partition", "owner", "member", "current", "change"]
Build = Callable[..., str]


@pytest.fixture
def build(registry: Registry, unique: Callable[[str], str]) -> Iterator[Build]:
    """``build(members, owners)`` writes a group's nodes, ``G`` in a name being the group's; they go with the test."""
    with ExitStack() as stack:

        def make(members: Mapping[str, bytes | Mapping[str, int]], claims: Mapping[TopicPartition, str]) -> str:
            group = unique("planned")
            session = stack.enter_context(Registry(registry.settings, 30.0))
            for path in (znodes.ids(group), *(znodes.owner_topic(group, pair.topic) for pair in claims)):
                assert session.write(Ensure(path)) is None
            nodes = {znodes.member_id(group, name.replace("G", group)): _data(data) for name, data in members.items()}
            nodes |= {znodes.owner(group, pair): owner.replace("G", group).encode() for pair, owner in claims.items()}
            for path, data in nodes.items():
                assert not isinstance(session.write(Create(path, data, ephemeral=True)), Failure)
            return group

        yield make


def _data(registration: bytes | Mapping[str, int]) -> bytes:
    if isinstance(registration, bytes):
        return registration
    return encode_registration(Registration("static", registration, STAMP))


def assigned(cluster: Sandbox, *args: str) -> dict[str, Any]:
    """The plan as JSON."""
    result = run("assign", *args, "-z", cluster.connect, "--output", "json")
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def by_owner(plan: Mapping[str, Any]) -> dict[str | None, list[str]]:
    found: dict[str | None, list[str]] = {}
    for row in plan["assignment"]:
        found.setdefault(row["owner"], []).append(f"{row['topic']}-{row['partition']}")
    return found


def id_nodes(registry: Registry, group: str) -> set[str]:
    (ids,) = registry.read([Children(znodes.ids(group))])
    return set(ids) if isinstance(ids, tuple) else set()


# --- plans ----------------------------------------------------------------------------------------------------------


def test_the_plan_beside_the_live_owners(cluster: Sandbox, build: Build, make_topic: Callable[..., str]) -> None:
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
    """The same rows in both, nothing else on stdout; beside a table the sums stand on stderr."""
    topic = make_topic(2)
    group = build({"G_a": {topic: 1}, "G_b": {topic: 1}}, {TopicPartition(topic, 0): "G_a-0"})
    table = run("assign", group, "--strategy", "range", "-z", cluster.connect)
    assert [line.split() for line in table.stdout.splitlines()] == [
        COLUMNS,
        [topic, "0", f"{group}_a-0", f"{group}_a", f"{group}_a-0", "-"],
        [topic, "1", f"{group}_b-0", f"{group}_b", "-", "claim"],
    ]
    assert "plan  range: 2 partitions, 2 members; 1 to claim\n" in table.stderr
    assert f"nearest: range with 1 difference; deviating: {group}_b\n" in table.stderr
    assert ["member", "streams", "idle", "now", "planned", "gains", "loses"] in [
        line.split() for line in table.stderr.splitlines()
    ]
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
        (("--compat", "0.9.0.1"), ("range", "0.8.2")),
        (("--strategy", "roundrobin", "--compat", "0.11.0.3"), ("roundrobin", "0.10.2")),
        (("--strategy", "roundrobin", "--compat", "1.1"), ("roundrobin", "1.1")),
    ],
)
def test_strategy_and_release_as_given(
    options: tuple[str, ...], expected: tuple[str, str], cluster: Sandbox, build: Build, make_topic: Callable[..., str]
) -> None:
    """Any release is taken, and stands for the variant that it has."""
    group = build({"G_a": {make_topic(1): 1}}, {})
    plan = assigned(cluster, group, *options)
    assert (plan["strategy"], plan["compat"]) == expected
    assert plan["matches_current"] is False


def test_old_roundrobin_refuses(cluster: Sandbox, build: Build, make_topic: Callable[..., str]) -> None:
    """Where its precondition fails, that is the conflict, and everything stays unassigned."""
    first, second = make_topic(2), make_topic(1)
    group = build({"G_a": {first: 1, second: 1}, "G_b": {first: 1}}, {})
    plan = assigned(cluster, group, "--strategy", "roundrobin", "--compat", "0.8.2")
    (conflict,) = plan["conflicts"]
    assert conflict["kind"] == "refused"
    assert conflict["members"] == [f"{group}_a", f"{group}_b"]
    assert "refuses this group" in conflict["message"]
    assert len(plan["unassigned"]) == 3
    assert plan["matches_current"] is False
    assert by_owner(plan).keys() == {None}
    table = run("assign", group, "--strategy", "roundrobin", "--compat", "0.8.2", "-z", cluster.connect)
    assert "warning: roundrobin of 0.8.2 to 0.10.1 refuses this group" in table.stderr


def test_broken_registrations_and_strangers(cluster: Sandbox, build: Build, make_topic: Callable[..., str]) -> None:
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
    assert f"{group}_gone-0, which is not registered, owns {topic}-1" in table.stderr


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
    """Members alone make a plan: the reference's example of ten partitions. Nothing is made in ZooKeeper."""
    topic, group = make_topic(10), unique("notyet")
    plan = assigned(cluster, group, "--strategy", "range", "--member", f"c1={topic}:1", "--member", f"c2={topic}:2")
    names = [f"{topic}-{n}" for n in range(10)]
    assert by_owner(plan) == {"c1-0": names[:4], "c2-0": names[4:7], "c2-1": names[7:]}
    assert {row["change"] for row in plan["assignment"]} == {"claim"}
    (groups,) = registry.read([Children(znodes.consumers())])
    assert isinstance(groups, tuple)
    assert group not in groups


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
    names = [f"{topic}-{n}" for n in range(6)]
    assert by_owner(plan) == {f"{group}_b-0": names[:2], f"{group}_b-1": names[2:4], f"{group}_c-0": names[4:]}
    assert [row["change"] for row in plan["assignment"]] == ["move", "move", "stream", "stream", "claim", "claim"]
    assert plan["matches_current"] is False


def test_an_id_unlike_the_others(cluster: Sandbox, build: Build, make_topic: Callable[..., str]) -> None:
    """Order decides who gets what, and a bare name sorts elsewhere than the group's ids: planned, with a warning."""
    topic = make_topic(2)
    group = build({"G_a": {topic: 1}}, {})
    result = run("assign", group, "--member", f"z={topic}", "--output", "csv", "-z", cluster.connect)
    assert f"member z is planned by this id, as the ids' order matters; those of the group begin with {group}_" in (
        result.stderr
    )
    assert run("assign", group, "--member", f"{group}_z={topic}", "--output", "csv", "-z", cluster.connect).stderr == ""


def test_a_topic_that_does_not_exist(cluster: Sandbox, unique: Callable[[str], str]) -> None:
    """It is said, unless it is given partitions."""
    group, topic = unique("notyet"), unique("notopic")
    command = ("assign", group, "--member", f"c1={topic}", "-z", cluster.connect)
    assert f"topic {topic} does not exist: nothing of it is planned" in run(*command).stderr
    assert len(assigned(cluster, group, "--member", f"c1={topic}", "--partitions", f"{topic}=3")["assignment"]) == 3


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
    table = run("assign", group, "--mix", "b=roundrobin@0.8.2", "-z", cluster.connect)
    shown = [line.split() for line in table.stderr.splitlines()]
    assert ["outcome", "unread", "live", "holders", "losers"] in shown
    assert ["2", "12", "now", f"{group}_a", f"{group}_b"] in shown


@pytest.mark.parametrize(
    ("option", "text", "words"),
    [
        ("member", ["c1"], "--member 'c1' cannot be read: write it like --member c3=orders:2"),
        ("member", ["=t:1"], "cannot be read"),
        ("member", ["c1="], "topic name is empty"),
        ("member", ["c1=t:0"], "'0' is no number of 1 or more"),
        ("member", ["c1=t:99999999999"], "has a character that Kafka does not take"),
        ("member", ["c1=t,u,t"], "topic t is there twice"),
        ("member", ["c1=t", "c1=u"], "says two things of c1"),
        ("member", ["c1=~(:1"], "("),
        ("member", ["c1=../..:1"], "has a character that Kafka does not take"),
        ("streams", ["c1=x"], "'x' is no number"),
        ("streams", ["c1=0"], "'0' is no number"),
        ("partitions", ["t=-1"], "'-1' is no number"),
        ("mix", ["c1=sticky"], "'sticky' is no strategy"),
        ("mix", ["c1=range@"], "'range@' is no strategy"),
        ("mix", ["c1=roundrobin@0.8.1"], "Kafka 0.8.1 knows no roundrobin"),
        ("mix", ["c1=range@2.0"], "Kafka 2.0 has no consumer"),
    ],
)
def test_options_that_cannot_be_read(option: str, text: list[str], words: str) -> None:
    """Each is refused with what is wrong with it, before anything is opened."""
    given: dict[str, list[str]] = {"member": [], "without": [], "streams": [], "partitions": [], "mix": []}
    with pytest.raises(UsageError) as caught:
        parse_changes(**(given | {option: text}))
    assert words in str(caught.value)


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
    assert changes
    assert not parse_changes([], [], [], [], [])


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--compat", "2.8"), 2, "Kafka 2.8 has no consumer"),
        (("--member", "c1"), 2, "--member 'c1' cannot be read: write it like --member c3=orders:2"),
        (("--execute", "--dry-run"), 2, "--execute beside --dry-run"),
        (("--execute", "--without", "c1"), 2, "--execute beside an option that says what would be"),
        (("--without", "nobody"), 4, "has no member 'nobody': its members: "),
    ],
)
def test_wrong_options(
    options: tuple[str, ...], code: int, words: str, cluster: Sandbox, build: Build, make_topic: Callable[..., str]
) -> None:
    """One line that names the option or the member, and the exit code of it."""
    group = build({"G_a": {"t": 1}}, {})
    result = run("assign", group, *options, "-z", cluster.connect)
    assert (result.returncode, result.stdout) == (code, "")
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("options", [(), ("--execute",)])
def test_no_such_group(options: tuple[str, ...], cluster: Sandbox, unique: Callable[[str], str]) -> None:
    """Exit code 4 without a member to plan for."""
    result = run("assign", unique("nogroup"), *options, "-z", cluster.connect)
    assert (result.returncode, result.stdout) == (4, "")
    assert "no group" in result.stderr


# --- groups that are made to rebalance ------------------------------------------------------------------------------


def test_execute(
    cluster: Sandbox, registry: Registry, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """Members rebalance to the same plan: exit code 0, in all formats; another strategy's is found wrong."""
    group, topic = unique("executed"), make_topic(4)
    with (
        ReadMember(cluster.connect, group, {topic: 1}, consumer_id="a"),
        ReadMember(cluster.connect, group, {topic: 1}, consumer_id="b"),
    ):
        wait_for_rest(registry, group, 2)
        done = run("assign", group, "--execute", "-z", cluster.connect, "--output", "json")
        assert done.returncode == 0, done.stderr
        plan = json.loads(done.stdout)
        assert (plan["strategy"], plan["matches_current"]) == ("range", True)
        assert (plan["rebalanced"]["defects"], plan["rebalanced"]["still"]) == ([], [])
        assert plan["rebalanced"]["seconds"] > 0
        wrong = run(
            *("assign", group, "--strategy", "roundrobin", "--execute", "--timeout", "2", "-z", cluster.connect)
        )
        assert wrong.returncode == 6
        assert [line.split()[-1] for line in wrong.stdout.splitlines()] == ["change", "-", "move", "move", "-"]
        assert "done  the group rebalanced" in wrong.stderr
        last = wrong.stderr.splitlines()[-1]
        assert f"group {group} did not come to the plan of roundrobin of any release: {topic}-1 is owned by" in last
        assert last.endswith("the owners are the plan of range")
        assert id_nodes(registry, group) == {f"{group}_a", f"{group}_b"}


def test_execute_refused(cluster: Sandbox, registry: Registry, build: Build, make_topic: Callable[..., str]) -> None:
    """Where a rebalance would do harm, or nobody is there: exit code 5, and nothing is touched."""
    topic = make_topic(2)
    broken = build({"G_a": {topic: 1}, "G_bad": b"no json"}, {TopicPartition(topic, 0): "G_a-0"})
    result = run("assign", broken, "--execute", "-z", cluster.connect)
    assert (result.returncode, result.stdout) == (5, "")
    assert f"no member gets past the registration of {broken}_bad" in result.stderr
    empty = build({}, {})
    result = run("assign", empty, "--execute", "-z", cluster.connect)
    assert (result.returncode, result.stdout) == (5, "")
    assert f"group {empty} has no members" in result.stderr
    for group in (broken, empty):
        assert not any("zkgroup-assign" in name for name in id_nodes(registry, group))


def test_a_protected_profile(
    cluster: Sandbox, registry: Registry, build: Build, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    """A plan is shown freely; --execute asks for the profile's name, and without it does nothing."""
    topic = make_topic(1)
    group = build({"G_a": {topic: 1}}, {TopicPartition(topic, 0): "G_a-0"})
    profile = tmp_path / "config.toml"
    profile.write_text(f'[clusters.prod]\nzookeeper = "{cluster.connect}"\nprotected = true\n')
    env = {"ZKGROUP_CONFIG": str(profile)}
    assert run("assign", group, "-c", "prod", env=env).returncode == 0
    refused = run("assign", group, "--execute", "-c", "prod", env=env)
    assert (refused.returncode, refused.stdout) == (5, "")
    assert "cluster prod is protected" in refused.stderr
    confirmed = run("assign", group, "--execute", "--timeout", "1", "--confirm", "prod", "-c", "prod", env=env)
    assert "did not rebalance within 1 s" in confirmed.stderr


def test_execute_names_who_does_not_rebalance(cluster: Sandbox, build: Build, make_topic: Callable[..., str]) -> None:
    """Nodes without a member behind them: the owners are the plan, but nobody claimed anew."""
    topic = make_topic(1)
    group = build({"G_a": {topic: 1}}, {TopicPartition(topic, 0): "G_a-0"})
    result = run("assign", group, "--execute", "--timeout", "1", "-z", cluster.connect)
    assert result.returncode == 6
    assert f"{group}_a did not rebalance within 1 s" in result.stderr


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_execute_interrupted(
    signum: int, code: int, cluster: Sandbox, registry: Registry, build: Build, make_topic: Callable[..., str]
) -> None:
    """The node is ephemeral, cannot outlive us, and says whose it is; interrupted, we take it away at once."""
    topic = make_topic(1)
    group = build({"G_a": {topic: 1}}, {TopicPartition(topic, 0): "G_a-0"})
    command = [ZKGROUP, "assign", group, "--execute", "-z", cluster.connect]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        wait_until(lambda: len(id_nodes(registry, group)) == 2, what="our node")
        (name,) = id_nodes(registry, group) - {f"{group}_a"}
        (node,) = registry.read([Get(znodes.member_id(group, name))])
        process.send_signal(signum)
        out, err = process.communicate(timeout=20)
    assert id_nodes(registry, group) == {f"{group}_a"}
    assert name.startswith(f"{group}_zkgroup-assign-")
    assert f"-{process.pid}-" in name
    assert isinstance(node, Node)
    assert node.stat.owner != 0
    assert process.returncode == code
    assert (out, err) == (b"", b"")


@pytest.mark.parametrize(
    ("strategy", "releases", "compat"),
    [("range", ("1.1.1", "0.8.2.2"), "1.1"), ("roundrobin", ("0.10.2.2", "0.8.2.2"), "0.8.2")],
)
def test_reference_members_rebalance(
    strategy: str,
    releases: tuple[str, str],
    compat: str,
    cluster: Sandbox,
    registry: Registry,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
) -> None:
    """Members of two releases are found to run what they run, and come to the same owners again."""
    group, topics = unique("reference"), [make_topic(7), make_topic(4)]
    with ExitStack() as stack:
        for name, release in zip("ab", releases, strict=True):
            member = cluster.member(
                group, ",".join(topics), kind="topics", release=release, strategy=strategy, name=f"{group}-{name}"
            )
            stack.enter_context(member)
        at_rest = Variant("range" if strategy == "range" else "roundrobin", "1.1" if compat == "1.1" else "0.8.2")
        wait_until(
            lambda: len(id_nodes(registry, group)) == 2 and at_rest in explain(read_group(registry, group)).exact,
            60,
            "both members own their shares",
        )
        before = owners(registry, group)
        result = run("assign", group, "--execute", "--output", "json", "-z", cluster.connect, timeout=90)
        assert result.returncode == 0, result.stderr
        plan = json.loads(result.stdout)
        assert plan["strategy"] == strategy
        assert {"strategy": strategy, "compat": compat} in plan["explanation"]["exact"]
        assert (plan["matches_current"], plan["rebalanced"]["still"]) == (True, [])
        assert owners(registry, group) == before


def test_a_group_that_gave_up_is_mended(
    cluster: Sandbox, registry: Registry, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """A reference member whose attempts all failed stays registered and reads nothing, even when the way is free
    again; made to rebalance it gets its share."""
    group, topic = unique("gaveup"), make_topic(2)
    impatient = {"rebalance.max.retries": "2", "rebalance.backoff.ms": "200"}
    stranger, ours = TopicPartition(topic, 1), f"{group}_{group}-a"
    with (
        cluster.member(group, topic, kind="topics", name=f"{group}-a", properties=impatient) as member,
        Registry(registry.settings, 30.0) as other,
    ):
        wait_until(lambda: len(owners(registry, group)) == 2, 60, "it owns both")
        # A member comes, claims its half, and goes without giving it up.
        node = znodes.member_id(group, f"{group}_z")
        assert not isinstance(other.write(Create(node, _data({topic: 1}), ephemeral=True)), Failure)
        claim = Create(znodes.owner(group, stranger), f"{group}_z-0".encode(), ephemeral=True)
        wait_until(lambda: other.write(claim) is None, what="its half is free")
        wait_until(lambda: len(owners(registry, group)) == 2, what="a half each")
        assert other.write(Delete(node)) is None
        wait_until(lambda: "can't rebalance after 2 retries" in member.logged(), what="it gives up")
        assert other.write(Delete(claim.path)) is None
        assert owners(registry, group) == {}
        result = run("assign", group, "--execute", "-z", cluster.connect, timeout=90)
        assert result.returncode == 0, result.stderr
        assert set(owners(registry, group).values()) == {f"{ours}-0"}


def test_a_real_mix(
    cluster: Sandbox, registry: Registry, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """A reference member of range beside ours of roundrobin: the state is one of the outcomes, and who deviates from
    what the other holds is named; making them rebalance does not help, and says so."""
    group, topic = unique("mixed"), make_topic(24)
    patient = {"rebalance.max.retries": "20", "rebalance.backoff.ms": "3000"}
    range_member, other = f"{group}_{group}-range", f"{group}_other"
    shown: list[Any] = []

    def in_an_outcome() -> bool:
        snapshot = read_group(registry, group)
        shown[:] = [assigned(cluster, group, "--strategy", "range", "--mix", "other=roundrobin")]
        return len(snapshot.members) == 2 and bool(shown[0]["matches_current"])

    with (
        cluster.member(group, topic, kind="topics", name=f"{group}-range", properties=patient),
        ReadMember(
            *(cluster.connect, group, {topic: 1}),
            consumer_id="other",
            partition_assignment_strategy="roundrobin",
            rebalance_max_retries=20,
            rebalance_backoff_ms=3000,
        ),
    ):
        wait_until(lambda: len(id_nodes(registry, group)) == 2, 30, "both are registered")
        wait_until(in_an_outcome, 30, "one of the two outcomes")
        (live,) = [outcome for outcome in shown[0]["outcomes"] if outcome["matches_current"]]
        assert sorted(live["holders"] + live["losers"]) == sorted([range_member, other])
        assert len(live["unread"]) == 12
        explanation = shown[0]["explanation"]
        assert explanation["deviating"] == live["losers"]
        assert explanation["best"]["strategy"] == ("range" if live["holders"] == [range_member] else "roundrobin")
        result = run("assign", group, "--execute", "--timeout", "5", "-z", cluster.connect, timeout=60)
        assert result.returncode == 6
        assert "did not come to the plan of any strategy of any release" in result.stderr
        assert id_nodes(registry, group) == {range_member, other}
