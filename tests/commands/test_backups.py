"""``zkgroup backups``: what changes have written, on real servers."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

from cli import run
from group_nodes import Groups, tree
from lines import names

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.config.setting_files import STATE_VARIABLE
from zkgroup.protocol import znodes
from zkgroup.sandbox.local_cluster import Sandbox


def test_backups_are_listed_and_shown(cluster: Sandbox, registry: Registry, groups: Groups, topic: str) -> None:
    """The newest first; one of them with its offsets and nodes, and the command that brings them back."""
    group = groups.make({}, {}, {(topic, 0): 4, (topic, 1): 5})
    before = tree(registry, znodes.group(group))
    for words in (("reset-offsets", "--topic", f"{topic}:0", "--to-earliest"), ("delete-group",)):
        done = run(words[0], group, *words[1:], "--execute", "-z", cluster.connect)
        assert done.returncode == 0, done.stderr
    result = run("backups", "--filter", group, "--output", "json")
    assert (result.returncode, result.stderr) == (0, "")
    deleted, reset = json.loads(result.stdout)
    assert [deleted["command"], reset["command"]] == ["delete-group", "reset-offsets"]
    assert deleted["time"] > reset["time"] > "2026"
    assert (reset["group"], reset["offsets"], reset["nodes"]) == (group, 1, 0)
    assert deleted["nodes"] >= 4
    shown = json.loads(run("backups", Path(reset["file"]).name, "--output", "json").stdout)
    assert shown["offsets"] == [
        {"store": "zookeeper", "topic": topic, "partition": 0, "before": 4, "written": 0},
    ]
    assert shown["undo"] == f"zkgroup reset-offsets {group} --undo {reset['file']}"
    csv = run("backups", reset["file"], "--output", "csv").stdout
    assert csv.splitlines() == ["store,topic,partition,before,written", f"zookeeper,{topic},0,4,0"]
    # What is printed is pasted, the last change first: a plan, and with --execute all is as it was.
    for one in (deleted, reset):
        last = run("backups", one["file"]).stdout.splitlines()[-1]
        left = tree(registry, znodes.group(group))
        assert run(*shlex.split(last)[1:], "-z", cluster.connect).returncode == 0
        assert tree(registry, znodes.group(group)) == left
        undone = run(*shlex.split(last)[1:], "--execute", "-z", cluster.connect)
        assert undone.returncode == 0, (last, undone.stderr)
    after = tree(registry, znodes.group(group))
    assert {path: node[0] for path, node in after.items()} == {path: node[0] for path, node in before.items()}


def test_what_is_no_backup_hides_no_other(groups: Groups, cluster: Sandbox, topic: str) -> None:
    """A damaged file is named on stderr, and the others are listed; alone it is wrong usage."""
    group = groups.make({}, {}, {(topic, 0): 4})
    assert run("unsubscribe", group, "--topic", topic, "--execute", "-z", cluster.connect).returncode == 0
    folder = Path(os.environ[STATE_VARIABLE]) / "backups"
    damaged = folder / "20200101T000000Z-reset-offsets-damaged.json"
    damaged.write_text("{")
    try:
        result = run("backups", "--output", "json")
        assert result.returncode == 0
        assert group in {row["group"] for row in json.loads(result.stdout)}
        assert names(result.stderr, "warning", damaged)
        refused = run("backups", damaged.name)
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
        assert names(refused.stderr, damaged)
    finally:
        damaged.unlink()
    assert run("backups", "--filter", "no-such-group", "--output", "csv").stdout.count("\n") == 1
