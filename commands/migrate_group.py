"""``zkgroup migrate-group``: a group's offsets to Kafka, back to ZooKeeper, or to another cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from zkgroup.errors import NotFoundError, Notice, Remedy, UsageError, VerificationError, ZkgroupError, did_you_mean
from zkgroup.groups.group_choices import OffsetStore, Prefer
from zkgroup.text import counted, listed

from ._completion import complete_cluster
from ._context import cluster_connection, working
from ._error_output import of_profile
from ._group_changes import (
    KAFKA_WINDOW,
    Change,
    ChangeOptions,
    change_of,
    describe_many,
    error_of_many,
    open_applier,
    reason_of,
    with_change,
)
from ._group_views import PartitionsOption, disable_garbage_collection
from ._output import SPARE, Output, is_table, print_rows
from ._shared_options import GlobalOptions, OptionalGroupArgument, OutputOption, option

if TYPE_CHECKING:
    from zkgroup.groups.changes.applier import Applier
    from zkgroup.groups.changes.migration import Migration
    from zkgroup.groups.changes.plan import Plan
    from zkgroup.groups.group_model import GroupSnapshot
    from zkgroup.groups.partition_scope import Scope

OTHER = "To another cluster"
MANY = "Many groups"


@with_change()
def migrate_group(
    ctx: typer.Context,
    group: OptionalGroupArgument = None,
    to: Annotated[
        OffsetStore | None,
        option("--to", help="The store to which the offsets go. Default with --to-cluster: kafka."),
    ] = None,
    to_cluster: Annotated[
        str | None,
        option(
            "--to-cluster",
            metavar="PROFILE",
            help="Another cluster, to which the topics are mirrored: the offsets of the same messages there. Only the"
            " profile says how to connect to it.",
            complete=complete_cluster,
            panel=OTHER,
        ),
    ] = None,
    topic_map: Annotated[
        list[str] | None,
        option(
            "--topic-map",
            metavar="TOPIC=TOPIC",
            help="A topic, and its name in the other cluster; repeatable.",
            panel=OTHER,
        ),
    ] = None,
    not_found: Annotated[
        Literal["earliest"] | None,
        option(
            "--not-found",
            help="A partition whose message is not found goes to the start of its log: what is missing there stays"
            " missing. Without this such a group is refused.",
            panel=OTHER,
        ),
    ] = None,
    pattern: Annotated[
        list[str] | None,
        option(
            "--pattern",
            metavar="GLOB",
            help="Instead of a group: all with offsets whose name matches; repeatable. --confirm takes the pattern.",
            panel=MANY,
        ),
    ] = None,
    all_groups: Annotated[bool, option("--all", help="All groups with offsets.", panel=MANY)] = False,
    topic: PartitionsOption = None,
    prefer: Annotated[
        Prefer | None,
        option(
            "--prefer",
            help="Where the other store is ahead: its offset goes back to the source's, or the larger one counts. "
            "Without this such a group is refused. An offset outside its log takes the place of a good one with source "
            "only.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        option(
            "--verify",
            help="Only compare; exit with 6 where the offsets differ. In another cluster they may be beyond the plan: a"
            " warning says by how much the group has moved on.",
        ),
    ] = False,
    output: OutputOption = "table",
    *,
    options: ChangeOptions,
) -> None:
    """Move a group's offsets to Kafka, back to ZooKeeper, or to another cluster.

    Without --execute only what would be done is shown. Both stores are compared first: source is the offset where it
    comes from, current the one where it goes to. The group must have no members, in either. An offset outside its log
    goes to the nearer end, with a note. Nothing is removed from the source; a backup of what the other store had is
    written before, for 'reset-offsets --undo', and everything is read again afterwards. In Kafka a window of some
    milliseconds remains in which another's commit would be lost; what was not there before cannot be taken away again
    from Kafka but with the whole group.

    With --to-cluster the unconsumed messages are found in the mirrored topics of another cluster. match says how:
    exact, earlier (so many messages are repeated, none is skipped), or not found, which refuses the group.

    With --pattern or --all a row is shown for each group, the worst first: refused, ready, or done. --execute moves
    those that are ready, each with a backup of its own, and exits with 5 if others are left. Run it again to continue.

    Consumers that must not stop move by themselves: give each member offsets.storage=kafka and
    dual.commit.enabled=true, one after the other, until --verify finds both stores the same. Then give each
    dual.commit.enabled=false.

    \b
    zkgroup migrate-group billing --to kafka
    zkgroup migrate-group billing --to kafka --execute
    zkgroup migrate-group billing --to kafka --verify
    zkgroup migrate-group billing --to-cluster new --execute
    zkgroup migrate-group --all --to-cluster new
    """
    if sum((group is not None, bool(pattern), all_groups)) != 1:
        raise UsageError("no group is given, or more than one choice", "give a group, or --pattern, or --all")
    if topic and group is None:
        raise UsageError("--topic is about one group", "leave it out, or name the group")
    if (topic_map or not_found) and to_cluster is None:
        raise UsageError("--topic-map and --not-found are about --to-cluster", "leave them out, or name a cluster")
    if to is None and to_cluster is None:
        raise UsageError("no place is given", "give --to kafka, --to zookeeper or --to-cluster PROFILE")
    if verify and (options.execute or prefer is not None or options.backup is not None):
        raise UsageError("--verify only compares", "leave out --execute, --prefer and --backup")
    patterns = ["*"] if all_groups else pattern or []
    if patterns and options.backup is not None:
        raise UsageError("each group has a backup of its own", "leave out --backup")
    change = change_of(ctx, group or ",".join(patterns), options)
    disable_garbage_collection()
    from zkgroup.groups.partition_scope import parse_scope

    scope = parse_scope(topic) if topic else None
    wanted = MigrationOptions(to or "kafka", scope, prefer, not_found is not None, to_cluster, topic_map or [])
    with open_migrations(change, wanted, [group] if group else []) as migrations:
        if group is None:
            migrate_many(migrations, patterns, output, verify=verify)
        else:
            _migrate_one(migrations, group, output, verify=verify)


def _migrate_one(migrations: Migrations, group: str, output: Output, *, verify: bool) -> None:
    with working(migrations.change.ctx, f"reading group {group}"):
        migration = migrations.plan(group)
    migrations.show(migration, output)
    change, applier, plan = migrations.change, migrations.applier, migration.plan
    change.warn(migration.warnings)
    if verify:
        migration.check_same()
        change.warn(migration.moved_on)
        return
    with migrations.named():
        if not plan.is_empty or plan.refusals:
            with migrations.here.refusing():
                migrations.check_origin()
            change.examine(applier, plan)
        else:
            with migrations.here.refusing():
                migrations.check_idle(plan)
        if change.options.execute and not plan.is_empty:
            migrations.wait_for_commits(group)
        moved = counted(plan.changes, "offset")
        if change.carry_out(applier, plan, f"{moved} of group {group} moved to {migrations.place} and verified"):
            migrations.warn_of_retention()


COLUMNS = ("topic", "partition", "source", "current", "target", "change", "log_start", "log_end", "note")
TO_CLUSTER_COLUMNS = (
    "topic", "partition", "source", "to_topic", "match", "repeated", "current", "target", "change", "log_start",
    "log_end", "note",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MigrationOptions:
    """The options of a migration. ``profile``: of the other cluster; ``topics``: those that have another name there."""

    to: OffsetStore
    scope: Scope | None = None
    prefer: Prefer | None = None
    to_earliest: bool = False
    profile: str | None = None
    topics: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Migrations:
    """Plans and shows migrations. ``change`` and ``applier``: of the cluster that is changed; ``here`` and ``origin``:
    of the one that offsets come from, which the command line names. ``topics``: those that have another name in the
    other cluster; None within a cluster. Where ``is_one`` group moves, it reads all of them."""

    change: Change
    applier: Applier
    here: Change
    origin: Applier
    options: MigrationOptions
    topics: Mapping[str, str] | None = None
    is_one: bool = False

    @property
    def place(self) -> str:
        from zkgroup.groups.group_model import STORE_NAMES

        return STORE_NAMES[self.options.to] if self.topics is None else f"cluster {self.options.profile}"

    def plan(self, group: str) -> Migration:
        """The migration of a group. Raises ``ZkgroupError``."""
        if self.topics is not None:
            return self._plan_to_cluster(group, self.topics)
        from zkgroup.groups.changes.migration import plan_migration

        return plan_migration(self.applier, group, self.options.to, self.options.scope, self.options.prefer)

    def _plan_to_cluster(self, group: str, topics: Mapping[str, str]) -> Migration:
        from zkgroup.groups.changes.migration import (
            check_source,
            plan_cluster_migration,
            read_source_offsets,
            translate,
        )

        options = self.options
        found = read_source_offsets(self.origin, group, options.scope)
        if self.is_one:
            self._check_topics({key.topic for key in found.offsets})
        partitions, positions = translate(self.origin, self.applier, found.offsets, topics)

        def check(is_written: bool) -> None:
            with errors_of("at the source"):
                check_source(self.origin, found, is_written=is_written)

        with self.named():
            return plan_cluster_migration(
                self.applier,
                found,
                partitions,
                positions,
                options.to,
                check,
                prefer=options.prefer,
                to_earliest=options.to_earliest,
            )

    def show(self, migration: Migration, output: Output) -> None:
        """Print its rows. A table has the repeated messages in the column of the match."""
        rows: list[dict[str, Any]] = migration.rows
        columns: Sequence[str] = COLUMNS if self.topics is None else TO_CLUSTER_COLUMNS
        if is_table(output):
            columns = [name for name in columns if name != "repeated"]
            for row in rows:
                if row.get("repeated"):
                    row["match"] = f"{row['match']} (+{row['repeated']} repeated)"
        print_rows(rows, columns, output, spare=("to_topic", *SPARE))

    def named(self) -> AbstractContextManager[None]:
        """Errors of the changed cluster are raised in here."""
        return nullcontext() if self.topics is None else errors_of(self.place, self.options.profile)

    def check_origin(self) -> None:
        """Raise ``RefusedError`` where members of another origin are not visible."""
        if self.topics is not None:
            self.here.require_vouched(self.origin)

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

    def _check_topics(self, topics: Collection[str]) -> None:
        """Raise ``UsageError`` where ``--topic-map`` names others than these, whose offsets are moved."""
        if unread := sorted((self.topics or {}).keys() - set(topics)):
            raise UsageError(
                f"--topic-map names {listed(unread)}, of which no offset is moved",
                did_you_mean(unread[0], topics, "check the names, or leave it out"),
            )

    def wait_for_commits(self, group: str) -> None:
        """Raise ``RefusedError`` where a consumer commits at another origin that is registered nowhere."""
        if self.topics is not None:
            with errors_of("at the source"):
                wait = self.here.warn_of_commits(self.origin.registry, group)
                self.here.wait_for_commits(self.origin.registry, [group], wait)

    def warn_of_retention(self) -> None:
        """Print how long Kafka keeps what was written."""
        from zkgroup.groups.changes.migration import describe_retention

        if self.options.to == "kafka":
            self.change.warn([describe_retention(self.applier.brokers(), self.applier.timeout)])

    def names(self, patterns: Sequence[str], warn: Callable[[list[Notice]], object]) -> list[str]:
        """The groups with offsets that any pattern matches. Raises ``NotFoundError`` where there is none."""
        from zkgroup.groups.changes.inactive_groups import matching
        from zkgroup.groups.snapshot.group_reader import read_groups
        from zkgroup.groups.snapshot.snapshot_defects import shared_warnings

        warned: list[Notice] = []
        origin = self.origin
        found = read_groups(origin.registry, kafka=origin.brokers, logs={}, timeout=origin.timeout, warned=warned)
        warn(shared_warnings(found, warned))
        there = {one.group: one for one in found}
        names = matching(there, patterns)
        kept = [name for name in names if self._has_offsets(there[name])]
        if not kept:
            raise NotFoundError(
                f"no group with offsets matches {' or '.join(patterns)}",
                did_you_mean(patterns[0], there, Remedy("see which groups there are", ("list-groups",))),
            )
        if others := [name for name in names if name not in kept]:
            warn([Notice(f"{counted(len(others), 'group')} without offsets left out: {listed(others)}")])
        self._check_topics(
            {topic for name in kept for topics in there[name].offset_topics.values() for topic in topics}
        )
        return kept

    def _has_offsets(self, snapshot: GroupSnapshot) -> bool:
        stores = snapshot.offset_topics.items()
        return any(topics for store, topics in stores if self.topics is not None or store != self.options.to)


@contextmanager
def open_migrations(change: Change, options: MigrationOptions, groups: Sequence[str]) -> Iterator[Migrations]:
    profile = options.profile
    if profile is None:
        with open_applier(change.settings, groups, "zookeeper") as (applier, _):
            yield Migrations(change, applier, change, applier, options)
        return
    from zkgroup.groups.changes.migration import parse_topic_map

    topics = parse_topic_map(options.topics)
    settings = cluster_connection(change.ctx, profile)
    if settings.zookeeper is None and (options.to == "zookeeper" or not settings.bootstrap):
        advice = f"name it in profile {profile} (zookeeper = …), or the brokers (bootstrap-server = …) for --to kafka"
        raise UsageError(f"cluster {profile} has no ZooKeeper", advice)
    given = change.ctx.ensure_object(GlobalOptions)
    named = GlobalOptions({"cluster": [profile]}, given.verbosity, given.quiet)  # commands that are printed name it
    ctx = typer.Context(change.ctx.command, info_name=change.ctx.info_name, obj=named)
    there = replace(change, ctx=ctx, settings=settings)
    with open_applier(change.settings, groups, None) as (origin, _), ExitStack() as stack:
        with errors_of(f"cluster {profile}", profile):
            applier, _ = stack.enter_context(open_applier(settings, groups, options.to))
        if origin.cluster().is_same(applier.cluster()):
            raise UsageError(f"cluster {profile} is the one that the group is in", "name another with --to-cluster")
        yield Migrations(there, applier, change, origin, options, topics, is_one=bool(groups))


@contextmanager
def errors_of(where: str, profile: str | None = None) -> Iterator[None]:
    """Errors in here say in which cluster they are. Their commands name its ``profile``, or the places of the command
    line."""
    try:
        yield
    except ZkgroupError as error:
        if error.where is None:
            error.where = where
            error.add_context(where)
            if profile is not None:
                error.remedy = of_profile(error.remedy, profile)
        raise


GROUP_COLUMNS = ("group", "state", "partitions", "changes", "repeated", "not_found", "note")
State = Literal["refused", "differs", "ready", "done"]
_ORDER: Final[Sequence[State]] = ("refused", "differs", "ready", "done")


@dataclass(frozen=True, slots=True)
class PlannedMigration:
    """A group, and why it is not moved. ``is_verified``: its offsets are in place, or beyond."""

    group: str
    migration: Migration | None = None
    error: ZkgroupError | None = None
    is_verified: bool = False

    @property
    def state(self) -> State:
        """``done``: there is nothing to move."""
        if self.error is not None:
            return "differs" if isinstance(self.error, VerificationError) else "refused"
        is_done = self.is_verified or self.migration is None or self.migration.plan.is_empty
        return "done" if is_done else "ready"

    @property
    def warnings(self) -> Iterator[Notice]:
        """The warnings of its plan, and the notes of its rows, as lines."""
        if self.migration is None:
            return
        yield from self.migration.warnings
        yield from self.migration.notes
        if self.is_verified:
            yield from self.migration.moved_on
        if self.state in ("refused", "ready"):
            yield from self.migration.plan.warnings

    @property
    def row(self) -> dict[str, object]:
        """How many partitions change, how many messages repeat at most, and how many partitions were not found."""
        migration = self.migration
        return {
            "group": self.group,
            "state": self.state,
            "partitions": None if migration is None else len(migration.rows),
            "changes": None if migration is None else migration.plan.changes,
            "repeated": None if migration is None else migration.repeated,
            "not_found": None if migration is None else migration.missing,
            "note": None if self.error is None else reason_of(self.error),
        }


def migrate_many(migrations: Migrations, patterns: Sequence[str], output: Output, *, verify: bool) -> None:
    """Plan all groups that a pattern matches, and move those that can be moved; or compare all."""
    change = migrations.change
    with working(change.ctx, "planning all groups"):
        warned: list[Notice] = []
        names = migrations.names(patterns, warned.extend)
        planned = sorted(
            (_plan(migrations, name, verify=verify) for name in names),
            key=lambda one: (_ORDER.index(one.state), one.group),
        )
    rows = [one.row for one in planned]
    empty = [name for name in ("repeated", "not_found") if all(row[name] is None for row in rows)]
    print_rows(rows, GROUP_COLUMNS, output, spare=(*empty, *SPARE))
    change.warn(warned)
    warnings: dict[Notice, dict[str, None]] = {}
    for one in planned:
        for line in one.warnings:
            warnings.setdefault(line, {})[one.group] = None
    change.warn([_named(list(groups), line) for line, groups in warnings.items()])
    left = {one.group: one.error for one in planned if one.error is not None}
    if verify:
        if left:
            raise error_of_many(migrations.here, left, len(planned), "the same at both ends", VerificationError)
        moved_on = any(one.migration is not None and one.migration.moved_on for one in planned)
        outcome = "none is behind the plan" if moved_on else "the same at both ends"
        change.done(f"{counted(len(planned), 'group')} compared: {outcome}")
        return
    ready = [one for one in planned if one.state == "ready"]
    if left and not change.options.execute:
        message, remedy = describe_many(migrations.here, left)
        migrations.here.warn(
            [Notice(f"--execute would refuse {len(left)} of {counted(len(planned), 'group')}: {message}", remedy)]
        )
    if any(one.migration is not None and one.migration.plan.changes_kafka for one in ready):
        change.warn([KAFKA_WINDOW])
    moved = 0
    if ready and change.is_wanted(len(ready)):
        for one in ready:
            assert one.migration is not None, "it is ready"
            try:
                with migrations.named():
                    migrations.wait_for_commits(one.group)
                    registry = migrations.applier.registry
                    change.wait_for_commits(registry, [one.group], change.warn_of_commits(registry, one.group))
                    change.write(migrations.applier, one.migration.plan)
                moved += 1
            except ZkgroupError as error:
                left[one.group] = error
        if moved:
            change.done(f"{counted(moved, 'group')} moved to {migrations.place} and verified")
            migrations.warn_of_retention()
    if left and change.options.execute:
        raise error_of_many(migrations.here, left, len(planned), "moved")
    if not ready and not left:
        change.is_wanted(0)


def _plan(migrations: Migrations, group: str, *, verify: bool) -> PlannedMigration:
    """The migration of a group; with the first reason why it may not be done now, or, to ``verify``, with the
    difference."""
    migration = None
    try:
        migration = migrations.plan(group)
        if verify:
            migration.check_same()
        elif not migration.plan.is_empty or migration.plan.refusals:
            with migrations.named():
                migrations.check(migration.plan)
        else:
            migrations.check_idle(migration.plan)
    except ZkgroupError as error:
        return PlannedMigration(group, migration, error)
    return PlannedMigration(group, migration, is_verified=verify)


def _named(groups: Sequence[str], warning: Notice) -> Notice:
    prefix = f"{'group' if len(groups) == 1 else 'groups'} {listed(groups)}"
    return replace(warning, message=f"{prefix}: {warning.message}")
