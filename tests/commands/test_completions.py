"""Completion in the shells: the scripts that are kept, and what TAB offers."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli import ZKGROUP, environment, run
from group_nodes import Groups, static
from shells import home_of, shell
from support import wait_until

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.commands._completion import TIMEOUT
from zkgroup.config.setting_files import STATE_VARIABLE
from zkgroup.groups.findings.finding_kinds import KINDS
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Ensure
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import create_topic

FOLDER = Path(__file__).resolve().parents[2] / "completions"
BASH_COMPLETION = Path("/usr/share/bash-completion/bash_completion")
FILES = {"bash": "zkgroup.bash", "zsh": "_zkgroup", "fish": "zkgroup.fish"}


def offered(line: str, files: bool = False, **env: str) -> list[str]:
    """What bash offers for ``line`` with the cursor at its end; ``files``: that it may offer file names."""
    result = run(env={"_ZKGROUP_COMPLETE": "complete_bash", "_TYPER_COMPLETE_ARGS": line} | env)
    assert (result.returncode, result.stderr) == (int(files), "")
    return result.stdout.split()


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_what_the_command_prints(name: str) -> None:
    """Regenerate with ``zkgroup completions SHELL``; a blank first line would keep zsh from loading it."""
    printed = run("completions", name).stdout
    assert (FOLDER / FILES[name]).read_text() == printed
    assert printed == printed.strip() + "\n"


def test_zsh_completes_on_the_first_tab() -> None:
    """Autoloaded, the file's last line has to complete at once instead of only registering itself."""
    lines = (FOLDER / "_zkgroup").read_text().splitlines()
    assert lines[0] == "#compdef zkgroup"
    assert lines[-1].startswith("if [[ $funcstack[1] == _zkgroup ]]; then _zkgroup_completion; else compdef")


def test_names_and_options() -> None:
    """Commands, their options and the values of an option."""
    assert "owners" in offered("zkgroup ")
    assert offered("zkgroup completions f") == ["fish"]
    assert offered("zkgroup des") == ["describe"]
    assert offered("zkgroup li") == ["list-groups"], "an alias that begins as its command keeps no TAB from it"
    assert "ls" not in offered("zkgroup ")
    assert {"--topic", "--zookeeper"} <= set(offered("zkgroup owners --"))
    assert offered("zkgroup owners g --output j") == ["json"]
    assert offered("zkgroup reset-offsets g --file-format sp") == ["spark"]
    assert offered("zkgroup assign g --strategy ro") == ["roundrobin"]
    assert offered("zkgroup owners g --security-protocol SASL_S") == ["SASL_SSL"]
    assert offered("zkgroup sandbox start --kafka 0.8") == ["0.8.2.2"]


def test_words_of_an_option() -> None:
    """What may be typed as it is in the help, next to values that nobody can know; and the codes of findings."""
    assert offered("zkgroup export orders --from ") == ["committed", "earliest", "latest"]
    assert offered("zkgroup consume orders --offset l") == ["latest"]
    assert offered("zkgroup export orders --compression ") == ["gzip", "lz4", "none", "snappy", "zstd"]
    assert offered("zkgroup export orders --partition-by ") == ["date", "hour", "none", "partition"]
    assert offered("zkgroup inspect-group --explain offset-b") == ["offset-before-start", "offset-beyond-end"]
    assert set(offered("zkgroup inspect-group --explain ")) == set(KINDS)


def test_an_option_and_its_value_in_one_word() -> None:
    """``--output=j``: what is offered means the whole word; bash takes off what it does not replace."""
    assert offered("zkgroup owners g --output=j") == ["--output=json"]


def test_files_only_where_a_file_is_meant() -> None:
    """Where nothing is known the shell offers files for --save, and none for a number, or a group."""
    assert offered("zkgroup offsets g --save ", files=True) == []
    assert offered("zkgroup consume --max-messages ") == []
    assert offered("zkgroup export orders --from /", files=True) == []
    for begun in ("--from orders:0=", "--until @", "--to s3:", "--to s3://lake/"):
        assert offered(f"zkgroup export orders {begun}") == []
    assert offered("zkgroup owners ", ZKGROUP_ZOOKEEPER="127.0.0.1:1") == []


