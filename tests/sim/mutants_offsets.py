"""Mutants whose fault lies in offsets, streams or commits."""

from __future__ import annotations

from typing import Any

from sim.mutant import Patch, mutant
from zkgroup.protocol import events as ev
from zkgroup.protocol.ledger import Ledger
from zkgroup.protocol.member import Phase, acquisition, member_machine, owned_share
from zkgroup.protocol.member.acquisition import Acquisition, OffsetLoading
from zkgroup.protocol.member.commits import Commits, _Commit
from zkgroup.protocol.member.ownership_release import OwnershipRelease
from zkgroup.protocol.offset_versions import LoadedOffsets, OffsetVersions
from zkgroup.protocol.operations import SetData

# ---------------------------------------------------------------- offsets


@mutant
def no_compare_and_set(patch: Patch) -> None:
    """Writes offsets whatever they are by now (Scala consumer)."""
    operation = OffsetVersions._operation

    def unconditional(self: OffsetVersions, partition: Any, offset: int) -> Any:
        op = operation(self, partition, offset)
        return SetData(op.path, op.data) if isinstance(op, SetData) else op

    patch.setattr(OffsetVersions, "_operation", unconditional)


@mutant
def forgets_unknown_outcomes(patch: Patch) -> None:
    """Takes a write whose reply was lost for one that did not happen, and its own write for a foreign one."""
    commit = OffsetVersions.commit

    def forgetful(self: OffsetVersions, wanted: Any, session_id: int) -> Any:
        for entry in self._entries.values():
            entry.sent = None
        return (yield from commit(self, wanted, session_id))

    patch.setattr(OffsetVersions, "commit", forgetful)


@mutant
def reads_offsets_before_it_claims(patch: Patch) -> None:
    """The former owner may commit in between (Scala consumer)."""
    claim, load = Acquisition._claim, OffsetVersions.load

    def first_load(self: Acquisition) -> None:
        ctx = self._context
        share = self.plan.of(ctx.settings.consumer_id)

        def loaded(found: LoadedOffsets) -> None:
            ctx.offset_versions.__dict__["early"] = found
            claim(self)

        if ctx.settings.uses_zookeeper:
            ctx.offset_versions.__dict__.pop("early", None)
            ctx.zookeeper.run(lambda: load(ctx.offset_versions, sorted(share)), loaded, self._load_failed)
        else:
            claim(self)

    def cached(self: OffsetVersions, partitions: Any) -> Any:
        early = self.__dict__.pop("early", None)
        return (yield from load(self, partitions)) if early is None else early

    patch.setattr(Acquisition, "_claim", first_load)
    patch.setattr(OffsetVersions, "load", cached)


@mutant
def commits_what_is_in_hand(patch: Patch) -> None:
    """Takes delivered for consumed (KAFKA-5327)."""
    patch.setattr(Ledger, "consumed", lambda self: dict(self._consumed) | dict(self._positions))


@mutant
def commits_one_too_few(patch: Patch) -> None:
    """Commits the last message, not the one after it."""
    patch.setattr(Ledger, "consumed", lambda self: {p: max(0, offset - 1) for p, offset in self._consumed.items()})


@mutant
def commits_after_the_release(patch: Patch) -> None:
    """Gives up its share first, without a commit."""

    def paused(self: OwnershipRelease, event: ev.Paused) -> None:
        ctx = self._context
        if ctx.phase is Phase.PAUSING and event.generation == ctx.generation:
            ctx.timers.cancel("quiet")
            ctx.assigned = False
            ctx.enter(Phase.COMMITTING)
            self._committed(None)

    patch.setattr(OwnershipRelease, "paused", paused)


@mutant
def starts_at_the_smaller_of_two(patch: Patch) -> None:
    """With offsets in both stores, takes the one that is behind."""

    def smaller(one: int | None, other: int | None) -> int | None:
        return min((offset for offset in (one, other) if offset is not None), default=None)

    patch.setattr(acquisition, "_larger", smaller)


@mutant
def kafka_whatever_zookeeper_says(patch: Patch) -> None:
    """In dual mode commits to Kafka though ZooKeeper has shown that the partition is another's."""

    def to_kafka(self: Any, foreign: Any) -> None:
        ctx = self._context
        if ctx.settings.uses_kafka and self._consumed:
            ctx.request(lambda request: ev.CommitKafkaOffsets(request, self._consumed), self._answered)
        else:
            self._ended(None)

    patch.setattr(_Commit, "_to_kafka", to_kafka)


@mutant
def starts_at_the_end(patch: Patch) -> None:
    """Where nothing is stored, begins with what comes next, whatever was asked for."""
    look_up = OffsetLoading._list_offsets

    def at_the_end(self: OffsetLoading, *rest: Any) -> None:
        ctx = self._context
        request = ctx.request
        ctx.request = lambda action, then: request(  # type: ignore[method-assign]
            lambda n: ev.ListOffsets(n, a.partitions, "largest") if isinstance(a := action(n), ev.ListOffsets) else a,
            then,
        )
        look_up(self, *rest)
        ctx.request = request  # type: ignore[method-assign]

    patch.setattr(OffsetLoading, "_list_offsets", at_the_end)


# ---------------------------------------------------------------- streams and commits


@mutant
def no_fence(patch: Patch) -> None:
    """Hands out what was fetched before the share was given up."""
    patch.setattr(Ledger, "fence", lambda self: None)


@mutant
def late_marks_count(patch: Patch) -> None:
    """A batch that the rebalance did not wait for counts as consumed when its reader comes back."""
    patch.setattr(Ledger, "abandon", lambda self: None)
    assign = Ledger.assign

    def keep(self: Ledger, generation: int, share: Any) -> None:
        delivered = self._delivered
        assign(self, generation, share)
        self._delivered = delivered

    patch.setattr(Ledger, "assign", keep)


@mutant
def does_not_wait_for_streams(patch: Patch) -> None:
    """Releases while the batch in hand is still being worked on."""
    patch.setattr(member_machine.MemberContext, "pause_streams", lambda self: self.abandon_at_once())

    def at_once(self: Any) -> None:
        self.generation += 1
        self.do(ev.Pause(self.generation, abandon=True))

    patch.setattr(member_machine.MemberContext, "abandon_at_once", at_once, raising=False)


@mutant
def forgets_who_waits_for_a_commit(patch: Patch) -> None:
    """A commit that was asked for is forgotten when a rebalance comes in between."""

    def requeue(self: Commits) -> None:
        self._serving = []

    patch.setattr(Commits, "requeue", requeue)


@mutant
def forgets_what_is_held_back(patch: Patch) -> None:
    """A partition without a leader is not asked for again."""
    patch.setattr(owned_share.OwnedShare, "_on_load_time", lambda self: None)
