"""Exports by schedule: what ``docs/how-to/schedule.md`` gives a scheduler runs, and ends as it says."""

from __future__ import annotations

import ast
import configparser
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cli import ZKGROUP, environment
from exports import messages_in
from lines import names

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import AlreadyRunningError
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Create, Ensure
from zkgroup.sandbox.local_cluster import Sandbox

PAGE = (Path(__file__).parents[2] / "docs/how-to/schedule.md").read_text("utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def operator() -> dict[str, object]:
    """The arguments of the DAG's task that are literals."""
    (source,) = blocks("python")
    (call,) = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "BashOperator"
    )
    return {one.arg: ast.literal_eval(one.value) for one in call.keywords if one.arg and one.arg != "retry_delay"}


def test_every_scheduler_runs_the_same_command() -> None:
    """cron, systemd and Airflow; and each takes an overlapping run for no failure, by its exit code."""
    task, code = operator(), AlreadyRunningError.exit_code
    service = configparser.ConfigParser()
    service.read_string(blocks("ini")[0])
    (line,) = blocks("crontab")
    assert service["Service"]["ExecStart"] == task["bash_command"]
    assert f"$({task['bash_command']} 2>&1 >> " in line
    assert "ZKGROUP_ZOOKEEPER=" in line
    assert f"[ $? -eq {code} ]" in line
    assert (service.getint("Service", "SuccessExitStatus"), task["skip_on_exit_code"]) == (code, code)


@pytest.mark.skipif(shutil.which("jq") is None, reason="there is no jq")
def test_a_summary_becomes_metrics(tmp_path: Path) -> None:
    """The page's own summary, by the page's command."""
    (tmp_path / "summary.json").write_text(blocks("json")[0])
    made = subprocess.run(["bash", "-c", blocks("bash")[0]], cwd=tmp_path, capture_output=True, text=True, check=True)
    labels = '{topic="orders",partition="0"}'
    assert made.stdout == f"zkgroup_export_rows{labels} 999\nzkgroup_export_undecodable{labels} 1\n"


def test_the_task_exports_and_an_overlapping_one_is_skipped(
    cluster: Sandbox, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    second: Registry, tmp_path: Path,
) -> None:  # fmt: skip
    """The DAG's command, in bash, on real servers: a summary in JSON and exit 0. While another process holds the lock,
    it exports nothing, and exits with the code that Airflow skips."""
    task, topic, group, out = operator(), make_topic(), unique("group"), tmp_path / "lake"
    fill(topic, 10)
    named = {"/home/ops/.local/bin/zkgroup": ZKGROUP, "orders": topic, "warehouse": group, "/data/lake": str(out)}
    words = {rf"(?<![\w/]){word}(?=[ .])": name for word, name in named.items()}

    def run(command: str, shell: str = "bash") -> subprocess.CompletedProcess[str]:
        for word, name in words.items():
            command = re.sub(word, name, command)
        env = environment({"ZKGROUP_ZOOKEEPER": cluster.connect})
        return subprocess.run([shell, "-c", command], env=env, capture_output=True, text=True, timeout=120, check=False)

    cron = blocks("crontab")[0].splitlines()[-1].split(" ", 5)[-1]
    done = run(str(task["bash_command"]))
    assert (done.returncode, done.stderr) == (0, "")
    (row,) = json.loads(done.stdout)
    assert (row["topic"], row["rows"], row["undecodable"]) == (topic, 10, 0)

    fill(topic, 1)
    lock = znodes.export_lock(group)
    second.write(Ensure(lock.rpartition("/")[0]))
    assert second.write(Create(lock, b'{"host": "other", "pid": 7, "since": 0}', ephemeral=True)) is None
    done = run(cron, "sh")  # which mails what it prints
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = run(str(task["bash_command"]))
    assert (done.returncode, done.stdout) == (task["skip_on_exit_code"], "")
    assert names(done.stderr, group, "other", 7)
    assert len(messages_in(out)) == 10
    done = run(cron.replace("earliest", "nowhere"), "sh")
    assert done.stdout.startswith("zkgroup: --from")
