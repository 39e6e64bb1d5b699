"""What an export is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from zkgroup.clients.schema_registry import RegistrySettings
from zkgroup.export.model.address import Address
from zkgroup.export.model.layout import LayoutOptions, refuse_place
from zkgroup.export.model.plan_types import Begin, OnMismatch
from zkgroup.export.model.run_record import COMPRESSION, RANGE_MESSAGES, TARGET_BYTES
from zkgroup.export.planning.bounds import BEGINNINGS, LATEST, Bound
from zkgroup.protocol.topic_filter import TopicFilter
from zkgroup.schemas.field_schema import FieldSchemas

if TYPE_CHECKING:
    from zkgroup.config import ConsumerConfig


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What to export, and how. Without ``topics`` and ``whitelist``: all topics that the group has offsets for.

    ``begin``: where partitions without a committed offset begin, or, in a ``backfill``, all. ``until``: where to stop.
    ``max_messages`` and ``max_bytes`` (of keys and values): what a run takes at most; shared by the partitions.
    ``on_mismatch``: see ``mismatch``; with ``lake`` or ``group`` what retention deletes while it is read, and what
    nothing explains, is a recorded gap. ``take_over``: the group that owned the topics so far. ``abandon``: give up a
    decided run whose destination is lost, and do nothing else. ``join``: be a member of the group with these settings,
    and export what it is given of the topics. ``master`` None: that of ``conf``, else all cores of this machine.
    ``conf``: Spark's properties; ``spark_timeout``, ``log``: see ``SparkJobs``. ``silence_timeout``: seconds without a
    message after which a task asks what is wrong. ``range_messages``: about how many one task reads. ``schemas``: of
    keys and values, where ``layout`` names a format with one; ``registry``: of those without a text.
    """

    group: str
    root: Address
    topics: tuple[str, ...] = ()
    whitelist: TopicFilter | None = None
    begin: Bound | Begin | None = None
    until: Bound = LATEST
    backfill: bool = False
    max_messages: int | None = None
    max_bytes: int | None = None
    on_mismatch: OnMismatch = "fail"
    take_over: str | None = None
    abandon: bool = False
    join: ConsumerConfig | None = None
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    spark_timeout: float = 120.0
    log: Path | None = None
    compression: str = COMPRESSION
    layout: LayoutOptions = field(default_factory=LayoutOptions)
    schemas: FieldSchemas = field(default_factory=FieldSchemas)
    registry: RegistrySettings | None = None
    target_bytes: int = TARGET_BYTES
    silence_timeout: float = 30.0
    range_messages: int = RANGE_MESSAGES

    def __post_init__(self) -> None:
        refuse_place(self.layout.format, self.root)  # before a store is asked, which may take long to answer

    @property
    def records_gaps(self) -> bool:
        """Whether messages that are missing from the log are recorded as gaps."""
        return self.on_mismatch in ("lake", "group")

    @property
    def start(self) -> Bound:
        """``begin`` as a bound."""
        return self.begin if isinstance(self.begin, Bound) else BEGINNINGS[self.begin or "committed"]
