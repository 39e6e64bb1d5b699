"""The frame: options on both sides of a command's name, errors on one line, exit codes, streams that close."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli import ZKGROUP, environment, run
from lines import names
from support import wait_until

from zkgroup.commands import COMMANDS, _signals, app
from zkgroup.commands._command_group import load
from zkgroup.commands._error_output import exit_code_for
from zkgroup.commands._shared_options import GlobalOptions
from zkgroup.commands._signals import StopRequest, Terminated, raise_on_signals
from zkgroup.errors import RefusedError, UnreachableError


def test_help_names_the_aliases() -> None:
    """All of them, each with its command."""
    shown = " ".join(run("--help").stdout.split())
    assert "list, groups, ls (list-groups); describe (inspect-group); lag (offsets)" in shown


@pytest.mark.parametrize(
    ("args", "facts"),
    [
        ([], ("zkgroup --help",)),
        (["config"], ("zkgroup config --help",)),
        (["sandbox"], ("zkgroup sandbox --help",)),
        (["nonsense"], ("'nonsense'", "zkgroup --help")),
        (["owner"], ("'owner'", "owners")),
        (["lis"], ("'lis'", "list-groups")),
        (["sandbox", "strat"], ("'strat'", "start")),
        (["list-groups", "--order"], ("--order", "zkgroup list-groups --help")),
        (["reset-offsets", "g", "--to-erliest"], ("--to-erliest", "--to-earliest")),
        (["--xyzzy"], ("--xyzzy", "zkgroup --help")),
        (["owners"], ("'GROUP'", "zkgroup owners --help")),
        (["owners", "g", "--output", "xml"], ("'--output'", "'xml'", "'table', 'wide', 'json', 'yaml', 'csv'")),
        (["owners", "g"], ("--zookeeper",)),
        (["-z", "a", "owners", "g", "-z", "b"], ("a:2181",)),
        (["-c", "nowhere", "owners", "g"], ("'nowhere'", "/dev/null", "sandbox")),
        (["owners", "g", "-X", "secret"], ("--property", "KEY=VALUE")),
        (["consume", "t", "--group", "a/b", "-z", "localhost:1"], ("'a/b'",)),
        (["unsubscribe", "a/b", "--topic", "t", "-z", "localhost:1"], ("'a/b'",)),
        (["version", "extra"], ("extra",)),
    ],
)
def test_wrong_usage_is_one_line_and_2(args: list[str], facts: tuple[str, ...]) -> None:
    """Nothing on stdout, one line on stderr that says what and what to do, exit code 2."""
    result = run(*args)
    assert result.returncode == 2
    assert result.stdout == ""
    assert names(result.stderr, "zkgroup", *facts), result.stderr
    assert result.stderr.count("\n") == 1


def test_an_unreachable_zookeeper_is_one_line_and_3_within_its_time() -> None:
    """The address is named, and the time given is kept."""
    result = run("--connect-timeout", "0.5", "owners", "g", "-z", "127.0.0.1:1", timeout=10)
    assert (result.returncode, result.stdout) == (3, "")
    assert names(result.stderr, "127.0.0.1:1", "0.5 s")
    assert result.stderr.count("\n") == 1


def test_a_sandbox_that_does_not_run() -> None:
    """--cluster sandbox names the command that starts it."""
    result = run("owners", "g", "-c", "sandbox:absent")
    assert (result.returncode, result.stderr.count("\n")) == (3, 1)
    assert names(result.stderr, "absent", "zkgroup sandbox start --name absent")


def test_a_misspelt_sandbox_is_suggested(tmp_path: Path) -> None:
    """By --cluster, and by every command of the sandbox; also the word itself."""
    env = {"ZKGROUP_STATE_DIR": str(tmp_path)}
    (tmp_path / "sandbox" / "cases").mkdir(parents=True)
    for command in (
        ("owners", "g", "-c", "sandbox:case"),
        ("sandbox", "member", "t", "--group", "g", "--name", "case"),
        ("sandbox", "stop", "--name", "case"),
        ("sandbox", "status", "--name", "case"),
    ):
        result = run(*command, env=env)
        assert (result.returncode, result.stderr.count("\n")) == (3, 1)
        assert names(result.stderr, "case", "cases"), command
    assert names(run("owners", "g", "-c", "sandbx", env=env).stderr, "'sandbx'", "sandbox")


def test_a_flag_before_the_name_beats_the_environment() -> None:
    """What is before the command's name is not lost to the environment's value after it."""
    env = {"ZKGROUP_ZOOKEEPER": "127.0.0.1:2", "ZKGROUP_CONNECT_TIMEOUT": "0.2"}
    for args in (["-z", "127.0.0.1:1", "owners", "g"], ["owners", "g", "-z", "127.0.0.1:1"]):
        assert names(run(*args, env=env).stderr, "127.0.0.1:1")
    assert names(run("owners", "g", env=env).stderr, "127.0.0.1:2")


def test_control_characters_never_reach_the_terminal() -> None:
    """A name with an escape sequence is shown as text."""
    result = run("unsubscribe", "g\x1b[2J", "--topic", "t", "-z", "localhost:1")
    assert result.returncode == 2
    assert "\x1b" not in result.stderr
    assert "\\x1b[2J" in result.stderr


def test_warnings_can_be_silenced(tmp_path: Path) -> None:
    """Warnings go to stderr, one line each, and --quiet on either side of the name leaves only the error."""
    (tmp_path / "c.properties").write_text("zookeeper.connect=other:2181")
    args = ["owners", "g", "--consumer-config", str(tmp_path / "c.properties"), "--connect-timeout", "0.2"]
    env = {"ZKGROUP_ZOOKEEPER": "127.0.0.1:1"}
    lines = run(*args, env=env).stderr.splitlines()
    assert len(lines) == 2
    assert names(lines[0], "warning", "zookeeper.connect", "ZKGROUP_ZOOKEEPER")
    assert len(run(*args, "--quiet", env=env).stderr.splitlines()) == 1
    assert len(run("--quiet", *args, env=env).stderr.splitlines()) == 1


def test_more_messages_on_request() -> None:
    """-vv lets kazoo speak, on stderr, with times."""
    result = run("owners", "g", "-z", "127.0.0.1:1", "--connect-timeout", "0.2", "-vv")
    assert "Z DEBUG kazoo" in result.stderr or "Z INFO kazoo" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("args", [["--help"], ["-h"], ["owners", "--help"], ["version", "-h"]])
def test_help_goes_to_stdout(args: list[str]) -> None:
    """Help that was asked for is data."""
    result = run(*args)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("Usage: zkgroup")


def test_every_command_is_there_and_in_the_help() -> None:
    """Each line of the table loads, has help, and takes the shared options without a clash."""
    shown = run("--help").stdout
    for lazy in COMMANDS:
        assert f"  {lazy.name} " in shown
        command = load(lazy)
        leaves = [command] if not hasattr(command, "commands") else list(command.commands.values())
        for leaf in leaves:
            options = [option for param in leaf.params for option in param.opts if option.startswith("-")]
            assert len(options) == len(set(options)), (lazy.name, options)
            assert {"--verbose", "--quiet"} <= set(options)
            assert ("--zookeeper" in options) == lazy.connects


def test_python_dash_m() -> None:
    """``python -m zkgroup`` is the same program."""
    result = subprocess.run(
        [sys.executable, "-m", "zkgroup", "--version"], capture_output=True, text=True, env=environment(), check=True
    )
    assert result.stdout.startswith("zkgroup 0.")


def test_a_closed_pipe_is_no_error() -> None:
    """Whoever stops reading early gets no complaint, and the exit code is 0, also when the interpreter ends."""
    ours, theirs = os.pipe()
    os.close(ours)
    result = subprocess.run(
        [ZKGROUP, "version"], stdout=theirs, stderr=subprocess.PIPE, env=environment(), timeout=60, check=False
    )
    os.close(theirs)
    assert (result.returncode, result.stderr) == (0, b"")


def test_a_full_disk_is_an_error() -> None:
    """Output that could not be written is not passed over in silence."""
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [ZKGROUP, "version"], stdout=full, stderr=subprocess.PIPE, env=environment(), text=True, check=False
        )
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert names(result.stderr, os.strerror(errno.ENOSPC))


def test_without_stdout_nothing_breaks() -> None:
    """Started with stdout, stderr, or everything closed, as some daemons do: no complaint, and no wrong code."""
    for closed in (">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"):
        for arguments, code in (("version", 0), ("owners g -z 127.0.0.1:1 --connect-timeout 0.2", 3)):
            command = f"exec '{ZKGROUP}' {arguments} {closed}"
            result = subprocess.run(["bash", "-c", command], capture_output=True, env=environment(), check=False)
            assert (result.returncode, b"Traceback" in result.stderr) == (code, False), (command, result.stderr)
            assert ("2" in closed or code == 0) == (result.stderr == b""), (command, result.stderr)


def test_what_is_closed_is_taken_by_nothing_else() -> None:
    """Neither a socket nor a file becomes stdin, stdout or stderr where these were closed: it would be written to."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        command = f"exec '{ZKGROUP}' owners g -z {address} --connect-timeout 60 <&- >&- 2>&-"
        with subprocess.Popen(["bash", "-c", command], env=environment()) as process:
            try:
                connection, _ = server.accept()
                with connection:
                    taken = [str(Path(f"/proc/{process.pid}/fd/{descriptor}").readlink()) for descriptor in range(3)]
            finally:
                process.terminate()
                process.wait(30)
    assert taken == ["/dev/null"] * 3


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_end_it_quietly(signum: signal.Signals, code: int) -> None:
    """An interrupted command prints nothing; its exit code says so."""
    with subprocess.Popen(
        [ZKGROUP, "-v", "-v", "owners", "g", "-z", "127.0.0.1:1", "--connect-timeout", "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
    ) as process:
        assert process.stderr is not None
        # kazoo's first line: the command is active, beyond its imports.
        assert "kazoo" in process.stderr.readline()
        process.send_signal(signum)
        _, rest = process.communicate(timeout=30)
    assert process.returncode == code
    assert "Traceback" not in rest


def settle(capsys: pytest.CaptureFixture[str], error: BaseException, verbosity: int = 0) -> tuple[int, str]:
    def work() -> None:
        raise error

    code = exit_code_for(work, GlobalOptions(verbosity=verbosity))
    return code, capsys.readouterr().err


class MuteError(Exception):
    """As py4j's are once their JVM has died: asked what they say, they ask it."""

    def __str__(self) -> str:
        raise ConnectionRefusedError


def within_c_code(signalled: BaseException) -> SystemError:
    """What Python makes of a signal that comes while a library's C code runs, which does not look for one."""
    try:
        raise SystemError("<method> returned a result with an exception set") from signalled
    except SystemError as error:
        return error


@pytest.mark.parametrize(
    ("error", "code", "facts"),
    [
        (RefusedError("group g is active", "stop it"), 5, ("group g is active: stop it",)),
        (UnreachableError("no\nanswer"), 3, ("no answer",)),
        (PermissionError(13, "Permission denied", "/x"), 1, ("/x: Permission denied",)),
        (ValueError("\x1b[1m"), 1, ("ValueError", "\\x1b[1m", "-vv")),
        (MuteError(), 1, ("MuteError", "-vv")),
        (Terminated(15), 143, ()),
        (KeyboardInterrupt(), 130, ()),
        (SystemExit(7), 7, ()),
        (within_c_code(KeyboardInterrupt()), 130, ()),
        (within_c_code(Terminated(15)), 143, ()),
    ],
)
def test_errors_become_a_line_and_a_code(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int, facts: tuple[str, ...]
) -> None:
    """Expected and unexpected errors: one line at most, never a traceback."""
    returned, shown = settle(capsys, error)
    assert (returned, shown.count("\n")) == (code, 1 if facts else 0)
    assert names(shown, "zkgroup", *facts) == bool(facts)


def test_a_traceback_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    """-vv shows where an unexpected error came from, before its line."""
    code, shown = settle(capsys, ValueError("x"), verbosity=2)
    assert code == 1
    assert shown.startswith("Traceback")
    assert names(shown.splitlines()[-1], "zkgroup", "ValueError", "x")


def test_a_broken_pipe_elsewhere_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Only our own stdout or stderr closed by its reader is a quiet end; a server's socket is not."""
    code, shown = settle(capsys, BrokenPipeError(32, "Broken pipe"))
    assert (code, shown.count("\n"), names(shown, "zkgroup", "Broken pipe")) == (1, 1, True)


@pytest.fixture
def handlers() -> Iterator[None]:
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


@pytest.mark.usefixtures("handlers")
def test_the_first_signal_asks_and_the_second_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clean leave gets its chance once; whoever insists is obeyed, but a signal that comes twice at once (as timeout
    sends it) is one. Handlers are as before afterwards."""
    before = signal.getsignal(signal.SIGTERM)
    message: list[int] = []
    with StopRequest(lambda: message.append(1)) as stop:
        assert (bool(stop), stop.exit_code) == (False, 0)
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: stop, 5)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert (stop.exit_code, message) == (143, [1])
        monkeypatch.setattr(_signals, "SAME", 0.0)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.usefixtures("handlers")
def test_a_signal_that_comes_twice_raises_once() -> None:
    """What the first signal made a command put in order is not interrupted by its double."""
    raise_on_signals()
    with pytest.raises(Terminated):
        os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.usefixtures("handlers")
def test_an_ignored_signal_stays_ignored() -> None:
    """What nohup and background jobs ignore is not taken up again."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert not stop


def test_the_app_can_be_called_by_its_users() -> None:
    """``app`` stays where people's own wrappers find it."""
    assert importlib.import_module("zkgroup.commands").app is app


def test_what_cannot_be_flushed_at_the_very_end_is_no_success() -> None:
    """Words of an exit handler that found no place: Python's code for it, not 0."""
    program = (
        "import atexit, os; from zkgroup.__main__ import _leave;"
        "atexit.register(lambda: (os.close(1), print('lost')));"
        "_leave(SystemExit(0))"
    )
    ended = subprocess.run([sys.executable, "-E", "-c", program], capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (120, b"")
