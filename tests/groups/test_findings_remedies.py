"""What findings say, and advise: of groups made by hand."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from typing import Any

import pytest
import typer
from broken_groups_by_hand import ALONE
from diagnosed_groups import (
    GROUP,
    codes,
    findings_of,
    found,
    group,
    having,
    inactive,
    kafka,
    lines,
    member,
    owned,
    stored,
    topic,
)
from hypothesis import given
from hypothesis import strategies as st
from lines import names

from zkgroup.commands import app
from zkgroup.errors import Notice, RefusedError, Remedy
from zkgroup.groups.assignment.trigger_rebalance import find_objection
from zkgroup.groups.group_model import NodeProblem
from zkgroup.groups.partition_scope import parse_scope
from zkgroup.groups.snapshot.snapshot_defects import rebalance_obstacles


def test_nodes_with_the_same_trouble_are_one_finding() -> None:
    """A node that is alone is the subject; of several the group is, and the message lists them."""
    why = "has a problem"
    denied = [NodeProblem(f"/consumers/g/owners/orders/{n}", why) for n in "xyzt"]
    finding = found(replace(ALONE, problems=tuple(denied)), "unreadable-node")
    assert finding.subject == GROUP
    first = (f"/consumers/g/owners/orders/{name}" for name in "xyz")
    assert names(finding.message, 4, why, *first, 1)
    finding = found(replace(ALONE, problems=tuple(denied[:1])), "unreadable-node")
    assert (finding.subject, finding.message) == ("/consumers/g/owners/orders/x", why)
    assert names(str(finding.remedy), "delete /consumers/g/owners/orders/x")


def test_partitions_of_a_topic_share_a_finding() -> None:
    """A thousand unread partitions are one line a topic, and what is said of each is said of the first few."""
    unread = group([member("g_a", {"orders": 1, "bills": 1})], [
        *(owned("orders", n, None, stored=stored(n % 9)) for n in range(1000)), owned("bills", 0),
    ])  # fmt: skip
    finding = found(unread, "partition-without-owner")
    assert finding.subject == "orders-0..999"
    assert names(finding.message, 1000)
    lost = found(unread, "offset-before-start")
    assert names(lost.message, 997)
    some = found(having(having(ALONE, 0, stored=stored(1)), 1, stored=stored(2)), "offset-before-start")
    assert lines(some) == ("zkgroup reset-offsets g --topic orders:0-1 --to-earliest --execute",)


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("unreadable-offset", {"stored": stored(None, error="is no number")}),
        ("unreadable-offset", {"stored": stored(50, defect="has a blank")}),
        ("partition-without-offset", {"stored": None}),
        ("offset-beyond-end", {"stored": stored(500)}),
        ("offset-before-start", {"stored": stored(5)}),
        ("recreated-topic", {"stored": stored(50, mzxid=1)}),
        ("offset-of-missing-partition", {"exists": False, "leader": None, "log_start": None, "log_end": None}),
        ("contradicting-offsets", {"stored": stored(50), "kafka": kafka(60)}),
    ],
)
@given(st.sets(st.integers(0, 59), min_size=1, max_size=59))
def test_a_remedy_is_for_what_was_found_and_no_more(code: str, changes: dict[str, Any], wrong: set[int]) -> None:
    """However many partitions are wrong, the command that is advised leaves the offsets of the others alone."""
    sound = inactive(60).partitions
    malformed = tuple(replace(p, **changes) if p.partition in wrong else p for p in sound)
    topics = () if code != "recreated-topic" else (topic("orders", 60, czxid=400),)
    finding = found(group((), malformed, topics), code)
    scopes = re.findall(r"--topic (\S+)", "\n".join(lines(finding)))
    assert scopes
    for scope in map(parse_scope, ([one] for one in scopes)):
        assert {p.partition for p in sound if scope.has(p.key)} == wrong


def test_remedies_can_be_pasted_into_a_shell() -> None:
    """Names that a shell would take apart are quoted."""
    hostile = having(replace(ALONE, group="a; rm -rf b"), 1, stored=stored(1))
    (command,) = lines(found(hostile, "offset-before-start"))
    assert command == "zkgroup reset-offsets 'a; rm -rf b' --topic orders:1 --to-earliest --execute"


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "two words",
        "it's",
        "a\u200bb",
        "\x1b[31m'red\\",
        "line\nbreak",
        "\udcff",
        "-z",
        "--all",
        "-",
        "é日",
        "$HOME",
    ],
)
def test_a_remedy_can_be_pasted(name: str) -> None:
    """Whatever a group is called, a shell and the command line read its name out of the remedy as it is."""
    snapshot = replace(inactive(), group=name, partitions=(owned("orders", 0, None, stored=stored(500)),))
    (line,) = lines(found(snapshot, "offset-beyond-end"))
    assert line.isprintable()
    shell = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, timeout=30, check=True)
    _, command, *words = [word.decode("utf-8", "surrogateescape") for word in shell.stdout.split(b"\0")[:-1]]
    group: Any = typer.main.get_command(app)
    parsed = group.get_command(None, command).make_context(command, words).params
    assert (parsed["group"], parsed["topic"], parsed["execute"]) == (name, ("orders:0",), True)


def test_whose_offsets_are_right_is_for_the_operator() -> None:
    """Each store's can be taken over, of each partition its own: none is said to be the right one."""
    partitions = [owned("orders", n, None, stored=stored(50 + n), kafka=kafka(60 + n)) for n in range(2)]
    assert lines(found(group((), partitions), "contradicting-offsets")) == (
        "zkgroup offsets g --store both",
        "zkgroup migrate-group g --to zookeeper --prefer source --topic orders:0-1 --execute",
        "zkgroup migrate-group g --to kafka --prefer source --topic orders:0-1 --execute",
    )


