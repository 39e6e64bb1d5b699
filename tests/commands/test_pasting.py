"""Commands that zkgroup prints, pasted: they reach the servers that the command line has named."""

from __future__ import annotations

import json
import logging
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from cli import run, run_on_terminal
from guarded_changes import P
from hypothesis import given
from hypothesis import strategies as st
from lines import names

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.commands._error_output import configure_logging, place_options, render, render_command
from zkgroup.commands._shared_options import GlobalOptions
from zkgroup.errors import Notice, Remedy, ZkgroupError
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Ensure, Exists, SetData, Stat
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.text import Command, group_command, quoted


def test_only_what_says_where_the_servers_are_is_taken_along() -> None:
    """Each such option in a person's words, once; nothing that a secret, or its file, is in."""
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
    assert place_options(values) == [
        *("-c", "prod", "-z", "zk:2181/a b", "--bootstrap-server", "kafka:9092"),
        *("--consumer-config", "my group.properties", "-X", "zookeeper.connect=zk:2181"),
    ]
    assert place_options({"connect_timeout": [3.0]}) == []


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("assign", "g", "--execute"), "zkgroup -c x assign g --execute"),
        (("owners", "a b"), "zkgroup -c x owners 'a b'"),
        (("export", "--help"), "zkgroup export --help"),
        (("inspect-group", "--explain", "split-group"), "zkgroup inspect-group --explain split-group"),
        (("sandbox", "start"), "zkgroup sandbox start"),
    ],
)
def test_commands_that_ask_servers_name_them(command: Command, expected: str) -> None:
    """The options stand before the command's name; what asks no server has none."""
    assert render_command(command, GlobalOptions({"cluster": ["x"]})) == expected


def test_a_message_is_one_line() -> None:
    """A remedy's words stand before its commands, and a second command runs after the first. Text stays as it is."""
    remedy = Remedy("look there", ("offsets", "g"), ("owners", "it's"))
    given = GlobalOptions({"zookeeper": ["zk:1"]})
    line = """zkgroup -z zk:1 offsets g && zkgroup -z zk:1 owners 'it'"'"'s'"""
    assert render(remedy, given) == f"look there: {line}"
    assert render(ZkgroupError("all is lost", remedy), given) == f"all is lost: look there: {line}"
    assert render(Notice("all is lost", Remedy("do nothing")), given) == "all is lost: do nothing"
    assert render("zkgroup owners is not data", given) == "zkgroup owners is not data"


def test_a_log_record_names_the_servers(capsys: pytest.CaptureFixture[str]) -> None:
    """Errors and remedies are rendered as everywhere, wherever they stand in a record."""
    configure_logging(GlobalOptions({"cluster": ["x"]}))
    log = logging.getLogger("zkgroup.groups")
    log.warning("group %s; %s", "g", Remedy("move it", ("migrate-group", "g")))
    log.warning("%s", ZkgroupError("all is lost", Remedy("look there", ("owners", "g"))))
    assert capsys.readouterr().err.splitlines() == [
        "zkgroup: warning: group g; move it: zkgroup -c x migrate-group g",
        "zkgroup: warning: all is lost: look there: zkgroup -c x owners g",
    ]


NAME = st.one_of(
    st.text(min_size=1, max_size=12),
    st.lists(st.sampled_from(["zkgroup owners ", "'", '"', "\\", "$'", "\n", " "]), min_size=1, max_size=5).map(
        "".join
    ),
)


@given(group=NAME, cluster=NAME)
def test_whatever_groups_and_clusters_are_called(group: str, cluster: str) -> None:
    """A shell that knows no ``$'…'`` reads printable names as they are; each name is one word."""
    command = group_command("reset-offsets", group, "--topic", group, "--execute")
    line = render_command(command, GlobalOptions({"cluster": [cluster]}))
    assert line == " ".join(["zkgroup", "-c", quoted(cluster), *map(quoted, command)])
    if group.isprintable() and cluster.isprintable():
        assert shlex.split(line) == ["zkgroup", "-c", cluster, *command]


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


def test_what_is_reported_of_many_groups_names_the_cluster(
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
    assert names(shown, 5, "g0", "g1", "g2", 2)
    advised = re.findall(
        rf"^ +zkgroup -z {cluster.connect}{chroot} unsubscribe (g\d) --topic nope --execute$", shown, re.M
    )
    assert advised == ["g0", "g1", "g2"], shown


def test_refusals_and_warnings_name_the_cluster(
    cluster: Sandbox, registry: Registry, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """What an error advises, and a warning of a plan, are completed as findings are; what the environment names is
    not repeated."""
    group, file = unique("refused"), tmp_path / "whole.json"
    path = znodes.offset(group, P("t", 0))
    registry.write(Ensure(path))
    registry.write(SetData(path, b"5"))
    deleted = run("delete-group", "--pattern", group, "-z", cluster.connect, "--backup", str(file), "--execute")
    assert deleted.returncode == 0, deleted.stderr
    hint = f": zkgroup {{}}delete-group {group} --undo {file}\n"
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
    assert f": zkgroup -z {cluster.connect} export --group {group} --to /lake --status\n" in planned.stderr
