"""``zkgroup assign --execute``: groups of real members that are made to rebalance, and what is never left behind."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from assign_answers import Build, assigned, builder, data_of, id_nodes
from cli import ZKGROUP, environment, run
from lines import names
from members import ReadMember, owners, wait_for_rest
from support import wait_until

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.assignment.strategy_inference import Variant, infer_strategy
from zkgroup.groups.snapshot.group_reader import read_group
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Delete, Failure, Get, Node
from zkgroup.sandbox.local_cluster import Sandbox


@pytest.fixture
def build(registry: Registry, unique: Callable[[str], str]) -> Iterator[Build]:
    """Groups of plain nodes, which go with the test."""
    with builder(registry, unique) as make:
        yield make


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
        assert "foreign-client" not in wrong.stderr + done.stderr
        assert names(wrong.stderr.splitlines()[-1], group, "roundrobin", f"{topic}-1", f"{group}_a", "range")
        assert id_nodes(registry, group) == {f"{group}_a", f"{group}_b"}


def test_execute_refused(cluster: Sandbox, registry: Registry, build: Build, make_topic: Callable[..., str]) -> None:
    """Where a rebalance would do harm, or nobody is there: exit code 5, and nothing is touched."""
    topic = make_topic(2)
    broken = build({"G_a": {topic: 1}, "G_bad": b"no json"}, {TopicPartition(topic, 0): "G_a-0"})
    result = run("assign", broken, "--execute", "-z", cluster.connect)
    assert (result.returncode, result.stdout) == (5, "")
    assert names(result.stderr, broken, f"{broken}_bad")
    empty = build({}, {})
    result = run("assign", empty, "--execute", "-z", cluster.connect)
    assert (result.returncode, result.stdout) == (5, "")
    assert names(result.stderr, empty)
    for group in (broken, empty):
        assert not any("zkgroup-assign" in name for name in id_nodes(registry, group))


def test_a_protected_profile(
    cluster: Sandbox, registry: Registry, build: Build, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    """A plan is shown freely; --execute asks for the group's name, and without it does nothing."""
    topic = make_topic(1)
    group = build({"G_a": {topic: 1}}, {TopicPartition(topic, 0): "G_a-0"})
    profile = tmp_path / "config.toml"
    profile.write_text(f'[clusters.prod]\nzookeeper = "{cluster.connect}"\nprotected = true\n')
    env = {"ZKGROUP_CONFIG": str(profile)}
    assert run("assign", group, "-c", "prod", env=env).returncode == 0
    refused = run("assign", group, "--execute", "-c", "prod", env=env)
    assert (refused.returncode, refused.stdout) == (5, "")
    assert names(refused.stderr, "prod", f"--confirm {group}")
    confirmed = run("assign", group, "--execute", "--timeout", "1", "--confirm", group, "-c", "prod", env=env)
    assert (confirmed.returncode, names(confirmed.stderr, f"{group}_a")) == (6, True)


def test_execute_names_who_does_not_rebalance(cluster: Sandbox, build: Build, make_topic: Callable[..., str]) -> None:
    """Nodes without a member behind them: the owners are the plan, but nobody claimed anew."""
    topic = make_topic(1)
    group = build({"G_a": {topic: 1}}, {TopicPartition(topic, 0): "G_a-0"})
    result = run("assign", group, "--execute", "--timeout", "1", "-z", cluster.connect, "--output", "json")
    rebalanced = json.loads(result.stdout)["rebalanced"]
    assert (result.returncode, rebalanced["still"], rebalanced["defects"]) == (6, [f"{group}_a"], [])
    assert names(result.stderr.splitlines()[-1], group, f"{group}_a")


def test_foreign_clients_are_reported(cluster: Sandbox, build: Build, make_topic: Callable[..., str]) -> None:
    """Who is not named as the Scala consumer's members are may plan by other rules: said before anything is done."""
    topic = make_topic(1)
    group = build({"G_a": {topic: 1}, "odd": {topic: 1}}, {TopicPartition(topic, 0): "G_a-0"})
    result = run("assign", group, "--execute", "--timeout", "1", "-z", cluster.connect)
    assert names(result.stderr, "warning", "foreign-client", "odd")


