"""``zkgroup config``: show the settings in force with their origins, and check them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import typer

from zkgroup.config import ConnectionSettings, load_consumer_config
from zkgroup.errors import NotFoundError, UsageError, VerificationError, ZkgroupError, notice_of
from zkgroup.text import counted

from ._context import connection, open_registry
from ._error_output import Message, of_profile, render
from ._group_views import brokers_of
from ._output import print_rows
from ._shared_options import GlobalOptions, OutputOption

if TYPE_CHECKING:
    from zkgroup.clients.zookeeper.registry import Registry

SHOWN = ("setting", "value", "source")
CHECKED = ("cluster", "what", "state", "message")
#: Clusters that are checked at the same time.
MAX_AT_ONCE = 8

app = typer.Typer(
    help="""Show and check the settings.

    \b
    zkgroup config show -c prod
    zkgroup config check
    """,
    short_help="Show and check the settings.",
    subcommand_metavar="COMMAND …",
)


@dataclass(frozen=True, slots=True)
class Checked:
    """One check of a cluster. ``state``: ``ok``, ``wrong``, or ``unknown`` after another one was wrong. ``messages``
    become one."""

    cluster: str
    what: str
    state: str
    messages: Sequence[Message]


@app.command(short_help="Show every setting and its origin.")
def show(ctx: typer.Context, output: OutputOption = "table") -> None:
    """Show every setting in force and its origin; secrets are hidden.

    Flags win over the environment, the environment over the cluster's profile in config.toml, the profile over
    consumer.properties. A cluster that a flag names counts as a flag.

    \b
    zkgroup config show -c prod
    zkgroup config show --consumer-config consumer.properties --output json
    """
    from zkgroup.config.connection_settings import shown_settings

    print_rows(shown_settings(connection(ctx)), SHOWN, output)


@app.command(short_help="Check profiles: files, values, servers.")
def check(ctx: typer.Context, output: OutputOption = "table") -> None:
    """Check every profile of config.toml, or the cluster of the command line.

    Checks that its files exist, that its settings are legal for a member, and that its servers answer. Changes nothing.
    Exit 6 if something is wrong.

    \b
    zkgroup config check
    zkgroup config check -c prod
    """
    from zkgroup.config.profiles import config_file, read_profiles

    given = ctx.ensure_object(GlobalOptions)
    by_profile = not given.values.keys() & {"cluster", "zookeeper", "bootstrap_server", "consumer_config"}
    if not by_profile:
        rows = _check(ctx, None)
    else:
        path, asked_for = config_file(os.environ)
        names = sorted(read_profiles(path, must_exist=asked_for))
        if not names:
            raise NotFoundError(
                f"no cluster profile in {path}", "name a cluster: -z HOST:PORT/CHROOT, or write a profile"
            )
        with ThreadPoolExecutor(MAX_AT_ONCE) as workers:
            rows = [row for found in workers.map(lambda name: _check(ctx, name), names) for row in found]
    print_rows([row_of(row, given, by_profile=by_profile) for row in rows], CHECKED, output)
    wrong = [(row, error) for row in rows for error in row.messages if isinstance(error, ZkgroupError)]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        row, error = wrong[0]
        remedy = of_profile(error.remedy, row.cluster) if by_profile else error.remedy
        raise VerificationError(f"{row.cluster}: {row.what}: {error.message}{more}", remedy)


def row_of(check: Checked, given: GlobalOptions, *, by_profile: bool) -> dict[str, str]:
    """``by_profile``: commands in messages name the check's cluster, which the command line does not."""
    places = replace(given, values={**given.values, "cluster": [check.cluster]}) if by_profile else given
    message = "; ".join(dict.fromkeys(render(one, places) for one in check.messages))
    return dict(zip(CHECKED, (check.cluster, check.what, check.state, message), strict=True))


def _check(ctx: typer.Context, name: str | None) -> list[Checked]:
    """Check the settings, ZooKeeper and the brokers of one cluster; ``name`` None: of the command line."""
    cluster = name or next(iter(ctx.ensure_object(GlobalOptions).values.get("cluster", ())), "-")
    try:
        settings = connection(ctx, quiet=True, cluster=name)
    except ZkgroupError as error:
        unknown = [Checked(cluster, what, "unknown", ["the settings are wrong"]) for what in ("zookeeper", "brokers")]
        return [Checked(cluster, "settings", "wrong", [error]), *unknown]
    rows = [_settings(settings, cluster)]
    if settings.zookeeper is None:
        rows.append(Checked(cluster, "zookeeper", "unknown", ["none is named"]))
        return [*rows, _brokers(settings, None, cluster)]
    try:
        with open_registry(settings) as registry:
            rows.append(Checked(cluster, "zookeeper", "ok", [f"answers at {settings.zookeeper}"]))
            rows.append(_brokers(settings, registry, cluster))
    except ZkgroupError as error:
        rows.append(Checked(cluster, "zookeeper", "wrong", [error]))
        rows.append(Checked(cluster, "brokers", "unknown", ["they are registered in ZooKeeper"]))
    return rows


def _settings(settings: ConnectionSettings, cluster: str) -> Checked:
    """Check the settings for a member; settings that only suit a member of a group in Kafka are a warning."""
    warnings: list[Message] = [*settings.warnings]
    try:
        warnings += load_consumer_config(settings.properties).warnings
    except UsageError as error:
        try:
            warnings += load_consumer_config(settings.properties, coordinated=True).warnings
        except UsageError:
            return Checked(cluster, "settings", "wrong", [error])
        warnings.append(notice_of("for --coordinator kafka alone", error))
    return Checked(cluster, "settings", "ok", warnings)


def _brokers(settings: ConnectionSettings, registry: Registry | None, cluster: str) -> Checked:
    """Check that the brokers, registered or named, answer with the configured security."""
    from zkgroup.clients.kafka.client import topics

    try:
        found = topics(brokers_of(settings, registry)(), settings.timeout)
    except ZkgroupError as error:
        return Checked(cluster, "brokers", "wrong", [error])
    return Checked(cluster, "brokers", "ok", [f"answer, with {counted(len(found), 'topic')}"])
