"""What is reported changes whose answer was lost, or that were interrupted: no less, and no more, than is known."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

import pytest
from guarded_changes import Build, Meddler, P, plan, values
from lines import names
from resets import Resetter
from support import wait_until
from tcp_proxy import TcpProxy

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import Notice, Remedy, UnreachableError, ZkgroupError, notices_of
from zkgroup.groups.changes.backup import SavedNode
from zkgroup.groups.changes.change_reports import GO_ON, WriteReport
from zkgroup.groups.changes.group_tree import read_tree
from zkgroup.groups.changes.plan import ZnodeRemoval
from zkgroup.groups.changes.reset_plan import Target
from zkgroup.groups.changes.undo import restore
from zkgroup.groups.changes.znode_deletion import remove_groups, remove_nodes
from zkgroup.groups.changes.zookeeper_offset_writer import write_offsets
from zkgroup.groups.partition_scope import Selection, parse_scope
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Exists, Op, Result, Stat, Transaction
from zkgroup.sandbox.local_cluster import Sandbox


class Unheard(Registry):
    """A real registry, whose connection through a proxy ends for good at a transaction: the server has applied it by
    then, and nobody hears the answer."""

    def __init__(self, proxy: TcpProxy, cluster: Sandbox, applied: Callable[[], object], number: int = 1) -> None:
        super().__init__(ZooKeeperSettings(proxy.address + cluster.chroot, connect_timeout=20.0), 20.0)
        self._proxy, self._applied, self._left = proxy, applied, number

    def transaction(self, ops: Sequence[object]) -> None:  # type: ignore[override]
        self._lose()
        super().transaction(ops)  # type: ignore[arg-type]

    def read(self, ops: Sequence[Op]) -> list[Result]:  # type: ignore[override]
        if any(isinstance(op, Transaction) for op in ops):
            self._lose()
        return super().read(ops)

    def _lose(self) -> None:
        self._left -= 1
        if not self._left:
            self.timeout = 1.0
            self._proxy.stall("replies")
            threading.Thread(target=lambda: (self._applied(), self._proxy.cut())).start()


@pytest.fixture
def proxy(cluster: Sandbox) -> Iterator[TcpProxy]:
    with TcpProxy(cluster.address) as proxy:
        yield proxy


def until(condition: Callable[[], bool]) -> Callable[[], None]:
    """Wait for it, with a deadline."""

    def wait() -> None:
        wait_until(condition, 10.0)

    return wait


def is_there(registry: Registry, group: str) -> bool:
    return isinstance(registry.read([Exists(znodes.group(group))])[0], Stat)


def test_a_write_whose_answer_nobody_hears(
    registry: Registry, cluster: Sandbox, proxy: TcpProxy, make_group: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written, and ZooKeeper stays away beyond the patience: reported as not known, and how to check."""
    monkeypatch.setattr("zkgroup.groups.changes.znode_transactions.RECONNECT_TIMEOUT", 1.0)
    group = make_group({P("t", 0): 5})
    writes = plan(registry, group, {P("t", 0): 1})
    with (
        Unheard(proxy, cluster, until(lambda: values(registry, group, P("t", 0)) == [1])) as unheard,
        pytest.raises(ZkgroupError, match=r"\bt-0\b") as caught,
    ):
        write_offsets(unheard, group, writes)
    assert caught.value.exit_code == 3
    assert caught.value.remedy is not None
    assert caught.value.remedy.commands == (("offsets", group),)
    assert values(registry, group, P("t", 0)) == [1]


