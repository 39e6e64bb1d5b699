"""Whose access lists a group has that is copied, renamed, or back: the installed commands, real servers."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from cli import run
from guarded_changes import P, change, values
from hidden_groups import AUTH, CLOSED
from lines import names

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.changes.group_plans import copied_lists
from zkgroup.groups.changes.group_tree import read_tree
from zkgroup.groups.changes.zookeeper_offset_writer import write_offsets
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import OPEN, Acl, Acls, Create, Exists, Failure, GetAcl, Stat, format_acl
from zkgroup.sandbox.local_cluster import Sandbox

READABLE = Acl("world", "anyone", 1)
MINE = (*CLOSED, READABLE)
Lists = Mapping[str, tuple[Acl, ...]]


@pytest.fixture
def owner(cluster: Sandbox, registry: Registry) -> Iterator[Registry]:
    """Who owns the groups."""
    settings = ZooKeeperSettings(cluster.connect, connect_timeout=20.0, auth=(AUTH,))
    with Registry(settings, 20.0) as session:
        yield session


@pytest.fixture
def credentials(cluster: Sandbox, tmp_path: Path) -> tuple[str, ...]:
    """What the command line says of the server and of who the owner is."""
    file = tmp_path / "auth"
    file.write_text(f"{AUTH[1]}\n")
    file.chmod(0o600)
    return "-z", cluster.connect, "--store", "zookeeper", "--zookeeper-auth-file", str(file)


def make(session: Registry, group: str, lists: Lists, *, otherwise: tuple[Acl, ...] = MINE) -> str:
    """A group that rests, with an offset of ``t-0``: each node has its list, or ``otherwise``."""
    paths = [znodes.group(group), znodes.ids(group), znodes.owners(group), znodes.offsets(group)]
    paths += [znodes.offset_topic(group, "t"), znodes.offset(group, P("t", 0))]
    for path in paths:
        data = b"5" if path == paths[-1] else b""
        made = session.write(Create(path, data, acl=lists.get(path, otherwise)))
        assert not isinstance(made, Failure), (path, made)
    return group


def lists_of(session: Registry, group: str) -> dict[str, tuple[Acl, ...]]:
    """Below the group's name, what each node's list is."""
    paths = [node.path for node in read_tree(session, group).nodes]
    found = session.read([GetAcl(path) for path in paths])
    root = znodes.group(group)
    return {path.removeprefix(root): one.acl for path, one in zip(paths, found, strict=True) if isinstance(one, Acls)}


def _digest(credentials: str) -> tuple[Acl, ...]:
    hashed = base64.b64encode(hashlib.sha1(credentials.encode()).digest()).decode()
    return (Acl("digest", f"{credentials.partition(':')[0]}:{hashed}", 31),)


def without_members(lists: Lists) -> Lists:
    """But for ``ids`` and ``owners``, which members make."""
    return {path: acl for path, acl in lists.items() if path not in ("/ids", "/owners")}


def is_there(session: Registry, group: str) -> bool:
    return isinstance(session.read([Exists(znodes.group(group))])[0], Stat)


def test_a_protected_group_stays_protected(
    owner: Registry, unique: Callable[[str], str], credentials: tuple[str, ...], tmp_path: Path
) -> None:
    """Renamed, every node has the list of the one that it means, which the plan says; undone, so it is again."""
    group, other = unique("ro"), unique("ro")
    closed = {znodes.offset_topic(group, "t"): CLOSED, znodes.ids(group): CLOSED}
    make(owner, group, closed)
    before = lists_of(owner, group)
    plan = run("rename-group", group, other, *credentials)
    assert names(plan.stderr, "warning", other, group, "digest:app:cdrwa,world:anyone:r", "digest:app:cdrwa")
    file = tmp_path / "backup"
    done = run("rename-group", group, other, *credentials, "--backup", str(file), "--execute")
    assert done.returncode == 0, done.stderr
    lists_there = lists_of(owner, other)
    expected = (False, without_members(before), [5])
    assert (is_there(owner, group), lists_there, values(owner, other, P("t", 0))) == expected

    back = run("reset-offsets", group, "--undo", str(file), *credentials, "--execute")
    assert back.returncode == 0, back.stderr
    assert lists_of(owner, group) == without_members(before)


def test_all_of_a_renamed_group_comes_back(
    owner: Registry, unique: Callable[[str], str], credentials: tuple[str, ...], tmp_path: Path
) -> None:
    """``delete-group --undo`` makes every node again, ``ids`` and ``owners`` included, each with its list."""
    group, file = unique("ro"), tmp_path / "backup"
    make(owner, group, {znodes.offset_topic(group, "t"): CLOSED, znodes.ids(group): CLOSED})
    before = lists_of(owner, group)
    done = run("rename-group", group, unique("ro"), *credentials, "--backup", str(file), "--execute")
    assert done.returncode == 0, done.stderr
    back = run("delete-group", "--undo", str(file), *credentials, "--execute")
    assert (back.returncode, lists_of(owner, group)) == (0, before), back.stderr


def test_an_open_group_stays_open(owner: Registry, unique: Callable[[str], str], credentials: tuple[str, ...]) -> None:
    """Of lists that everybody knows no word is lost."""
    group, other = make(owner, unique("open"), {}, otherwise=OPEN), unique("open")
    done = run("rename-group", group, other, *credentials, "--execute")
    assert (done.returncode, "warning" in done.stderr) == (0, False)
    assert set(lists_of(owner, other).values()) == {OPEN}


def test_a_copy_is_as_protected(owner: Registry, unique: Callable[[str], str], credentials: tuple[str, ...]) -> None:
    """A copy is no way round an access list; --zookeeper-acl gives it another, which the plan says."""
    group, other, opened = make(owner, unique("ro"), {}), unique("copy"), unique("copy")
    plan = run("copy-group", group, other, *credentials, "--execute")
    assert plan.returncode == 0, plan.stderr
    assert names(plan.stderr, "warning", other, group, "digest:app:cdrwa,world:anyone:r")
    assert lists_of(owner, other) == dict.fromkeys(("", "/offsets", "/offsets/t", "/offsets/t/0"), MINE)

    done = run("copy-group", group, opened, *credentials, "--zookeeper-acl", "open", "--execute")
    assert names(done.stderr, "warning", opened, "zookeeper-acl", group)
    assert set(lists_of(owner, opened).values()) == {OPEN}


@pytest.mark.parametrize("command", ["copy-group", "rename-group"])
def test_what_is_there_keeps_its_lists(
    owner: Registry, unique: Callable[[str], str], credentials: tuple[str, ...], command: str
) -> None:
    """Of another's group the nodes stay as they are; those that come have the lists of their own source, and the plan
    says so."""
    group, other = make(owner, unique("ro"), {}), unique("mine")
    for path in (znodes.group(other), znodes.ids(other), znodes.owners(other)):
        assert not isinstance(owner.write(Create(path, acl=OPEN)), Failure)
    done = run(command, group, other, *credentials, "--execute")
    assert done.returncode == 0, done.stderr
    assert names(done.stderr, "warning", other, group, "digest:app:cdrwa,world:anyone:r")
    below = dict.fromkeys(("/offsets", "/offsets/t", "/offsets/t/0"), MINE)
    assert lists_of(owner, other) == {"": OPEN, "/ids": OPEN, "/owners": OPEN, **below}


@pytest.mark.parametrize("command", ["copy-group", "rename-group"])
@pytest.mark.parametrize("shape", ["closed above", "open above"])
def test_what_was_interrupted_ends_as_if_it_had_not_been(
    owner: Registry, unique: Callable[[str], str], credentials: tuple[str, ...], command: str, shape: str
) -> None:
    """The first piece was made, and then the process killed: run again, each node has its own source's list, be it
    more open than the half that is there, or less."""
    group, other = unique("big"), unique("big")
    above, rest = (CLOSED, OPEN) if shape == "closed above" else (OPEN, MINE)
    upper = {znodes.group(group): OPEN, znodes.offsets(group): above, znodes.offset_topic(group, "t"): above}
    make(owner, group, upper, otherwise=rest)
    owner.write(Create(znodes.offset(group, P("t", 1)), b"5", acl=CLOSED))
    owner.write(Create(znodes.offset_topic(group, "u"), acl=rest))
    for number in range(3):
        owner.write(Create(znodes.offset(group, P("u", number)), b"5", acl=rest))
    before = lists_of(owner, group)
    tree = read_tree(owner, group)
    lists, _ = copied_lists(owner, tree, None, other, list(tree.offsets))
    write_offsets(owner, other, [change(P("t", 0), 5, None)], acls=lists)

    done = run(command, group, other, *credentials, "--execute")
    assert done.returncode == 0, done.stderr
    assert lists_of(owner, other) == without_members(before)


@pytest.mark.parametrize("above", ["/offsets", "/offsets/t", ""])
def test_a_rename_that_cannot_delete(
    owner: Registry, unique: Callable[[str], str], credentials: tuple[str, ...], above: str
) -> None:
    """Without the permission to remove what is below one node the group stays as it is, beside its copy, and it is
    said."""
    group, other = unique("kept"), unique("kept")
    undeletable = tuple(Acl(entry.scheme, entry.id, 31 & ~8) for entry in CLOSED)
    make(owner, group, {znodes.group(group) + above: undeletable})
    before = read_tree(owner, group)
    done = run("rename-group", group, other, *credentials, "--execute")
    assert (done.returncode, is_there(owner, other)) == (5, True), done.stderr
    assert names(done.stderr.splitlines()[-1], group, other)
    assert read_tree(owner, group) == before


@pytest.mark.parametrize("command", ["copy-group", "rename-group"])
def test_nobody_locks_himself_out(
    owner: Registry, unique: Callable[[str], str], credentials: tuple[str, ...], command: str
) -> None:
    """A list under which the copy could not be gone on with is refused by ZooKeeper, and nothing is made."""
    group, other = unique("ro"), unique("copy")
    theirs = (*(Acl(entry.scheme, entry.id, 1 | 8 | 16) for entry in CLOSED), *_digest("maker:secret"))
    with Registry(replace(owner.settings, auth=(AUTH, ("digest", "maker:secret"))), 20.0) as both:
        make(both, group, {znodes.offsets(group): theirs})
    done = run(command, group, other, *credentials, "--execute")
    assert (done.returncode, is_there(owner, other)) == (5, False), done.stderr
    assert names(done.stderr, f"/consumers/{other}/offsets/t")
    assert values(owner, group, P("t", 0)) == [5]


def test_a_list_that_is_not_shown(owner: Registry, unique: Callable[[str], str], credentials: tuple[str, ...]) -> None:
    """Servers show digests only to who may administer a node: a copy by another would be open, or his: refused, unless
    he says which list it is to be."""
    group, other = make(owner, unique("ro"), {}), unique("copy")
    args = (group, other, *credentials[:4])
    plan = run("copy-group", *args)
    assert names(plan.stderr, "warning", "--execute", f"/consumers/{group}", "--zookeeper-acl")
    done = run("copy-group", *args, "--execute")
    assert names(done.stderr, f"/consumers/{group}", "--zookeeper-acl")
    assert (done.returncode, is_there(owner, other)) == (5, False)
    assert run("copy-group", *args, "--zookeeper-acl", "open", "--execute").returncode == 0
    assert set(lists_of(owner, other).values()) == {OPEN}


@pytest.mark.parametrize("asked", [(), ("--zookeeper-acl", "open")])
def test_a_rename_needs_all_lists(
    owner: Registry, unique: Callable[[str], str], credentials: tuple[str, ...], asked: tuple[str, ...]
) -> None:
    """Its backup has them, whichever list the other group gets: said once, without a way that is none."""
    group, other = make(owner, unique("ro"), {}), unique("copy")
    args = ("rename-group", group, other, *credentials[:4], *asked)
    plan = run(*args)
    node = rf"/consumers/{group}(?![\w/])"
    assert (len(re.findall(node, plan.stderr)), "--zookeeper-acl" in plan.stderr) == (1, False), plan.stderr
    assert plan.stderr.count(f"/consumers/{group}") == 1, plan.stderr
    done = run(*args, "--execute")
    assert (done.returncode, len(re.findall(node, done.stderr)), is_there(owner, other)) == (5, 1, False), done.stderr
    assert "--zookeeper-acl" not in done.stderr


def test_lists_of_many_pieces(owner: Registry, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the nodes come in several transactions, each has its list all the same."""
    monkeypatch.setattr("zkgroup.groups.changes.znode_transactions.MAX_TRANSACTION_BYTES", 600)
    group, other = make(owner, unique("ro"), {}), unique("ro")
    for number in range(1, 9):
        owner.write(Create(znodes.offset(group, P("t", number)), b"5", acl=CLOSED if number % 2 else MINE))
    tree = read_tree(owner, group)
    lists, _ = copied_lists(owner, tree, None, other, list(tree.offsets))
    writes = [change(key, 5, None) for key in tree.offsets]
    write_offsets(owner, other, writes, acls=lists)
    assert lists_of(owner, other) == without_members(lists_of(owner, group))


def test_words_show_no_digest() -> None:
    """A digest can be tried against dictionaries: only its user is reported."""
    assert format_acl((*MINE, Acl("sasl", "kafka", 5))) == "digest:app:cdrwa,world:anyone:r,sasl:kafka:cr"
