"""Mutants whose fault lies in offsets, streams or commits."""

from __future__ import annotations

from typing import Any

from sim.mutant import Patch, mutant
from zkgroup.protocol import events as ev
from zkgroup.protocol.ledger import Ledger
from zkgroup.protocol.member import Phase, member_machine, offset_loading, owned_share
from zkgroup.protocol.member.acquisition import Acquiring
from zkgroup.protocol.member.commits import Commits, _Commit
from zkgroup.protocol.member.offset_loading import Loading
from zkgroup.protocol.member.release import Releasing
from zkgroup.protocol.offset_versions import Loaded, OffsetBook
from zkgroup.protocol.operations import SetData

# ---------------------------------------------------------------- offsets


@mutant
def no_compare_and_set(patch: Patch) -> None:
    """Writes offsets whatever they are by now (reference)."""
    operation = OffsetBook._operation

    def unconditional(self: OffsetBook, partition: Any, offset: int) -> Any:
        op = operation(self, partition, offset)
        return SetData(op.path, op.data) if isinstance(op, SetData) else op

    patch.setattr(OffsetBook, "_operation", unconditional)


@mutant
def forgets_unknown_outcomes(patch: Patch) -> None:
    """Takes a write whose reply was lost for one that did not happen, and its own write for a stranger's."""
    commit = OffsetBook.commit

    def forgetful(self: OffsetBook, wanted: Any, session_id: int) -> Any:
        for entry in self._entries.values():
            entry.sent = None
        return (yield from commit(self, wanted, session_id))

    patch.setattr(OffsetBook, "commit", forgetful)


@mutant
def reads_offsets_before_it_claims(patch: Patch) -> None:
    """The former owner may commit in between (reference)."""
    claim, load = Acquiring._claim, OffsetBook.load

    def first_load(self: Acquiring) -> None:
        g = self._ground
        share = self.plan.of(g.settings.consumer_id)

        def loaded(found: Loaded) -> None:
            g.book.__dict__["early"] = found
            claim(self)

        if g.settings.uses_zookeeper:
            g.book.__dict__.pop("early", None)
            g.talk.run(lambda: load(g.book, sorted(share)), loaded, self._load_failed)
        else:
            claim(self)

    def cached(self: OffsetBook, partitions: Any) -> Any:
        early = self.__dict__.pop("early", None)
        return (yield from load(self, partitions)) if early is None else early

    patch.setattr(Acquiring, "_claim", first_load)
    patch.setattr(OffsetBook, "load", cached)


@mutant
def commits_what_is_in_hand(patch: Patch) -> None:
    """Takes handed out for consumed (KAFKA-5327)."""
    patch.setattr(Ledger, "consumed", lambda self: dict(self._consumed) | dict(self._positions))


@mutant
def commits_one_too_few(patch: Patch) -> None:
    """Commits the last message, not the one after it."""
    patch.setattr(Ledger, "consumed", lambda self: {p: max(0, offset - 1) for p, offset in self._consumed.items()})


@mutant
def commits_after_the_release(patch: Patch) -> None:
    """Gives up its share first, without a commit."""

    def quieted(self: Releasing, event: ev.Quieted) -> None:
        g = self._ground
        if g.phase is Phase.QUIETING and event.generation == g.generation:
            g.timers.cancel("quiet")
            g.granted = False
            g.enter(Phase.COMMITTING)
            self._committed(None)

    patch.setattr(Releasing, "quieted", quieted)


@mutant
def starts_at_the_smaller_of_two(patch: Patch) -> None:
    """With offsets in both stores, takes the one that is behind."""

    def smaller(one: int | None, other: int | None) -> int | None:
        return min((offset for offset in (one, other) if offset is not None), default=None)

    patch.setattr(offset_loading, "_larger", smaller)


@mutant
def kafka_whatever_zookeeper_says(patch: Patch) -> None:
    """In dual mode commits to Kafka though ZooKeeper has shown that the partition is another's."""

    def to_kafka(self: Any, foreign: Any) -> None:
        g = self._ground
        if g.settings.uses_kafka and self._consumed:
            g.request(lambda request: ev.CommitKafka(request, self._consumed), self._answered)
        else:
            self._ended(None)

    patch.setattr(_Commit, "_to_kafka", to_kafka)


@mutant
def starts_at_the_end(patch: Patch) -> None:
    """Where nothing is stored, begins with what comes next, whatever was asked for."""
    look_up = Loading._look_up

    def at_the_end(self: Loading, *rest: Any) -> None:
        g = self._ground
        request = g.request
        g.request = lambda action, then: request(  # type: ignore[method-assign]
            lambda n: ev.LookUp(n, a.partitions, "largest") if isinstance(a := action(n), ev.LookUp) else a, then
        )
        look_up(self, *rest)
        g.request = request  # type: ignore[method-assign]

    patch.setattr(Loading, "_look_up", at_the_end)


# ---------------------------------------------------------------- streams and commits


@mutant
def no_fence(patch: Patch) -> None:
    """Hands out what was fetched before the share was given up."""
    patch.setattr(Ledger, "fence", lambda self: None)


@mutant
def late_marks_count(patch: Patch) -> None:
    """A batch that the rebalance did not wait for counts as consumed when its reader comes back."""
    patch.setattr(Ledger, "abandon", lambda self: None)
    grant = Ledger.grant

    def keep(self: Ledger, generation: int, share: Any) -> None:
        handed = self._handed
        grant(self, generation, share)
        self._handed = handed

    patch.setattr(Ledger, "grant", keep)


@mutant
def does_not_wait_for_streams(patch: Patch) -> None:
    """Releases while the batch in hand is still being worked on."""
    patch.setattr(member_machine.Ground, "quiet", lambda self: self.abandon_at_once())

    def at_once(self: Any) -> None:
        self.generation += 1
        self.do(ev.Quiet(self.generation, abandon=True))

    patch.setattr(member_machine.Ground, "abandon_at_once", at_once, raising=False)


@mutant
def forgets_who_waits_for_a_commit(patch: Patch) -> None:
    """A commit that was asked for is forgotten when a rebalance comes in between."""

    def dropped(self: Commits) -> None:
        self._serving = []

    patch.setattr(Commits, "dropped", dropped)


@mutant
def forgets_what_is_held_back(patch: Patch) -> None:
    """A partition without a leader is not asked for again."""
    patch.setattr(owned_share.Owning, "_time_to_ask", lambda self: None)
