"""Migrations of ``migrate-group``: within a cluster, or to another, each with its own settings and commands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import typer

from zkgroup.errors import NotFoundError, Remedy, UsageError, ZkgroupError, did_you_mean
from zkgroup.text import counted, listed

from ._context import cluster_connection
from ._execution import Change
from ._global_options import GlobalOptions
from ._group_changes import open_applier
from ._output import SPARE, Output, is_table, print_rows

if TYPE_CHECKING:
    from zkgroup.groups.changes.applier import Applier
    from zkgroup.groups.changes.migration import Migration, Take
    from zkgroup.groups.changes.plan import Plan
    from zkgroup.groups.group_model import GroupSnapshot, OffsetStore
    from zkgroup.groups.partition_scope import Scope

COLUMNS = ("topic", "partition", "source", "current", "target", "change", "log_start", "log_end", "note")
TO_CLUSTER_COLUMNS = (
    "topic", "partition", "source", "to_topic", "match", "repeated", "current", "target", "change", "log_start",
    "log_end", "note",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MigrationOptions:
    """The options of a migration."""

    to: OffsetStore
    scope: Scope | None = None
    take: Take | None = None
    to_earliest: bool = False


class Migrations(ABC):
    """Plans and shows migrations. ``change`` and ``applier``: of the cluster that is changed; ``here`` and ``origin``:
    of the one that offsets come from, which the command line names."""

    def __init__(
        self, change: Change, applier: Applier, here: Change, origin: Applier, options: MigrationOptions
    ) -> None:
        self.change = change
        self.here = here
        self.applier = applier
        self.origin = origin
        self.options = options

    @abstractmethod
    def plan(self, group: str) -> Migration:
        """The migration of a group. Raises ``ZkgroupError``."""

    @abstractmethod
    def show(self, migration: Any, output: Output) -> None:
        """Print its rows."""

    @property
    @abstractmethod
    def place(self) -> str:
        """Where the offsets go, for messages."""

    @abstractmethod
    def has_offsets(self, snapshot: GroupSnapshot) -> bool:
        """Whether a group has offsets where they come from."""

    def named(self) -> AbstractContextManager[None]:
        """Errors of the changed cluster are raised in here."""
        return nullcontext()

    def check_origin(self) -> None:
        """Raise ``RefusedError`` where members of another origin are not visible."""
        return

    def check(self, plan: Plan) -> None:
        """Raise ``RefusedError`` where the plan may not be carried out now."""
        for refusal in plan.refusals:
            raise refusal
        self.applier.check(plan)
        if plan.changes_kafka:
            self.change.require_vouched(self.applier)
        self.check_origin()

    def check_idle(self, plan: Plan) -> None:
        """Raise ``RefusedError`` where the group is active at another origin, although nothing is to be moved: what is
        in place now is not once it commits."""
        if plan.source is not None and plan.source.check is not None:
            plan.source.check(False)

    def check_topics(self, topics: Collection[str]) -> None:
        """Raise ``UsageError`` where ``--topic-map`` names others than these, whose offsets are moved."""
        return

    def wait_for_commits(self, group: str) -> None:
        """Raise ``RefusedError`` where a consumer commits at another origin that is registered nowhere."""
        return

    def warn_of_retention(self) -> None:
        """Print how long Kafka keeps what was written."""
        from zkgroup.groups.changes.migration import describe_retention

        if self.options.to == "kafka":
            self.change.warn([describe_retention(self.applier.brokers(), self.applier.timeout)])

    def names(self, patterns: Sequence[str], warn: Callable[[list[str]], object]) -> list[str]:
        """The groups with offsets that any pattern matches. Raises ``NotFoundError`` where there is none."""
        from zkgroup.groups.changes.inactive_groups import matching
        from zkgroup.groups.snapshot.group_reader import read_groups

        warned: list[str] = []
        origin = self.origin
        found = read_groups(origin.registry, kafka=origin.brokers, logs={}, timeout=origin.timeout, warned=warned)
        warn(warned)
        there = {one.group: one for one in found}
        names = matching(there, patterns)
        kept = [name for name in names if self.has_offsets(there[name])]
        if not kept:
            raise NotFoundError(
                f"no group with offsets matches {' or '.join(patterns)}",
                did_you_mean(patterns[0], there, Remedy("see which groups there are", ("list-groups",))),
            )
        if others := [name for name in names if name not in kept]:
            warn([f"{counted(len(others), 'group')} without offsets left out: {listed(others)}"])
        self.check_topics({topic for name in kept for topics in there[name].offset_topics.values() for topic in topics})
        return kept


class StoreMigrations(Migrations):
    """Within a cluster, from one store to the other."""

    def plan(self, group: str) -> Migration:
        from zkgroup.groups.changes.migration import plan_migration

        return plan_migration(self.applier, group, self.options.to, self.options.scope, self.options.take)

    def show(self, migration: Migration, output: Output) -> None:
        print_rows(migration.rows, COLUMNS, output, spare=SPARE)

    @property
    def place(self) -> str:
        from zkgroup.groups.group_model import STORE_NAMES

        return STORE_NAMES[self.options.to]

    def has_offsets(self, snapshot: GroupSnapshot) -> bool:
        return bool(snapshot.offset_topics["kafka" if self.options.to == "zookeeper" else "zookeeper"])


class ClusterMigrations(Migrations):
    """To another cluster. ``topics``: those that have another name there; where ``is_one`` group moves, it reads all of
    them."""

    def __init__(
        self,
        change: Change,
        applier: Applier,
        here: Change,
        origin: Applier,
        options: MigrationOptions,
        topics: Mapping[str, str],
        *,
        is_one: bool,
    ) -> None:
        super().__init__(change, applier, here, origin, options)
        self._topics = topics
        self._is_one = is_one

    @property
    def place(self) -> str:
        return f"cluster {self.change.settings.cluster}"

    def plan(self, group: str) -> Migration:
        from zkgroup.groups.changes.migration import (
            check_source,
            plan_cluster_migration,
            read_source_offsets,
            translate,
            verify_source,
        )

        found = read_source_offsets(self.origin, group, self.options.scope)
        if self._is_one:
            self.check_topics({key.topic for key in found.offsets})
        partitions, positions = translate(self.origin, self.applier, found.offsets, self._topics)

        def check(is_written: bool) -> None:
            with errors_of("at the source"):
                (verify_source if is_written else check_source)(self.origin, found)

        with self.named():
            return plan_cluster_migration(
                self.applier,
                found,
                partitions,
                positions,
                self.options.to,
                check,
                take=self.options.take,
                to_earliest=self.options.to_earliest,
            )

    def show(self, migration: Migration, output: Output) -> None:
        """A table has the repeated messages in the column of the match."""
        rows: list[dict[str, Any]] = migration.rows
        if not is_table(output):
            print_rows(rows, TO_CLUSTER_COLUMNS, output)
            return
        for row in rows:
            if row["repeated"]:
                row["match"] = f"{row['match']} (+{row['repeated']} repeated)"
        columns = [name for name in TO_CLUSTER_COLUMNS if name != "repeated"]
        print_rows(rows, columns, output, spare=("to_topic", *SPARE))

    def has_offsets(self, snapshot: GroupSnapshot) -> bool:
        return any(snapshot.offset_topics.values())

    def named(self) -> AbstractContextManager[None]:
        return errors_of(self.place, self.change.settings.cluster)

    def check_topics(self, topics: Collection[str]) -> None:
        if unread := sorted(self._topics.keys() - set(topics)):
            raise UsageError(
                f"--topic-map names {listed(unread)}, of which no offset is moved",
                did_you_mean(unread[0], topics, "check the names, or leave it out"),
            )

    def check_origin(self) -> None:
        self.here.require_vouched(self.origin)

    def wait_for_commits(self, group: str) -> None:
        with errors_of("at the source"):
            wait = self.here.warn_of_commits(self.origin.registry, group)
            self.here.wait_for_commits(self.origin.registry, [group], wait)


@contextmanager
def open_migrations(
    change: Change, options: MigrationOptions, groups: Sequence[str], profile: str | None, topics: Sequence[str]
) -> Iterator[Migrations]:
    """The clusters of migrations of these groups. ``profile``: of the other cluster; ``topics``: those that have
    another name there."""
    if profile is None:
        with open_applier(change.settings, groups, "zookeeper") as (applier, _):
            yield StoreMigrations(change, applier, change, applier, options)
        return
    from zkgroup.groups.changes.migration import parse_topic_map

    mapped = parse_topic_map(topics)
    settings = cluster_connection(change.ctx, profile)
    if settings.zookeeper is None and (options.to == "zookeeper" or not settings.bootstrap):
        advice = f"name it in profile {profile} (zookeeper = …), or the brokers (bootstrap-server = …) for --to kafka"
        raise UsageError(f"cluster {profile} has no ZooKeeper", advice)
    there = replace(change, ctx=_context_of(change.ctx, profile), settings=settings)
    with ExitStack() as stack:
        origin, _ = stack.enter_context(open_applier(change.settings, groups, None))
        with errors_of(f"cluster {profile}", profile):
            applier, _ = stack.enter_context(open_applier(settings, groups, options.to))
        if origin.cluster().is_same(applier.cluster()):
            raise UsageError(f"cluster {profile} is the one that the group is in", "name another with --to-cluster")
        yield ClusterMigrations(there, applier, change, origin, options, mapped, is_one=bool(groups))


def _context_of(ctx: typer.Context, profile: str) -> typer.Context:
    """A context whose commands name the profile alone."""
    given = ctx.ensure_object(GlobalOptions)
    options = GlobalOptions({"cluster": [profile]}, given.verbosity, given.quiet)
    return typer.Context(ctx.command, info_name=ctx.info_name, obj=options)


@contextmanager
def errors_of(where: str, profile: str | None = None) -> Iterator[None]:
    """Errors in here say in which cluster they are. Their commands name its ``profile``, or the places of the command
    line."""
    try:
        yield
    except ZkgroupError as error:
        if error.where is None:
            error.where = where
            error.message = f"{where}: {error.message}"
            if profile is not None and error.remedy is not None:
                commands = error.remedy.commands
                error.remedy = Remedy(error.remedy.text, *(("-c", profile, *command) for command in commands))
        raise
