"""A member whose process hangs: it is named, and nobody is accused in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from broken_groups_by_hand import CLAIMED, HUNG
from cli import run
from diagnosed_groups import NOW, SECOND, codes, findings_of, found, having
from lines import names
from members import ProcessMember, ReadMember, owners, wait_for_rest
from support import wait_until

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.findings.group_facts import REST
from zkgroup.groups.group_model import GroupSnapshot
from zkgroup.groups.snapshot.group_reader import read_group
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children, Create, Delete, Failure
from zkgroup.protocol.znodes import Registration, encode_registration
from zkgroup.sandbox.local_cluster import Sandbox

# Attempts without end: a member that gives up would leave, and change the group once more.
PATIENT = {"rebalance_max_retries": 100, "rebalance_backoff_ms": 500, "session_timeout": 30.0}

#: What is said of members that have not claimed anew.
TOLD = {"unresponsive-member", "rebalance-in-progress"}


class Hung(NamedTuple):
    """A group in which ``b`` is stopped, and ``c`` cannot claim its share for that."""

    group: str
    topic: str


@pytest.fixture
def hung(
    cluster: Sandbox, registry: Registry, make_topic: Callable[..., str], unique: Callable[[str], str], tmp_path: Path
) -> Iterator[Hung]:
    """Four members; ``b`` is stopped, then ``a`` leaves: the share of ``c`` is now what ``b`` has, that of ``d`` is
    free."""
    group, topic = unique("hung"), make_topic(6)
    session = "zookeeper.session.timeout.ms=30000"
    with ExitStack() as stack:

        def join(name: str) -> ReadMember:
            return stack.enter_context(ReadMember(cluster.connect, group, {topic: 1}, consumer_id=name, **PATIENT))

        b = ProcessMember(cluster.connect, group, topic, "b", tmp_path, session)
        stack.callback(b.kill)
        a, _, _ = join("a"), join("c"), join("d")
        wait_for_rest(registry, group, 4)
        b.stop()
        a.close()
        ids = znodes.ids(group)
        wait_until(lambda: len(registry.read([Children(ids)])[0] or ()) == 3, 30, "a has left")
        last = TopicPartition(topic, 4)
        wait_until(lambda: owners(registry, group).get(last) == f"{group}_d-0", 30, "d has its new share")
        yield Hung(group, topic)


def test_a_member_that_hangs_is_named(hung: Hung, cluster: Sandbox, registry: Registry) -> None:
    """Its claims are older than the last change of the group, those of others are not: it is to be read, the
    member whose share it has waits for that, and a rebalance that is tried says what it measured."""
    snapshot = read_group(registry, hung.group)
    later = replace(snapshot, taken_at=snapshot.taken_at + REST)
    b, c = f"{hung.group}_b", f"{hung.group}_c"
    finding = found(later, "unresponsive-member")
    assert (finding.subject, finding.severity) == (b, "critical")
    idle = found(later, "member-without-partitions")
    assert (idle.subject, idle.commands) == (c, ())
    assert names(str(idle.remedy), b)
    assert idle.remedy == found(later, "partition-without-owner").remedy
    critical = {one.code for one in findings_of(later) if one.severity == "critical"}
    assert critical == {"unresponsive-member", "member-without-partitions", "partition-without-owner"}
    assert "unexplained-owners" not in codes(later)

    result = run("assign", hung.group, "--execute", "--timeout", "5", "-z", cluster.connect)
    assert result.returncode == 6
    assert names(result.stderr, "done", b)
    (error,) = (line for line in result.stderr.splitlines() if line.startswith("zkgroup: "))
    assert names(error, b, b), "also in the remedy"


def test_a_member_that_hangs_alone(
    cluster: Sandbox, registry: Registry, make_topic: Callable[..., str], unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Somebody came and went, as ``assign --execute`` lets it be, and the only member does not follow: one snapshot
    shows that it has yet to, without a word of hanging; a second one, ten seconds later, names it. Once it has
    followed, nothing is said."""
    group, topic = unique("hung"), make_topic(2)
    member = ProcessMember(cluster.connect, group, topic, "b", tmp_path, "zookeeper.session.timeout.ms=30000")
    with ExitStack() as stack:
        stack.callback(member.kill)
        wait_for_rest(registry, group, 1)
        assert codes(_rested(registry, group)) & TOLD == set()
        member.stop()
        passing = znodes.member_id(group, f"{group}_passing")
        data = encode_registration(Registration("static", {}, 1411294187842))
        assert not isinstance(registry.write(Create(passing, data, ephemeral=True)), Failure)
        registry.write(Delete(passing))
        snapshot = _rested(registry, group)
        finding = found(snapshot, "rebalance-in-progress")
        assert (finding.severity, names(finding.message, f"{group}_b")) == ("info", True)
        assert codes(snapshot) & TOLD == {finding.code}
        later = replace(snapshot, taken_at=snapshot.taken_at + REST)
        assert codes(later, snapshot) & TOLD == {"unresponsive-member"}
        member.go_on()
        wait_until(lambda: not codes(_rested(registry, group)) & TOLD, 30, "the member has followed")


