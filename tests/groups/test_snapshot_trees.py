"""Reading groups whose nodes are anything that ZooKeeper could hold. No server: the nodes are a table."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import cast

from hypothesis import example, given
from hypothesis import strategies as st

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import NotFoundError
from zkgroup.groups.group_model import GroupSnapshot
from zkgroup.groups.snapshot.group_reader import read_group, read_groups
from zkgroup.groups.snapshot.snapshot_defects import notes, ownership_defects
from zkgroup.groups.snapshot.table_rows import group_row, member_rows, owner_rows, partition_rows
from zkgroup.protocol.operations import Children, Code, Exists, Failure, Get, Node, Op, Result, Stat

Tree = dict[str, bytes]
CLOSED = b"may not be read"


class Table:
    """What a registry would answer whose nodes are these."""

    settings = ZooKeeperSettings("nowhere:1")
    timeout = 1.0

    def __init__(self, nodes: Tree) -> None:
        self.nodes = dict(nodes)
        for path in nodes:
            while path := path.rpartition("/")[0]:
                self.nodes.setdefault(path, b"")

    def read(self, ops: Iterable[Op]) -> list[Result]:
        """Reads only: anything else is a mistake."""
        return [self._answer(cast("Get | Children | Exists", op)) for op in ops]

    def _answer(self, op: Get | Children | Exists) -> Result:
        assert isinstance(op, Get | Children | Exists)
        assert re.fullmatch(r"(/[^/]+)+", op.path)
        if isinstance(op, Exists):
            return Stat(1, 2, 3, 4, 5, 6) if op.path in self.nodes else None
        if op.path not in self.nodes:
            return Failure(Code.NO_NODE)
        if self.nodes[op.path] == CLOSED:
            return Failure(Code.NO_AUTH)
        if isinstance(op, Get):
            return Node(self.nodes[op.path], Stat(1, 2, 3, 4, 5, 6))
        below = op.path + "/"
        return tuple(
            dict.fromkeys(path[len(below) :].partition("/")[0] for path in self.nodes if path.startswith(below))
        )


names = st.sampled_from(["t", "u", "0", "1", "01", "0-3", "-1", "x", "é ü", "t-0", "..."]) | st.text(
    st.characters(max_codepoint=0xD7FF, exclude_characters="/", exclude_categories=("Cc",)), min_size=1, max_size=4
).filter(lambda name: name not in (".", ".."))
registrations = st.sampled_from(
    [
        b'{"version":1,"subscription":{"t":2,"u":1},"pattern":"static","timestamp":"1411294187842"}',
        b'{"version":1,"subscription":{"t|u":1},"pattern":"white_list","timestamp":"1"}',
        b'{"version":1,"subscription":{"(":1},"pattern":"black_list","timestamp":"1"}',
        b'{"subscription":{"../x":1,"":3},"pattern":null}',
        b'{"version":1,"subscription":{},"pattern":"static","timestamp":5}',
    ]
)
topics = st.sampled_from(
    [b'{"version":1,"partitions":{"0":[1],"1":[1],"10":[2]}}', b'{"partitions":{}}', b'{"partitions":[]}', b"[", b""]
)
data = (
    registrations | topics | st.sampled_from([b"", b"5", b"-1", b" 7 ", b"m-0", b"m", CLOSED]) | st.binary(max_size=8)
)
nodes = st.one_of(
    st.tuples(st.builds("/consumers/g/ids/{}".format, names), data),
    st.tuples(st.builds("/consumers/g/owners/{}/{}".format, names, names), data),
    st.tuples(st.builds("/consumers/g/offsets/{}/{}".format, names, names), data),
    st.tuples(st.builds("/consumers/g/{}".format, st.sampled_from(["ids", "owners", "offsets", "zkgroup", "x"])), data),
    st.tuples(st.builds("/brokers/topics/{}".format, st.sampled_from(["t", "u"])), data),
    st.tuples(st.builds("/brokers/topics/t/partitions/{}/state".format, st.integers(0, 2)), data),
    st.tuples(st.builds("/admin/delete_topics/{}".format, names), data),
    st.tuples(st.builds("/brokers/ids/{}".format, names), data),
    st.tuples(st.builds("/consumers/{}/offsets/t/0".format, names), data),
)
trees = st.dictionaries(nodes.map(lambda node: node[0]), data, max_size=12) | st.lists(nodes, max_size=12).map(dict)


@given(trees)
@example({"/consumers/g/owners/t/0": b"m-0", "/consumers/g/owners/t/0-0": b"m-1", "/consumers/g/ids/m": b"[]"})
@example({"/consumers/g/offsets/..../4294967296": b"5"})
@example({"/consumers/g/owners/t/0": b"m-0", "/consumers/g/owners": CLOSED})
def test_any_nodes_can_be_read(tree: Tree) -> None:
    """Every owner and offset node is there as a partition or is named as a problem; everything made of it can be made.
    Groups are the same whether read alone or with others."""
    registry = cast("Registry", Table(tree))
    try:
        snapshot = read_group(registry, "g")
    except NotFoundError:
        assert not any(path.startswith("/consumers/g/") for path in tree)
        return
    everyone = {one.group: one for one in read_groups(registry)}
    assert [getattr(everyone["g"], field) for field in SAME] == [getattr(snapshot, field) for field in SAME]
    assert [p.key for p in snapshot.partitions] == sorted({p.key for p in snapshot.partitions})
    assert snapshot.subscribed == {topic for member in snapshot.members for topic in member.streams}
    message = "\n".join([*map(str, snapshot.problems), *snapshot.unreadable])
    by_key = {(p.topic, p.partition): p for p in snapshot.partitions}
    readable = set(Table(tree).nodes)
    for path in readable:
        _, *parts = path.split("/")
        if len(parts) != 5 or parts[:2] != ["consumers", "g"] or parts[2] not in ("owners", "offsets"):
            continue
        above = ["/" + "/".join(parts[:length]) for length in (3, 4)]
        if any(Table(tree).nodes[parent] == CLOSED for parent in above):
            assert any(parent in message for parent in above)
        elif f"znode {path} " not in message:
            found = by_key[(parts[3], int(parts[4].rpartition("-")[2]))]
            assert found.stored is not None if parts[2] == "offsets" else (found.owner or found.error)
    check_rows(snapshot)


SAME = ("members", "partitions", "subscribed", "problems", "topics", "state", "store", "last_change")


def check_rows(snapshot: GroupSnapshot) -> None:
    """Everything that is shown of it can be made."""
    assert isinstance(notes(snapshot), list)
    assert group_row(snapshot).partitions == len(snapshot.partitions)
    assert len(member_rows(snapshot)) == len(snapshot.members)
    assert len(owner_rows(snapshot)) <= len(partition_rows(snapshot, "both")) == len(snapshot.partitions)
    assert isinstance(ownership_defects(snapshot), list)
