"""Mutants whose fault lies in the lease, in owner nodes, sessions or watches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sim.mutant import Patch, mutant
from zkgroup.protocol import events as ev
from zkgroup.protocol import procedures, session_requests, znodes
from zkgroup.protocol.member import Member, Phase, acquisition, member_machine, ownership_release
from zkgroup.protocol.member.acquisition import Acquisition
from zkgroup.protocol.member.commits import _Commit
from zkgroup.protocol.member.member_context import OwnedZnodes
from zkgroup.protocol.member.owned_share import OwnedShare
from zkgroup.protocol.operations import Children, Delete, Exists, Get, Node, Sync
from zkgroup.protocol.procedures import RegistryCache

# ---------------------------------------------------------------- the lease


@mutant
def no_lease(patch: Patch) -> None:
    """Hands out as long as it has heard nothing else (a zombie)."""
    patch.setattr(session_requests.Lease, "is_valid", lambda self, now: True)


@mutant
def lease_from_the_reply(patch: Patch) -> None:
    """Counts the lease from the reply, not from when the request was sent."""
    reply = session_requests.SessionRequests.reply

    def late(self: session_requests.SessionRequests, event: ev.Reply) -> None:
        reply(self, ev.Reply(event.request, event.results, self.now))

    patch.setattr(session_requests.SessionRequests, "reply", late)


@mutant
def lease_from_reads(patch: Patch) -> None:
    """Asks with a read whether its session lives: a follower that is cut off from its leader answers that."""
    patch.setattr(session_requests, "_PROOFS", (*session_requests._PROOFS, Get, Children, Exists))
    patch.setattr(
        session_requests.SessionRequests,
        "_sync",
        lambda self: self._send((Exists(znodes.consumers()),), lambda _: None),
    )


@mutant
def lease_of_a_whole_timeout(patch: Patch) -> None:
    """Believes in its session twice as long as is safe."""
    renew = session_requests.Lease.renew

    def double(self: session_requests.Lease, ops: Any, results: Any, sent_at: float) -> None:
        renew(self, ops, results, sent_at + self.timeout * 0.75)

    patch.setattr(session_requests.Lease, "renew", double)


@mutant
def writes_past_the_lease(patch: Patch) -> None:
    """Hands nothing out past its lease, and writes: what it was about to do when it was stopped, when it goes on."""

    def ask(self: session_requests.SessionRequests, ops: Any, then: Any) -> None:
        if self.connected:
            self._send(ops, then)
        else:
            self._interrupt()

    patch.setattr(session_requests.SessionRequests, "_ask", ask)


@mutant
def commits_to_kafka_past_the_lease(patch: Patch) -> None:
    """Does not read the lease before a commit to Kafka, which has no compare-and-set."""
    patch.setattr(Member, "has_lease", lambda self, epoch, now: True)
    patch.setattr(_Commit, "_to_kafka", _to_kafka_without_lease)


def _to_kafka_without_lease(self: Any, foreign: Any) -> None:
    ctx = self._context
    owned = {p: offset for p, offset in self._consumed.items() if p in ctx.owned.share}
    if not ctx.settings.uses_kafka or not owned:
        self._ended(None)
    else:
        ctx.request(lambda request: ev.CommitKafkaOffsets(request, owned), self._answered)


@mutant
def commits_to_kafka_under_the_next_session(patch: Patch) -> None:
    """Asks whether the lease has, and not whose: a commit that waited is sent under the next session. (Ours, found by
    the simulation.)"""
    patch.setattr(Member, "has_lease", lambda self, epoch, now: self.lease.is_valid(now))


# ---------------------------------------------------------------- owner nodes


@mutant
def deletes_without_reading(patch: Patch) -> None:
    """Releases owner nodes whosever they are (KAFKA-262, zk-ruby #34)."""

    def release(group: str, partitions: Any, session_id: int, *, surely_ours: Any = ()) -> Iterator[Any]:
        yield tuple(Delete(znodes.owner(group, partition)) for partition in partitions) or (Sync(),)

    patch.setattr(procedures, "release", release)


@mutant
def sure_of_everything(patch: Patch) -> None:
    """Believes that what it claimed once is its own still, and deletes it without a snapshot."""
    release = OwnedZnodes.release
    patch.setattr(OwnedZnodes, "release", lambda self: (lambda share: (release(self)[0], share))(set(self.share)))


@mutant
def claims_by_value(patch: Patch) -> None:
    """Takes a node that names it for its own, whatever its session (CURATOR-444, -620, -696)."""
    clear = procedures._clear_the_way

    def by_value(group: str, refused: Any, total: int, session_id: int) -> Any:
        nodes = yield tuple(Get(znodes.owner(group, partition)) for partition in refused)
        others = {
            p: thread
            for (p, thread), node in zip(refused.items(), nodes, strict=True)
            if not (isinstance(node, Node) and node.data == str(thread).encode())
        }
        return (yield from clear(group, others, total, session_id)) if others else {}

    patch.setattr(procedures, "_clear_the_way", by_value)


@mutant
def ignores_conflicts(patch: Patch) -> None:
    """Reads what it could not claim (pykafka #204, #273)."""

    def failed(self: Acquisition, error: Exception) -> None:
        self._claimed(self.plan.of(self._context.settings.consumer_id))

    patch.setattr(Acquisition, "_claim_failed", failed)


@mutant
def no_rollback(patch: Patch) -> None:
    """Keeps what a failed attempt has claimed (KAFKA-256)."""

    def keep(context: Any) -> Iterator[Any]:
        context.owned.release()
        yield (Sync(),)

    patch.setattr(acquisition, "release_all", keep)


@mutant
def keeps_its_share_after_an_expiry(patch: Patch) -> None:
    """Goes on in the new session with what it owned in the old one (Helix #641, #691)."""
    forget = Member._forget

    def keep(self: Member) -> None:
        share, granted = self._context.owned.share, self._context.assigned
        forget(self)
        self._context.owned.share, self._context.assigned = share, granted

    patch.setattr(Member, "_forget", keep)
    patch.setattr(member_machine.MemberContext, "abandon_batches", lambda self: None)


@mutant
def ignores_owner_nodes(patch: Patch) -> None:
    """Does not watch what it owns: a node deleted by hand is never missed (Scala consumer)."""
    changed = Member._changed

    def blind(self: Member, path: str) -> None:
        if "/owners/" not in path or path in self._acquisition.retries.blockers:
            changed(self, path)

    patch.setattr(Member, "_changed", blind)


@mutant
def leaves_without_releasing(patch: Patch) -> None:
    """Neither deletes its nodes nor ends its session when it leaves (KAFKA-4228, pykafka #565, kazoo #732)."""

    def gone(self: Member) -> None:
        self._finish(self.error)

    patch.setattr(Member, "_left", gone)
    patch.setattr(ownership_release, "release_all", _release_nothing)


def _release_nothing(context: Any) -> Iterator[Any]:
    if context.leaving:
        yield (Sync(),)
        return
    yield from acquisition.release_all(context)


# ---------------------------------------------------------------- sessions and watches


@mutant
def trusts_lost_watches(patch: Patch) -> None:
    """Does not read again after a reconnect: what was missed stays missed."""
    connected = Member._connected

    def unverified(self: Member, session_id: int, timeout: float, server: str) -> None:
        connected(self, session_id, timeout, server)
        self._context.group_unverified = False

    patch.setattr(Member, "_connected", unverified)
    patch.setattr(OwnedZnodes, "mark_all_unverified", lambda self: None)


@mutant
def sends_again_in_the_next_session(patch: Patch) -> None:
    """What was under way in one session is done in the next (ZkClient, and so the Scala consumer)."""

    def end(self: session_requests.SessionRequests) -> None:
        self.connected = False
        self.lease.end()
        self._interrupt()

    patch.setattr(session_requests.SessionRequests, "end", end)
    patch.setattr(member_machine.MemberContext, "drop", lambda self: self._answers.clear())


@mutant
def ignores_its_id(patch: Patch) -> None:
    """Watches neither its id nor the list of members."""
    changed = Member._changed
    patch.setattr(Member, "_changed", lambda self, path: None if "/ids" in path else changed(self, path))


@mutant
def ignores_new_partitions(patch: Patch) -> None:
    """Does not hear of topics that change."""
    changed = Member._changed
    patch.setattr(Member, "_changed", lambda self, path: None if "/brokers/topics" in path else changed(self, path))


@mutant
def watches_once(patch: Patch) -> None:
    """Takes a watch for one that stays: it is not set again after it was reported."""
    reading = Acquisition.read_group

    def once(self: Acquisition) -> Any:
        procedure = reading(self)
        watched = self.__dict__.setdefault("watched_once", [])
        results = None
        while True:
            try:
                ops = next(procedure) if results is None else procedure.send(results)
            except StopIteration as stop:
                return stop.value
            ops = tuple(
                Children(op.path, watch=op.path not in watched) if isinstance(op, Children) and op.watch else op
                for op in ops
            )
            watched += [op.path for op in ops if isinstance(op, Children) and op.watch]
            results = yield ops

    patch.setattr(Acquisition, "read_group", once)


@mutant
def forgets_events_of_a_rebalance(patch: Patch) -> None:
    """An event that comes while it rebalances is taken for one that the rebalance has dealt with."""
    begin = OwnedShare.begin

    def forgetful(self: OwnedShare, held_back: Any) -> None:
        self._context.rebalance_reason, self._context.group_unverified = "", False
        begin(self, held_back)

    patch.setattr(OwnedShare, "begin", forgetful)


@mutant
def gives_up_silently(patch: Patch) -> None:
    """After its attempts it stays registered, blocks its share, and reads nothing (KAFKA-4228, every release)."""

    def back_off(self: Acquisition, error: Exception) -> None:
        ctx = self._context
        ctx.enter(Phase.BACKING_OFF)
        if self.retries.count < 4:
            ctx.timers.set("retry", ctx.now + ctx.settings.backoff, self._retry)

    patch.setattr(Acquisition, "_back_off", back_off)
    patch.setattr(Acquisition, "retry_soon", lambda self: None)


@mutant
def impatient_with_its_former_self(patch: Patch) -> None:
    """Does not wait for its former session's id node to go: leaves at once (Scala consumer, from 0.9)."""
    patch.setattr(acquisition, "SESSION_TIMEOUTS", 0.0)


# ---------------------------------------------------------------- what is known and not read again


@mutant
def believes_what_has_changed(patch: Patch) -> None:
    """Goes on knowing nodes of which a watch has reported."""
    patch.setattr(RegistryCache, "changed", lambda self, path: None)


@mutant
def knows_over_connections(patch: Patch) -> None:
    """Goes on knowing what it watched over a connection that was lost, and its watches with it."""
    patch.setattr(RegistryCache, "forget", lambda self: None)


@mutant
def deaf_while_it_reads_brokers(patch: Patch) -> None:
    """Passes over the event of a broker that comes while it is being looked whether there is one."""
    changed = Member._changed

    def deaf(self: Member, path: str) -> None:
        if self.phase is not Phase.CHECKING_BROKERS or path != znodes.broker_ids():
            changed(self, path)

    patch.setattr(Member, "_changed", deaf)
