"""The guarded writing of offsets under trouble: many pieces, lost connections, access lists, races. Real ZooKeeper."""

from __future__ import annotations

import base64
import hashlib
import random
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest
from guarded_changes import Build, Meddler, P, plan, register, values
from lines import names
from session_expiry import expire_session
from tcp_proxy import TcpProxy

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry, TransactionRefusedError
from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.groups.changes.plan import GO_ON
from zkgroup.groups.changes.preconditions import GroupActiveError
from zkgroup.groups.changes.zookeeper_offset_writer import write_offsets
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import (
    Acl,
    Acls,
    Children,
    Code,
    Create,
    Delete,
    Ensure,
    Exists,
    Failure,
    Get,
    GetAcl,
    Node,
    Stat,
)
from zkgroup.sandbox.local_cluster import Sandbox


def test_ten_thousand_partitions_go_in_pieces_that_can_be_resumed(
    registry: Registry, second: Registry, make_group: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member comes before the third piece: two are in place and reported, the rest is untouched. Once it has gone,
    the same writes go on where they stopped."""
    monkeypatch.setattr("zkgroup.groups.changes.znode_transactions.MAX_TRANSACTION_BYTES", 256 << 10)
    partitions = [P(f"topic-{number % 10}", number // 10) for number in range(10_000)]
    group = make_group(dict.fromkeys(partitions, 5))
    writes = plan(registry, group, dict.fromkeys(partitions, 1))
    with Registry(registry.settings, 30.0) as member:
        with Meddler(registry.settings, lambda n: register(member, group) if n == 3 else None) as meddler:
            with pytest.raises(GroupActiveError) as caught:
                write_offsets(meddler, group, writes)
            assert meddler.transactions == 3
        now = dict(zip(partitions, values(registry, group, *partitions), strict=True))
        assert set(now.values()) == {1, 5}
        unwritten = {partition for partition, value in now.items() if value == 5}
        written = len(partitions) - len(unwritten)
        assert min(written, len(unwritten)) > 2_000
        assert names(caught.value.message, written, "topic-0-0..999", len(unwritten))
        assert caught.value.remedy is not None
        assert caught.value.remedy.text.endswith(GO_ON)
    finished = write_offsets(registry, group, writes)
    assert set(finished.written) == unwritten
    assert set(values(registry, group, *partitions)) == {1}


def test_pieces_make_their_own_parents(
    registry: Registry, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for one write a transaction, every topic's node comes with its first offset."""
    monkeypatch.setattr("zkgroup.groups.changes.znode_transactions.MAX_TRANSACTION_BYTES", 1)
    group = unique("pieces")
    wanted = {P(topic, number): number + 1 for topic in ("a", "b", "c") for number in range(3)}
    with Meddler(registry.settings, lambda n: None) as meddler:
        report = write_offsets(meddler, group, plan(registry, group, dict(wanted)))
        assert (len(report.written), meddler.transactions) == (9, 9)
    assert values(registry, group, *wanted) == list(wanted.values())


# --- connections ----------------------------------------------------------------------------------------------------


class Through(Registry):
    """A real registry through a proxy; ``before`` and ``after`` happen around its first transaction."""

    def __init__(self, settings: ZooKeeperSettings, before: Callable[[], object], after: Callable[[], object]) -> None:
        super().__init__(settings, 20.0)
        self.attempts = 0
        self._before, self._after = before, after

    def transaction(self, ops: Sequence[object]) -> None:  # type: ignore[override]
        self.attempts += 1
        if self.attempts > 1:
            super().transaction(ops)  # type: ignore[arg-type]
            return
        self._before()
        timer = threading.Timer(0.3, self._after)
        timer.start()
        try:
            super().transaction(ops)  # type: ignore[arg-type]
        finally:
            timer.join()


@pytest.fixture
def proxy(cluster: Sandbox) -> Iterator[TcpProxy]:
    with TcpProxy(cluster.address) as proxy:
        yield proxy


@pytest.mark.parametrize("lost", ["requests", "replies"])
def test_a_connection_lost_at_the_transaction(
    registry: Registry, cluster: Sandbox, proxy: TcpProxy, make_group: Build, lost: str
) -> None:
    """Whether the request or only the answer was lost is found out: each offset is written exactly once."""
    group = make_group({P("t", 0): 5})
    writes = plan(registry, group, {P("t", 0): 1, P("new", 0): 2})

    def drop() -> None:
        proxy.drop()
        proxy.heal()

    settings = ZooKeeperSettings(proxy.address + cluster.chroot, connect_timeout=20.0)
    with Through(settings, lambda: proxy.stall(lost), drop) as through:
        report = write_offsets(through, group, writes)
        assert through.attempts == (2 if lost == "requests" else 1)
    assert report.written == (P("new", 0), P("t", 0))
    assert values(registry, group, P("t", 0), P("new", 0)) == [1, 2]
    (node,) = registry.read([Get(znodes.offset(group, P("t", 0)))])
    assert isinstance(node, Node)
    assert node.stat.version == 1


@pytest.mark.parametrize("lost", ["requests", "replies"])
def test_a_session_lost_at_the_transaction(
    registry: Registry, cluster: Sandbox, proxy: TcpProxy, make_group: Build, lost: str
) -> None:
    """The session is over before the answer comes: asked and finished under another one, each offset once."""
    group = make_group({P("t", 0): 5})
    writes = plan(registry, group, {P("t", 0): 1})
    settings = ZooKeeperSettings(proxy.address + cluster.chroot, connect_timeout=20.0)

    def expire() -> None:
        expire_session(cluster.address, through.session_id)
        proxy.drop()
        proxy.heal()

    with Through(settings, lambda: proxy.stall(lost), expire) as through:
        assert write_offsets(through, group, writes).written == (P("t", 0),)
        assert through.is_lost
    (node,) = registry.read([Get(znodes.offset(group, P("t", 0)))])
    assert isinstance(node, Node)
    assert (node.data, node.stat.version) == (b"1", 1)


def test_a_zookeeper_that_stays_away(
    registry: Registry, cluster: Sandbox, proxy: TcpProxy, make_group: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 3, and the report names what is not known to be written, apart from all else; run again, it is done."""
    monkeypatch.setattr("zkgroup.groups.changes.znode_transactions.RECONNECT_TIMEOUT", 2.0)
    group = make_group({P("t", 0): 5})
    writes = plan(registry, group, {P("t", 0): 1})
    settings = ZooKeeperSettings(proxy.address + cluster.chroot, connect_timeout=20.0)
    with Through(settings, proxy.cut, lambda: None) as through:
        through.timeout = 1.0
        with pytest.raises(ZkgroupError) as caught:
            write_offsets(through, group, writes)
    assert caught.value.exit_code == 3
    assert str(caught.value).count("whether 1 offset (t-0) is written is not known: ") == 1
    assert write_offsets(registry, group, writes).written == (P("t", 0),)


def test_a_server_that_takes_smaller_requests(
    registry: Registry, make_group: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction beyond what the server takes ends the connection: it is cut in half until it fits."""
    monkeypatch.setattr("zkgroup.groups.changes.znode_transactions.MAX_TRANSACTION_BYTES", 2 << 20)
    partitions = [P("t" * 240, number) for number in range(4_000)]
    group = make_group({})
    with Meddler(registry.settings, lambda n: None) as meddler:
        report = write_offsets(meddler, group, plan(registry, group, dict.fromkeys(partitions, 1)))
        assert len(report.written) == 4_000
        assert meddler.transactions > 2
    assert set(values(registry, group, *partitions)) == {1}


def test_a_transaction_that_is_always_refused(registry: Registry, make_group: Build) -> None:
    """It is not tried for ever, though what is read again gives no reason; nothing is written."""
    group = make_group({P("t", 0): 5})

    class Refusing(Registry):
        tried = 0

        def transaction(self, ops: Sequence[object]) -> None:  # type: ignore[override]
            self.tried += 1
            raise TransactionRefusedError(0, znodes.ids(group), Failure(Code.BAD_VERSION, index=0))

    with Refusing(registry.settings, 30.0) as refusing:
        with pytest.raises(ZkgroupError, match="nothing was written"):
            write_offsets(refusing, group, plan(registry, group, {P("t", 0): 1}))
        assert refusing.tried == 6
    assert values(registry, group, P("t", 0)) == [5]


# --- access lists ---------------------------------------------------------------------------------------------------


def digest(user: str, password: str, permissions: int = 31) -> Acl:
    hashed = base64.b64encode(hashlib.sha1(f"{user}:{password}".encode()).digest()).decode()
    return Acl("digest", f"{user}:{hashed}", permissions)


def test_access_lists_are_kept(registry: Registry, cluster: Sandbox, unique: Callable[[str], str]) -> None:
    """ids is recreated with its own list and data, and new nodes get that of the group's node above them."""
    group = unique("secured")
    acl = (digest("app", "secret"), Acl("world", "anyone", 1))
    settings = ZooKeeperSettings(cluster.connect, connect_timeout=20.0, auth=(("digest", "app:secret"),))
    with Registry(settings) as owner:
        for path in (znodes.group(group), znodes.ids(group), znodes.offsets(group)):
            assert owner.write(Create(path, b"data", acl=acl)) is None
        (before,) = owner.read([Exists(znodes.ids(group))])
        write_offsets(owner, group, plan(owner, group, {P("t", 0): 1}))
        paths = [znodes.ids(group), znodes.offset_topic(group, "t"), znodes.offset(group, P("t", 0))]
        assert owner.read([GetAcl(path) for path in paths]) == [Acls(acl)] * 3
        after, data = owner.read([Exists(znodes.ids(group)), Get(znodes.ids(group))])
        assert isinstance(before, Stat)
        assert isinstance(after, Stat)
        assert isinstance(data, Node)
        assert after.czxid > before.czxid
        assert data.data == b"data"


def test_without_credentials_nothing_is_touched(
    registry: Registry, cluster: Sandbox, unique: Callable[[str], str]
) -> None:
    """Who sees only a part of the list would write a wrong one: refused, and the list stays as it is."""
    group = unique("secured")
    acl = (digest("app", "secret"), Acl("world", "anyone", 1 | 2 | 4 | 8))
    settings = ZooKeeperSettings(cluster.connect, connect_timeout=20.0, auth=(("digest", "app:secret"),))
    with Registry(settings) as owner:
        for path in (znodes.group(group), znodes.ids(group), znodes.offsets(group)):
            assert owner.write(Create(path, acl=acl)) is None
        with pytest.raises(RefusedError, match=znodes.ids(group)):
            write_offsets(registry, group, plan(registry, group, {P("t", 0): 1}))
        assert owner.read([GetAcl(znodes.ids(group))]) == [Acls(acl)]
        assert values(owner, group, P("t", 0)) == [None]


def test_a_node_that_may_not_be_changed(registry: Registry, cluster: Sandbox, make_group: Build) -> None:
    """Refused by its name; nothing of the transaction is applied."""
    group = make_group({P("t", 0): 5})
    settings = ZooKeeperSettings(cluster.connect, connect_timeout=20.0, auth=(("digest", "app:secret"),))
    with Registry(settings) as owner:
        path = znodes.offset(group, P("t", 1))
        assert owner.write(Create(path, b"6", acl=(digest("app", "secret"), Acl("world", "anyone", 1)))) is None
        with pytest.raises(RefusedError, match=rf"{path}\b.*\bnot authorised\b"):
            write_offsets(registry, group, plan(registry, group, {P("t", 0): 1, P("t", 1): 1}))
    assert values(registry, group, P("t", 0), P("t", 1)) == [5, 6]


# --- life -----------------------------------------------------------------------------------------------------------


def test_owners_without_registration_are_life(registry: Registry, second: Registry, make_group: Build) -> None:
    """Who has an owner node reads and commits, even if its id was deleted by hand; a persistent node does not count."""
    group = make_group({P("t", 0): 5})
    writes = plan(registry, group, {P("t", 0): 1})
    owner = znodes.owner(group, P("t", 0))
    registry.write(Ensure(znodes.owner_topic(group, "t")))
    second.write(Create(owner, b"someone-0", ephemeral=True))
    with pytest.raises(GroupActiveError, match=rf"\bsomeone-0\b.*\b{second.session_id:#x}\b.*\b1\b"):
        write_offsets(registry, group, writes)
    second.write(Delete(owner))
    registry.write(Create(owner, b"stale-0"))
    assert write_offsets(registry, group, writes).written == (P("t", 0),)


@pytest.mark.parametrize("rest", ["", "/zkgroup", "/zkgroup/export"])
def test_an_export_is_life(registry: Registry, second: Registry, make_group: Build, rest: str) -> None:
    """A running export is refused with its name; one that begins after the last snapshot stops the transaction,
    whatever an earlier one has left behind."""
    group = make_group({P("t", 0): 5})
    if rest:
        registry.write(Ensure(znodes.group(group) + rest))
    writes = plan(registry, group, {P("t", 0): 1})

    def lock() -> None:
        second.write(Ensure(znodes.export_state(group)))
        second.write(Create(znodes.export_lock(group), b'{"host": "h9", "pid": 7}', ephemeral=True))

    with Meddler(registry.settings, lambda n: lock()) as meddler:
        with pytest.raises(GroupActiveError, match=r"\bh9\b.*\b7\b"):
            write_offsets(meddler, group, writes)
        assert meddler.transactions == 1
    assert values(registry, group, P("t", 0)) == [5]
    second.write(Delete(znodes.export_lock(group)))
    assert write_offsets(registry, group, writes).written == (P("t", 0),)
    assert isinstance(registry.read([Exists(znodes.export_state(group))])[0], Stat)


@pytest.mark.parametrize("ids", [True, False])
def test_any_race_with_a_registration_has_one_winner(
    registry: Registry, second: Registry, make_group: Build, ids: bool
) -> None:
    """A member registers at any moment of the write, many times over: what it finds once registered is either all of
    what was planned, and then it stays so, or all of what was there before, and then the write is refused."""
    outcomes = {"written": 0, "refused": 0}
    partitions = [P("t", number) for number in range(20)]
    chance, delay = random.Random(7), 0.005
    for _ in range(80):
        group = make_group(dict.fromkeys(partitions, 5), ids=ids)
        writes = plan(registry, group, dict.fromkeys(partitions, 1))
        found: list[list[int | None]] = []

        def come(group: str = group, delay: float = delay, found: list[list[int | None]] = found) -> None:
            threading.Event().wait(delay)
            register(second, group)
            found.append(values(second, group, *partitions))

        member = threading.Thread(target=come)
        member.start()
        try:
            write_offsets(registry, group, writes)
            result = "written"
        except RefusedError:
            result = "refused"
        member.join(30)
        expected = 1 if result == "written" else 5
        assert values(registry, group, *partitions) == [expected] * 20
        assert found == [[expected] * 20]
        assert len(registry.read([Children(znodes.ids(group))])[0]) == 1  # type: ignore[arg-type]
        outcomes[result] += 1
        # Near the moment at which the outcome turns, on any machine.
        delay *= chance.uniform(0.6, 1.0) if result == "written" else chance.uniform(1.0, 1.7)
    assert min(outcomes.values()) > 0, f"no race: {outcomes}"
