"""``zkgroup unsubscribe`` on a real ZooKeeper."""

from __future__ import annotations

import csv
import io
import json

from cli import run
from writing import Build, P, register, values

from zkgroup.protocol import znodes
from zkgroup.protocol.ops import Create, Ensure, Exists
from zkgroup.protocol.znodes import Registration, encode_registration
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.servers.registry import Registry


def test_a_topic_that_is_read_no_more(
    cluster: Sandbox, registry: Registry, second: Registry, make_group: Build
) -> None:
    """Beside a member of another topic: the plan in each format, then the offsets are gone and can come back."""
    group = make_group({P("old", 0): 5, P("old", 1): 6, P("live", 0): 7})
    data = encode_registration(Registration("static", {"live": 1}, 1411294187842))
    second.write(Create(znodes.member_id(group, "m"), data, ephemeral=True))
    args = ("unsubscribe", group, "--topic", "old", "-z", cluster.connect)
    result = run(*args, "--output", "json")
    rows = json.loads(result.stdout)
    assert [(row["topic"], row["partition"], row["store"], row["committed"]) for row in rows] == [
        ("old", 0, "zookeeper", 5),
        ("old", 1, "zookeeper", 6),
    ]
    assert result.stderr == "zkgroup: nothing was changed: this is the plan, --execute does it\n"
    assert run(*args).stdout.split()[:6] == ["topic", "partition", "store", "committed", "committed_at", "note"]
    assert values(registry, group, P("old", 0)) == [5]
    result = run(*args, "--execute", "--output", "csv")
    assert result.returncode == 0, result.stderr
    assert [row["committed"] for row in csv.DictReader(io.StringIO(result.stdout))] == ["5", "6"]
    assert f"zkgroup: 2 offsets of group {group} removed" in result.stderr
    assert registry.read([Exists(znodes.offset_topic(group, "old"))]) == [None]
    assert values(registry, group, P("live", 0)) == [7]


def test_a_topic_that_somebody_reads(cluster: Sandbox, registry: Registry, second: Registry, make_group: Build) -> None:
    """Exit code 5 with the member and its topic; the plan warns; a topic that the group has not is not found."""
    group = make_group({P("t", 0): 5})
    register(second, group)
    args = ("unsubscribe", group, "-z", cluster.connect, "--topic")
    plan, result = run(*args, "t"), run(*args, "t", "--execute")
    assert (plan.returncode, result.returncode) == (0, 5)
    assert f"warning: --execute would be refused: group {group} is subscribed" in plan.stderr
    assert result.stderr == (
        f"zkgroup: group {group} is subscribed: {group}_m (t): stop these members, or take the topic from them, first\n"
    )
    assert values(registry, group, P("t", 0)) == [5]
    missing = run(*args, "typo", "--execute")
    assert (missing.returncode, missing.stderr) == (
        4,
        f"zkgroup: group {group} has no offsets of typo: its topics: t\n",
    )


def test_owners_that_nobody_holds_go_too(cluster: Sandbox, registry: Registry, make_group: Build) -> None:
    """Debris of a topic that has no offsets any more can be removed in the same way."""
    group = make_group()
    registry.write(Ensure(znodes.owner_topic(group, "old")))
    registry.write(Create(znodes.owner(group, P("old", 3)), b"debris"))
    result = run("unsubscribe", group, "--topic", "old", "--execute", "-z", cluster.connect)
    assert result.returncode == 0, result.stderr
    assert registry.read([Exists(znodes.owner_topic(group, "old"))]) == [None]
