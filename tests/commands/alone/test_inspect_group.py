"""``zkgroup inspect-group`` on real servers."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli import run, run_on_terminal
from group_nodes import Groups, commit_in_kafka, joined, static, tree, white_list
from lines import names
from support import wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.processes import free_port

OBJECT = [
    *("group", "taken_at", "store", "state", "strategy", "topics", "lag", "lag_at_least", "lag_unknown"),
    *("lag_seconds", "lag_seconds_at_least"),
    *("members", "partitions", "findings"),
]
MEMBERS = ["member", "host", "registered_at", "subscription", "pattern", "streams", "owned", "session_id"]
PARTITIONS = [
    *("topic", "partition", "owner", "member", "committed", "committed_at", "log_start", "log_end", "lag", "leader"),
]
TIMES = ["lag_seconds", "lag_seconds_at_least"]
FINDINGS = ["code", "severity", "subject", "message", "remedy", "commands"]
SEVERITIES = ("critical", "warning", "info")
ONE = "@_box-1411294187842-ab12cd34"


@pytest.fixture
def topic(make_topic: Callable[..., str], fill: Callable[..., object]) -> str:
    """Two partitions of ten messages each."""
    name = make_topic(2)
    fill(name, 20, 2)
    return name


@pytest.fixture
def healthy(groups: Groups, topic: str) -> str:
    """A group with which all is well: one member that owns both partitions."""
    return groups.make(
        {ONE: static({topic: 2})},
        {(topic, 0): f"{ONE}-0", (topic, 1): f"{ONE}-1"},
        {(topic, 0): 4, (topic, 1): 10},
    )


@pytest.fixture
def ill(groups: Groups, topic: str) -> str:
    """A group with an offset beyond the end of the log."""
    owners = {(topic, 0): f"{ONE}-0", (topic, 1): f"{ONE}-0"}
    return groups.make({ONE: static({topic: 1})}, owners, {(topic, 0): 4, (topic, 1): 15})


def inspect_group(cluster: Sandbox, *args: str) -> Any:
    """Run it with JSON output; it must succeed without a word."""
    result = run("inspect-group", *args, "-z", cluster.connect, "--output", "json")
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows without what grows from one snapshot to the next."""
    return [{key: value for key, value in row.items() if key not in TIMES} for row in rows]


def count_critical(found: Any) -> int:
    """How many of its findings are critical."""
    return sum(finding["severity"] == "critical" for finding in found["findings"])


def read_csv(cluster: Sandbox, *args: str) -> list[dict[str, str]]:
    result = run("inspect-group", *args, "-z", cluster.connect, "--output", "csv")
    assert result.returncode == 0
    return list(csv.DictReader(io.StringIO(result.stdout)))


def test_one_object(cluster: Sandbox, groups: Groups, healthy: str, topic: str) -> None:
    """JSON is one object with everything: the group, its members, its partitions, its findings."""
    found = inspect_group(cluster, healthy, "--verify")
    assert not [finding for finding in found["findings"] if finding.pop("severity") != "info"]
    found["findings"].clear()  # a group that was just made may still be taking its partitions
    assert list(found) == OBJECT
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\d\dZ", found["taken_at"])
    assert [found[key] for key in ("group", "store", "state", "findings")] == [healthy, "zookeeper", "active", []]
    assert found["strategy"] == "range"
    member = ONE.replace("@", healthy)
    assert found["members"] == [
        {
            "member": member, "host": "box", "registered_at": "2014-09-21T10:09:47.842Z", "subscription": {topic: 2},
            "pattern": "static", "streams": 2, "owned": 2, "session_id": f"{groups.session.session_id:#x}",
        }
    ]  # fmt: skip
    shown = run("inspect-group", healthy, "-z", cluster.connect, "--section", "members").stdout
    assert shown.splitlines()[1].split()[-1] == f"{groups.session.session_id:#x}"
    assert [list(row) for row in found["partitions"]] == [PARTITIONS + TIMES] * 2
    assert [[row.pop(name) for name in TIMES] for row in found["partitions"]][1] == [0, 0]
    assert 0 < found["lag_seconds"] == found["lag_seconds_at_least"] < 3600
    moment = found["partitions"][0].pop("committed_at")
    assert moment.startswith("20")
    assert found["partitions"][0] == {
        "topic": topic, "partition": 0, "owner": f"{member}-0", "member": member, "committed": 4, "log_start": 0,
        "log_end": 10, "lag": 6, "leader": 1,
    }  # fmt: skip


