"""Options of ``zkgroup export`` that say nothing together, or name what is not there: one line, and nothing done."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from cli import ZKGROUP, environment, run
from exports import InProcess, commit_offsets, files_in, nothing_in
from lines import names

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.commands import app
from zkgroup.commands.export import show_answers
from zkgroup.export.planning.export_request import EARLIEST, Bound
from zkgroup.export.run.run_export import ExportRequest, run_export
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Exists
from zkgroup.sandbox.local_cluster import Sandbox

#: Ways to call it that are not an export, each with an option that it goes with.
MODES = ("--status", "--history", "--verify")
#: What they do not heed, and by which name it is refused.
UNHEEDED = [
    ("no-such-topic", "no-such-topic"),
    ("--whitelist=x.*", "--whitelist"),
    ("--from=earliest", "--from"),
    ("--until=end", "--until"),
    ("--max-bytes=banana", "--max-bytes"),
    ("--max-messages=1", "--max-messages"),
    ("--isolation=read_committed", "--isolation"),
    ("--join", "--join"),
    ("--on-mismatch=skip", "--on-mismatch"),
    ("--take-over=other", "--take-over"),
    ("--partition-by=hour", "--partition-by"),
    ("--target-file-size=1GB", "--target-file-size"),
    ("--conf=nonsense", "--conf"),
    ("--spark-timeout=60", "--spark-timeout"),
]


@pytest.fixture
def topic(make_topic: Callable[..., str], fill: Callable[..., object]) -> str:
    """A topic with twenty messages in each of two partitions."""
    name = make_topic(2)
    fill(name, 40, 2)
    return name


def check_refused(*arguments: str, code: int, facts: tuple[object, ...], out: Path) -> None:
    """It ends with this code and one line that names these, and leaves nothing."""
    done = run("export", *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), (arguments, done.stderr)
    assert names(done.stderr, *facts), (arguments, done.stderr)
    assert files_in(out) == []


def test_no_property_is_reported_however_much_is_asked_for(
    cluster: Sandbox, topic: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """``-vv`` showed all that goes to Spark's JVM, secrets among it. One that Spark reads late was a traceback."""
    group, properties = unique("group"), tmp_path / "spark.properties"
    properties.write_text("spark.executorEnv.AWS_SECRET_ACCESS_KEY=geheim37\nspark.default.parallelism=x\n")
    to = ("-z", cluster.connect, "--group", group, "--from", "earliest", "--to", str(tmp_path / "out"), "-vv")
    done = run("export", topic, *to, "--properties-file", str(properties), timeout=120)
    assert done.returncode == 1
    assert "NumberFormatException" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert "geheim37" not in done.stderr
    assert nothing_in(tmp_path / "out")


@pytest.mark.parametrize("how", ["--property", "--consumer-config"])
def test_a_property_names_no_other_group(how: str, tmp_path: Path) -> None:
    """The group's name is no matter of which layer is the stronger."""
    file = tmp_path / "consumer.properties"
    file.write_text("group.id=other\n")
    typed = "group.id=other" if how == "--property" else str(file)
    to = ("--group", "g", "--from", "earliest", "--to", str(tmp_path / "out"), how, typed, "-z", "127.0.0.1:1")
    check_refused("orders", *to, code=2, facts=("group.id=other", "--group g"), out=tmp_path / "out")


@pytest.mark.parametrize("mode", MODES)
def test_what_is_not_heeded_is_refused(mode: str, tmp_path: Path) -> None:
    """Topics and options that a snapshot, or giving up, has no use for, by name: before any server is asked."""
    for option, name in UNHEEDED:
        check_refused("--group", "g", "--to", str(tmp_path), mode, option, code=2, facts=(name, mode), out=tmp_path)