def test_clusters(tmp_path: Path) -> None:
    """Profiles of config.toml and the sandbox; a broken config.toml offers nothing and says nothing."""
    config = tmp_path / "config.toml"
    config.write_text("[clusters.prod]\n[clusters.pre]\n[clusters.'$(reboot)']\n")
    mine = {"ZKGROUP_CONFIG": str(config), STATE_VARIABLE: str(tmp_path)}  # not the sandboxes of other tests
    assert offered("zkgroup owners -c ", **mine) == ["pre", "prod", "sandbox"]
    config.write_text("[")
    assert offered("zkgroup owners -c ", **mine) == ["sandbox"]


def test_sandboxes(cluster: Sandbox) -> None:
    """Those that are there, as clusters and as sandboxes."""
    assert "sandbox:tests" in offered("zkgroup owners -c sandbox:")
    assert offered("zkgroup sandbox stop --name tests-z") == ["tests-zookeeper"]


def test_groups(
    cluster: Sandbox, registry: Registry, in_kafka: Callable[..., object], unique: Callable[[str], str], topic: str
) -> None:
    """Groups in either store, wherever the line or the environment says; names a shell could run are not offered."""
    stem = unique("completed")
    for name in (stem + ".zk", stem + "$(reboot)"):
        assert registry.write(Ensure(f"/consumers/{name}")) is None
    in_kafka(stem + ".kafka", {TopicPartition(topic, 0): 1})
    both = [stem + ".kafka", stem + ".zk"]
    # Where the machine is so busy that servers are not asked within a second, nothing is offered: then again.
    wait_until(lambda: offered(f"zkgroup -z {cluster.connect} owners {stem}") == both, 60)
    wait_until(lambda: offered(f"zkgroup owners {stem}", ZKGROUP_ZOOKEEPER=cluster.connect) == both, 60)
    brokers = f"--bootstrap-server {cluster.bootstrap}"
    wait_until(lambda: offered(f"zkgroup {brokers} offsets {stem}") == [stem + ".kafka"], 60)


def test_topics_and_members(cluster: Sandbox, groups: Groups, topic: str) -> None:
    """Topics wherever one is asked for, and members of the group that the line names."""
    group = groups.make({"@_one": static({topic: 1})})
    zookeeper = {"ZKGROUP_ZOOKEEPER": cluster.connect}
    for line in ("consume ", "offsets g --topic ", "reset-offsets g --topic ", "unsubscribe g --topic ", "export "):
        wait_until(lambda: offered(f"zkgroup {line}{topic[:-1]}", **zookeeper).count(topic) == 1, 60, line)  # noqa: B023
    wait_until(lambda: offered(f"zkgroup assign {group} --without ", **zookeeper) == [f"{group}_one"], 60)


def test_servers_that_hang_cost_less_than_a_second() -> None:
    """A ZooKeeper, and brokers, that take a connection and say nothing: nothing is offered, and a TAB lasts no longer
    beyond one that asks nobody than it has patience. On a busy machine it may take some TABs to see one that is not
    held up by others."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        for where in ({"ZKGROUP_ZOOKEEPER": address}, {}):
            brokers = "" if where else f"--bootstrap-server {address} "
            line = f"zkgroup {brokers}offsets "
            wait_until(lambda: timed(line, **where) - timed("zkgroup ver") < TIMEOUT + 0.4, 60)  # noqa: B023


def timed(line: str, **env: str) -> float:
    """Seconds that a TAB lasts, with the start of its process."""
    asked = environment({"_ZKGROUP_COMPLETE": "complete_bash", "_TYPER_COMPLETE_ARGS": line} | env)
    started = time.monotonic()
    shown = subprocess.run([ZKGROUP], capture_output=True, text=True, env=asked, timeout=60, check=True).stdout
    assert shown.split() in ([], ["version"])
    return time.monotonic() - started


# --- in the real shells ----------------------------------------------------------------------------------------------


@pytest.fixture(params=list(FILES))
def person(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, str], Path]:
    """A shell, the environment of somebody who uses it, and the file with that shell's configuration."""
    name = request.param
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed: make test-programs")
    dotfile = {"bash": ".bashrc", "zsh": ".zshrc", "fish": ".config/fish/config.fish"}[name]
    (tmp_path / dotfile).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / dotfile).write_text(
        f"source {BASH_COMPLETION}\n" if name == "bash" and BASH_COMPLETION.exists() else ""
    )
    # Without it fish makes completions out of all man pages when it is first started.
    (tmp_path / ".local/share/fish/generated_completions").mkdir(parents=True)
    return name, home_of(tmp_path, ZKGROUP, environment()), tmp_path / dotfile


