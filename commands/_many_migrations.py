"""``migrate-group`` for many groups: one plan for all, the worst first; each group is moved by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from zkgroup.errors import Notice, VerificationError, ZkgroupError
from zkgroup.text import counted, listed

from ._execution import KAFKA_WINDOW
from ._group_changes import describe_many, error_of_many
from ._migrations import Migrations
from ._output import SPARE, Output, print_rows
from ._spinner import working

if TYPE_CHECKING:
    from zkgroup.groups.changes.migration import Migration

COLUMNS = ("group", "state", "partitions", "changes", "repeated", "not_found", "note")
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
    def warnings(self) -> Iterator[str | Notice]:
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
            "note": None if self.error is None else self.error.message.removeprefix(f"group {self.group} "),
        }


def migrate_many(migrations: Migrations, patterns: Sequence[str], output: Output, *, verify: bool) -> None:
    """Plan all groups that a pattern matches, and move those that can be moved; or compare all."""
    change = migrations.change
    with working(change.ctx, "planning all groups"):
        warned: list[str] = []
        names = migrations.names(patterns, warned.extend)
        planned = sorted(
            (_plan(migrations, name, verify=verify) for name in names),
            key=lambda one: (_ORDER.index(one.state), one.group),
        )
    rows = [one.row for one in planned]
    empty = [name for name in ("repeated", "not_found") if all(row[name] is None for row in rows)]
    print_rows(rows, COLUMNS, output, spare=(*empty, *SPARE))
    change.warn(warned)
    warnings: dict[str | Notice, dict[str, None]] = {}
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
        change.warn([KAFKA_WINDOW.format(done="written", lost="overwritten")])
    moved = 0
    if ready and change.is_wanted(len(ready)):
        for one in ready:
            try:
                _move(migrations, one)
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


def _named(groups: Sequence[str], warning: str | Notice) -> str | Notice:
    """A warning with the names of its groups."""
    prefix = f"{'group' if len(groups) == 1 else 'groups'} {listed(groups)}"
    if isinstance(warning, Notice):
        return replace(warning, message=f"{prefix}: {warning.message}")
    return f"{prefix}: {warning}"


def _move(migrations: Migrations, planned: PlannedMigration) -> None:
    assert planned.migration is not None, "it is ready"
    with migrations.named():
        change, registry = migrations.change, migrations.applier.registry
        migrations.wait_for_commits(planned.group)
        change.wait_for_commits(registry, [planned.group], change.warn_of_commits(registry, planned.group))
        change.write(migrations.applier, planned.migration.plan)
