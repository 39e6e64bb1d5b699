"""Snapshots of groups for the commands that only read."""

from __future__ import annotations

import gc
import logging
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cache
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from zkgroup.config import ConnectionSettings
from zkgroup.errors import NotFoundError, Notice, Remedy, did_you_mean
from zkgroup.groups.group_choices import Store
from zkgroup.text import duration_text, shortened

from ._completion import complete_topic
from ._context import bootstrap_brokers, connection, open_registry, working
from ._error_output import render_command
from ._output import SPARE, AtLeast, Column, Output, behind_columns, print_marked, print_rows, time_column
from ._shared_options import GlobalOptions, option
from ._terminal_text import MAX_LINE, escape, folded, one_line

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import KafkaSettings
    from zkgroup.clients.kafka.registered_brokers import Brokers
    from zkgroup.clients.zookeeper.registry import Registry
    from zkgroup.groups.findings.finding_kinds import Finding, Severity
    from zkgroup.groups.findings.inspection import Inspection
    from zkgroup.groups.group_model import GroupSnapshot
    from zkgroup.groups.snapshot.table_rows import GroupRow

#: Columns of both stores.
STORE_COLUMNS: Final = ("committed_zookeeper", "committed_kafka")
StoreChoice: TypeAlias = Store | None
StoreOption: TypeAlias = Annotated[
    StoreChoice, option("--store", help="The store of the offsets. Default: the stores in which the group has offsets.")
]


def partitions_option(help: str, panel: str | None = None) -> Any:
    """``--topic``, for topics or some of their partitions."""
    return option("--topic", metavar="TOPIC[:P,P-P]", help=help, panel=panel, complete=complete_topic)


PartitionsOption: TypeAlias = Annotated[
    list[str] | None, partitions_option("Only this topic, or these partitions of it; repeatable.")
]
BehindOption: TypeAlias = Annotated[
    bool | None,
    option(
        "--behind/--no-behind",
        help="Read how old the next message of each partition with lag is. Default: where there are at most 1000.",
        show_default=False,
    ),
]
SHOWN_TOPICS = 10


def brokers_of(
    settings: ConnectionSettings, registry: Registry | None, silent: int = logging.WARNING
) -> Callable[[], KafkaSettings]:
    """A function that finds the brokers: those of ``--bootstrap-server``, else the registered ones. ``silent``: the
    level at which those are logged that do not answer."""
    if settings.bootstrap or registry is None:
        return lambda: bootstrap_brokers(settings)

    @cache
    def registered() -> Brokers:
        from zkgroup.clients.kafka.registered_brokers import Brokers  # confluent-kafka: 60 ms

        kafka, listener, timeout = settings.kafka, settings.listener, settings.timeout
        return Brokers(registry.read, kafka, timeout=timeout, listener=listener, silent_level=silent)

    return lambda: registered().settings()


@contextmanager
def open_stores(
    settings: ConnectionSettings, store: StoreChoice, groups: Iterable[str] = ()
) -> Iterator[tuple[Registry | None, StoreChoice]]:
    """ZooKeeper, and the store that is meant; Kafka alone, and no ZooKeeper, where only brokers are named. Names that
    none of ``groups`` can have in ZooKeeper are refused before it is opened."""
    if settings.zookeeper is None and settings.bootstrap and store in (None, "kafka"):
        yield None, "kafka"
        return
    from zkgroup.protocol import znodes

    for group in groups:
        znodes.group(group)
    with open_registry(settings) as registry:
        yield registry, store