def test_the_piece_in_doubt_is_distinguished(
    registry: Registry, cluster: Sandbox, proxy: TcpProxy, make_group: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four pieces two are written, one is in doubt, one was not begun."""
    monkeypatch.setattr("zkgroup.groups.changes.znode_transactions.MAX_TRANSACTION_BYTES", 1)
    monkeypatch.setattr("zkgroup.groups.changes.znode_transactions.RECONNECT_TIMEOUT", 1.0)
    partitions = [P("t", number) for number in range(4)]
    group = make_group(dict.fromkeys(partitions, 5))
    writes = plan(registry, group, dict.fromkeys(partitions, 1))
    applied = until(lambda: values(registry, group, partitions[2]) == [1])
    with Unheard(proxy, cluster, applied, number=3) as unheard, pytest.raises(ZkgroupError) as caught:
        write_offsets(unheard, group, writes)
    report = WriteReport(tuple(partitions[:2]), tuple(partitions[3:]), tuple(partitions[2:3]))
    assert report.describe() in caught.value.message
    assert names(report.describe(), 2, "t-0..1", 1, "t-2", 1, "t-3")
    assert values(registry, group, *partitions) == [1, 1, 1, 5]


@pytest.mark.parametrize("many", [False, True])
def test_a_removal_whose_answer_nobody_hears(
    registry: Registry, cluster: Sandbox, proxy: TcpProxy, make_group: Build, many: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It is removed, and reported as not known: one group by itself, and groups by the batch."""
    monkeypatch.setattr("zkgroup.groups.changes.znode_transactions.RECONNECT_TIMEOUT", 1.0)
    group = make_group({P("t", 0): 5})
    tree, rest = read_tree(registry, group), read_tree(registry, make_group({P("t", 0): 5}))
    with Unheard(proxy, cluster, until(lambda: not is_there(registry, group))) as unheard:
        if many:
            monkeypatch.setattr("zkgroup.groups.changes.znode_transactions.BATCH", 1)
            outcome = remove_groups(unheard, [tree, rest])
            error = outcome[group]
            assert isinstance(outcome[rest.group], UnreachableError)
            assert error is not None
            assert error.remedy is not None
            assert error.remedy.commands == (("list-groups",),)
        else:
            with pytest.raises(UnreachableError) as caught:
                remove_nodes(unheard, ZnodeRemoval(tree))
            error = caught.value
            assert names(error.message, len(tree.nodes), znodes.group(group))
    assert isinstance(error, UnreachableError)
    assert not is_there(registry, group)


def test_a_verification_that_cannot_be_made(
    registry: Registry,
    cluster: Sandbox,
    kafka: KafkaSettings,
    proxy: TcpProxy,
    make_group: Build,
    make_topic: Callable[..., str],
) -> None:
    """ZooKeeper goes after the write: reported as written and not verified, with exit code 3."""
    topic = make_topic(1)
    group = make_group({P(topic, 0): 5})
    settings = ZooKeeperSettings(proxy.address + cluster.chroot, connect_timeout=20.0)
    with Registry(settings, 20.0) as through:
        resetter = Resetter(through, lambda: kafka, group, 20.0)
        reset = resetter.plan(Target("earliest"), Selection(parse_scope([topic])), "zookeeper")
        resetter.write(reset)
        through.timeout = 1.0
        proxy.cut()
        with pytest.raises(UnreachableError) as caught:
            resetter.verify(reset)
    assert caught.value.exit_code == 3
    assert caught.value.remedy is not None
    assert caught.value.remedy.commands[-1] == ("offsets", group)
    assert values(registry, group, P(topic, 0)) == [0]


class Interrupted(Meddler):
    """A real registry: a signal comes before its third transaction, or while its answer is waited for."""

    def __init__(self, settings: ZooKeeperSettings, *, before: bool) -> None:
        super().__init__(settings, self._signal if before else lambda number: None)
        self._before = before

    def _signal(self, number: int) -> None:
        if number == 3:
            raise KeyboardInterrupt

    def transaction(self, ops: Sequence[object]) -> None:
        super().transaction(ops)
        if not self._before:
            self._signal(self.transactions)


@pytest.mark.parametrize("before", [True, False])
def test_an_interrupted_write(
    registry: Registry, make_group: Build, before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two pieces, or within one: what is written is reported, as after a refusal, and is what is there."""
    monkeypatch.setattr("zkgroup.groups.changes.znode_transactions.MAX_TRANSACTION_BYTES", 1)
    partitions = [P("t", number) for number in range(5)]
    group = make_group(dict.fromkeys(partitions, 5))
    writes = plan(registry, group, dict.fromkeys(partitions, 1))
    with Interrupted(registry.settings, before=before) as signalled, pytest.raises(KeyboardInterrupt) as caught:
        write_offsets(signalled, group, writes)
    count = sum(value == 1 for value in values(registry, group, *partitions))
    (reported,) = notices_of(caught.value)
    assert names(reported.message, count, f"t-0..{count - 1}", 5 - count, f"t-{count}..4")
    assert reported.remedy == Remedy(GO_ON)


@pytest.mark.parametrize("before", [True, False])
def test_an_interrupted_removal(
    registry: Registry, make_group: Build, before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is removed is reported, and how to go on; the rest is there."""
    monkeypatch.setattr("zkgroup.groups.changes.znode_transactions.MAX_TRANSACTION_BYTES", 1)
    group = make_group({P("t", number): 5 for number in range(9)})
    tree = read_tree(registry, group)
    with Interrupted(registry.settings, before=before) as signalled, pytest.raises(KeyboardInterrupt) as caught:
        remove_nodes(signalled, ZnodeRemoval(tree))
    left = len(read_tree(registry, group).nodes)
    (reported,) = notices_of(caught.value)
    assert names(reported.message, len(tree.nodes) - left, left)
    assert reported.remedy.commands == (("list-groups",),)
    assert remove_nodes(registry, ZnodeRemoval(read_tree(registry, group))) == left


def test_interrupted_before_anything(registry: Registry, make_group: Build) -> None:
    """A signal before the first transaction: nothing was written, and it says so."""
    group = make_group({P("t", 0): 5})
    writes = plan(registry, group, {P("t", 0): 1})

    def interrupt(number: int) -> None:
        raise KeyboardInterrupt

    with Meddler(registry.settings, interrupt) as signalled, pytest.raises(KeyboardInterrupt) as caught:
        write_offsets(signalled, group, writes)
    assert notices_of(caught.value) == [Notice(WriteReport().describe())]
    assert values(registry, group, P("t", 0)) == [5]


class Signalled(Registry):
    """A real registry: a signal comes while the answers to a second batch of transactions are waited for."""

    batches = 0

    def read(self, ops: Iterable[Op]) -> list[Result]:
        wanted = list(ops)
        results = super().read(wanted)
        if any(isinstance(op, Transaction) for op in wanted):
            self.batches += 1
            if self.batches == 2:
                raise KeyboardInterrupt
        return results


def test_an_interrupted_removal_of_many_groups(
    registry: Registry, make_group: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two batches of three are through when the signal comes, and the answer of one: the third is not begun."""
    monkeypatch.setattr("zkgroup.groups.changes.znode_transactions.BATCH", 2)
    trees = [read_tree(registry, make_group({P("t", 0): 5})) for _ in range(6)]
    with Signalled(registry.settings, 30.0) as signalled, pytest.raises(KeyboardInterrupt) as caught:
        remove_groups(signalled, trees)
    (reported,) = notices_of(caught.value)
    assert names(reported.message, 2, 6)
    assert reported.remedy is not None
    assert [is_there(registry, tree.group) for tree in trees] == [False] * 4 + [True] * 2


def test_an_interrupted_undo(registry: Registry, make_group: Build) -> None:
    """Of two groups one is recreated when the signal comes; run again, the other is, too."""
    groups = sorted([make_group({P("t", 0): 5}), make_group({P("t", 0): 6})])
    trees = [read_tree(registry, group) for group in groups]
    lost = {tree.group: [SavedNode(node.path, node.data) for node in tree.nodes] for tree in trees}
    remove_groups(registry, trees)

    def interrupt(number: int) -> None:
        if number == 2:
            raise KeyboardInterrupt

    with Meddler(registry.settings, interrupt) as signalled, pytest.raises(KeyboardInterrupt) as caught:
        restore(signalled, lost)
    (reported,) = notices_of(caught.value)
    assert names(reported.message, 1, 2)
    assert reported.remedy is not None
    assert restore(registry, lost) == dict.fromkeys(groups)
    assert [is_there(registry, group) for group in groups] == [True, True]
