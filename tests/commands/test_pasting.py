"""Commands that zkgroup prints, pasted: they reach the servers that the command line has named."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from cli import run, run_on_terminal
from hypothesis import given
from hypothesis import strategies as st
from writing import P

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.commands import COMMANDS
from zkgroup.commands._pasting import place_options, with_options
from zkgroup.groups.shell_commands import command_line, in_quotes, quoted
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Ensure, Exists, SetData, Stat
from zkgroup.sandbox.local_cluster import Sandbox

NAMES = [lazy.name for lazy in COMMANDS if lazy.connects]


def test_only_what_says_where_the_servers_are_is_taken_along() -> None:
    """Each such option in a person's words, once; nothing that a secret, or its file, stands in."""
    values = {
        "zookeeper": ["zk:2181/a b", "zk:2181/a b"],
        "cluster": ["prod"],
        "bootstrap_server": ["kafka:9092"],
        "consumer_config": ["my group.properties"],
        "property": ["kafka.sasl.password=secret", "zookeeper.connect=zk:2181", "socket.timeout.ms=9"],
        "zookeeper_auth_file": ["digests"],
        "sasl_user": ["me"],
        "connect_timeout": [3.0],
    }
    assert shlex.split(place_options(values)) == [
        *("-c", "prod", "-z", "zk:2181/a b", "--bootstrap-server", "kafka:9092"),
        *("--consumer-config", "my group.properties", "-X", "zookeeper.connect=zk:2181"),
    ]
    assert place_options({"connect_timeout": [3.0]}) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zkgroup assign g --execute", "zkgroup -c x assign g --execute"),
        (
            "first 'zkgroup offsets g', then zkgroup owners g",
            "first 'zkgroup -c x offsets g', then zkgroup -c x owners g",
        ),
        ("the group's, zkgroup owners 'a b' (it's)", "the group's, zkgroup -c x owners 'a b' (it's)"),
        ("zkgroup is not zkgroup owners-of", "zkgroup is not zkgroup owners-of"),
        ("see 'zkgroup export --help'", "see 'zkgroup export --help'"),
        ("zkgroup inspect-group --explain split-group", "zkgroup inspect-group --explain split-group"),
        ("start it: zkgroup sandbox start", "start it: zkgroup sandbox start"),
        ("zkgroup -c y owners g", "zkgroup -c y owners g"),
        ("/opt/zkgroup owners", "/opt/zkgroup owners"),
    ],
)
def test_commands_and_nothing_else_are_completed(text: str, expected: str) -> None:
    """A command of ours that asks servers gets the options, behind the program's name; twice is as once."""
    assert with_options(text, "-c x", NAMES) == expected
    assert with_options(expected, "-c x", NAMES) == expected


NAME = st.one_of(
    st.text(min_size=1, max_size=12),
    st.lists(st.sampled_from(["zkgroup owners ", "'", '"', "\\", "$'", "\n", " "]), min_size=1, max_size=5).map(
        "".join
    ),
)


@given(group=NAME, cluster=NAME)
def test_whatever_groups_and_clusters_are_called(group: str, cluster: str) -> None:
    """The options stand before the command's name, and its own words are as they were; quotes around it go where
    the options have some."""
    options = place_options({"cluster": [cluster]})
    before, after = "look at the group's topics: ", " and then wait"
    command = command_line("reset-offsets", group, f"--topic {quoted(group)} --execute")
    plain = with_options(before + command + after, options, NAMES)
    assert plain == before + command.replace("zkgroup ", f"zkgroup {options} ", 1) + after
    hint = with_options(before + in_quotes(command) + after, options, NAMES)
    completed = command.replace("zkgroup ", f"zkgroup {options} ", 1)
    assert hint == before + in_quotes(completed) + after


def test_on_a_terminal_remedies_can_be_selected_and_pasted(
    cluster: Sandbox, registry: Registry, unique: Callable[[str], str]
) -> None:
    """A terminal of 80 columns gets the command of a finding in one piece, to wrap it itself."""
    group = unique("a-name-that-is-long-enough-to-be-wrapped-on-a-terminal-of-eighty-columns")
    registry.write(Ensure(znodes.offset(group, P("nope", 0))))
    registry.write(SetData(znodes.offset(group, P("nope", 0)), b"5"))
    _, shown = run_on_terminal("inspect-group", group, "-z", cluster.connect, env={"COLUMNS": "80"})
    assert re.search(rf"zkgroup -z {cluster.connect} [a-z-]+ {group} --topic nope --execute", shown), shown