@pytest.mark.parametrize("mode", MODES)
def test_options_of_the_servers_before_and_after_the_command(
    mode: str, cluster: Sandbox, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Shared options, and those that all of them heed, are no reason to refuse; nor is what the environment sets."""
    group = unique("nobody")
    words = ("--group", group, "--to", str(tmp_path), "--output", "json", mode, "-z", cluster.connect, "-v", "--quiet")
    done = run("export", *words, env={"ZKGROUP_TIMEOUT": "20"})
    assert done.returncode in (0, 4), done.stderr


def test_places_that_are_not_exported_are_named(
    topic: str, cluster: Sandbox, unique: Callable[[str], str], registry: Registry, tmp_path: Path
) -> None:
    """A partition, or a topic, on the command line that the export does not have: exit 4. A file may hold others."""
    group, out = unique("group"), tmp_path / "out"
    here = (topic, "--group", group, "--to", str(out), "-z", cluster.connect)
    for options, facts in (
        (("--from", "earliest", "--until", f"{topic}:99=5"), ("--until", f"{topic}-99")),
        (("--from", "earliest", "--until", "nosuch:0=5"), ("--until", "nosuch-0")),
        (("--from", f"{topic}:0=0,{topic}:77=1"), ("--from", f"{topic}-77")),
        (("--backfill", "--from", f"{topic}:0=0,nosuch:1=1"), ("--from", "nosuch-1")),
    ):
        check_refused(*here, *options, code=4, facts=facts, out=tmp_path)
    assert registry.read([Exists(znodes.group(group))]) == [None]
    (tmp_path / "file").write_text(
        "".join(f"/consumers/{group}/offsets/{name}/{p}:20\n" for name in (topic, "nosuch") for p in range(9))
    )
    done = run("export", *here, "--from", str(tmp_path / "file"), "--until", str(tmp_path / "file"))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_beginning_behind_the_log_is_not_the_groups(
    topic: str, cluster: Sandbox, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """What is wrong is what ``--from`` says: the group has no offsets that could be reset."""
    check_refused(
        topic, "--group", unique("group"), "--to", str(tmp_path), "-z", cluster.connect, "--from",
        f"{topic}:0=999,{topic}:1=0", code=5, facts=("--from", f"{topic}-0", 999, 20), out=tmp_path,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        (("--until", "earliest"), ("--until 'earliest'", "committed", "end")),
        (("--until", "latest"), ("--until 'latest'", "committed", "end")),
        (("--on-mismatch", "earliest"), ("--on-mismatch",)),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(
    topic: str,
    cluster: Sandbox,
    unique: Callable[[str], str],
    tmp_path: Path,
    options: tuple[str, ...],
    facts: tuple[str, ...],
) -> None:
    """Exit 2, and nothing is made of it."""
    here = (topic, "--group", unique("group"), "--to", str(tmp_path), "-z", cluster.connect)
    begin = () if "--from" in options else ("--from", "earliest")
    check_refused(*here, *begin, *options, code=2, facts=facts, out=tmp_path)


@pytest.fixture
def at_end(registry: Registry, topic: str, unique: Callable[[str], str]) -> str:
    """A group that has read the whole topic."""
    group = unique("group")
    commit_offsets(registry, group, {TopicPartition(topic, number): 20 for number in range(2)})
    return group


def test_times_before_1970_are_before_everything(
    topic: str, cluster: Sandbox, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """As a time before the log is: all is exported from there on, and nothing up to there."""
    here = (topic, "--group", unique("group"), "--to", str(tmp_path), "-z", cluster.connect, "--output", "csv")
    done = run("export", *here, "--from", "@1960-01-01", "--until", "@1960-01-02T00:00:00+02:00")
    assert done.returncode == 0, done.stderr
    assert [line.split(",")[1:5] for line in done.stdout.splitlines()[1:]] == [
        [str(number), "0", "0", "0"] for number in range(2)
    ]


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_full_disk_behind_stdout_is_not_the_lakes(
    topic: str, cluster: Sandbox, at_end: str, tmp_path: Path, output: str
) -> None:
    """All is done; what could not be written is what is printed: that is named."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [ZKGROUP, "export", "--group", at_end, "--to", str(tmp_path), "-z", cluster.connect, "--output", output],
            stdout=full, stderr=subprocess.PIPE, text=True, env=environment({}), timeout=60, check=False,
        )  # fmt: skip
    warning, error = done.stderr.splitlines()
    assert names(warning, "warning", tmp_path, at_end)
    assert (done.returncode, names(error, os.strerror(errno.ENOSPC)), str(tmp_path) in error) == (1, True, False)


