"""A healthy group of which an access list hides a part: what cannot be seen is not diagnosed, nor made anything of."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from cli import run
from diagnosed_groups import DAY, findings_of
from hidden_groups import AUTH, CLOSED, PARTS, make_hiding
from lines import names
from support import numbered

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.groups.assignment.assignment_plan import find_misfits, read_plan_start
from zkgroup.groups.assignment.trigger_rebalance import find_objection
from zkgroup.groups.changes.inactive_groups import read_inactive_groups
from zkgroup.groups.changes.preconditions import read_inactive_group
from zkgroup.groups.snapshot.group_reader import read_group, read_groups
from zkgroup.groups.snapshot.snapshot_defects import incomplete_notes, ownership_defects, unreadable_ownership
from zkgroup.protocol import znodes
from zkgroup.protocol.assignors import Assignment
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import OPEN, Children, Create, Delete, Ensure, Failure
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import produce


@pytest.fixture
def app(cluster: Sandbox) -> Iterator[Registry]:
    """The session of the application, which its access list lets in."""
    with Registry(ZooKeeperSettings(cluster.connect, connect_timeout=20.0, auth=(AUTH,)), 20.0) as session:
        yield session


@pytest.fixture
def hide_part(
    app: Registry, make_topic: Callable[..., str], unique: Callable[[str], str], kafka: KafkaSettings
) -> Callable[[str | None], tuple[str, str, str]]:
    """``hide_part(part)`` makes a healthy group of which that part is closed: its name, its topic, the path."""

    def make(part: str | None) -> tuple[str, str, str]:
        topic, group = make_topic(2), unique("hiding")
        produce(kafka, topic, numbered(20, 2))
        return group, topic, make_hiding(app, group, topic, part)

    return make


@pytest.mark.parametrize("part", [None, *PARTS])
def test_what_may_not_be_read_is_not_diagnosed(
    part: str | None,
    hide_part: Callable[[str | None], tuple[str, str, str]],
    registry: Registry,
    kafka: KafkaSettings,
) -> None:
    """Of a healthy group with a closed part exactly that is found, at whatever age; its state and its owners are not
    called wrong, and what could not be checked is said to be so."""
    group, topic, path = hide_part(part)
    found = read_group(registry, group, kafka=kafka)
    assert found.state == "active"
    assert ownership_defects(found) == []
    for later in (0, 60_000, 30 * DAY):
        findings = findings_of(replace(found, taken_at=found.taken_at + later))
        if part is None:
            assert findings == []
            continue
        (finding,) = findings
        subject = f"{group}_b" if part == "member" else path
        severity = "info" if part == "group" else "warning"
        assert (finding.code, finding.subject, finding.severity) == ("unreadable-node", subject, severity)
        assert "not authorised" in finding.message
        assert "credentials" in str(finding.remedy) or part == "group"
        assert "delete" not in str(finding.remedy)
    unknown = unreadable_ownership(found)
    assert bool(unknown) == (part in ("ids", "member", "owners", "owners of a topic", "owner"))
    assert all(path in text for text in unknown)
    known = {p.partition: p.committed("both") for p in found.partitions if p.topic == topic}
    if part in ("offset", "offsets of a topic", "offsets"):
        assert known == {0: None, 1: 5 if part == "offset" else None}
    else:
        assert known == {0: 5, 1: 5}


def test_a_group_without_members_that_hides_is_no_debris(
    hide_part: Callable[[str | None], tuple[str, str, str]], registry: Registry, app: Registry
) -> None:
    """Where nobody can see who is registered, somebody may be: the group is neither abandoned nor leftover."""
    group, topic, path = hide_part("ids")
    for number, name in enumerate("ab"):
        app.write(Delete(znodes.member_id(group, f"{group}_{name}")))
        app.write(Delete(znodes.owner(group, TopicPartition(topic, number))))
    found = read_group(registry, group)
    assert found.state == "broken"  # that it has members cannot be reported, nor that it has none
    later = findings_of(replace(found, taken_at=found.taken_at + 30 * DAY))
    assert {(f.code, f.subject) for f in later if f.severity != "info"} == {("unreadable-node", path)}
    assert "leftover-group" not in {finding.code for finding in later}


@pytest.mark.parametrize("part", ["member", "owners", "owner"])
def test_nobody_is_made_to_rebalance_blindly(
    part: str, hide_part: Callable[[str | None], tuple[str, str, str]], registry: Registry
) -> None:
    """What would come of it could not be seen: that is no refusal, and the advice is to get in, not to delete."""
    group, _, path = hide_part(part)
    ground = read_plan_start(registry, group)
    assert ground.snapshot is not None
    against = find_objection(ground.snapshot, Assignment({}), None)
    assert against is not None
    assert against.exit_code == 1
    assert path in against.message
    assert "credentials" in str(against.remedy)
    assert isinstance(find_misfits(ground.snapshot, []), list)


def test_nobody_plans_for_members_that_may_not_be_seen(
    hide_part: Callable[[str | None], tuple[str, str, str]], registry: Registry
) -> None:
    """A plan without members would be a plan for another group."""
    group, _, path = hide_part("ids")
    with pytest.raises(ZkgroupError, match=rf"\b{group}\b.* {path}\b"):
        read_plan_start(registry, group)


@pytest.mark.parametrize(
    ("part", "owners", "inspect"), [("group", 0, 0), ("ids", 1, 1), ("owners", 1, 1), ("offset", 0, 1)]
)
def test_undiagnosed_is_not_wrong(
    part: str,
    owners: int,
    inspect: int,
    hide_part: Callable[[str | None], tuple[str, str, str]],
    cluster: Sandbox,
) -> None:
    """--verify ends with 1, naming the node, where what it asks cannot be reported, and with 0 where it can."""
    group, _, path = hide_part(part)
    for command, code in (("owners", owners), ("inspect-group", inspect)):
        result = run(command, group, "--verify", "-z", cluster.connect, "--output", "json")
        assert result.returncode == code, (command, result.stderr)
        assert json.loads(result.stdout)
        if code:
            assert path in result.stderr
    rows = json.loads(run("owners", group, "-z", cluster.connect, "--output", "json").stdout)
    unseen = {"ids": [None] * len(rows), "owners": [None] * len(rows)}
    assert [row["registered"] for row in rows] == unseen.get(part, [True, True])


def test_a_plan_with_owners_that_may_not_be_seen(
    hide_part: Callable[[str | None], tuple[str, str, str]], cluster: Sandbox
) -> None:
    """The plan is shown, and no partition is said to be free or to move."""
    group, _, path = hide_part("owners")
    result = run("assign", group, "-z", cluster.connect, "--output", "json")
    assert result.returncode == 0, result.stderr
    shown = json.loads(result.stdout)
    assert {row["change"] for row in shown["assignment"]} == {None}
    assert {share["gains"] for share in shown["shares"]} == {0}
    assert [path in each["message"] for each in shown["conflicts"] if each["kind"] == "hidden"] == [True]
    refused = run("assign", group, "--execute", "-z", cluster.connect)
    assert refused.returncode == 1
    assert path in refused.stderr


def test_a_list_of_groups_that_may_not_be_read_is_not_empty(
    zookeeper: Sandbox, registry: Registry, unique: Callable[[str], str]
) -> None:
    """All groups cannot be shown then, which is an error; one that is named is read as ever."""
    chroot = f"/{unique('shut')}"
    with Registry(ZooKeeperSettings(zookeeper.address, auth=(AUTH,)), 20.0) as session:
        assert not isinstance(session.write(Ensure(chroot)), Failure)
        assert not isinstance(session.write(Create(f"{chroot}/consumers", acl=CLOSED)), Failure)
        assert not isinstance(session.write(Create(f"{chroot}/consumers/g")), Failure)
    with Registry(ZooKeeperSettings(zookeeper.address + chroot), 20.0) as shut:
        with pytest.raises(ZkgroupError, match=r"znode /consumers\b.*\bnot authorised\b"):
            read_groups(shut)
        assert read_group(shut, "g").state == "inactive"


@pytest.mark.parametrize("part", [None, *PARTS])
def test_a_list_says_of_which_groups_it_counts_a_part(
    part: str | None, hide_part: Callable[[str | None], tuple[str, str, str]], cluster: Sandbox, registry: Registry
) -> None:
    """Offsets that may not be read are no lag, and no sign of there being none. What a group's own node has is not
    counted."""
    group, _, _ = hide_part(part)
    message = incomplete_notes([read_group(registry, group)])
    assert [group in str(line) for line in message] == ([] if part in (None, "group") else [True])
    if part == "offsets":
        result = run("list-groups", "-z", cluster.connect)
        assert result.returncode == 0, result.stderr
        (every,) = incomplete_notes(read_groups(registry))
        assert str(every) in result.stderr


def test_a_plan_with_a_member_that_may_not_be_seen(
    hide_part: Callable[[str | None], tuple[str, str, str]], cluster: Sandbox
) -> None:
    """The plan leaves it out, and says that it does and why; nothing is said to be mended."""
    group, _, path = hide_part("member")
    result = run("assign", group, "-z", cluster.connect)
    assert result.returncode == 0, result.stderr
    assert names(result.stderr, path, "not authorised")


@pytest.mark.parametrize("is_active", [True, False])
@pytest.mark.parametrize("part", [None, *PARTS])
def test_a_state_is_one_word(
    part: str | None,
    is_active: bool,
    hide_part: Callable[[str | None], tuple[str, str, str]],
    registry: Registry,
    app: Registry,
) -> None:
    """A deletion by a pattern shows the state that a list of groups shows; what is hidden keeps the group all the
    same."""
    group, _, _ = hide_part(part)
    if not is_active:
        for name in "ab":
            app.write(Delete(znodes.member_id(group, f"{group}_{name}")))
        (topics,) = app.read([Children(znodes.owners(group))])
        for topic in topics if isinstance(topics, tuple) else ():
            for number in range(2):
                app.write(Delete(znodes.owner(group, TopicPartition(topic, number))))
    now = int(time.time() * 1000)
    ((row,), _) = read_inactive_groups(registry, [group], now + DAY, 0)
    hides_members = part == "ids" and not is_active
    assert (
        row.state
        == read_group(registry, group).state
        == ("broken" if hides_members else "active" if is_active else "inactive")
    )
    assert not (is_active and row.barred)
    assert (row.action, row.members) == (
        "delete" if part in (None, "member", "owner") and not is_active else "keep",
        2 if is_active and part != "ids" else 0,
    )


@pytest.mark.parametrize("part", ["ids", "owners", "owners/t", "zkgroup/export"])
def test_what_may_be_active_is_not_changed(
    part: str, app: Registry, registry: Registry, unique: Callable[[str], str]
) -> None:
    """Members, owners or an export that may not be seen may be there: refused, with the node."""
    group = unique("hiding")
    path, names_below = znodes.group(group), part.split("/")
    app.write(Ensure(path))
    for name in names_below:
        path = f"{path}/{name}"
        made = app.write(Create(path, b"", acl=CLOSED if path.endswith(f"/{part}") else OPEN))
        assert not isinstance(made, Failure), made
    with pytest.raises(RefusedError, match=rf"{path}\b"):
        read_inactive_group(registry, group)