@pytest.mark.parametrize("args", [["--output", "json"], ["--output", "csv", "--section", "findings"], []])
def test_what_is_advised_is_for_the_cluster_that_was_asked(
    cluster: Sandbox, registry: Registry, unique: Callable[[str], str], args: list[str]
) -> None:
    """Pasted where the environment names a twin, it mends the group of the command line, and leaves the twin alone."""
    group, twin = unique("pasted"), f"/{unique('twin')}"
    gone = znodes.offset(group, P("nope", 0))
    for path in (gone, twin + gone):
        registry.write(Ensure(path))
        registry.write(SetData(path, b"5"))
    env = {"ZKGROUP_ZOOKEEPER": cluster.connect + twin}
    found = run("inspect-group", group, *args, "-z", cluster.connect, env=env).stdout
    shown = json.loads(found)["findings"][0]["commands"][0] if "json" in args else found
    advised = re.search(rf"zkgroup (-z {cluster.connect} [a-z-]+ {group} --topic nope --execute)", shown)
    assert advised is not None, shown
    assert "zkgroup -z" not in run("inspect-group", group, *args, env=env).stdout
    pasted = run(*shlex.split(advised[1]), env=env)
    assert pasted.returncode == 0, pasted.stderr
    mended, left = registry.read([Exists(gone), Exists(twin + gone)])
    assert mended is None
    assert isinstance(left, Stat)


def test_what_is_said_of_many_groups_names_the_cluster(
    cluster: Sandbox, registry: Registry, unique: Callable[[str], str]
) -> None:
    """With ``--all`` a remedy is said once for groups that are alike, with the commands for the first of them, and with
    the cluster that was asked."""
    chroot = f"/{unique('all')}"
    for number in range(5):
        path = chroot + znodes.offset(f"g{number}", P("nope", 0))
        registry.write(Ensure(path))
        registry.write(SetData(path, b"5"))
    shown = run("inspect-group", "--all", "-z", cluster.connect + chroot).stdout
    assert "5 groups alike" in shown
    advised = re.findall(
        rf"^ +zkgroup -z {cluster.connect}{chroot} unsubscribe (g\d) --topic nope --execute$", shown, re.M
    )
    assert advised == ["g0", "g1", "g2"], shown


def test_refusals_and_warnings_name_the_cluster(
    cluster: Sandbox, registry: Registry, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """What an error advises, and a warning beside a plan, are completed as findings are; what the environment names is
    not repeated."""
    group, file = unique("refused"), tmp_path / "whole.json"
    path = znodes.offset(group, P("t", 0))
    registry.write(Ensure(path))
    registry.write(SetData(path, b"5"))
    deleted = run("delete-group", "--pattern", group, "-z", cluster.connect, "--backup", str(file), "--execute")
    assert deleted.returncode == 0, deleted.stderr
    hint = f"'zkgroup {{}}delete-group {group} --undo {file}' plans"
    for args, env, expected in (
        (["-z", cluster.connect], {}, hint.format(f"-z {cluster.connect} ")),
        ([], {"ZKGROUP_ZOOKEEPER": cluster.connect}, hint.format("")),
    ):
        refused = run("reset-offsets", group, "--undo", str(file), *args, env=env)
        assert (refused.returncode, expected in refused.stderr) == (2, True), refused.stderr
    pointer = json.dumps({"format": 1, "state": "decided", "run": "R", "output": "/lake"}).encode()
    registry.write(Ensure(znodes.export_state(group)))
    registry.write(SetData(znodes.export_state(group), pointer))
    planned = run("rename-group", group, unique("other"), "-z", cluster.connect, "--store", "zookeeper")
    assert f"'zkgroup -z {cluster.connect} export --group {group} --to /lake --status'" in planned.stderr