def test_a_stopped_group_gets_no_advice_to_rebalance() -> None:
    """With a registration that nobody gets past, every remedy for idle members and gaps is to mend that first."""
    bad = member("g_bad", {}, registration=None, error="is no JSON", data=b"no JSON")
    snapshot = group([member("g_a", {"orders": 1}), bad], [owned("orders", n, None) for n in range(2)])
    for code in ("member-without-partitions", "partition-without-owner"):
        remedy = found(snapshot, code).remedy
        assert remedy is not None
        assert (names(remedy.text, "g_bad"), remedy.commands) == (True, ())


def test_an_incomplete_snapshot_names_all_that_is_unknown() -> None:
    """Ten thousand partitions of which brokers tell nothing are one subject, and each reason is given once."""
    partitions = [
        owned(
            "orders",
            number,
            None,
            log_start=None,
            log_end=None,
            log_error="no answer",
        )
        for number in range(10_000)
    ]
    message = found(group((), partitions), "incomplete-snapshot").message
    assert message.startswith("orders-0..9999: no answer: ")
    assert message.count("no answer") == 1


@pytest.mark.parametrize("code", ["persistent-owner", "owner-without-registration"])
def test_nobody_is_made_to_rebalance_who_is_not_there(code: str) -> None:
    """Owner nodes of a group without members: they are to go, and that is all."""
    session = 0 if code == "persistent-owner" else 7
    left = group((), [owned("orders", 0, owner="g_z-0", member=None, session_id=session)])
    released = ("zkgroup release-owners g --topic orders:0 --execute",)
    assert lines(found(left, code)) == (released if code == "persistent-owner" else ())


@pytest.mark.parametrize("is_unreadable", [False, True])
def test_no_rebalance_is_advised_without_a_living_member(is_unreadable: bool) -> None:
    """Registrations that no session owns, or that may not be read: nobody is known to be there who could rebalance."""
    dead = member("g_b", {"orders": 1}, session_id=0)
    hidden = member("g_b", {}, registration=None, data=b"", session_id=0, error="hidden", is_unreadable=True)
    path = "/consumers/g/ids/g_b"
    left = group(
        [hidden if is_unreadable else dead],
        [owned("orders", 0, None), owned("orders", 1, "g_b-0", session_id=0)],
        unreadable={path: "not authorised"} if is_unreadable else {},
    )
    assert {"persistent-owner"} <= codes(left)
    assert not [line for one in findings_of(left) for line in lines(one) if " assign " in line]
    obstacle = next(rebalance_obstacles(left))
    assert obstacle.is_unknown is is_unreadable
    release = found(left, "persistent-owner").remedy
    assert release is not None
    assert release.text.endswith(obstacle.remedy)
    refused = find_objection(left, None, Notice("nobody plans"))
    assert refused is not None
    assert isinstance(refused, RefusedError) is not is_unreadable
    assert refused.remedy == Remedy(obstacle.remedy)
    both = replace(left, members=(*left.members, member("g_a", {"orders": 1})))
    advised = [line for one in findings_of(both) for line in lines(one) if " assign " in line]
    assert bool(advised) is not is_unreadable


def test_a_node_of_no_session_is_released() -> None:
    """Of a registration, or an owner node, that is not ephemeral no client's end takes it away: a command does."""
    bad = member("g_bad", {}, registration=None, error="is no JSON", data=b"no JSON", session_id=0)
    assert lines(found(replace(ALONE, members=(*ALONE.members, bad)), "stopping-registration")) == (
        "zkgroup release-owners g --member g_bad --execute",
        "zkgroup owners g --verify",
    )
    empty = having(ALONE, 1, owner=None, member=None, error="the owner node is empty", session_id=0)
    assert lines(found(empty, "unreadable-owner"))[0] == "zkgroup release-owners g --topic orders:1 --execute"
    ephemeral = having(ALONE, 1, owner=None, member=None, error="the owner node is empty", session_id=7)
    assert lines(found(ephemeral, "unreadable-owner")) == ("zkgroup assign g --execute",)


