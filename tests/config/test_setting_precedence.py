"""Which setting wins, and where it says it came from."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lines import names

from zkgroup.config import ConnectionSettings, resolve_connection
from zkgroup.config.connection_settings import parse_bootstrap, parse_chroot, parse_connect_string
from zkgroup.config.profiles import config_file
from zkgroup.errors import UnreachableError, UsageError

PROFILES = """
[clusters.prod]
zookeeper = "profile:2181/prod"
bootstrap-server = "broker:9092"
connect-timeout = 7
protected = true
[clusters.prod.kafka]
"security.protocol" = "SSL"
"ssl.enabled" = true
[clusters.prod.properties]
"fetch.min.bytes" = 5
[clusters.staging]
zookeeper = "staging"
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment whose config.toml has two profiles."""
    path = tmp_path / "config.toml"
    path.write_text(PROFILES)
    return {"ZKGROUP_CONFIG": str(path)}


def no_sandbox(name: str) -> tuple[str, None]:
    raise UnreachableError(f"sandbox {name or 'default'} does not run")


def resolve(environ: dict[str, str], **flags: tuple[object, ...]) -> ConnectionSettings:
    return resolve_connection(flags, environ, no_sandbox)  # type: ignore[arg-type]


def file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "consumer.properties"
    path.write_text(text)
    return str(path)


def test_nothing_given(tmp_path: Path) -> None:
    """Without any setting there is no ZooKeeper, which only who needs one complains of."""
    settings = resolve({"HOME": str(tmp_path)})
    assert (settings.zookeeper, settings.bootstrap, settings.timeout, settings.protected) == (None, (), 5.0, False)
    with pytest.raises(UsageError, match=r"--zookeeper HOST:PORT/CHROOT\b.*--cluster NAME\b.*ZKGROUP_ZOOKEEPER\b"):
        settings.require_zookeeper()


def test_flag_over_environment_over_profile_over_file(environ: dict[str, str], tmp_path: Path) -> None:
    """The layers, taken away from the top one by one."""
    path = file(tmp_path, "zookeeper.connect=file:2181/f")
    below = environ | {"ZKGROUP_ZOOKEEPER": "env", "ZKGROUP_CLUSTER": "prod"}

    settings = resolve(below, zookeeper=("flag",), consumer_config=(path,))
    assert (str(settings.zookeeper), settings.origins["zookeeper"]) == ("flag:2181", "--zookeeper")
    settings = resolve(below, property=("zookeeper.connect=flag2",), consumer_config=(path,))
    assert (str(settings.zookeeper), settings.origins["zookeeper"]) == ("flag2:2181", "--property zookeeper.connect")
    settings = resolve(below, consumer_config=(path,))
    assert (str(settings.zookeeper), settings.origins["zookeeper"]) == ("env:2181", "ZKGROUP_ZOOKEEPER")
    del below["ZKGROUP_ZOOKEEPER"]
    settings = resolve(below, consumer_config=(path,))
    assert str(settings.zookeeper) == "profile:2181/prod"
    assert settings.origins["zookeeper"].startswith("profile prod in ")
    del below["ZKGROUP_CLUSTER"]
    settings = resolve(below, consumer_config=(path,))
    assert (str(settings.zookeeper), settings.origins["zookeeper"]) == ("file:2181/f", f"{path}, line 1")


def test_a_cluster_named_by_a_flag_is_not_overruled_by_the_environment(environ: dict[str, str]) -> None:
    """Any flag beats the environment: who types -c prod gets prod."""
    settings = resolve(environ | {"ZKGROUP_ZOOKEEPER": "env", "ZKGROUP_CLUSTER": "staging"}, cluster=("prod",))
    assert (str(settings.zookeeper), settings.cluster) == ("profile:2181/prod", "prod")


def test_what_a_profile_gives(environ: dict[str, str]) -> None:
    """A profile's brokers, time-out, protection and properties."""
    settings = resolve(environ, cluster=("prod",), property=("kafka.ssl.enabled=false", "group.id=g"))
    assert list(map(str, settings.bootstrap)) == ["broker:9092"]
    assert (settings.timeout, settings.protected) == (7.0, True)
    assert settings.kafka == {"security.protocol": "SSL", "ssl.enabled": "false"}
    assert [(prop.key, prop.value) for prop in settings.properties if not prop.key.startswith("kafka.")] == [
        ("fetch.min.bytes", "5"),
        ("group.id", "g"),
    ]
    assert "SSL" not in repr(settings)