def test_a_shell_completes(
    person: tuple[str, dict[str, str], Path],
    cluster: Sandbox,
    registry: Registry,
    groups: Groups,
    unique: Callable[[str], str],
) -> None:
    """With the line of the help in its configuration a new shell completes on TAB: names, options, names on servers,
    choices, files."""
    name, env, dotfile = person
    lines = {
        "bash": "source <(zkgroup completions bash)\n",
        "zsh": "autoload -Uz compinit && compinit -u\nsource <(zkgroup completions zsh)\n",
        "fish": "zkgroup completions fish | source\n",
    }
    with dotfile.open("a") as file:
        file.write(lines[name])
    topic = unique("tabbed") + "end"  # of which the beginning is unique, too
    create_topic(registry, topic, 1)
    group = groups.make({"@_one": static({topic: 1})}, name=topic)
    env |= {"ZKGROUP_ZOOKEEPER": cluster.connect}
    (dotfile.parent / "0-is-a-file").write_text("")
    with shell(name, env) as terminal:
        terminal.send(f"cd {dotfile.parent}\n".encode())
        for line, whole in (
            ("zkgroup own", "zkgroup owners"),
            ("zkgroup offsets g --file-f", "zkgroup offsets g --file-format"),
            (f"zkgroup owners {group[:-1]}", f"zkgroup owners {group}"),
            (f"zkgroup consume {topic[:-1]}", f"zkgroup consume {topic}"),
            (f"zkgroup assign {group} --without ta", f"zkgroup assign {group} --without {group}_one"),
            ("zkgroup owners g -c sandbox:tests-z", "zkgroup owners g -c sandbox:tests-zookeeper"),
            ("zkgroup offsets g --topic nosuch:0", "zkgroup offsets g --topic nosuch:0"),
            ("zkgroup export t --from t:0=0", "zkgroup export t --from t:0=0"),
            ("zkgroup inspect-group --explain split", "zkgroup inspect-group --explain split-group"),
            ("zkgroup assign g --strategy ro", "zkgroup assign g --strategy roundrobin"),
            ("zkgroup offsets g --file-format=sp", "zkgroup offsets g --file-format=spark"),
            (f"zkgroup offsets g --save {dotfile.parent}/{dotfile.name[:-1]}", f"zkgroup offsets g --save {dotfile}"),
        ):
            terminal.completes(line, whole)


def test_zsh_finds_the_file(tmp_path: Path) -> None:
    """In a folder of $fpath the file of ``completions/`` is all that zsh needs."""
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed: make test-programs")
    (tmp_path / ".zfunc").mkdir()
    shutil.copy(FOLDER / "_zkgroup", tmp_path / ".zfunc")
    (tmp_path / ".zshrc").write_text("fpath=(~/.zfunc $fpath)\nautoload -Uz compinit && compinit -u\n")
    with shell("zsh", home_of(tmp_path, ZKGROUP, environment())) as terminal:
        terminal.completes("zkgroup own", "zkgroup owners")


def test_no_shell_is_named() -> None:
    """Exit 2 and one line."""
    result = run("completions")
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
