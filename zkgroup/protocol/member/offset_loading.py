"""LOADING: where to start in each partition of the share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from zkgroup.protocol import events as ev
from zkgroup.protocol.member.member_context import Ground
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.offset_versions import Loaded


@dataclass(frozen=True, slots=True)
class Starts:
    """Where to start; and the partitions of which that is not known, each with the reason.

    ``malformed``: of those, the ones whose offset node holds no offset.
    """

    offsets: Mapping[TopicPartition, int]
    held: Mapping[TopicPartition, str] = field(default_factory=dict)
    malformed: Mapping[TopicPartition, Exception] = field(default_factory=dict)


class Loading:
    """Reads stored offsets, from ZooKeeper, Kafka or both (then the larger one counts, as in the reference), and asks
    the brokers where partitions without one begin or end.

    A partition that has no answer is held back by itself: one without a leader, or one whose node somebody has spoilt,
    must not keep the member from the others.
    """

    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    def begin(
        self,
        partitions: Collection[TopicPartition],
        done: Callable[[Starts], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Find out where to start; partitions must be claimed already. ``failed`` if nothing at all can be learnt."""
        g = self._ground
        wanted = sorted(partitions)
        if not wanted:
            done(Starts({}))
        elif g.settings.uses_zookeeper:
            g.talk.run(lambda: g.book.load(wanted), lambda loaded: self._loaded(loaded, done, failed), failed)
        else:
            self._loaded(Loaded(dict.fromkeys(wanted)), done, failed)

    def _loaded(self, loaded: Loaded, done: Callable[[Starts], None], failed: Callable[[Exception], None]) -> None:
        g = self._ground
        if not g.settings.uses_kafka or not loaded.offsets:
            self._look_up(loaded, done, failed)
            return

        def fetched(answer: ev.Answered) -> None:
            if answer.error is not None:
                failed(answer.error)
                return
            both = {p: _larger(offset, answer.offsets.get(p)) for p, offset in loaded.offsets.items()}
            self._look_up(Loaded(both, loaded.malformed), done, failed)

        g.request(lambda request: ev.FetchKafka(request, tuple(loaded.offsets)), fetched)

    def _look_up(self, loaded: Loaded, done: Callable[[Starts], None], failed: Callable[[Exception], None]) -> None:
        known = {p: offset for p, offset in loaded.offsets.items() if offset is not None}
        missing = tuple(p for p, offset in loaded.offsets.items() if offset is None)
        spoilt = {p: str(error) for p, error in loaded.malformed.items()}
        if not missing:
            done(Starts(known, spoilt, loaded.malformed))
            return

        def looked_up(answer: ev.Answered) -> None:
            if answer.error is not None and not known:
                failed(answer.error)
                return
            why = "no leader that answers" if answer.error is None else str(answer.error)
            found = {p: offset for p in missing if (offset := answer.offsets.get(p)) is not None}
            silent = {p: why for p in missing if p not in found}
            done(Starts(known | found, spoilt | silent, loaded.malformed))

        g = self._ground
        g.request(lambda request: ev.LookUp(request, missing, g.settings.reset), looked_up)


def _larger(one: int | None, other: int | None) -> int | None:
    return max((offset for offset in (one, other) if offset is not None), default=None)
