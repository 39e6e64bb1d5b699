"""A decided run's files get their final names, and become parts of the tables. What runs have left that are over is
published, if they are in the log, or removed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from zkgroup.errors import Notice, RefusedError, Remedy
from zkgroup.export.destination.recorded_columns import recorded_schemas
from zkgroup.export.destination.run_log import Destination, number_of
from zkgroup.export.destination.table_format import open_format
from zkgroup.export.model.layout import Layout
from zkgroup.export.model.run_record import RunRecord
from zkgroup.export.run.run_context import RunContext
from zkgroup.export.stores.store import map_parallel
from zkgroup.schemas.field_schema import FieldSchemas
from zkgroup.text import are, counted, listed

_RESTORE: Final = "restore the destination, then run the same command again"


def missing_files(destination: Destination, record: RunRecord) -> list[str]:
    """The files of a run that are neither published nor in its folder, as they were written; by their final names."""
    work, store = destination.work(record.group, record.run), destination.store
    pairs = [(name, file.bytes) for file in record.files for name in (file.name, f"{work}/{file.work}")]
    there = list(map_parallel(lambda pair: store.size(pair[0]) == pair[1], pairs))
    return [file.name for number, file in enumerate(record.files) if not any(there[2 * number : 2 * number + 2])]


def changed_tables(destination: Destination, record: RunRecord) -> list[str]:
    """The topics of a run from whose tables others have removed it, or to which it cannot be committed any more."""
    if not record.layout.has_tables:
        return []
    tables = open_format(destination, record.layout)
    bases = dict.fromkeys(record.topics, number_of(record.run))
    bases |= {topic: record.bases.get(topic, 0) for topic in tables.uncommitted(record)}
    return tables.changed(record.group, bases)


def is_in_no_table(destination: Destination, record: RunRecord) -> bool:
    """Whether a run is to be in tables, and is in none of them."""
    return (
        record.layout.has_tables
        and set(open_format(destination, record.layout).uncommitted(record)) == record.topics.keys()
    )


def publish_existing(destination: Destination, record: RunRecord, context: RunContext) -> None:
    """Publish the files of a run in the log that exist. Warns of missing ones, which a backfill writes again, and of
    tables that others have changed: the next export asks how to continue with these."""
    if changed := changed_tables(destination, record):
        context.on_warning(
            Notice(
                f"run {record.run} of group {record.group} is not in the table{'s' * (len(changed) > 1)} of "
                f"{listed(changed, most=3)}: rolled back, dropped or replaced meanwhile"
            )
        )
        topics = {topic: identity for topic, identity in record.topics.items() if topic not in changed}
        record = replace(record, topics=topics, files=tuple(file for file in record.files if file.topic in topics))
    if missing := set(missing_files(destination, record)):
        context.on_warning(
            Notice(
                f"{counted(len(missing), 'file')} of run {record.run} of group {record.group} {are(len(missing))} lost "
                f"({listed(sorted(missing), most=3)})",
                Remedy("see what is missing, with the commands that write it again", destination.verify_command),
            )
        )
    publish(
        destination, replace(record, files=tuple(file for file in record.files if file.name not in missing)), context
    )


def publish(destination: Destination, record: RunRecord, context: RunContext) -> None:
    """Give a run's files their final names, over nothing, and commit them to the tables; may be repeated, also without
    the run's folder."""
    tables = open_format(destination, record.layout)
    topics = {topic: record.topics[topic] for topic in tables.uncommitted(record)}
    record = replace(record, files=tuple(file for file in record.files if file.topic in topics), topics=topics)
    _name_files(destination, record, context)
    layout = record.layout
    tables.commit(record, lambda: schema_of(layout, recorded_schemas(destination, layout)), context.on_point)


def schema_of(layout: Layout, schemas: FieldSchemas) -> Any:
    """pyarrow's schema of a destination's files."""
    from zkgroup.export.tasks.parquet_files import columns_of  # imports pyarrow

    return columns_of(layout, schemas).schema


def _name_files(destination: Destination, record: RunRecord, context: RunContext) -> None:
    work, store = destination.work(record.group, record.run), destination.store
    if not record.files or not store.names(work):
        if record.layout.has_tables and (missing := missing_files(destination, record)):
            raise RefusedError(f"{destination}/{missing[0]} is gone, and its table does not have it yet", _RESTORE)
        return
    works = [(f"{work}/{file.work}", file.name, file.bytes) for file in record.files]
    for number, _ in enumerate(store.publish(works), 1):
        context.on_point(f"published {number} of {len(works)}")
    store.sync(file.name for file in record.files)
    context.on_point("published for good")


def remove_leftovers(destination: Destination, group: str, context: RunContext) -> None:
    """Remove what a group's runs have left. Under the group's lock, while no run is decided: others may be under way
    otherwise.

    A run in the log is published first: ZooKeeper's data may be of before its end. One that was written to the end and
    never decided, as far as ZooKeeper knows, is kept and named: its decision may be what ZooKeeper has lost, and the
    log may not have the messages any more.
    """
    for run in destination.leftover_runs(group):
        work = destination.work(group, run)
        entry = next((one for one in destination.entries(group) if one.run == run), None)
        if entry is not None:
            publish_existing(destination, destination.record(group, entry), context)
        elif destination.written_record(group, run) is not None:
            context.on_warning(
                Notice(
                    f"{destination}/{work} has files of a run that ZooKeeper does not know to be decided",
                    Remedy("remove it if nobody misses its messages"),
                )
            )
            continue
        destination.store.remove(work)