@pytest.mark.parametrize(("section", "columns"), [("members", MEMBERS), ("partitions", PARTITIONS),
                                                  ("findings", FINDINGS)])  # fmt: skip
def test_a_section_in_every_format(cluster: Sandbox, ill: str, section: str, columns: list[str]) -> None:
    """--section shows one part with all its columns, as a table, as JSON and as CSV: the same rows."""
    whole = inspect_group(cluster, ill)[section]
    rows = inspect_group(cluster, ill, "--section", section)
    assert without_times(rows) == without_times(whole)
    more = {"findings": ["page"], "partitions": TIMES}.get(section, [])
    assert [list(row) for row in rows] == [columns + more] * len(rows)
    assert rows
    table = run("inspect-group", ill, "--section", section, "-z", cluster.connect).stdout.splitlines()
    in_time = section == "partitions"
    assert table[0].split() == [*columns, *(["behind"] if in_time else [])]
    assert len(table) == len(rows) + 1
    listed = read_csv(cluster, ill, "--section", section)
    assert [list(row) for row in listed] == [[*columns, *(TIMES[:1] if in_time else [])]] * len(rows)
    for by_json, by_csv, line in zip(rows, listed, table[1:], strict=True):
        for name, value in by_json.items():
            if name in TIMES:
                continue
            if name in more:
                assert value == f"zkgroup inspect-group --explain {by_json['code']}"
                continue
            if isinstance(value, dict):
                value = ",".join(f"{key}={item}" for key, item in value.items())
            lines = value if isinstance(value, list) else [str(value)]
            assert by_csv[name] == ("" if value is None else "\n".join(lines))
            assert ("-" if value is None else " && ".join(lines)) in line


def test_csv_is_the_partitions(cluster: Sandbox, ill: str, topic: str) -> None:
    """Without --section."""
    rows = read_csv(cluster, ill)
    assert [list(row) for row in rows] == [[*PARTITIONS, "lag_seconds"]] * 2
    assert [(row["topic"], row["partition"], row["lag"]) for row in rows] == [(topic, "0", "6"), (topic, "1", "-5")]


def test_the_overview(cluster: Sandbox, ill: str, healthy: str, topic: str) -> None:
    """A table is a line about the group, then members, partitions and findings, the numbers before long names."""
    shown = run("inspect-group", ill, "-z", cluster.connect).stdout
    head, members, partitions, findings, more = (block.splitlines() for block in shown.rstrip("\n").split("\n\n"))
    assert head[0].split() == [
        *("group", "store", "state", "strategy", "members", "topics", "partitions", "lag", "behind", "taken_at"),
    ]
    assert head[1].split()[:8] == [ill, "zookeeper", "active", "range", "1", "1", "2", "≥6"]
    assert re.fullmatch(r"≥\d+ (s|min)( \d+ s)?", " ".join(head[1].split()[8:-1]))
    assert re.fullmatch(r"20[-\d]+T[:.\d]+Z", head[1].split()[-1])
    assert members[:2] == ["members", members[1]]
    assert members[1].split() == ["owned", "streams", "subscription", "host", "member"]
    assert members[2].split() == ["2", "1", f"{topic}=1", "box", ONE.replace("@", ill)]
    assert partitions[1].split() == ["topic", "partition", "committed", "log_end", "lag", "behind", "leader", "owner"]
    assert partitions[2].split()[:5] == [topic, "0", "4", "10", "6"]
    assert partitions[2].split()[-2:] == ["1", ONE.replace("@", ill) + "-0"]
    assert partitions[3].split() == [topic, "1", "15", "10", "-5", "-", "1", ONE.replace("@", ill) + "-0"]
    # What matters is within 80 columns.
    assert all(line.index(line.split()[-1]) < 80 for line in partitions[1:])
    assert findings[0] == "findings"
    assert findings[1] == f"critical  offset-beyond-end: {topic}-1"
    assert findings[3].startswith("          → ")
    assert [names(line, "zkgroup inspect-group --explain CODE") for line in more] == [True]
    assert "critical" not in run("inspect-group", healthy, "-z", cluster.connect).stdout


