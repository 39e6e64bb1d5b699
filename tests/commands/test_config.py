"""``zkgroup config show`` and ``config check``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli import run
from lines import names

from zkgroup.commands._shared_options import GlobalOptions
from zkgroup.commands.config import Checked, row_of
from zkgroup.errors import Remedy, ZkgroupError
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.processes import free_port


@pytest.fixture
def profiles(cluster: Sandbox, tmp_path: Path) -> dict[str, str]:
    """An environment with three profiles: one that works, one whose ZooKeeper is away, one that is wrong."""
    (tmp_path / "password").write_text("sesame")
    (tmp_path / "auth").write_text("reader:hush\n")
    for name in ("password", "auth"):
        (tmp_path / name).chmod(0o600)
    path = tmp_path / "config.toml"
    path.write_text(f"""
[clusters.good]
zookeeper = "{cluster.connect}"
protected = true
labels = ["production", "eu"]
zookeeper-auth-file = "{tmp_path}/auth"
[clusters.good.kafka]
"socket.timeout.ms" = 10000
"sasl.password" = "opensesame"
[clusters.away]
zookeeper = "127.0.0.1:{free_port()}"
connect-timeout = 0.5
[clusters.wrong]
zookeeper = "{cluster.connect}"
sasl-user = "ops"
sasl-password-file = "{tmp_path}/nosuch"
""")
    return {"ZKGROUP_CONFIG": str(path)}


def show_settings(env: dict[str, str], *args: str) -> dict[str, tuple[str | None, str]]:
    """Setting → value and source."""
    result = run("config", "show", *args, "--output", "json", env=env)
    assert result.returncode == 0, result.stderr
    assert "sesame" not in result.stdout + result.stderr
    assert "hush" not in result.stdout + result.stderr
    return {row["setting"]: (row["value"], row["source"]) for row in json.loads(result.stdout)}


def test_every_setting_and_where_it_comes_from(profiles: dict[str, str], cluster: Sandbox, tmp_path: Path) -> None:
    """Flag, environment, profile, file and default each by its name; of several the one that wins; secrets hidden."""
    file = tmp_path / "consumer.properties"
    file.write_text("auto.offset.reset=smallest\nfetch.min.bytes=7\nzookeeper.connect=elsewhere:2181\n")
    origin = f"profile good in {tmp_path}/config.toml"
    found = show_settings(profiles, "-c", "good", "--consumer-config", str(file), "-X", "fetch.min.bytes=9")
    assert found["cluster"] == ("good", "--cluster")
    assert found["protected"] == ("true", origin)
    assert found["labels"] == ("production, eu", origin)
    assert found["zookeeper"] == (cluster.connect, origin)
    assert found["zookeeper-auth-file"] == (str(tmp_path / "auth"), origin)
    assert found["connect-timeout"] == ("5", "default")
    assert found["auto.offset.reset"] == ("smallest", f"{file}, line 1")
    assert found["fetch.min.bytes"] == ("9", "--property")
    assert found["kafka.socket.timeout.ms"] == ("10000", f"{tmp_path}/config.toml: clusters.good.kafka")
    assert found["sasl-password"][0] == "(hidden)"
    by_environment = show_settings(profiles | {"ZKGROUP_CLUSTER": "away", "ZKGROUP_CONNECT_TIMEOUT": "3"})
    assert by_environment["cluster"] == ("away", "ZKGROUP_CLUSTER")
    assert by_environment["connect-timeout"] == ("3", "ZKGROUP_CONNECT_TIMEOUT")
    assert show_settings(profiles)["zookeeper"] == (None, "default")


def test_all_profiles_are_checked(profiles: dict[str, str], cluster: Sandbox) -> None:
    """Each by itself: one that is wrong does not hide the others. Exit 6, and the first that is wrong on stderr."""
    result = run("config", "check", "--output", "json", env=profiles)
    assert result.returncode == 6
    states = {(row["cluster"], row["what"]): (row["state"], row["message"]) for row in json.loads(result.stdout)}
    assert {key: state for key, (state, _) in states.items()} == {
        ("away", "settings"): "ok",
        ("away", "zookeeper"): "wrong",
        ("away", "brokers"): "unknown",
        ("good", "settings"): "ok",
        ("good", "zookeeper"): "ok",
        ("good", "brokers"): "ok",
        ("wrong", "settings"): "wrong",
        ("wrong", "zookeeper"): "unknown",
        ("wrong", "brokers"): "unknown",
    }
    assert "nosuch" in states["wrong", "settings"][1]
    assert names(result.stderr, "away", "zookeeper", 1)
    assert "sesame" not in result.stdout + result.stderr


@pytest.mark.parametrize(
    ("section", "line", "state", "facts"),
    [
        ("properties", '"auto.offset.reset" = "middle"', "wrong", ("auto.offset.reset=middle", "smallest")),
        ("properties", '"fetch.wait.max.ms" = 40000', "wrong", ("fetch.wait.max.ms=40000", "socket.timeout.ms=30000")),
        ("properties", '"auto.ofset.reset" = "x"', "ok", ("'auto.ofset.reset'",)),
        ("kafka", '"group.id" = "g"', "wrong", ("kafka.group.id", "--group")),
        ("kafka", '"session.timeout.ms" = 9000', "ok", ("--coordinator kafka", "kafka.session.timeout.ms")),
    ],
)
def test_what_members_would_refuse_is_wrong(
    cluster: Sandbox, tmp_path: Path, section: str, line: str, state: str, facts: tuple[str, ...]
) -> None:
    """A value that no member takes is wrong, with the reason and 6; what is warned of is in the message. The
    servers are asked all the same."""
    config = tmp_path / "config.toml"
    config.write_text(f'[clusters.prod]\nzookeeper = "{cluster.connect}"\n[clusters.prod.{section}]\n{line}\n')
    result = run("config", "check", "--output", "json", env={"ZKGROUP_CONFIG": str(config)})
    settings, *servers = json.loads(result.stdout)
    assert (settings["what"], settings["state"]) == ("settings", state)
    assert names(settings["message"], *facts)
    assert [row["state"] for row in servers] == ["ok", "ok"]
    assert result.returncode == (6 if state == "wrong" else 0)
    assert names(result.stderr, "prod", "settings", *facts) == (state == "wrong")


def test_one_cluster_is_checked(profiles: dict[str, str], cluster: Sandbox, tmp_path: Path) -> None:
    """The one that is named, with or without a profile."""
    good = run("config", "check", "-c", "good", env=profiles)
    assert (good.returncode, good.stderr) == (0, "")
    assert run("config", "check", "-z", cluster.connect, env=profiles).returncode == 0
    named = run("config", "check", "-z", f"{cluster.connect}/nope", env=profiles)
    assert (named.returncode, names(named.stderr, "zookeeper", f"{cluster.chroot}/nope")) == (6, True)
    away = run("config", "check", "-z", cluster.connect, "--bootstrap-server", f"127.0.0.1:{free_port()}", env=profiles)
    assert (away.returncode, "brokers" in away.stderr) == (6, True)
    nothing = run("config", "check", env={"ZKGROUP_CONFIG": str(tmp_path / "none.toml")})
    assert nothing.returncode == 2, "somebody has named that file"
    empty = tmp_path / "empty.toml"
    empty.write_text("")
    assert run("config", "check", env={"ZKGROUP_CONFIG": str(empty)}).returncode == 4


@pytest.mark.parametrize("command", [("list-groups",), ("consume", "nosuch", "--until-end")])
def test_a_mistyped_property_is_reported_once(cluster: Sandbox, command: tuple[str, ...]) -> None:
    """By commands that read a member's settings, and by those that do not."""
    message = run(*command, "-z", cluster.connect, "-X", "fetch.min.byte=1").stderr
    assert [names(line, "warning", "'fetch.min.byte'", "fetch.min.bytes") for line in message.splitlines()].count(
        True
    ) == 1


def test_commands_in_messages_can_be_pasted() -> None:
    """They name the profile that is checked, or the servers of the command line."""
    error = ZkgroupError("it is empty", Remedy("see", ("list-groups",)))
    check, given = Checked("prod", "zookeeper", "wrong", [error]), GlobalOptions({"zookeeper": ["h:1/c"]})
    assert row_of(check, GlobalOptions(), by_profile=True)["message"].endswith(": zkgroup -c prod list-groups")
    assert row_of(check, given, by_profile=False)["message"].endswith(": zkgroup -z h:1/c list-groups")


def test_a_cluster_of_which_only_brokers_are_named() -> None:
    """Nothing is said against a ZooKeeper that is not named; the brokers are asked all the same."""
    done = run("config", "check", "--bootstrap-server", "127.0.0.1:1", "--connect-timeout", "1", "--output", "json")
    found = {row["what"]: row["state"] for row in json.loads(done.stdout)}
    assert (done.returncode, found) == (6, {"settings": "ok", "zookeeper": "unknown", "brokers": "wrong"})