def read_snapshots(
    ctx: typer.Context,
    group: str | None,
    *,
    store: Store,
    ages: bool | None,
    warned: list[Notice] | None = None,
    settings: ConnectionSettings | None = None,
) -> Sequence[GroupSnapshot]:
    """The group, in ZooKeeper and in Kafka; without one all groups, in the order of their names, with what concerns all
    of them in ``warned``, even if there is none. ``ages`` as in ``read_group``; ``settings``: of the connection, where
    they are resolved already. Raises ``ZkgroupError`` where there is no such group, or ZooKeeper is away."""
    from zkgroup.groups.snapshot.group_reader import read_group, read_groups  # bring kazoo, which --help must not

    disable_garbage_collection()
    settings = settings or connection(ctx)
    what = "all groups" if group is None else f"group {group}"
    with working(ctx, f"reading {what}"), open_stores(settings, None) as (registry, _):
        brokers, timeout = brokers_of(settings, registry), settings.timeout
        if group is not None:
            return [read_group(registry, group, kafka=brokers, store=store, ages=ages, timeout=timeout)]
        return read_groups(registry, kafka=brokers, store=store, ages=ages, timeout=timeout, warned=warned)


def disable_garbage_collection() -> None:
    """A snapshot is kept until it is shown, and then the process ends: the garbage collector would only
    walk over it again and again, which takes a quarter of the time."""
    gc.disable()


def check_topics(snapshot: GroupSnapshot, topics: Iterable[str]) -> None:
    """Raise ``NotFoundError`` for a topic that the group has nothing to do with."""
    known = snapshot.subscribed | {partition.topic for partition in snapshot.partitions}
    for name in topics:
        if name not in known:
            raise NotFoundError(
                f"group {snapshot.group} has nothing to do with topic {name!r}: no subscription, no owner, no offset",
                did_you_mean(name, known, f"its topics: {', '.join(sorted(known)[:SHOWN_TOPICS]) or 'none'}"),
            )


BEHIND = behind_columns("table")
HEAD = (
    *("group", "store", "state", "strategy", "members", "topics", "partitions", "lag", *BEHIND),
    *("catch_up", time_column("taken_at")),
)
MEMBERS = ("owned", "streams", "subscription", "host", "member")
PARTITIONS = ("topic", "partition", "committed", "log_end", "lag", *BEHIND, "leader", "owner")
BOTH = ("topic", "partition", "committed_zookeeper", "committed_kafka", "log_end", "lag", *BEHIND, "leader", "owner")
#: A finding of more groups than this is printed once, with so many of their names.
NAMED_GROUPS = 3
#: Colours for dark and light backgrounds.
STYLES: Mapping[Severity, str] = {"critical": "bold red", "warning": "bold yellow", "info": "bold blue"}
SUMMARY = ("group", "store", "state", "members", "partitions", "lag", *BEHIND, "critical", "warning", "info")
#: Columns that a narrow terminal leaves out, the least important first.
SUMMARY_SPARE = ("info", "partitions", "store", "behind")


def table_row(row: GroupRow) -> dict[str, Any]:
    """A group's row for a table; a partial lag is marked: ``≥20``."""
    return {**asdict(row), "lag": shown_lag(row), "behind": row.behind}


def shown_lag(row: GroupRow) -> int | None:
    """The lag for a table or a message; None if it is unknown."""
    return AtLeast(row.lag_at_least) if row.lag is None and row.lag_at_least is not None else row.lag


def headline(one: Inspection, catch_up: float | None) -> tuple[list[Column | str], list[dict[str, Any]]]:
    """The columns and the row of one group. ``catch_up``: seconds until its lag is zero, infinity where it does not
    shrink, None where that is unknown: then there is no such column."""
    row = {**table_row(one.summary), "strategy": one.strategy, "taken_at": one.snapshot.taken_at}
    row["catch_up"] = catch_up and ("never" if catch_up == inf else f"in {duration_text(catch_up)}")
    return [column for column in HEAD if catch_up or column != "catch_up"], [row]


