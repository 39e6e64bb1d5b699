"""LOADING: where to start in each partition of the share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from zkgroup.protocol import events as ev
from zkgroup.protocol.member.member_context import MemberContext
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.offset_versions import LoadedOffsets


@dataclass(frozen=True, slots=True)
class StartOffsets:
    """Start offsets. ``held_back``: partitions without one, each with the reason; ``malformed``: those of them whose
    offset node has no offset."""

    offsets: Mapping[TopicPartition, int]
    held_back: Mapping[TopicPartition, str] = field(default_factory=dict)
    malformed: Mapping[TopicPartition, Exception] = field(default_factory=dict)


class OffsetLoading:
    """Reads committed offsets, from ZooKeeper, Kafka or both (the larger one counts, as with the Scala consumer), and
    the log start or log end of partitions without one.

    A partition without a leader, or with a malformed offset node, is held back; the member reads the others.
    """

    def __init__(self, context: MemberContext) -> None:
        self._context = context

    def begin(
        self,
        partitions: Collection[TopicPartition],
        done: Callable[[StartOffsets], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Find the start offsets of claimed partitions. ``failed`` is called where none can be found."""
        ctx = self._context
        wanted = sorted(partitions)
        if not wanted:
            done(StartOffsets({}))
        elif ctx.settings.uses_zookeeper:
            ctx.zookeeper.run(
                lambda: ctx.offset_versions.load(wanted), lambda loaded: self._loaded(loaded, done, failed), failed
            )
        else:
            self._loaded(LoadedOffsets(dict.fromkeys(wanted)), done, failed)

    def _loaded(
        self, loaded: LoadedOffsets, done: Callable[[StartOffsets], None], failed: Callable[[Exception], None]
    ) -> None:
        ctx = self._context
        if not ctx.settings.uses_kafka or not loaded.offsets:
            self._list_offsets(loaded, done, failed)
            return

        def fetched(answer: ev.Answered) -> None:
            if answer.error is not None:
                failed(answer.error)
                return
            both = {p: _larger(offset, answer.offsets.get(p)) for p, offset in loaded.offsets.items()}
            self._list_offsets(LoadedOffsets(both, loaded.malformed), done, failed)

        ctx.request(lambda request: ev.FetchKafkaOffsets(request, tuple(loaded.offsets)), fetched)

    def _list_offsets(
        self, loaded: LoadedOffsets, done: Callable[[StartOffsets], None], failed: Callable[[Exception], None]
    ) -> None:
        stored = {p: offset for p, offset in loaded.offsets.items() if offset is not None}
        missing = tuple(p for p, offset in loaded.offsets.items() if offset is None)
        malformed = {p: str(error) for p, error in loaded.malformed.items()}
        if not missing:
            done(StartOffsets(stored, malformed, loaded.malformed))
            return

        def listed(answer: ev.Answered) -> None:
            if answer.error is not None and not stored:
                failed(answer.error)
                return
            why = "no leader that answers" if answer.error is None else str(answer.error)
            found = {p: offset for p in missing if (offset := answer.offsets.get(p)) is not None}
            unanswered = {p: why for p in missing if p not in found}
            done(StartOffsets(stored | found, malformed | unanswered, loaded.malformed))

        ctx = self._context
        ctx.request(lambda request: ev.ListOffsets(request, missing, ctx.settings.reset), listed)


def _larger(one: int | None, other: int | None) -> int | None:
    return max((offset for offset in (one, other) if offset is not None), default=None)