def test_a_consumers_isolation_level_is_not_ignored_in_silence(
    topic: str, cluster: Sandbox, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """It is the new consumer's, whose files are at hand; the option has its place here."""
    here = (topic, "--group", unique("group"), "--to", str(tmp_path), "-z", cluster.connect, "--from", "latest")
    done = run("export", *here, "-X", "isolation.level=read_uncommitted")
    assert done.returncode == 0, done.stderr
    assert names(done.stderr, "warning", "isolation.level", "--isolation")


def test_another_pyspark_than_it_needs_is_reported(
    cluster: Sandbox, topic: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Of an older release, ahead of ours on the path: it was an unexpected error."""
    older = tmp_path / "older" / "pyspark" / "__init__.py"
    older.parent.mkdir(parents=True)
    older.write_text("class SparkContext: pass\n")
    here = (
        topic,
        "--group",
        unique("group"),
        "--to",
        str(tmp_path / "out"),
        "--from",
        "earliest",
        "-z",
        cluster.connect,
    )
    found = environment({"PYTHONPATH": str(older.parent.parent)})
    command = [ZKGROUP, "export", *here]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=found)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert names(done.stderr, "pyspark")
    assert nothing_in(tmp_path / "out")


def test_help_fits_on_a_screen(tmp_path: Path) -> None:
    """Its options for Spark, servers and messages apart: 50 lines of 80 columns."""
    done = run("export", "--help", env={"COLUMNS": "80"})
    assert done.returncode == 0
    panels = re.split(r"\n\n(?=\S)", done.stdout.strip("\n"))
    apart = [one for one in panels if one.startswith(("Spark:", "Connection (", "Messages:"))]
    assert len(apart) == 3
    shown = "\n\n".join(one for one in panels if one not in apart).splitlines()
    assert len(shown) <= 50
    assert max(map(len, shown)) <= 80


@pytest.fixture
def moved(
    topic: str, registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str], tmp_path: Path
) -> tuple[str, Path]:
    """A group whose exports end at 10 of each partition, and that somebody has moved to 15 of the first one; its
    destination, whose name a shell would take apart."""
    group, out = unique("moved"), tmp_path / "a lake's"
    until = Bound("offsets", offsets={TopicPartition(topic, number): 10 for number in range(2)})
    request = ExportRequest(group, out, (topic,), begin=EARLIEST, until=until)
    run_export(request, registry, lambda: kafka, runner=InProcess)
    commit_offsets(registry, group, {TopicPartition(topic, 0): 15})
    return group, out


@pytest.mark.parametrize(("answer", "exported"), [("lake", [10, 10]), ("group", [5, 10]), ("skip", [0, 10])])
def test_a_mismatch_is_refused_with_both_positions_and_a_ready_command_for_each_answer(
    topic: str, moved: tuple[str, Path], cluster: Sandbox, answer: str, exported: list[int]
) -> None:
    """Exit 5 and nothing on stdout; each command works when it is pasted, from another folder too. What was secret on
    the command line is not shown."""
    group, out = moved
    words = ("--group", group, "--to", out.name, "--target-file-size", "1 MB", "--conf", "spark.my.password=geheim37")
    refused = subprocess.run(
        [ZKGROUP, "-z", cluster.connect, "export", topic, *words], cwd=out.parent, env=environment({}),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (refused.returncode, refused.stdout) == (5, "")
    *shown, error = refused.stderr.splitlines()
    assert names(error, f"{topic}-0", 15, 10, 0, 20, "--on-mismatch lake, group, skip")
    assert "geheim37" not in refused.stderr
    assert [names(line, one) for line, one in zip(shown[::2], ("lake", "group", "skip"), strict=True)] == [True] * 3
    (command,) = [line.strip() for line in shown[1::2] if f"--on-mismatch {answer} " in line]
    assert command.startswith(f"zkgroup -z {cluster.connect} export ")
    found = environment({"PATH": f"{Path(ZKGROUP).parent}{os.pathsep}{os.environ['PATH']}"})
    pasted = subprocess.run(
        ["sh", "-c", f"{command} --output json"], cwd="/", env=found, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert pasted.returncode == 0, pasted.stderr
    rows = {row["partition"]: row["rows"] for row in json.loads(pasted.stdout)}
    assert [rows.get(number, 0) for number in range(2)] == exported


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["-g", "g", "--to", "s3://KEY12345:geheim37@b/p?region=x&endpoint_override=h:1"],
         "--group g --to 's3://b/p?region=x&endpoint_override=h:1'"),
        (["-g", "g", "--to", "abfs://c@a.dfs.core.windows.net/p?sas_token=geheim37"], "--group g --to URI"),
        (["-g", "g", "--to", "/o", "--join", "--", "-t", "u"], "--group g --to /o --join -- -t u"),
        (["t", "-g", "g", "--to", "/o", "--conf", "a.access.key=geheim37", "--conf", "b=1 2", "--on-mismatch", "group"],
         "--group g --to /o --conf 'a.access.key=…' --conf 'b=1 2' t"),
    ],
)  # fmt: skip
def test_commands_for_answers_name_all_that_was_given(
    words: list[str], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever it was, but secrets; what means a destination with one in it is no destination."""
    root = typer.main.get_command(app)
    with typer.Context(root) as above:
        command = root.get_command(above, "export")  # type: ignore[attr-defined]
        show_answers(command.make_context("export", words, parent=above), [("skip", "leave out")])
    what, pasted = capsys.readouterr().err.splitlines()
    assert what.endswith("skip: leave out")
    assert pasted.strip() == f"zkgroup export --on-mismatch skip {shown}"