def print_overview(
    one: Inspection, given: GlobalOptions, catch_up: float | None = None, output: Output = "table"
) -> None:
    """Print one group: a headline, its members, its partitions, its findings. ``catch_up`` as in ``headline``."""
    columns, rows = headline(one, catch_up)
    print_rows(rows, columns, output, spare=SPARE)
    if members := one.rows("members"):
        print_title("members")
        print_rows(members, MEMBERS, output, spare=SPARE)
    if partitions := one.rows("partitions"):
        print_title("partitions")
        spare = (*SPARE, "owner")
        print_rows(partitions, BOTH if one.store == "both" else PARTITIONS, output, spare=spare)
    waits = one.snapshot.state == "inactive" and one.summary.lag_at_least
    print_title("findings" if one.findings else f"no findings{': no member reads the group' if waits else ''}")
    print_findings(one.findings, given)
    if one.findings:
        _say_more()


def print_summary(found: Sequence[Inspection], given: GlobalOptions, output: Output = "table") -> None:
    """Many groups: a line about each, then what is wrong with them, what is critical first; what is only good to know
    is left out."""
    rows = [
        {**table_row(one.summary), **{severity: one.count(severity) for severity in ("critical", "warning", "info")}}
        for one in found
    ]
    print_rows(rows, SUMMARY, output, spare=SUMMARY_SPARE)
    blocks = [block for severity in ("critical", "warning") for block in _blocks(found, severity)]
    for title, findings in blocks:
        print_title(title)
        print_findings(findings, given)
    if blocks:
        _say_more()


def _blocks(found: Iterable[Inspection], severity: Severity) -> Iterator[tuple[str, list[Finding]]]:
    """Findings so severe with what stands above them: what is said of many groups in the same words, once for all of
    them with the commands for the first; and the rest, group by group."""
    alike: dict[Finding, list[tuple[str, Finding]]] = {}
    single: dict[str, list[Finding]] = {one.snapshot.group: [] for one in found}
    for group, one in ((each.snapshot.group, finding) for each in found for finding in each.findings):
        if one.severity == severity:
            alike.setdefault(_without_name(one, group), []).append((group, one))
    for plain, own in alike.items():
        if len(own) > NAMED_GROUPS:
            commands = [command for _, one in own[:NAMED_GROUPS] for command in one.commands]
            names = ", ".join(shortened(group) for group, _ in own[:NAMED_GROUPS])
            remedy = plain.remedy and Remedy(plain.remedy.text, *commands)
            yield (
                f"{len(own)} groups alike: {names} and {len(own) - NAMED_GROUPS} more",
                [replace(plain, remedy=remedy)],
            )
        else:
            for group, one in own:
                single[group].append(one)
    yield from ((group, findings) for group, findings in single.items() if findings)


def _without_name(finding: Finding, group: str) -> Finding:
    """Without the group's name, where that is what the name stands for (a topic may be called the same), and without
    commands, of which each names it."""
    subject = "each group" if finding.subject == group else finding.subject
    return replace(finding, subject=subject, remedy=finding.remedy and Remedy(finding.remedy.text))


def _say_more() -> None:
    sys.stdout.write("\nzkgroup inspect-group --explain CODE explains a finding\n")


def print_title(text: str) -> None:
    """Print a blank line and the title of a section."""
    sys.stdout.write("\n")
    print_marked([(escape(text), "bold")])


def print_findings(findings: Sequence[Finding], given: GlobalOptions) -> None:
    """Print findings, each with its commands: folded on a terminal; one line each for grep."""
    terminal = sys.stdout.isatty()
    columns = max(41, shutil.get_terminal_size().columns) if terminal else sys.maxsize
    for finding in findings:
        severity = f"{finding.severity:<8}"
        print_marked(
            [
                (severity, STYLES[finding.severity]),
                (f"  {finding.code}: {escape(shortened(finding.subject, MAX_LINE))}", ""),
            ]
        )
        for text in (finding.message, f"→ {finding.remedy.text}" if finding.remedy is not None else None):
            if text is not None:
                rest = " " * (12 if text.startswith("→") else 10)
                sys.stdout.write(folded(one_line(text), columns - 1, " " * 10, rest) + "\n")
        # A command is never folded, so that it can be copied.
        sys.stdout.writelines(
            f"            {one_line(render_command(command, given))}\n" for command in finding.commands
        )