@pytest.mark.parametrize("code", ["offset-beyond-end", "unresponsive-member"])
def test_a_finding_is_explained(code: str) -> None:
    """Its page is printed, without a cluster; in JSON and CSV it is one row. Links, which lead nowhere on a
    terminal, have become what prints the other page."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "findings" / f"{code}.md").read_text(encoding="utf-8")
    page = re.sub(r"\[(.+?)\]\((.+?)\.md\)", r"\1 (--explain \2)", page)
    assert ".md" not in page
    assert run("inspect-group", "--explain", code).stdout == page
    shown = json.loads(run("inspect-group", "--explain", code, "--output", "json").stdout)
    assert (shown["code"], shown["text"]) == (code, page)
    assert shown["severities"]
    (row,) = csv.DictReader(io.StringIO(run("inspect-group", "--explain", code, "--output", "csv").stdout))
    assert (row["code"], row["text"]) == (code, page)


def test_what_is_no_finding_is_not_explained() -> None:
    """Exit code 2, with the codes that are near; and it is about no group."""
    wrong = run("inspect-group", "--explain", "offset-beyond")
    assert wrong.returncode == 2
    assert names(wrong.stderr, "offset-beyond", "offset-beyond-end")
    assert run("inspect-group", "some-group", "--explain", "offset-beyond-end").returncode == 2


def test_on_a_terminal(cluster: Sandbox, ill: str) -> None:
    """Findings are folded to its width, and nothing is cut off; their severity is a colour, too."""
    code, shown = run_on_terminal(
        "inspect-group",
        ill,
        "-z",
        cluster.connect,
    )
    assert code == 0
    assert "\x1b[1;31mcritical" in shown
    shown = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert "offset-beyond-end" in shown
    lines = [line.rstrip("\r") for line in shown.split("findings")[1].split("\n")]
    assert any(line.startswith(" " * 10) for line in lines)
    plain = run("inspect-group", ill, "-z", cluster.connect).stdout
    assert shown.split("findings")[1].split() == plain.split("findings")[1].split()
    _, section = run_on_terminal("inspect-group", ill, "--section", "findings", "-z", cluster.connect)
    section = re.sub(r"\x1b\[[\d;]*m", "", section)
    assert section.strip() in shown
    assert section.startswith("critical  offset-beyond-end")


def test_verify(cluster: Sandbox, ill: str, healthy: str) -> None:
    """Exit 6 for a critical finding, after everything was shown; warnings and infos are none. Without it, exit 0."""
    result = run("inspect-group", ill, "--verify", "-z", cluster.connect, "--output", "json")
    assert result.returncode == 6
    assert json.loads(result.stdout)["group"] == ill
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"zkgroup: group {ill}: offset-beyond-end: ")
    assert run("inspect-group", healthy, "--verify", "-z", cluster.connect).returncode == 0


def test_one_topic(cluster: Sandbox, groups: Groups, topic: str, make_topic: Callable[..., str]) -> None:
    """--topic keeps its partitions; findings are those of the whole group; a topic of others exits with 4."""
    other = make_topic(1)
    group = groups.make({ONE: static({topic: 1, other: 1})}, {(topic, 0): f"{ONE}-0"}, {(other, 0): 3})
    found = inspect_group(cluster, group, "--topic", topic)
    assert {row["topic"] for row in found["partitions"]} == {topic}
    assert [f["subject"] for f in found["findings"] if f["code"] == "offset-beyond-end"] == [f"{other}-0"]
    assert found["members"][0]["subscription"] == {topic: 1, other: 1}
    result = run("inspect-group", group, "--topic", "nonsense", "-z", cluster.connect)
    assert (result.returncode, result.stdout) == (4, "")


def test_every_group_worst_first(cluster: Sandbox, groups: Groups, ill: str, healthy: str, topic: str) -> None:
    """--all judges all groups at one go, in every format; groups with more that is critical stand first."""
    worse = groups.make({ONE: static({topic: 1}), "@_text": b"no JSON"}, offsets={(topic, 0): 15, (topic, 1): b"x"})
    wait_until(
        lambda: count_critical(inspect_group(cluster, worse)) == 5, 30, "what has just changed is judged as ever"
    )

    found, table = inspect_group(cluster, "--all"), run("inspect-group", "--all", "-z", cluster.connect).stdout
    order = [one["group"] for one in found]
    assert order.index(worse) < order.index(ill) < order.index(healthy)
    counts = [count_critical(one) for one in found]
    assert counts == sorted(counts, reverse=True)
    assert list(found[0]) == OBJECT

    blocks = table.split("\n\n")
    head, *rest = blocks[0].splitlines()
    assert head.split() == [*("group", "store", "state", "members", "partitions", "lag", "behind"), *SEVERITIES]
    # A name may have blanks. Groups of the tests before grow older from snapshot to snapshot, and may pass each other.
    lines = [re.sub(r"≥?\d+ (s|min|h)( \d+ \w+)?(?=  )", "AGE", line).rsplit(maxsplit=9) for line in rest]
    listed = [line[0] for line in lines]
    assert sorted(listed) == sorted(order)
    assert listed.index(worse) < listed.index(ill) < listed.index(healthy)
    critical = [int(line[7]) for line in lines]
    assert critical == sorted(critical, reverse=True)
    (mine,) = [line for line in lines if line[0] == worse]
    assert mine[2] == "broken"
    assert int(mine[7]) == counts[order.index(worse)]
    assert [block for block in blocks if block.startswith(f"{ill}\ncritical  ")]
    assert not [block for block in blocks if block.startswith(f"{healthy}\n")]

    rows = read_csv(cluster, "--all", "--section", "findings")
    assert list(rows[0]) == ["group", *FINDINGS]
    assert {row["group"] for row in rows} >= {worse, ill}
    result = run("inspect-group", "--all", "--verify", "--output", "csv", "-z", cluster.connect)
    assert result.stdout.startswith(",".join(["group", *PARTITIONS]))
    assert result.returncode == 6
    assert int(re.findall(r"[0-9]+", result.stderr)[-1]) >= 5, "all that is critical, but for the first"


def test_a_group_in_kafka(cluster: Sandbox, kafka: KafkaSettings, topic: str, unique: Callable[[str], str]) -> None:
    """Its members with their share, its strategy and offsets; with ZooKeeper and without."""
    group = unique("in-kafka")
    with joined(kafka, group, [topic]) as member:
        member.commit(TopicPartition(topic, 0), 3)
        found = inspect_group(cluster, group)
        result = run("inspect-group", group, "--bootstrap-server", cluster.bootstrap, "--output", "json")
        assert result.returncode == 0
        assert without_times(json.loads(result.stdout)["partitions"]) == without_times(found["partitions"])
    assert [found[key] for key in ("store", "state", "strategy")] == ["kafka", "active", "range"]
    (one,) = found["members"]
    assert one["member"].startswith("tester-")
    assert {key: one[key] for key in MEMBERS[1:]} == {
        "host": "127.0.0.1", "registered_at": None, "subscription": [topic], "pattern": None, "streams": None,
        "owned": 2, "session_id": None,
    }  # fmt: skip
    assert [(row["owner"], row["committed"], row["lag"], row["leader"]) for row in found["partitions"]] == [
        (one["member"], 3, 7, 1),
        (one["member"], None, None, 1),
    ]


def test_a_group_in_both(cluster: Sandbox, kafka: KafkaSettings, healthy: str, topic: str) -> None:
    """Two columns more set the two offsets together, in JSON, as a table and as CSV."""
    commit_in_kafka(kafka, healthy, {TopicPartition(topic, 0): 6})
    found = inspect_group(cluster, healthy)
    assert found["store"] == "both"
    assert list(found["partitions"][0]) == [*PARTITIONS, "committed_zookeeper", "committed_kafka", *TIMES]
    stores = ("committed", "committed_zookeeper", "committed_kafka", "lag")
    assert [[row[key] for key in stores] for row in found["partitions"]] == [[6, 4, 6, 4], [10, 10, None, 0]]
    assert "contradicting-offsets" in {finding["code"] for finding in found["findings"]}
    table = run("inspect-group", healthy, "-z", cluster.connect).stdout
    assert "committed_zookeeper  committed_kafka" in table
    assert read_csv(cluster, healthy)[0]["committed_kafka"] == "6"
    alone = inspect_group(cluster, healthy, "--store", "zookeeper")
    assert (alone["store"], list(alone["partitions"][0])) == ("zookeeper", PARTITIONS + TIMES)


def test_brokers_that_are_away(cluster: Sandbox, healthy: str) -> None:
    """ZooKeeper's half is shown, with a warning on stderr; that is no failure."""
    nowhere = f"127.0.0.1:{free_port()}"
    options = ["--bootstrap-server", nowhere, "--connect-timeout", "1", "--output", "json"]
    result = run("inspect-group", healthy, "-z", cluster.connect, *options)
    assert result.returncode == 0
    assert nowhere in result.stderr
    found = json.loads(result.stdout)
    assert [(row["committed"], row["lag"]) for row in found["partitions"]] == [(4, None), (10, None)]
    assert found["members"]


