"""Whose access lists a group has that is copied, renamed, or back: the installed commands, real servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from cli import run
from hiding import AUTH, CLOSED
from writing import P, values

from zkgroup.config.security import TlsSettings
from zkgroup.groups import access, writing
from zkgroup.groups.access import copied_lists, is_asked_for
from zkgroup.groups.strangers import identities
from zkgroup.groups.tree import read_tree
from zkgroup.groups.writing import write_offsets
from zkgroup.protocol import znodes
from zkgroup.protocol.acls import CREATOR_READ_WORLD
from zkgroup.protocol.ops import OPEN, Acl, Acls, Create, Exists, Failure, GetAcl, Stat
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.servers.registry import Registry
from zkgroup.servers.zookeeper import ZooKeeperSettings

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
    settings = ZooKeeperSettings("", auth=(("digest", credentials),))
    return tuple(Acl(scheme, name, 31) for scheme, name in identities(settings))


def is_there(session: Registry, group: str) -> bool:
    return isinstance(session.read([Exists(znodes.group(group))])[0], Stat)


def test_a_protected_group_stays_protected(
    owner: Registry, unique: Callable[[str], str], credentials: tuple[str, ...], tmp_path: Path
) -> None:
    """Renamed, every node has the list of the one that it stands for, which the plan says; undone, so it is again."""
    group, other = unique("ro"), unique("ro")
    closed = {znodes.offset_topic(group, "t"): CLOSED, znodes.ids(group): CLOSED}
    make(owner, group, closed)
    before = lists_of(owner, group)
    plan = run("rename-group", group, other, *credentials)
    told = f"group {other} gets the access lists of group {group}: digest:app:cdrwa,world:anyone:r; digest:app:cdrwa"
    assert told in plan.stderr
    file = tmp_path / "backup"
    done = run("rename-group", group, other, *credentials, "--backup", str(file), "--execute")
    assert done.returncode == 0, done.stderr
    assert (is_there(owner, group), lists_of(owner, other), values(owner, other, P("t", 0))) == (False, before, [5])

    back = run("reset-offsets", group, "--undo", str(file), *credentials, "--execute")
    assert back.returncode == 0, back.stderr
    assert lists_of(owner, group) == {path: acl for path, acl in before.items() if path not in ("/ids", "/owners")}


def test_an_open_group_stays_open(owner: Registry, unique: Callable[[str], str], credentials: tuple[str, ...]) -> None:
    """Of lists that everybody knows no word is lost."""
    group, other = make(owner, unique("open"), {}, otherwise=OPEN), unique("open")
    done = run("rename-group", group, other, *credentials, "--execute")
    assert (done.returncode, "access list" in done.stderr) == (0, False)
    assert set(lists_of(owner, other).values()) == {OPEN}


def test_a_copy_is_as_protected(owner: Registry, unique: Callable[[str], str], credentials: tuple[str, ...]) -> None:
    """A copy is no way round an access list; --zookeeper-acl gives it another, which the plan says."""
    group, other, opened = make(owner, unique("ro"), {}), unique("copy"), unique("copy")
    plan = run("copy-group", group, other, *credentials, "--execute")
    assert plan.returncode == 0, plan.stderr
    assert f"group {other} gets the access list of group {group}: digest:app:cdrwa,world:anyone:r" in plan.stderr
    assert lists_of(owner, other) == dict.fromkeys(("", "/offsets", "/offsets/t", "/offsets/t/0"), MINE)

    done = run("copy-group", group, opened, *credentials, "--zookeeper-acl", "open", "--execute")
    told = f"group {opened} gets the access list that was asked for (zookeeper-acl), not that of group {group}"
    assert told in done.stderr
    assert set(lists_of(owner, opened).values()) == {OPEN}
    same = run("copy-group", group, unique("copy"), *credentials, "--zookeeper-acl", "creator-read-world")
    assert "access list" not in same.stderr


def test_what_is_there_keeps_its_lists(
    owner: Registry, unique: Callable[[str], str], credentials: tuple[str, ...]
) -> None:
    """What is copied into another's group that group must be able to write: as its nodes above, and the plan says so.
    What is renamed into it stays protected."""
    group, other, third = make(owner, unique("ro"), {}), unique("mine"), unique("mine")
    for name in (other, third):
        for path in (znodes.group(name), znodes.ids(name)):
            assert not isinstance(owner.write(Create(path, acl=OPEN)), Failure)
    done = run("copy-group", group, other, *credentials, "--execute")
    told = f"new nodes of group {other} get the access lists of that group's own nodes, not that of group {group}"
    assert told in done.stderr
    assert set(lists_of(owner, other).values()) == {OPEN}
    done = run("rename-group", group, third, *credentials, "--execute")
    assert done.returncode == 0, done.stderr
    assert {acl for path, acl in lists_of(owner, third).items() if path.startswith("/offsets")} == {MINE}


@pytest.mark.parametrize("command", ["copy-group", "rename-group"])
def test_nobody_locks_himself_out(
    owner: Registry, unique: Callable[[str], str], credentials: tuple[str, ...], command: str
) -> None:
    """A list under which the copy could not be gone on with is refused before anything is made, in the plan, too."""
    group, other = unique("ro"), unique("copy")
    theirs = (*(Acl(entry.scheme, entry.id, 1 | 8 | 16) for entry in CLOSED), *_digest("maker:secret"))
    with Registry(replace(owner.settings, auth=(AUTH, ("digest", "maker:secret"))), 20.0) as both:
        make(both, group, {znodes.offsets(group): theirs})
    told = f"/consumers/{other}/offsets would get an access list that keeps these credentials from making its offsets"
    plan = run(command, group, other, *credentials)
    assert (plan.returncode, f"--execute would be refused: {told}" in plan.stderr) == (0, True), plan.stderr
    done = run(command, group, other, *credentials, "--execute")
    assert (done.returncode, told in done.stderr, is_there(owner, other)) == (5, True, False), done.stderr
    assert values(owner, group, P("t", 0)) == [5]


def test_a_list_that_is_not_shown(owner: Registry, unique: Callable[[str], str], credentials: tuple[str, ...]) -> None:
    """Servers show digests only to who may administer a node: a copy by another would be open, or his: refused, unless
    he says which list it is to be."""
    group, other = make(owner, unique("ro"), {}), unique("copy")
    args = (group, other, *credentials[:4])
    plan = run("copy-group", *args)
    told = f"--execute would be refused: the access list of /consumers/{group} is shown only to who may administer it"
    assert told in plan.stderr
    done = run("copy-group", *args, "--execute")
    assert (done.returncode, "or give --zookeeper-acl" in done.stderr, is_there(owner, other)) == (5, True, False)
    assert run("copy-group", *args, "--zookeeper-acl", "open", "--execute").returncode == 0
    assert set(lists_of(owner, other).values()) == {OPEN}
    assert told in run("rename-group", *args, "--zookeeper-acl", "open").stderr


def test_lists_of_many_pieces(owner: Registry, unique: Callable[[str], str]) -> None:
    """Where the nodes come in several transactions, each has its list all the same, ``ids`` included."""
    group, other = make(owner, unique("ro"), {}), unique("ro")
    for number in range(1, 9):
        owner.write(Create(znodes.offset(group, P("t", number)), b"5", acl=CLOSED if number % 2 else MINE))
    tree = read_tree(owner, group)
    copied = copied_lists(owner, tree, None, other, list(tree.offsets), renaming=True)
    writes = [writing.OffsetWrite(key, 5, None) for key in tree.offsets]
    write_offsets(owner, other, writes, piece_bytes=600, acls=copied.lists)
    assert lists_of(owner, other) == lists_of(owner, group)


@pytest.mark.parametrize(
    ("acl", "same"),
    [
        (MINE, True),
        (MINE[::-1], True),
        ((*MINE, Acl("x509", "CN=app", 31)), True),
        (CLOSED, False),
        ((*MINE, Acl("sasl", "other", 31)), False),
        (OPEN, False),
    ],
)
def test_a_list_that_was_asked_for_needs_no_word(acl: tuple[Acl, ...], same: bool) -> None:
    """In any order, with the session's own credentials in place of ``auth``, that of its certificate included."""
    tls = TlsSettings(certificate_file="cert.pem", key_file="key.pem")
    settings = ZooKeeperSettings("", auth=(AUTH,), acl=CREATOR_READ_WORLD, tls=tls)
    assert is_asked_for(acl, settings) is same


def test_words_show_no_digest() -> None:
    """A digest can be tried against dictionaries: only its user is told."""
    assert access.told_list((*MINE, Acl("sasl", "kafka", 5))) == "digest:app:cdrwa,world:anyone:r,sasl:kafka:cr"