def test_a_profiles_file_and_its_own_properties(tmp_path: Path) -> None:
    """A profile may name a consumer.properties; its own properties and then -X win over that."""
    path = file(tmp_path, "fetch.min.bytes=1\nrebalance.max.retries=9")
    config = tmp_path / "c.toml"
    config.write_text(f'[clusters.a]\nconsumer-config = "{path}"\n[clusters.a.properties]\n"fetch.min.bytes" = 2')
    settings = resolve({"ZKGROUP_CONFIG": str(config)}, cluster=("a",), property=("fetch.min.bytes=3",))
    assert [prop.value for prop in settings.properties if prop.key == "fetch.min.bytes"] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("flags", "facts"),
    [
        ({"zookeeper": ("a", "b")}, ["a:2181 (--zookeeper)", "b:2181 (--zookeeper)"]),
        ({"zookeeper": ("a/x", "a/y")}, ["a:2181/x (--zookeeper)", "a:2181/y (--zookeeper)"]),
        (
            {"zookeeper": ("a",), "property": ("zookeeper.connect=b",)},
            ["a:2181 (--zookeeper)", "b:2181 (--property zookeeper.connect)"],
        ),
        ({"cluster": ("prod", "staging")}, ["--cluster", "prod", "staging"]),
        ({"cluster": ("prd",)}, ["'prd'", "config.toml", "prod"]),
        ({"cluster": ("sandbox:",)}, ["--cluster sandbox:", "sandbox:NAME"]),
        ({"consumer_config": ("/no/such",)}, ["/no/such", "No such file"]),
        ({"property": ("novalue",)}, ["--property", "KEY=VALUE"]),
        ({"zookeeper": ("",)}, ["--zookeeper:", "''"]),
        ({"connect_timeout": (0.0,)}, ["--connect-timeout:", "'0.0'"]),
        ({"sasl_user": ("",)}, ["--sasl-user"]),
        ({"ssl_verify": ("perhaps",)}, ["--ssl-verify", "true", "false"]),
    ],
)
def test_contradictions_and_mistakes(
    environ: dict[str, str], flags: dict[str, tuple[object, ...]], facts: list[str]
) -> None:
    """Each is a usage error that names the option and what to do."""
    with pytest.raises(UsageError) as refused:
        resolve(environ, **flags)
    assert names(str(refused.value), *facts), refused.value


def test_the_same_zookeeper_twice_is_fine(environ: dict[str, str]) -> None:
    """The same ensemble in another order or with its ports spelt out is no contradiction."""
    assert str(resolve(environ, zookeeper=("a,b/c", "b:2181,a:2181/c/")).zookeeper) == "a:2181,b:2181/c"


def test_a_file_named_by_hand_but_overruled_is_reported(environ: dict[str, str], tmp_path: Path) -> None:
    """Who names a file expects its ZooKeeper, so the environment does not win in silence."""
    path = file(tmp_path, "zookeeper.connect=file")
    settings = resolve(environ | {"ZKGROUP_ZOOKEEPER": "env"}, consumer_config=(path,))
    (warning,) = settings.warnings
    assert names(str(warning), f"{path}, line 1:", "zookeeper.connect", "ZKGROUP_ZOOKEEPER (env:2181)")
    same = resolve(environ | {"ZKGROUP_ZOOKEEPER": "file:2181"}, consumer_config=(path,))
    assert same.warnings == ()