@pytest.mark.parametrize(
    ("kept", "ours", "theirs"),
    [
        ({"stored": stored(5)}, True, False),
        ({"kafka": kafka(5)}, False, True),
        ({"stored": stored(5), "kafka": kafka(5)}, True, True),
    ],
)
def test_a_command_is_advised_for_what_it_can_remove(kept: dict[str, Any], ours: bool, theirs: bool) -> None:
    """Of offsets of a partition that is gone: no command of ours removes single ones from Kafka."""
    gone = owned("orders", 7, None, exists=False, leader=None, log_start=None, log_end=None, **{"stored": None, **kept})
    others = (replace(p, stored=None) for p in inactive().partitions)
    finding = found(replace(inactive(), partitions=(*others, gone)), "offset-of-missing-partition")
    assert lines(finding) == (("zkgroup delete-group g --topic orders:7 --execute",) if ours else ())
    assert ("--delete-offsets" in str(finding.remedy)) is theirs


@pytest.mark.parametrize(
    ("code", "kept", "option"),
    [
        ("unreadable-offset", {"stored": stored(11, defect="has a blank"), "kafka": kafka(55)}, "zookeeper"),
        ("unreadable-offset", {"stored": stored(None, error="is no number")}, None),
        ("offset-beyond-end", {"stored": stored(500), "kafka": kafka(5)}, "zookeeper"),
        ("offset-beyond-end", {"stored": stored(5), "kafka": kafka(500)}, "kafka"),
        ("offset-beyond-end", {"stored": stored(500), "kafka": kafka(500)}, None),
        ("offset-beyond-end", {"stored": stored(500), "kafka": kafka(600)}, None),
        ("offset-before-start", {"stored": stored(5), "kafka": kafka(50)}, "zookeeper"),
        ("offset-before-start", {"stored": stored(5)}, None),
    ],
)
def test_a_remedy_leaves_the_good_offset_of_two_alone(code: str, kept: dict[str, Any], option: str | None) -> None:
    """What is wrong in one store is not a reason to move what the other has."""
    remedy = "\n".join(lines(found(having(inactive(), 1, **kept), code)))
    assert re.findall(r"--store (\w+) --execute", remedy) == ([option] if option else [])
    assert len(re.findall(r"zkgroup reset-offsets g --topic orders:1 --to-[a-z]+", remedy)) == 1


def test_offsets_that_are_wrong_in_different_stores_are_repaired_one_by_one() -> None:
    """A command for each, since one option cannot be right for both; what the other store has is taken over where it
    is right."""
    both = having(having(inactive(4), 0, kafka=kafka(600)), 1, stored=stored(500), kafka=kafka(55))
    both = having(having(both, 2, stored=stored(500)), 3, stored=stored(500), kafka=kafka(1))
    remedy = "\n".join(lines(found(both, "offset-beyond-end")))
    assert re.findall(r"migrate-group g --to (\w+) --prefer source --topic (\S+) --execute", remedy) == [
        ("kafka", "orders:0"),
        ("zookeeper", "orders:1"),
    ]
    assert re.findall(r"--topic (\S+) --to-earliest( --store \w+)? --execute", remedy) == [
        ("orders:2", ""),
        ("orders:3", " --store zookeeper"),
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"stored": stored(500), "kafka": kafka(55)},
        {"stored": stored(55), "kafka": kafka(500)},
        {"stored": stored(5), "kafka": kafka(55)},
        {"stored": stored(50, defect="has a blank"), "kafka": kafka(55)},
        {"stored": stored(50, mzxid=1), "kafka": kafka(55)},
    ],
)
def test_what_is_wrong_in_one_store_contradicts_nothing(changes: dict[str, Any]) -> None:
    """Else what is advised for it would take the wrong one of two over into the other store."""
    topics = (topic("orders", 2, czxid=400),)
    assert "contradicting-offsets" not in codes(having(inactive(topics=topics), 1, **changes))


def test_numbers_are_kept_next_to_a_malformed_one() -> None:
    """A -1 with a blank has no number to be written alone; those next to it have."""
    odd = having(inactive(), 0, stored=stored(None, defect="-1 and a blank"))
    odd = having(odd, 1, stored=stored(9, defect="a blank"))
    remedies = ["\n".join(lines(one)) for one in findings_of(odd) if one.code == "unreadable-offset"]
    assert [re.findall(r"--topic (\S+) (--to-\S+(?: \d+)?)", one) for one in remedies] == [
        [("orders:0", "--to-earliest")],
        [("orders:1", "--to-current")],
    ]


def test_kafkas_offset_that_is_the_same_is_as_old() -> None:
    """Of a recreated topic: left where it is it would be found next, beyond the log's end."""
    for offset, option in ((50, ""), (60, " --store zookeeper")):
        partition = owned("orders", 0, None, stored=stored(50, mzxid=1), kafka=kafka(offset))
        remedy = lines(found(group((), [partition], [topic("orders", 1, czxid=400)]), "recreated-topic"))
        assert remedy == (f"zkgroup reset-offsets g --topic orders:0 --to-earliest{option} --execute",)
