"""What is to be exported, as the plan of a run."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from zkgroup import __version__
from zkgroup.export.lake.lake import LastRun
from zkgroup.export.model.layout import Layout
from zkgroup.export.model.rundata import RunPlan, TopicIdentity, now_ms
from zkgroup.export.model.words import ExportPlan
from zkgroup.export.planning.request import ExportRequest
from zkgroup.protocol.names import TopicPartition


def run_plan_of(
    run: str,
    request: ExportRequest,
    plan: ExportPlan,
    known: Mapping[str, TopicIdentity],
    last: LastRun,
    cluster: str,
    isolation: str,
    layout: Layout,
) -> RunPlan:
    """The plan of a ``run`` on this host, from now on. Partitions of which there is nothing to say are left out, unless
    no run before has told of them; ``known``: the topics' logs."""
    parts = tuple(
        part
        for part in plan.partitions
        if part.start < part.end or part.moves or part.skipped or not _is_covered(last, part.partition)
    )
    return RunPlan(
        run=run,
        group=request.group,
        kind="backfill" if request.backfill else "export",
        cluster=cluster,
        planned=now_ms(),
        isolation=isolation,
        compression=request.compression,
        target_bytes=request.target_bytes,
        range_messages=request.range_messages,
        max_bytes=request.max_bytes,
        skip_deleted=request.skip_deleted,
        record_unexplained=request.record_unexplained,
        topics={topic: identity for topic, identity in known.items() if any(p.partition.topic == topic for p in parts)},
        partitions=parts,
        previous=last.run,
        host=socket.gethostname(),
        release=__version__,
        layout=layout,
    )


def _is_covered(last: LastRun, partition: TopicPartition) -> bool:
    topic = last.coverage.get(partition.topic)
    return topic is not None and partition.partition in topic.partitions
