"""Completion in the shells: the scripts that are kept, and what TAB offers."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli import ZKGROUP, environment, run
from support import wait_until

from zkgroup.protocol.ops import Ensure
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.servers.registry import Registry

FOLDER = Path(__file__).resolve().parents[2] / "completions"
FILES = {"bash": "zkgroup.bash", "zsh": "_zkgroup", "fish": "zkgroup.fish"}


def offered(line: str, **env: str) -> list[str]:
    """What bash would be offered for ``line`` with the cursor at its end."""
    words = line.split(" ")
    asked = {"_ZKGROUP_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    result = run(env=asked | env)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout.split()


@pytest.mark.parametrize("shell", FILES)
def test_the_files_are_what_the_command_prints(shell: str) -> None:
    """Regenerate with ``zkgroup completions SHELL``; a blank first line would keep zsh from loading it."""
    printed = run("completions", shell).stdout
    assert (FOLDER / FILES[shell]).read_text() == printed
    assert printed == printed.strip() + "\n"


def test_zsh_completes_on_the_first_tab() -> None:
    """Autoloaded, the file's last line has to complete at once instead of only registering itself."""
    lines = (FOLDER / "_zkgroup").read_text().splitlines()
    assert lines[0] == "#compdef zkgroup"
    assert lines[-1].startswith("if [[ $funcstack[1] == _zkgroup ]]; then _zkgroup_completion; else compdef")


def test_bash_takes_the_script() -> None:
    """bash itself loads it and completes a command's name with it."""
    script = f"""
        source {FOLDER}/zkgroup.bash
        COMP_WORDS=(zkgroup own) COMP_CWORD=1
        _zkgroup_completion {ZKGROUP}
        echo "${{COMPREPLY[@]}}"
    """
    result = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, env=environment(), check=True, timeout=60
    )
    assert result.stdout.split() == ["owners"]


def test_names_and_options() -> None:
    """Commands, their options and the values of an option."""
    assert "owners" in offered("zkgroup ")
    assert offered("zkgroup completions f") == ["fish"]
    assert {"--topic", "--zookeeper"} <= set(offered("zkgroup owners --"))
    assert offered("zkgroup owners g --output j") == ["json"]


def test_clusters(tmp_path: Path) -> None:
    """Profiles of config.toml and the sandbox; a broken config.toml offers nothing and says nothing."""
    config = tmp_path / "config.toml"
    config.write_text("[clusters.prod]\n[clusters.pre]\n[clusters.'$(reboot)']\n")
    assert offered("zkgroup owners -c ", ZKGROUP_CONFIG=str(config)) == ["pre", "prod", "sandbox"]
    config.write_text("[")
    assert offered("zkgroup owners -c ", ZKGROUP_CONFIG=str(config)) == ["sandbox"]


def test_groups(cluster: Sandbox, registry: Registry, unique: Callable[[str], str]) -> None:
    """Groups that exist, wherever the line or the environment says; names a shell could run are not offered."""
    group = unique("completed")
    for name in (group, group + "$(reboot)"):
        assert registry.write(Ensure(f"/consumers/{name}")) is None
    # Where the machine is so busy that ZooKeeper is not asked within a second, nothing is offered: then again.
    wait_until(lambda: offered(f"zkgroup -z {cluster.connect} owners {group[:9]}") == [group], 60)
    wait_until(lambda: offered(f"zkgroup owners {group[:9]}", ZKGROUP_ZOOKEEPER=cluster.connect) == [group], 60)


def test_a_slow_zookeeper_never_hangs_a_tab() -> None:
    """Where nobody answers, nothing is offered, within about a second."""
    started = time.monotonic()
    assert offered("zkgroup owners ", ZKGROUP_ZOOKEEPER="127.0.0.1:1") == []
    # A second is meant; a machine that is busy with other tests gets more.
    assert time.monotonic() - started < 5
