"""How large a request with some operations is, against what goes over the wire."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kazoo.protocol.serialization import Create, Transaction
from kazoo.security import ACL, Id

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.groups.changes.znode_transactions import cost
from zkgroup.protocol.operations import Acl

NAMES = st.from_regex(r"[a-zA-Zäß0-9._-]{1,80}", fullmatch=True)
ENTRIES = st.builds(Acl, st.sampled_from(["world", "digest", "x509", "sasl", "ip"]), NAMES, st.integers(1, 31))


@given(NAMES, st.lists(NAMES, min_size=1, max_size=20), st.lists(ENTRIES, max_size=8))
def test_a_creation_takes_no_more_than_is_counted(chroot: str, names: list[str], acl: list[Acl]) -> None:
    """A piece is cut by its count: were that less than what is sent, ZooKeeper would drop the connection. Nor is it
    much more: pieces would be many."""
    settings = ZooKeeperSettings(f"localhost:2181/{chroot}")
    lists = [ACL(entry.permissions, Id(entry.scheme, entry.id)) for entry in acl]
    sent = Transaction([Create(f"/{chroot}/{name}", b"", lists, 0) for name in names]).serialize()
    counted = sum(cost(f"/{name}", settings, acl) for name in names)
    assert len(sent) - 9 <= counted < 3 * len(sent)  # 9 bytes close the request