def test_a_second_snapshot(cluster: Sandbox, groups: Groups, topic: str, fill: Callable[..., object]) -> None:
    """--recheck-after reads twice: what is the same both times is reported as before."""
    group = groups.make({ONE: static({topic: 1})}, {(topic, 0): f"{ONE}-0", (topic, 1): f"{ONE}-0"}, {(topic, 0): 1})
    once, twice = inspect_group(cluster, group), inspect_group(cluster, group, "--recheck-after", "0.2")
    assert [(f["code"], f["subject"]) for f in twice["findings"]] == [
        (f["code"], f["subject"]) for f in once["findings"]
    ]


@pytest.mark.parametrize(
    ("args", "facts"),
    [
        ([], ("GROUP", "--all")),
        (["g", "--all"], ("GROUP", "--all")),
        (["--all", "--topic", "t"], ("--topic", "--all")),
        (["../g"], ("../g",)),
        (["a/b"], ("a/b",)),
    ],
)
def test_wrong_usage(cluster: Sandbox, args: list[str], facts: tuple[str, ...]) -> None:
    """Exit 2, one line, nothing shown."""
    result = run("inspect-group", *args, "-z", cluster.connect)
    assert (result.returncode, result.stdout) == (2, "")
    assert names(result.stderr, *facts)
    assert result.stderr.count("\n") == 1


def test_a_hostile_group(cluster: Sandbox, registry: Registry, groups: Groups) -> None:
    """What anybody may write into a group's nodes is shown without control characters, and changes nothing."""
    group = groups.make(
        {"@_a": static({"a\x1b[31mb": 1, "../../x": 1, "\u202e": 1}), "@_b": white_list("a\x07b")},
        {("t", 0): "\x1b]0;title\x07"},
        {("t", 0): b"\x1b[2J"},
    )
    before = tree(registry, "/consumers/" + group)
    for options in ([], ["--section", "findings"]):
        result = run("inspect-group", group, *options, "-z", cluster.connect)
        assert result.returncode == 0
        assert not {"\x1b", "\x07", "\u202e"} & set(result.stdout + result.stderr)
    assert inspect_group(cluster, group)["partitions"][0]["owner"] == "\x1b]0;title\x07"
    assert tree(registry, "/consumers/" + group) == before


def test_its_alias(cluster: Sandbox, ill: str) -> None:
    """``describe`` is the same command. The members' section has no age, which grows from run to run."""
    args = [ill, "--section", "members", "-z", cluster.connect]
    assert run("describe", *args).stdout == run("inspect-group", *args).stdout != ""
