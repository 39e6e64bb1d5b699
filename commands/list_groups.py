"""``zkgroup list-groups``: all groups of a cluster, in ZooKeeper and in Kafka."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from ._context import warn
from ._group_overview import table_row
from ._group_views import read_all_groups
from ._output import SPARE, has_objects, is_table, print_rows
from ._shared_options import OutputOption, option

COLUMNS = ("group", "store", "state", "members", "topics", "partitions", "lag")
# JSON is read by names: the sum over the partitions where the lag is known, and how many the others are.
ONLY_JSON = ("lag_at_least", "lag_unknown")


def list_groups(
    ctx: typer.Context,
    store: Annotated[
        Literal["zookeeper", "kafka", "both"] | None,
        option("--store", help="Only groups in this store; both: in both."),
    ] = None,
    state: Annotated[
        Literal["active", "inactive", "broken"] | None, option("--state", help="Only groups in this state.")
    ] = None,
    output: OutputOption = "table",
) -> None:
    """List the groups of a cluster.

    store: where the group is: zookeeper, kafka, or both. state: active (with members), inactive, or broken (a
    registration or another node cannot be read). topics and partitions: those that the group subscribes to, owns, or
    has an offset for. lag: the sum over the partitions; ≥20 means that the lag of some partitions is unknown.

    JSON and CSV leave an unknown lag empty. JSON also has lag_at_least (the sum of the known lags) and lag_unknown (the
    number of partitions with unknown lag). The lag of a partition is unknown if it has messages and no offset, or
    if its offset is beyond the log's end. Brokers before 0.10 do not list groups that are in Kafka alone; zkgroup warns
    of that.

    \b
    zkgroup list-groups
    zkgroup list-groups --state broken --output json
    """
    from zkgroup.groups.snapshot.tables import (  # brings kazoo, which --help must not
        group_row,
        incomplete_notes,
        shared_warnings,
    )

    warned: list[str] = []
    snapshots = read_all_groups(ctx, warned=warned)
    rows = [group_row(snapshot) for snapshot in snapshots]
    kept = [row for row in rows if state in (None, row.state) and (store in (None, row.store) or row.store == "both")]
    warned += incomplete_notes(snapshots)
    if is_table(output):
        print_rows([table_row(row) for row in kept], COLUMNS, output, spare=SPARE)
    else:
        print_rows(kept, [*COLUMNS, *ONLY_JSON] if has_objects(output) else COLUMNS, output)
    warn(ctx, dict.fromkeys([*warned, *shared_warnings(snapshots)]))
