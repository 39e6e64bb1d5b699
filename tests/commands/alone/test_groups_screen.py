"""The screen of ``list-groups --watch``, as a terminal shows it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
from cli import run
from group_nodes import Groups, static
from lines import names
from screen import Screen

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.commands._error_output import render
from zkgroup.commands._groups_screen import GroupsView, groups_frame
from zkgroup.commands._shared_options import GlobalOptions
from zkgroup.commands._terminal_text import width
from zkgroup.commands._watch_view import Style
from zkgroup.errors import Remedy, UnreachableError
from zkgroup.groups.findings.inspection import Inspection, inspect
from zkgroup.groups.group_model import GroupPartition, GroupSnapshot, StoredOffset
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import SetData
from zkgroup.sandbox.local_cluster import Sandbox

PLAIN = Style(colour=False)


def test_from_all_groups_into_one_and_back(cluster: Sandbox, registry: Registry, groups: Groups, topic: str) -> None:
    """The worst group comes first; Enter watches the chosen one, q comes back to it, and a second q quits."""
    stem = f"scr{topic}"
    bad = groups.make({}, {}, {(topic, 0): 99}, name=f"{stem}-z")
    good = groups.make(
        {"@_a": static({topic: 1})},
        {(topic, p): "@_a-0" for p in range(3)},
        {(topic, p): 4 for p in range(3)},
        name=f"{stem}-a",
    )
    command = ("list-groups", "-z", cluster.connect, "--watch", "--interval", "0.5", "--filter", f"{stem}*")
    with Screen(*command, "--sort", "findings") as screen:
        screen.until(lambda text: f"> {bad}" in text and f"  {good}" in text)
        assert names(screen.lines[0], 2, 1, "critical")
        assert screen.lines[2].split() == ["GROUP", "STATE", "MEMBERS", "LAG", "BEHIND", "FINDING"]
        row = next(line for line in screen.lines if good in line)
        assert row.split()[:4] == [good, "active", "1", "18"]
        screen.press("\x1b[B")
        screen.until(lambda text: f"> {good}" in text)
        screen.press("\r")
        screen.until(lambda text: names(text, good, 1, 3, 3, 18) and f"> {good}" not in text)
        assert registry.write(SetData(f"{znodes.offset_topic(good, topic)}/0", b"10", -1)) is not None
        screen.press("q")
        screen.until(lambda text: f"> {good}" in text and " 12 " in text)
        screen.press("s")
        screen.until(lambda text: names(text, "s", "changed") and text.index(good) < text.index(bad))
        screen.press("/-z\r")
        screen.until(lambda text: f"> {bad}" in text and good not in text)
        assert screen.lines[0].split()[0] == "1"
        screen.press("q")
        assert screen.wait() == 0
        assert screen.is_restored


def test_a_key_in_the_group_may_quit_both(cluster: Sandbox, groups: Groups, topic: str) -> None:
    """Ctrl-C in the watch of one group ends the command."""
    group = groups.make({}, {}, {(topic, 0): 1})
    with Screen("list-groups", "-z", cluster.connect, "--watch", "--filter", group) as screen:
        screen.until(lambda text: f"> {group}" in text)
        screen.press("\r")
        screen.until(lambda text: group in text and f"> {group}" not in text)
        screen.press("\x03")
        assert screen.wait() == 0
        assert screen.is_restored


def test_where_there_is_no_screen() -> None:
    """In a pipe, with formats for programs, and without servers: one line, and its exit code."""
    done = run("list-groups", "--watch", "-z", "127.0.0.1:1")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert names(done.stderr, "--watch")
    assert run("list-groups", "--watch", "--output", "json", "-z", "127.0.0.1:1").returncode == 2
    assert run("list-groups", "--interval", "2", "-z", "127.0.0.1:1").returncode == 2
    with Screen("list-groups", "--watch", "-z", "127.0.0.1:1", "--connect-timeout", "0.5") as screen:
        assert screen.wait() == 3
        assert names(screen.text, "127.0.0.1:1")


def group(name: str, lag: int) -> GroupSnapshot:
    partition = GroupPartition("t", 0, stored=StoredOffset(100 - lag, 0, 0, 0, 0), log_start=0, log_end=100)
    return GroupSnapshot(name, (), (partition,), frozenset())


def view_of(*snapshots: GroupSnapshot) -> GroupsView:
    def select(found: Sequence[GroupSnapshot], sort: str) -> tuple[list[Inspection], int]:
        order = sorted(found, key=lambda one: one.group, reverse=sort == "lag")
        return [inspect(one) for one in order], 3

    given = GlobalOptions({"zookeeper": ["h:1/c"]})
    view = GroupsView(select, ("name", "lag"), "name", partial(render, given=given))
    view.update(snapshots)
    return view


@pytest.mark.parametrize("columns", [20, 40, 80, 120, 200])
@pytest.mark.parametrize("lines", [6, 24])
def test_frames_of_any_size(columns: int, lines: int) -> None:
    """As many lines as the screen, none wider; every group comes to be seen, whatever it is called."""
    groups = ["\x1b[31m", "漢字" * 60, "n" * 300, *(f"group-{number:02}" for number in range(40))]
    view = view_of(*(group(name, lag) for lag, name in enumerate(groups)))
    seen = set()
    for _ in range(len(groups)):
        shown = groups_frame(view, columns, lines, PLAIN)
        assert len(shown) == lines
        assert max(map(width, shown)) <= columns
        (chosen,) = [line for line in shown if line.startswith("> ")]
        seen.add(chosen)
        view.press("down")
    assert len(seen) == len(groups)
    assert columns < 80 or names(shown[0], 43, view.count("critical"), view.count("warning"), 3)
    assert columns < 80 or shown[2].split() == ["GROUP", "STATE", "MEMBERS", "LAG", "BEHIND", "FINDING"]


def test_keys_choose_order_and_filter() -> None:
    """The chosen group stays chosen in another order; a filter is typed, kept, cleared; an error is a note."""
    view = view_of(group("a", 1), group("b", 2), group("c", 3))
    view.press("end")
    assert view.chosen == "c"
    view.press("s")
    assert ([one.snapshot.group for one in view.rows], view.chosen) == (["c", "b", "a"], "c")
    for key in ("/", "B", "enter"):
        view.press(key)
    assert ([one.snapshot.group for one in view.rows], view.chosen, view.typing) == (["b"], "b", False)
    view.press("escape")
    assert len(view.rows) == 3
    error = UnreachableError("ZooKeeper is away", Remedy("look", ("list-groups",)))
    view.update(error)
    assert (view.note, len(view.rows)) == (error, 3)
    assert groups_frame(view, 80, 24, PLAIN)[1].endswith("zkgroup -z h:1/c list-groups")
    view.update(())
    assert (view.chosen, view.rows) == ("", [])
    assert groups_frame(view, 80, 24, PLAIN)[0].split()[0] == "0"