def _rested(registry: Registry, group: str) -> GroupSnapshot:
    """A snapshot of the group, as if it came some time later: what has times is no news any more."""
    snapshot = read_group(registry, group)
    return replace(snapshot, taken_at=snapshot.taken_at + REST)


# --- by hand --------------------------------------------------------------------------------------------------------


def test_who_claimed_after_the_change_is_not_called_hung() -> None:
    """A claim in a later transaction than the last change of the group is a rebalance."""
    claimed = tuple(replace(p, claimed=705) if p.member == "g_b" else p for p in HUNG.partitions)
    assert "unresponsive-member" not in codes(replace(HUNG, partitions=claimed))


def test_one_snapshot_of_a_change_without_a_date_names_no_hung_member() -> None:
    """Where no member has claimed anew yet, a member may have left this very moment: only a second snapshot, or a
    member that came long ago, shows."""
    alone = replace(
        having(HUNG, 3, owner=None, member=None, stream=None, since=None, claimed=0), members=HUNG.members[:2]
    )
    assert codes(alone) & TOLD == {"rebalance-in-progress"}
    before = replace(alone, taken_at=NOW - 30 * SECOND)
    assert found(alone, "unresponsive-member", before).subject == "g_b"
    changed_since = replace(before, ids_changed=650)
    assert "unresponsive-member" not in codes(alone, changed_since)
    came = replace(alone, members=(replace(alone.members[0], czxid=700), *alone.members[1:]))
    assert found(came, "unresponsive-member").subject == "g_b"
    just_now = replace(came.members[0], created_at=NOW - SECOND)
    assert "unresponsive-member" not in codes(replace(came, members=(just_now, *came.members[1:])))


@pytest.mark.parametrize(
    "change",
    [
        lambda s: replace(s, broker_ids=()),
        lambda s: replace(s, ids_changed=0),
        lambda s: replace(s, partitions=tuple(replace(p, stream=None) for p in s.partitions)),
    ],
    ids=["no broker", "not read", "foreign"],
)
def test_who_has_reason_not_to_claim_anew_is_not_called_hung(change: Callable[[GroupSnapshot], GroupSnapshot]) -> None:
    """Without brokers nobody rebalances; clients of other kinds keep what does not change; 0 is no transaction."""
    assert codes(HUNG) & TOLD == {"unresponsive-member"}
    assert codes(change(HUNG)) & TOLD == set()


def test_a_hung_member_with_nothing_unread_is_a_warning() -> None:
    """What it holds is read by nobody, perhaps; but it may only be slow, and nobody else is held up."""
    assert found(having(HUNG, 2, **CLAIMED), "unresponsive-member").severity == "warning"