def test_a_mistyped_key_of_the_command_line_is_reported(environ: dict[str, str], tmp_path: Path) -> None:
    """It was typed for this command, whether that reads a member's settings or not; a file is for others, too."""
    path = file(tmp_path, "of.another.tool=1")
    settings = resolve(environ, consumer_config=(path,), property=("fetch.min.byte=1", "group.id=g", "kafka.any=1"))
    (warning,) = settings.warnings
    assert names(str(warning), "--property:", "'fetch.min.byte'", "fetch.min.bytes")


def test_the_time_out(environ: dict[str, str], tmp_path: Path) -> None:
    """Flag, environment, profile, the Scala consumer's key, 5 seconds."""
    path = file(tmp_path, "zookeeper.connection.timeout.ms=2500")
    env = environ | {"ZKGROUP_CONNECT_TIMEOUT": "3"}
    assert resolve(env, connect_timeout=(1.5,), cluster=("prod",)).timeout == 1.5
    assert resolve(env, cluster=("prod",)).timeout == 3.0
    assert resolve(environ, cluster=("prod",), consumer_config=(path,)).timeout == 7.0
    assert resolve(environ, cluster=("staging",), consumer_config=(path,)).timeout == 2.5
    for value in ("0", "4000000"):
        path = file(tmp_path, f"zookeeper.connection.timeout.ms={value}")
        with pytest.raises(UsageError, match=rf"line 1: zookeeper\.connection\.timeout\.ms={value}\b"):
            resolve(environ, cluster=("staging",), consumer_config=(path,))
    with pytest.raises(UsageError, match="ZKGROUP_CONNECT_TIMEOUT: 'soon'"):
        resolve(environ | {"ZKGROUP_CONNECT_TIMEOUT": "soon"})


@pytest.mark.parametrize(("cluster", "asked"), [("sandbox", ""), ("sandbox:two", "two")])
def test_the_sandbox_is_found(cluster: str, asked: str) -> None:
    """--cluster sandbox[:NAME] asks the sandbox for its ZooKeeper, and needs no config.toml."""
    asked_for: list[str] = []

    def find(name: str) -> tuple[str, None]:
        asked_for.append(name)
        return "localhost:1234/x", None

    settings = resolve_connection({"cluster": (cluster,)}, {"ZKGROUP_CLUSTER": "absent"}, find)
    assert (str(settings.zookeeper), settings.cluster, asked_for) == ("localhost:1234/x", cluster, [asked])


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("[clusters.a]\nprotcted = true", ["clusters.a:", "'protcted'", "protected"]),
        ("[clusters.a]\nbrokers = 'b:9'", ["clusters.a:", "'brokers'", "protected, labels, kafka, properties"]),
        ("[clusters.a]\nlabels = 'prod'", ["clusters.a: labels"]),
        ("[clusters.a]\nprotected = 'yes'", ["clusters.a: protected", "true", "false"]),
        ("[clusters.a]\nzookeeper = 2181", ["clusters.a: zookeeper"]),
        ("[clusters.a]\nconnect-timeout = true", ["clusters.a: connect-timeout"]),
        ("[clusters.a.kafka]\nsecurity.protocol = 'SSL'", ["clusters.a.kafka: security", '"a.b"']),
        ("[clusters]\na = 1", ["clusters.a", "[clusters.NAME]"]),
        ("[clusters.sandbox]\n", ["clusters.sandbox", "--cluster sandbox"]),
        ("[cluster.a]\n", ["'cluster'", "[clusters.NAME]"]),
        ("[clusters.a", ["']'", "TOML"]),
    ],
)
def test_a_profile_with_mistakes(tmp_path: Path, text: str, facts: list[str]) -> None:
    """What is misspelt in config.toml is an error that names the file, never ignored."""
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        resolve({"ZKGROUP_CONFIG": str(path)}, cluster=("a",))
    assert names(str(refused.value), path, *facts), refused.value


