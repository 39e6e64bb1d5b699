"""Secrets are shown nowhere: not where they are asked for, not by Spark, not in logs."""

from __future__ import annotations

import os
import pty
import subprocess
import threading
from pathlib import Path

from cli import ZKGROUP, environment, run
from secured_sandbox import MESSAGES, TOPIC, Secured
from support import fresh_name

from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Acls, GetAcl


def test_a_password_that_is_asked_for(secured: Secured) -> None:
    """On a terminal, without an echo; the command then goes on."""
    security = secured.security
    command = ["consume", TOPIC, "--max-messages", "1", "--from-beginning", "--bootstrap-server",
               secured.sandbox.listener("CLIENTS"), "--security-protocol", "SASL_PLAINTEXT",
               "--sasl-mechanism", "PLAIN", "--sasl-user", "zkgroup"]  # fmt: skip
    ours, theirs = pty.openpty()
    with subprocess.Popen([ZKGROUP, *command], stdin=theirs, stdout=theirs, stderr=theirs, env=environment(),
                          start_new_session=True) as process:  # fmt: skip
        os.close(theirs)
        shown = b""
        while not shown.endswith(b": "):  # the question
            shown += os.read(ours, 1000)
        os.write(ours, security.password("sasl").encode() + b"\n")
        try:
            while data := os.read(ours, 1000):
                shown += data
        except OSError:  # EIO: it has ended
            pass
        os.close(ours)
        assert process.wait(30) == 0, shown
    assert b"message " in shown
    assert security.password("sasl").encode() not in shown


def command_lines() -> set[str]:
    """What ``ps`` would show of all processes now."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.add(path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:  # it has ended
            continue
    return found


def test_an_export_shows_no_secret(secured: Secured, tmp_path: Path) -> None:
    """Executors read over TLS with the user's password, and with a client certificate; it is in no process's command
    line, in no log of Spark's, in nothing that is printed, kept or exported."""
    lake, spark_log, events = tmp_path / "lake", tmp_path / "spark.log", tmp_path / "events"
    events.mkdir()
    seen: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            seen.update(command_lines())

    watcher = threading.Thread(target=watch)
    watcher.start()
    security = secured.security
    certificate = ("--ssl-certificate-file", str(security.certificate), "--ssl-key-file", str(security.key))
    try:
        group = fresh_name("export")
        args = (
            "export",
            TOPIC,
            "--group",
            group,
            "--from",
            "earliest",
            "--to",
            str(lake),
            "--log",
            str(spark_log),
            # What Spark's web pages show, its settings too, is what it writes there.
            "--conf",
            "spark.eventLog.enabled=true",
            "--conf",
            f"spark.eventLog.dir=file:{events}",
        )
        result = run(*args, "-c", secured.name, *certificate, "-vv", timeout=200)
    finally:
        over.set()
        watcher.join()
    secured.check(result)
    assert result.returncode == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines()[1:]]
    assert sum(int(row[4]) for row in rows) == MESSAGES
    assert any("java" in line for line in seen)
    with secured.sandbox.registry(30.0) as registry:
        (acls,) = registry.read([GetAcl(znodes.offset(group, TopicPartition(TOPIC, 0)))])
    assert isinstance(acls, Acls)
    assert {entry.scheme for entry in acls.acl} == {"sasl", "x509", "world"}
    assert any(path.stat().st_size for path in events.rglob("*") if path.is_file())
    backups = Path(os.environ["ZKGROUP_STATE_DIR"], "backups")
    places = [*lake.rglob("*"), *events.rglob("*"), spark_log, *backups.glob("*")]
    kept = [path.read_bytes().decode("latin-1") for path in places if path.is_file()]
    assert len(kept) > 3
    for secret in secured.secrets:
        assert not any(secret in line for line in seen), "in a command line"
        assert not any(secret in text for text in kept), "in a file"


def test_what_is_logged_shows_no_secret(secured: Secured) -> None:
    """With -vv kazoo is heard, too; all that commands print in these tests is looked through (``Secured.check``)."""
    result = run("owners", "no-such-group", "-c", secured.name, "-vv")
    secured.check(result)
    assert "kazoo" in result.stderr
