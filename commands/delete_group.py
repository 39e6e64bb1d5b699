"""``zkgroup delete-group``: a group, some topics of it, or all groups that have been inactive for long."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from zkgroup.errors import Notice, RefusedError, Remedy, UsageError, ZkgroupError
from zkgroup.text import counted, group_command

from ._context import open_registry
from ._group_changes import (
    DELETE_COLUMNS,
    Change,
    ChangeOptions,
    change_of,
    describe_many,
    error_of_many,
    open_applier,
    remove_topics,
    with_change,
)
from ._group_views import PartitionsOption, StoreChoice, StoreOption, brokers_of
from ._output import SPARE, Output, print_rows, time_column
from ._shared_options import OptionalGroupArgument, OutputOption, option

CANDIDATE_COLUMNS = (
    "group", "state", "members", "partitions", "znodes", time_column("last_change"), "action", "note",
)  # fmt: skip
CANDIDATE_SPARE = ("znodes", *SPARE)
DELETED = "deleted in ZooKeeper"


@with_change()
def delete_group(
    ctx: typer.Context,
    group: OptionalGroupArgument = None,
    topic: PartitionsOption = None,
    pattern: Annotated[
        list[str] | None,
        option(
            "--pattern",
            metavar="GLOB",
            help="Instead of a group: all in ZooKeeper whose name matches and that have no members anywhere;"
            " repeatable. --confirm takes the pattern.",
        ),
    ] = None,
    older_than: Annotated[
        str | None,
        option(
            "--older-than",
            metavar="AGE",
            help="With --pattern: only those in which nothing has changed for that long: 30d, 12h.",
        ),
    ] = None,
    foreign: Annotated[
        bool,
        option(
            "--foreign",
            help="Also where nothing but nodes of another client, such as the state of Storm's spout, would be lost.",
        ),
    ] = False,
    undo: Annotated[
        Path | None,
        option(
            "--undo",
            metavar="FILE",
            help="Recreate what a deletion has removed, from its backup; of one group, if it is named.",
        ),
    ] = None,
    store: StoreOption = None,
    output: OutputOption = "table",
    *,
    options: ChangeOptions,
) -> None:
    """Delete a group, topics of it, or groups that have been inactive for long.

    Without --execute only what would be done is shown. The group must have no members, in any store. All its nodes
    go at one go, those of other clients too, which the plan names; a member that registers meanwhile wins, and so
    does a client that writes an offset. Kafka deletes without comparing: offsets there are read again just before, and
    a commit in the milliseconds between would be lost. With --topic only the offsets of these topics go, in ZooKeeper
    ('unsubscribe' does that while members read other topics); with the last of them the empty group goes,
    too. A backup is written before; --undo restores its nodes (with --store zookeeper where the backup has offsets in
    Kafka, too), and 'reset-offsets GROUP --undo BACKUP' the offsets, in both stores.

    With --pattern one row is shown for each group. Groups with members, in ZooKeeper or in Kafka, are kept, and those
    that changed more recently than --older-than says. The others are deleted in ZooKeeper alone. --store zookeeper does
    not ask for members in Kafka. When a member left, ZooKeeper does not tell: what was written next anywhere in the
    cluster dates it, and as long as nothing was, the group is kept. One whose nodes or access lists these credentials
    may not read cannot be backed up: it is kept and named. Where one that should go stays for such a reason, --execute
    deletes the others and ends with exit code 5.

    \b
    zkgroup delete-group billing
    zkgroup delete-group billing --topic orders --execute
    zkgroup delete-group --pattern 'console-*' --older-than 30d --execute
    zkgroup delete-group --undo BACKUP --execute
    """
    if undo is not None and (topic or pattern or store in ("kafka", "both") or older_than or options.backup):
        raise UsageError("--undo goes with a group and --store zookeeper at most", "leave the other options out")
    if undo is None and (group is None) == (not pattern):
        raise UsageError("give a group or --pattern, not both" if group else "no group is given", "see --help")
    if older_than is not None and not pattern:
        raise UsageError("--older-than is about --pattern", "leave it out, or give --pattern")
    if pattern and (topic or store in ("kafka", "both")):
        raise UsageError("--pattern deletes whole groups, in ZooKeeper alone", "leave --topic and --store out")
    if topic and store in ("kafka", "both"):
        raise UsageError("Kafka deletes groups as a whole only", "leave --topic out, or give --store zookeeper")
    change = change_of(ctx, group or ",".join(pattern or ()), options)
    if undo is not None:
        _undo(change, group, undo, store, output)
    elif pattern:
        _delete_inactive(change, pattern, older_than, store, output, foreign=foreign)
    elif topic:
        remove_topics(change, "delete-group", group or "", topic, output, store)
    else:
        _delete_one(change, group or "", store, output, foreign=foreign)


def _delete_one(change: Change, group: str, store: StoreChoice, output: Output, *, foreign: bool) -> None:
    from zkgroup.groups.changes.group_plans import find_group, plan_group_deletion
    from zkgroup.groups.group_model import STORE_NAMES

    with open_applier(change.settings, [group], store) as (applier, store):
        found = find_group(applier, group, store)
        plan = plan_group_deletion(found, foreign=foreign)
        print_rows(plan.rows, DELETE_COLUMNS, output, spare=SPARE)
        where = " and ".join(f"in {STORE_NAMES[store]}" for store in found.stores)
        nodes = f", {counted(len(found.tree.nodes), 'node')}" if found.tree is not None else ""
        change.apply(applier, plan, f"group {group} deleted {where}: {counted(len(plan.rows), 'offset')}{nodes}")


def _delete_inactive(
    change: Change,
    patterns: Sequence[str],
    older_than: str | None,
    store: StoreChoice,
    output: Output,
    *,
    foreign: bool,
) -> None:
    from zkgroup.config.time_arguments import parse_duration
    from zkgroup.groups.changes.backup import Backup, SavedNode, read_cluster
    from zkgroup.groups.changes.inactive_groups import check_access, read_inactive_groups
    from zkgroup.groups.changes.preconditions import commits_of_tree, find_committing_groups
    from zkgroup.groups.changes.znode_deletion import remove_groups

    age = 0 if older_than is None else parse_duration(older_than)
    with open_registry(change.settings) as registry:
        now = int(time.time() * 1000)
        brokers = None if store == "zookeeper" else brokers_of(change.settings, registry)
        rows, trees = read_inactive_groups(
            registry, patterns, now, age, brokers=brokers, timeout=change.settings.timeout, foreign=foreign
        )
        rows, expected, acls = check_access(registry, rows, trees)
        print_rows(rows, CANDIDATE_COLUMNS, output, spare=CANDIDATE_SPARE)
        doomed = [trees[row.group] for row in rows if row.action == "delete"]
        left = {row.group: expected[row.group] for row in rows if row.barred}
        if expected and not change.options.execute:
            message, remedy = describe_many(change, expected)
            count = counted(len(doomed) + len(left), "group")
            change.warn([Notice(f"--execute would leave {len(expected)} of {count}: {message}", remedy)])
        if left and not doomed and change.options.execute:
            raise error_of_many(change, left, len(left), DELETED)
        commits = {tree.group: found for tree in doomed if (found := commits_of_tree(tree, now)) is not None}
        waits = [change.warn_of_unregistered_commits(group, found) for group, found in commits.items()]
        if not change.is_wanted(len(doomed)):
            return
        busy = find_committing_groups(registry, commits, max(waits, default=0.0))
        left |= busy
        doomed = [tree for tree in doomed if tree.group not in busy]
        if not doomed:
            raise error_of_many(change, left, len(left), DELETED)
        nodes = tuple(SavedNode(node.path, node.data, acls[node.path]) for tree in doomed for node in tree.nodes)
        with change.backed_up(Backup("delete-group", " ".join(patterns), now, read_cluster(registry), (), nodes)):
            outcome = remove_groups(registry, doomed)
    _conclude(change, {**left, **outcome}, DELETED)


def _undo(change: Change, group: str | None, path: Path, store: StoreChoice, output: Output) -> None:
    from zkgroup.groups.changes import backup as backups
    from zkgroup.groups.changes.undo import deleted_groups, describe_omitted, plan_restore, restore

    saved = backups.read(path)
    backups.check_nodes(saved, path)
    lost = deleted_groups(saved, group, path)
    with open_registry(change.settings) as registry:
        backups.check_cluster(saved, backups.read_cluster(registry), path)
        rows = plan_restore(registry, lost)
        print_rows(rows, CANDIDATE_COLUMNS, output, spare=CANDIDATE_SPARE)
        change.warn(describe_omitted(saved))
        if store != "zookeeper" and any(offset.store == "kafka" for offset in saved.offsets):
            both = [
                group_command("delete-group", saved.group, "--undo", str(path), "--store", "zookeeper", "--execute"),
                group_command("reset-offsets", saved.group, "--undo", str(path), "--execute"),
            ]
            change.refuse(
                RefusedError(f"{path} has offsets in Kafka, too", Remedy("restore the nodes, then the offsets", *both))
            )
        making = {row.group for row in rows if row.action == "make"}
        if not change.is_wanted(making):
            return
        outcome = restore(registry, {name: nodes for name, nodes in lost.items() if name in making})
    _conclude(change, outcome, "restored")


def _conclude(change: Change, outcome: Mapping[str, ZkgroupError | None], what: str) -> None:
    failed = {group: error for group, error in outcome.items() if error is not None}
    change.done(f"{counted(len(outcome) - len(failed), 'group')} {what}")
    if failed:
        raise error_of_many(change, failed, len(outcome), what)