def test_where_profiles_are_searched(tmp_path: Path) -> None:
    """$ZKGROUP_CONFIG, then the XDG folder (if absolute), then ~/.config; only the first must exist."""
    assert config_file({"ZKGROUP_CONFIG": "/a/b", "XDG_CONFIG_HOME": "/x"}) == (Path("/a/b"), True)
    assert config_file({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}) == (Path("/x/zkgroup/config.toml"), False)
    assert config_file({"XDG_CONFIG_HOME": "x", "HOME": "/h"}) == (Path("/h/.config/zkgroup/config.toml"), False)
    with pytest.raises(UsageError, match=r"absent\b.*ZKGROUP_CONFIG\b"):
        resolve({"ZKGROUP_CONFIG": str(tmp_path / "absent")}, cluster=("a",))
    with pytest.raises(UsageError, match=r"'a'.*config\.toml\b.*\bsandbox\b"):
        resolve({"HOME": str(tmp_path)}, cluster=("a",))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("h", "h:2181"),
        (" h1:1 , h2 ", "h1:1,h2:2181"),
        ("h:1/a/b", "h:1/a/b"),
        ("h:1/", "h:1"),
        ("h:1/a/", "h:1/a"),
        ("[::1]:2182,[fe80::1]/x", "[::1]:2182,[fe80::1]:2181/x"),
        ("h,h:2181", "h:2181"),
        ("h/a,b", "h:2181/a,b"),
    ],
)
def test_connect_strings(text: str, shown: str) -> None:
    """What ZooKeeper takes, in one normal form."""
    assert str(parse_connect_string(text, "-z")) == shown


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", ""),
        ("h:1,,h:2", "h:1,,h:2"),
        ("h:x", "h:x"),
        ("h:0", "h:0"),
        ("h:65536", "h:65536"),
        ("h h", "h h"),
        ("a..b", "a..b"),
        (f"{64 * 'a'}:1", f"{64 * 'a'}:1"),
        ("/chroot", "/chroot"),
        ("zk://h:1/a", "zk:"),
    ],
)
def test_what_is_no_connect_string(text: str, wrong: str) -> None:
    """The option it came from, what is wrong, and the right form."""
    with pytest.raises(UsageError, match=rf"^-z: {re.escape(repr(wrong))} .*HOST:PORT"):
        parse_connect_string(text, "-z")


@pytest.mark.parametrize("chroot", ["/a,h2:2/a", "/a//b", "/a/../b", "/a\x1b", "/a /"])
def test_what_is_no_chroot(chroot: str) -> None:
    """As above; behind the last server."""
    with pytest.raises(UsageError, match=rf"^-z: {re.escape(repr(chroot))} .*/name/name\b"):
        parse_connect_string(f"h:1{chroot}", "-z")


chroots = st.text(st.sampled_from("/a.,:1 \x01\n\u2028\ufffe é"), max_size=12)


@given(chroots | chroots.map(lambda text: f"/{text}"))
@example("/b,h:2")
@example("/b ")
@example("/b /")
def test_a_chroot_is_what_a_connect_string_can_end_with(text: str) -> None:
    """What is taken for a chroot by itself comes out of the connect string that is made with it, and stays as it is;
    what is refused is refused there, too, or is not read as it was meant."""
    chroot = None
    with suppress(UsageError):
        chroot = parse_chroot(text, "--chroot")
    if chroot is None:
        with suppress(UsageError):
            assert parse_connect_string(f"h:1{text}", "-z").chroot != text.rstrip("/")
    else:
        assert chroot == text.rstrip("/")
        assert parse_connect_string(f"h:1{chroot}", "-z").chroot == chroot


def test_brokers() -> None:
    """Lists of brokers, also as brokers write their listeners."""
    assert list(map(str, parse_bootstrap("a, b:1,SASL_SSL://c:2", "f"))) == ["a:9092", "b:1", "c:2"]
    with pytest.raises(UsageError, match=r"^f: 'a:b' "):
        parse_bootstrap("a:b", "f")
