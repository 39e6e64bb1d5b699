"""From a command's context to open servers: resolve the settings, print warnings, open and close connections."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from zkgroup.config import ConnectionSettings, load_consumer_config, resolve_connection
from zkgroup.config.consumer_config import LoadedConfig
from zkgroup.config.settings_table import SETTINGS
from zkgroup.errors import Notice, UsageError, ZkgroupError

from ._error_output import Message, render, say
from ._shared_options import GlobalOptions
from ._signals import before_start
from ._terminal_text import one_line, rewrites

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import KafkaSettings
    from zkgroup.clients.zookeeper import ZooKeeperSettings
    from zkgroup.clients.zookeeper.registry import Registry


def connection(
    ctx: typer.Context, *, quiet: bool = False, cluster: str | None = None, ask: bool = True
) -> ConnectionSettings:
    """The settings of the connection. ``cluster``: the profile to use, as if a flag had named it. ``ask``: ask for
    missing passwords, once."""
    given = ctx.ensure_object(GlobalOptions)
    flags, answers = given.values, given.answers
    if cluster is not None:
        flags, answers = flags | {"cluster": [cluster]}, {}
    settings = resolve_connection(flags, os.environ, _sandbox, _ask(answers) if ask else None)
    if not quiet:
        warn(ctx, settings.warnings)
    return settings


def cluster_connection(ctx: typer.Context, cluster: str) -> ConnectionSettings:
    """The settings of a second cluster, from its profile alone: flags and variables are those of the first."""
    variables = {name for one in SETTINGS for name in (one.variable, f"{one.variable}_FILE")}
    environ = {name: value for name, value in os.environ.items() if name not in variables}
    settings = resolve_connection({"cluster": [cluster]}, environ, _sandbox, _ask({}))
    warn(ctx, settings.warnings)
    return settings


def consumer_config(
    ctx: typer.Context, settings: ConnectionSettings, group: str | None = None, *, coordinated: bool = False
) -> LoadedConfig:
    """A member's settings; ``group`` is the command line's. ``coordinated``: of a member of a group in Kafka. Prints
    warnings about ignored settings that ``connection`` has not shown."""
    loaded = load_consumer_config(settings.properties, group=group, coordinated=coordinated)
    warn(ctx, [warning for warning in loaded.warnings if warning not in settings.warnings])
    return loaded


def warn(ctx: typer.Context, warnings: Iterable[Notice | ZkgroupError]) -> None:
    """Show warnings on stderr, one line each, unless ``--quiet``."""
    given = ctx.ensure_object(GlobalOptions)
    if not given.quiet:
        for warning in warnings:
            say(render(warning, given), kind="warning")


def done(ctx: typer.Context, what: Message) -> None:
    """Say on stderr what was done, unless ``--quiet``."""
    given = ctx.ensure_object(GlobalOptions)
    if not given.quiet:
        say(render(what, given))


def _sandbox(name: str) -> tuple[str, Path | None]:
    from zkgroup.sandbox.sandbox_state import running  # only who asks for a sandbox needs it

    found = running(name or "default")
    place = found.secure if found.connect else found.folder  # in KRaft mode a profile names the brokers
    if place is not None and (realm := Path(place, "krb5.conf")).exists():
        os.environ["KRB5_CONFIG"] = str(realm)  # Kerberos' libraries know no other way
    return found.connect, Path(place, "profile.toml") if place else None


def _ask(answers: dict[str, str]) -> Callable[[str], str] | None:
    """A function that asks for a password on the terminal; None without one. ``answers``: those to earlier
    questions."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None

    def ask(what: str) -> str:
        from getpass import getpass

        if what not in answers:
            answers[what] = getpass(f"{what}: ", sys.stderr)
        return answers[what]

    return ask


def zookeeper_settings(settings: ConnectionSettings) -> ZooKeeperSettings:
    """The settings of the connection to ZooKeeper. Raises ``UsageError`` if none is named."""
    from zkgroup.clients.zookeeper import ZooKeeperSettings
    from zkgroup.protocol.operations import parse_acl

    return ZooKeeperSettings(
        str(settings.require_zookeeper()),
        connect_timeout=settings.timeout,
        auth=settings.zookeeper_auth,
        tls=settings.zookeeper_tls,
        sasl=settings.zookeeper_sasl,
        acl=None if settings.zookeeper_acl is None else parse_acl(settings.zookeeper_acl),
    )


def bootstrap_brokers(settings: ConnectionSettings) -> KafkaSettings:
    """How to reach the brokers of ``--bootstrap-server``. Raises ``UsageError``."""
    from zkgroup.clients.kafka.client import KafkaSettings, check_properties

    check_properties(settings.kafka)
    return KafkaSettings(",".join(map(str, settings.bootstrap)), settings.kafka)


@contextmanager
def open_registry(settings: ConnectionSettings) -> Iterator[Registry]:
    """A connection to ZooKeeper, checked to have the chroot. Raises ``UnreachableError`` and ``UsageError``."""
    with before_start():
        from zkgroup.clients.zookeeper.registry import Registry  # kazoo takes 20–50 ms

    address = settings.require_zookeeper()
    with Registry(zookeeper_settings(settings)) as registry:
        if address.chroot and not registry.has_chroot():
            raise UsageError(
                f"ZooKeeper at {','.join(map(str, address.addresses))} has no chroot {address.chroot}",
                "check the path after the last server, as the brokers' zookeeper.connect has it",
            )
        yield registry


#: Seconds until the line appears, and between its updates.
DELAY = 1.0
INTERVAL = 0.5
ERASE = "\r\x1b[K"


@contextmanager
def working(ctx: typer.Context, what: str) -> Iterator[None]:
    """Print ``what`` and the elapsed seconds on stderr after the first second. Nothing else may be printed meanwhile.

    Prints nothing with ``--quiet``, with ``-v``, and if stderr is no terminal that can overwrite a line.
    """
    given = ctx.ensure_object(GlobalOptions)
    if not rewrites(sys.stderr) or given.quiet or given.verbosity:
        yield
        return
    done = threading.Event()

    def show() -> None:
        began = time.monotonic()
        if done.wait(DELAY):
            return
        with suppress(OSError):  # the terminal may be gone
            while True:
                sys.stderr.write(f"{ERASE}zkgroup: {one_line(what)} … {time.monotonic() - began:.0f} s")
                sys.stderr.flush()
                if done.wait(INTERVAL):
                    break
            sys.stderr.write(ERASE)
            sys.stderr.flush()

    thread = threading.Thread(target=show, name="working", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