def test_nobody_answers(cluster: Sandbox, build: Build, make_topic: Callable[..., str]) -> None:
    """Nodes that nobody is behind, one of them garbage: it says that nothing happened, and what is in the way."""
    topic = make_topic(4)
    group = build({"G_a": {topic: 2}, "G_bad": b"no JSON"}, {})
    result = run("assign", group, "--execute", "--timeout", "1", "-z", cluster.connect)
    assert result.returncode == 6
    assert names(result.stderr, "warning", f"{group}_bad")
    assert names(result.stderr.splitlines()[-1], f"{topic}-0..3", f"{group}_a", f"{group}_bad")


def test_a_member_that_leaves_meanwhile_is_no_failure(
    cluster: Sandbox, registry: Registry, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """A member whose session ends while the group is at it: the others take over, which is a plan, too."""
    group, topic = unique("left"), make_topic(2)
    command = [ZKGROUP, "assign", group, "--execute", "-z", cluster.connect]
    with ReadMember(cluster.connect, group, {topic: 1}, consumer_id="a", rebalance_max_retries=20):
        wait_for_rest(registry, group, 1)
        with Registry(registry.settings, 30.0) as other:
            node = znodes.member_id(group, f"{group}_z")
            assert not isinstance(other.write(Create(node, data_of({topic: 1}), ephemeral=True)), Failure)
            claim = Create(znodes.owner(group, TopicPartition(topic, 1)), f"{group}_z-0".encode(), ephemeral=True)
            wait_until(lambda: other.write(claim) is None, what="its half is free")
            wait_until(lambda: len(owners(registry, group)) == 2, what="a half each")
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
            wait_until(lambda: len(id_nodes(registry, group)) == 3, what="our node")
        with process:
            err = process.communicate(timeout=90)[1].decode()
        assert process.returncode == 0, err


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
def test_scala_members_rebalance(
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
        # What a member has not seen yet when it claims its share has it rebalance once more: the owners of this very
        # snapshot count.
        before: list[dict[TopicPartition, str | None]] = []

        def both_own_their_shares() -> bool:
            if len(id_nodes(registry, group)) < 2:
                return False
            found = read_group(registry, group)
            before[:] = [{partition.key: partition.owner for partition in found.partitions}]
            return at_rest in infer_strategy(found).exact

        wait_until(both_own_their_shares, 60, "both members own their shares")
        result = run("assign", group, "--execute", "--output", "json", "-z", cluster.connect, timeout=90)
        assert result.returncode == 0, result.stderr
        plan = json.loads(result.stdout)
        assert plan["strategy"] == strategy
        assert {"strategy": strategy, "compat": compat} in plan["explanation"]["exact"]
        assert (plan["matches_current"], plan["rebalanced"]["still"]) == (True, [])
        assert [owners(registry, group)] == before


def test_a_group_that_gave_up_is_repaired(
    cluster: Sandbox, registry: Registry, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """A Scala member whose attempts all failed stays registered and reads nothing, even when the way is free
    again; made to rebalance it gets its share."""
    group, topic = unique("gaveup"), make_topic(2)
    impatient = {"rebalance.max.retries": "2", "rebalance.backoff.ms": "200"}
    foreign, ours = TopicPartition(topic, 1), f"{group}_{group}-a"
    with (
        cluster.member(group, topic, kind="topics", name=f"{group}-a", properties=impatient) as member,
        Registry(registry.settings, 30.0) as other,
    ):
        wait_until(lambda: len(owners(registry, group)) == 2, 60, "it owns both")
        # A member comes, claims its half, and goes without giving it up.
        node = znodes.member_id(group, f"{group}_z")
        assert not isinstance(other.write(Create(node, data_of({topic: 1}), ephemeral=True)), Failure)
        claim = Create(znodes.owner(group, foreign), f"{group}_z-0".encode(), ephemeral=True)
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
    """A Scala member of range with ours of roundrobin: the state is one of the outcomes, and who deviates from
    what the other has is named; making them rebalance does not help, and says so."""
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
        inference = shown[0]["explanation"]
        assert inference["deviating"] == live["losers"]
        assert inference["best"]["strategy"] == ("range" if live["holders"] == [range_member] else "roundrobin")
        result = run("assign", group, "--execute", "--timeout", "5", "-z", cluster.connect, timeout=60)
        assert result.returncode == 6
        last = result.stderr.splitlines()[-1]
        assert (names(last, group), f"{topic}-" in last) == (True, True)
        assert id_nodes(registry, group) == {range_member, other}
