"""A decided run's files get their final names."""

from __future__ import annotations

from zkgroup.errors import RefusedError
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.model.run_record import RunRecord
from zkgroup.export.run.run_context import RunContext
from zkgroup.export.stores.store import MissingWorkError


def publish(destination: Destination, record: RunRecord, context: RunContext) -> None:
    """Give a run's files their final names, over nothing; may be repeated. A run without a folder was published
    before."""
    work, store = destination.work(record.group, record.run), destination.store
    if not record.files or not store.names(work):
        return
    works = [(f"{work}/{file.work}", file.name, file.bytes) for file in record.files]
    try:
        for number, _ in enumerate(store.publish(works), 1):
            context.passed(f"published {number} of {len(works)}")
    except MissingWorkError as error:
        if store.names(work):
            raise
        raise RefusedError(
            f"run {record.run} of group {record.group} was finished by another process while this one stood still",
            f"--history tells of it ({error.message})",
        ) from None
    store.sync(file.name for file in record.files)
    context.passed("published for good")
