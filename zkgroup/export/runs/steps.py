"""A run's steps, in their order: the table in this package's docstring, in code.

Each step may be repeated: by the same process after a lost session, or by another one that finds the run as it was
left.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
from typing import Literal, Self

from zkgroup.errors import RefusedError, UnreachableError, ZkgroupError
from zkgroup.export.lake.begun import carried_out, remember
from zkgroup.export.lake.book import Book
from zkgroup.export.lake.lake import MANIFEST, PLAN, Lake
from zkgroup.export.lake.overlap import refuse_beside
from zkgroup.export.model.documents import encode_plan
from zkgroup.export.model.encoding import DamagedDocumentError, digest
from zkgroup.export.model.rundata import Manifest, Pointer, RunPlan
from zkgroup.export.planning.plan import in_no_file
from zkgroup.export.runs.assembling import Written
from zkgroup.export.runs.claim import ExportClaim
from zkgroup.export.runs.deciding import decide
from zkgroup.export.runs.last_copies import refuse_last_copies
from zkgroup.export.runs.late import decide_late, holds_last_copies, refuse_dropping, was_decided
from zkgroup.export.runs.neighbours import binding_layout, give_way, refuse_layout
from zkgroup.export.runs.publishing import publish
from zkgroup.export.runs.refusals import NOT_AS_DECIDED, REPLACED, Live, Moved, Remade
from zkgroup.export.runs.settling import keep, refuse_withdrawing, withdraw
from zkgroup.export.runs.surroundings import Surroundings
from zkgroup.export.runs.under_way import UnderWay
from zkgroup.export.runs.writing import write_ranges


class ExportRun(UnderWay):
    """One run, from wherever it stands. Made by ``planned`` or ``found``; used under its group's claim."""

    @classmethod
    def planned(cls, claim: ExportClaim, lake: Lake, plan: RunPlan, surroundings: Surroundings) -> Self:
        """A run that is about to begin."""
        return cls.killed(claim, lake, plan, digest(encode_plan(plan)), surroundings)

    @classmethod
    def found(cls, claim: ExportClaim, lake: Lake, pointer: Pointer, surroundings: Surroundings) -> Self:
        """The run that the group's pointer names, if its plan lies in this lake."""
        here = lake.plan(claim.group, pointer.run)
        if here is None:
            if pointer.output == lake.store.uri:
                raise RefusedError(
                    f"an export of group {claim.group} to {pointer.output} is not finished, and its plan is not in it "
                    "any more",
                    REPLACED,
                )
            raise RefusedError(
                f"an export of group {claim.group} to {pointer.output} is not finished, and its plan is not in "
                f"{lake.store.uri}",
                f"finish it first: the same command with --to {pointer.output}, where that folder is; or end it with "
                "--settle there: withdraw, or forget, if what that held is lost",
            )
        plan, found = here
        if found != pointer.plan:
            raise RefusedError(
                f"the plan of run {pointer.run} in {lake.store.uri} is not the one that group {claim.group} is held by",
                "somebody changed or restored the folder: restore its plan.json, or end the run with --settle forget",
            )
        return cls(claim, lake, plan, pointer, surroundings)

    def accept(self, *, deleted: bool, unexplained: bool) -> None:
        """Take along what whoever goes on with the run accepts, beside what was accepted as it was planned."""
        plan = self.plan
        self.plan = replace(
            plan,
            skip_deleted=plan.skip_deleted or deleted,
            record_unexplained=plan.record_unexplained or unexplained,
        )

    # --- going forward ----------------------------------------------------------------------------------------------

    def carry_out(self, *, resumed: bool) -> Manifest:
        """To the commit, from whatever state it is in. An orderly failure before the decision drops the run."""
        if self.is_taken_back():
            self.settle("withdraw")
            raise RefusedError(
                f"{self} was being taken back, and now is",
                "nothing was exported: run it again",
            )
        if self.pointer.state == "planned":
            began = resumed
            try:
                if resumed:
                    self._take_over()
                else:
                    self._begin()
                began = True
                manifest = decide(self, self._write())
            except BaseException as error:
                # What keeps it from being dropped matters less than what went wrong; then it waits for the next export.
                dropped = False
                with contextlib.suppress(ZkgroupError):
                    dropped = self.abandon(begun=began or not isinstance(error, RefusedError))
                if not dropped:
                    self._tell_of_end(error)
                raise
        else:
            manifest = self._decided()
        try:
            self._publish_as_ours(manifest)
            if self.pointer.state == "committed":
                self.claim.commit(self.pointer, ())
                self.surroundings.passed("committed")
            else:
                self._commit(manifest)
        except BaseException as error:
            self._tell_of_end(error)
            raise
        with contextlib.suppress(ZkgroupError):  # the run tells better
            carried_out(self.lake, self.plan, manifest)
        self._tidy()
        return manifest

    def _tell_of_end(self, error: BaseException) -> None:
        """An error tells for itself what is to be done; a signal does not."""
        if isinstance(error, ZkgroupError):
            return
        is_decided = self.pointer.state in ("decided", "committed")
        self.surroundings.warn(
            f"{self} is {'decided and ' if is_decided else ''}not finished: "
            f"run the same command again, which {'publishes and commits what was read' if is_decided else 'goes on'}"
        )

    def _begin(self) -> None:
        """(none) → planned: the plan in the store first, then the pointer."""
        try:
            self.lake.store.write(f"{self.folder}/{PLAN}", encode_plan(self.plan))
        except ZkgroupError as error:
            late = False
            with contextlib.suppress(ZkgroupError):
                late = self._others_ended()  # and have tidied up its folder
            raise self._late() if late else error from None
        self.surroundings.passed("plan written")
        plan, claim = self.plan, self.claim
        found = claim.persist(lambda: binding_layout(claim.registry, self.lake, plan.group, plan.cluster))
        refuse_layout(self.lake, plan.layout, found)
        self.claim.point(None, self.pointer)
        self.surroundings.passed("plan in place")
        self._refuse_if_late()
        self._give_way()

    def _refuse_if_late(self) -> None:
        """Raise where other exports of the group have been here since this one was planned, as its session ended while
        it stood still, or another cluster has a group of this name. They may have filed runs, and have tidied its plan
        up."""
        if self._others_ended() or self.lake.plan(self.plan.group, self.plan.run) is None:
            raise self._late()

    def _others_ended(self) -> bool:
        return self.lake.last(self.plan.group).run != self.plan.previous

    def _late(self) -> RefusedError:
        return RefusedError(
            f"other exports of group {self.plan.group} to {self.lake.store.uri} have ended since this one was planned",
            "nothing was exported: run it again",
        )

    def _take_over(self) -> None:
        """Fence off whoever worked on the run before: only then may its files go."""
        taken = replace(self.pointer, attempt=self.claim.attempt)
        self.claim.point(self.pointer, taken)
        self.pointer = taken
        self.surroundings.passed("taken over")
        self.remove_attempts(but=self.claim.attempt)
        self._give_way()
        self.refuse_if_changed()

    def _give_way(self) -> None:
        """Raise where another group's run came first, or has ended since this one was planned. From here on whoever
        comes later sees this run's pointer, and gives way."""
        plan, claim = self.plan, self.claim
        others, warn = partial(holds_last_copies, self), self.surroundings.warn
        claim.persist(lambda: give_way(claim.registry, self.lake, plan, claim.attempt, warn, others))
        refuse_layout(self.lake, plan.layout, self.lake.layout())
        refuse_beside(self.lake, plan, in_no_file(plan.partitions, fills=plan.kind == "backfill"))
        if plan.kind == "export":
            Book(self.lake, plan.group).refuse_others(plan.partitions, plan.topics)
        self.surroundings.passed("first in place")

    def _write(self) -> Written:
        """Have the ranges read and written. Where that fails because what is read has changed, this is the reason that
        is raised."""
        try:
            return write_ranges(self)
        except ZkgroupError:
            with contextlib.suppress(UnreachableError):
                self.refuse_if_changed()
            raise

    def _decided(self) -> Manifest:
        """The manifest that the pointer names."""
        why = ""
        try:
            found = self.lake.named(self.plan.group, self.pointer)
        except DamagedDocumentError as damage:
            found, why = None, f" ({damage.message})"
        if found is not None:
            return found
        raise RefusedError(
            f"the manifest of run {self.plan.run} is not in {self.lake.store.uri}/{self.folder} as it was decided{why}",
            NOT_AS_DECIDED,
        )

    def _publish_as_ours(self, manifest: Manifest) -> None:
        """As ``publish``. What goes wrong after somebody else has ended the run tells nothing of the folder."""
        try:
            publish(self, manifest)
        except ZkgroupError as error:
            try:
                found, _ = self.claim.persist(self.claim.pointer)
            except ZkgroupError:  # what went wrong first matters more
                raise error from None
            if found is not None and found.run == self.plan.run:
                raise
            raise RefusedError(
                f"{self} was ended by another process while this one stood still",
                "--history tells how; the next export takes what is new",
            ) from None

    def _commit(self, manifest: Manifest) -> None:
        """decided → (none)."""
        try:
            self.refuse_if_changed()
            self.claim.commit(self.pointer, manifest.parts, passed=self.surroundings.passed)
        except (Moved, Remade, Live) as error:
            raise RefusedError(
                f"{self} is published and cannot be committed: {error.message}",
                error.again,
            ) from None
        self.surroundings.passed("committed")

    def _tidy(self) -> None:
        self.remove_attempts()
        self.surroundings.passed("tidied up")

    # --- ending otherwise -------------------------------------------------------------------------------------------

    def abandon(self, *, begun: bool = True) -> bool:
        """Drop a run that is not decided. One that is, or that somebody else took over, is left alone: False.
        ``begun``: it did not have to stand back at once, and where it was to begin is kept."""
        if self.pointer.state != "planned" or not self.claim.drop(self.pointer):
            return False
        if MANIFEST not in self.lake.store.names(self.folder):  # there: another process has finished the run
            self.remove_attempts()  # a store that is full has room then
            if begun:
                remember(self.lake, self.plan)
            self.lake.store.remove(self.folder)
        return True

    def settle(self, how: Literal["keep", "withdraw"], *, skip_lost: bool = False) -> Manifest | None:
        """End a run that cannot be committed. ``keep``: its files stay, offsets that somebody else moved stay, too.
        ``withdraw``: files of what is not committed go, with ``skip_lost`` also where no log has their messages any
        more. None where it had not been decided, and is dropped: then nothing is left. Raises ``RefusedError`` where it
        is too late for the one or the other, or too early to be kept."""
        if self.pointer.state == "planned":
            if how == "withdraw" and not was_decided(self):
                refuse_dropping(self, skip_lost=skip_lost)
                self.abandon()
                return None
            look = partial(self._look_first, how=how, skip_lost=skip_lost)
            decide_late(self, how, look, skip_lost=skip_lost)
        manifest = self._decided()
        if self.pointer.state == "committed":
            if how == "withdraw":
                raise RefusedError(
                    f"the offsets of run {self.plan.run} are committed: without its files their messages would be lost",
                    "--settle keep publishes them, as the same command without --settle does",
                )
            return self.carry_out(resumed=True)
        if how == "keep":
            keep(self, manifest)
        else:
            withdraw(self, manifest, skip_lost=skip_lost)
        self._tidy()
        return manifest

    def _look_first(self, manifest: Manifest, how: Literal["keep", "withdraw"], *, skip_lost: bool) -> None:
        """Raise where what is still to be decided could not be taken back then."""
        if how == "withdraw":
            open_ones = refuse_withdrawing(self, manifest)
            if not skip_lost:
                refuse_last_copies(self, manifest, open_ones, how, skip_lost=False)
