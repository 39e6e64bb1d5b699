"""Nodes below a group that no consumer makes: Storm's spout with its state in ``/consumers``, and others alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from cli import run
from group_nodes import Groups, tree
from lines import names

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Create, Ensure, SetData
from zkgroup.sandbox.local_cluster import Sandbox

STATE = b'{"topology":{"id":"4f9a8081","name":"Top"},"offset":88,"partition":0,"topic":"orders"}'
#: Below the group: a spout's, one with its root deeper, and go_kafka_client's.
LAYOUTS = [
    ["partition_0", "partition_1"],
    ["ordersX", "ordersX/partition_0"],
    ["api", "api/deployed-topics"],
]


@pytest.fixture(params=LAYOUTS, ids=lambda layout: layout[0])
def layout(request: pytest.FixtureRequest) -> Sequence[str]:
    return request.param


def put(groups: Groups, layout: Sequence[str], offsets: dict[tuple[str, int | str], int | bytes] | None = None) -> str:
    group = groups.make(offsets=offsets)
    for name in layout:
        groups.write(Ensure(f"{znodes.group(group)}/{name}".rpartition("/")[0]))
        groups.write(Create(f"{znodes.group(group)}/{name}", STATE))
    return group


def test_what_is_another_clients_alone_is_not_lost(
    cluster: Sandbox, registry: Registry, groups: Groups, layout: Sequence[str], unique: Callable[[str], str]
) -> None:
    """Deleted alone, by a pattern, or renamed: refused with the same words, and done where it is asked for."""
    group, to = put(groups, layout), unique("to")
    zookeeper = ("-z", cluster.connect)
    before = tree(registry, znodes.group(group))
    lost = (len(layout), f"{znodes.group(group)}/{layout[0]}")
    for command in (["delete-group", group], ["rename-group", group, to]):
        plan, done = run(*command, *zookeeper), run(*command, "--execute", *zookeeper)
        assert (plan.returncode, done.returncode) == (0, 5), (plan, done)
        assert names(plan.stderr, "warning", "--execute", group, *lost)
        assert names(done.stderr, group, *lost)
    many = run("delete-group", "--pattern", group, "--execute", *zookeeper)
    assert (many.returncode, names(many.stdout, group, "keep", *lost)) == (0, True), many
    copied = run("copy-group", group, to, "--execute", *zookeeper)
    assert names(copied.stderr, "warning", *lost)
    assert tree(registry, znodes.group(group)) == before
    meant = run("delete-group", group, "--foreign", "--execute", *zookeeper)
    assert meant.returncode == 0, meant.stderr
    assert tree(registry, znodes.group(group)) == {}


def test_a_pattern_deletes_them_where_it_is_asked_for(cluster: Sandbox, registry: Registry, groups: Groups) -> None:
    group = put(groups, LAYOUTS[0])
    done = run("delete-group", "--pattern", group, "--foreign", "--execute", "-z", cluster.connect)
    assert (done.returncode, names(done.stdout, group, "delete", 2)) == (0, True), done
    assert tree(registry, znodes.group(group)) == {}


def test_what_goes_with_offsets_is_named(
    cluster: Sandbox, registry: Registry, groups: Groups, layout: Sequence[str], unique: Callable[[str], str]
) -> None:
    """One or many, copied or renamed, read or saved: nothing is dropped in silence."""
    group = put(groups, layout, {("orders", 0): 5})
    zookeeper = ("-z", cluster.connect)
    nodes = (len(layout), f"{znodes.group(group)}/{layout[0]}")
    assert names(run("delete-group", group, *zookeeper).stderr, "warning", *nodes)
    assert names(run("delete-group", "--pattern", group, *zookeeper).stdout, group, "delete", *nodes)
    assert names(run("rename-group", group, unique("to"), *zookeeper).stderr, "warning", *nodes)
    assert names(run("copy-group", group, unique("to"), *zookeeper).stderr, "warning", *nodes)
    assert names(run("inspect-group", group, "--section", "findings", *zookeeper).stdout, nodes[1])
    topic_alone = run("delete-group", group, "--topic", "orders", "--execute", *zookeeper)
    assert topic_alone.returncode == 0, topic_alone.stderr
    assert f"{znodes.group(group)}/{layout[-1]}" in tree(registry, znodes.group(group))


@pytest.mark.parametrize("name", ["0-3", "x", "0/state"])
def test_foreign_nodes_among_offsets(cluster: Sandbox, groups: Groups, name: str, unique: Callable[[str], str]) -> None:
    """Offsets as Kafka 0.7 has them, by broker and partition, and whatever else is no partition's."""
    group = groups.make(offsets={("orders", 0): 5})
    path = f"{znodes.offset_topic(group, 'orders')}/{name}"
    groups.write(Create(path, b"7"))
    zookeeper = ("-z", cluster.connect)
    assert names(run("delete-group", group, *zookeeper).stderr, "warning", 1, path)
    for command in ("delete-group", "unsubscribe"):
        plan = run(command, group, "--topic", "orders", *zookeeper)
        assert names(plan.stderr, "warning", 1, path), plan
    assert names(run("copy-group", group, unique("to"), *zookeeper).stderr, "warning", 1, path)


@pytest.mark.parametrize("below", ["", "/offsets", "/offsets/orders", "/ids", "/owners"])
def test_data_where_consumers_have_none(
    cluster: Sandbox, registry: Registry, groups: Groups, unique: Callable[[str], str], below: str
) -> None:
    """It is named as other clients' nodes are."""
    group, to = groups.make(members={}, owners={}, offsets={("orders", 0): 5}), unique("to")
    groups.write(Ensure(znodes.owners(group)))
    path = f"{znodes.group(group)}{below}"
    registry.write(SetData(path, STATE))
    zookeeper = ("-z", cluster.connect, "--store", "zookeeper")
    assert names(run("delete-group", group, *zookeeper).stderr, "warning", 1, path)
    assert names(run("delete-group", "--pattern", group, *zookeeper).stdout, group, "delete", 1, path)
    assert names(run("copy-group", group, unique("copy"), *zookeeper).stderr, "warning", 1, path)
    renamed = run("rename-group", group, to, "--execute", *zookeeper)
    assert (renamed.returncode, names(renamed.stderr, "warning", 1, path)) == (0, True)


def test_a_checkpoint_says_what_offsets_say(cluster: Sandbox, groups: Groups) -> None:
    """``offsets --save`` has the warnings of ``offsets`` that are about nodes."""
    group = put(groups, LAYOUTS[0], {("orders", 0): 5, ("orders", "x"): 7})
    shown, saved = (run("offsets", group, *more, "-z", cluster.connect) for more in ((), ("--save", "-")))
    assert saved.returncode == 0, saved.stderr
    for facts in ((f"{znodes.offset_topic(group, 'orders')}/x",), (2, f"{znodes.group(group)}/partition_0")):
        assert names(shown.stderr, "warning", *facts)
        assert names(saved.stderr, "warning", *facts)


def test_a_group_without_offsets_names_them(cluster: Sandbox, groups: Groups, layout: Sequence[str]) -> None:
    """Saved or reset: the group is there, and what it has is no offset."""
    group = put(groups, layout)
    for command in (["offsets", group, "--save", "-"], ["reset-offsets", group, "--all-topics", "--to-earliest"]):
        result = run(*command, "-z", cluster.connect)
        assert (result.returncode, result.stdout) == (4, "")
        children = [f"{znodes.group(group)}/{name}" for name in layout if "/" not in name]
        assert names(result.stderr, group, len(children), *children)
