"""A run's steps, in their order: the table in this package's docstring, in code.

Each step may be repeated: by the same process after a lost session, or by another one that finds the run as it was
left.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal, Self

from zkgroup.errors import RefusedError, UnreachableError, ZkgroupError
from zkgroup.export.lake.begun import carried_out, remember
from zkgroup.export.lake.book import Book
from zkgroup.export.lake.coverage import extended
from zkgroup.export.lake.lake import MANIFEST, PLAN, SETTLED, Lake
from zkgroup.export.model.documents import encode_manifest, encode_plan
from zkgroup.export.model.encoding import digest
from zkgroup.export.model.rundata import (
    Manifest,
    Pointer,
    RunPlan,
    now_ms,
)
from zkgroup.export.planning.group import ExportGroup
from zkgroup.export.planning.plan import in_no_file
from zkgroup.export.runs.assembling import Written, refuse_fewer, refuse_unexplained, words_on_gaps
from zkgroup.export.runs.claim import ExportClaim
from zkgroup.export.runs.neighbours import binding_layout, give_way, refuse_layout
from zkgroup.export.runs.publishing import first_time, publish, refuse_beside
from zkgroup.export.runs.refusals import REPLACED, Live, Moved, NotHeld, Remade
from zkgroup.export.runs.settling import keep, withdraw
from zkgroup.export.runs.surroundings import Progress, Surroundings, tell_of
from zkgroup.export.runs.writing import write_ranges
from zkgroup.protocol.names import TopicPartition

if TYPE_CHECKING:
    from zkgroup.export.runs.membership import Membership

log = logging.getLogger(__name__)

_DECISIONS = 5  # a group at rest needs one


class ExportRun:
    """One run, from wherever it stands. Made by ``planned`` or ``found``; used under its group's claim."""

    def __init__(
        self, claim: ExportClaim, lake: Lake, plan: RunPlan, pointer: Pointer, surroundings: Surroundings
    ) -> None:
        self._claim = claim
        self._lake = lake
        self._store = lake.store
        self.plan = plan
        self.pointer = pointer
        # A backfill moves no offset: it is nobody's share.
        self._with = replace(surroundings, member=None) if plan.kind == "backfill" else surroundings
        self._folder = lake.folder(plan.group, plan.run)

    @classmethod
    def planned(cls, claim: ExportClaim, lake: Lake, plan: RunPlan, surroundings: Surroundings) -> Self:
        """A run that is about to begin."""
        pointer = Pointer("planned", plan.run, lake.store.uri, digest(encode_plan(plan)), claim.attempt)
        return cls(claim, lake, plan, pointer, surroundings)

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
                f"finish it first: the same command with --to {pointer.output}, where that folder is; or end it there "
                "with --settle withdraw; if what that held is lost, --settle forget ends it",
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
        if self.pointer.state == "withdrawn":
            self.settle("withdraw")
            raise RefusedError(
                f"run {self.plan.run} of group {self.plan.group} was being taken back, and now is",
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
                manifest = self._decide(self._write())
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
                self._claim.commit(self.pointer, ())
                self._with.passed("committed")
            else:
                self._commit(manifest)
        except BaseException as error:
            self._tell_of_end(error)
            raise
        with contextlib.suppress(ZkgroupError):  # the run tells better
            carried_out(self._lake, self.plan, manifest)
        self._tidy()
        return manifest

    def _tell_of_end(self, error: BaseException) -> None:
        """An error tells for itself what is to be done; a signal does not."""
        if isinstance(error, ZkgroupError):
            return
        is_decided = self.pointer.state in ("decided", "committed")
        self._with.warn(
            f"run {self.plan.run} of group {self.plan.group} is {'decided and ' if is_decided else ''}not finished: "
            f"run the same command again, which {'publishes and commits what was read' if is_decided else 'goes on'}"
        )

    def _begin(self) -> None:
        """(none) → planned: the plan in the store first, then the pointer."""
        try:
            self._store.write(f"{self._folder}/{PLAN}", encode_plan(self.plan))
        except ZkgroupError as error:
            late = False
            with contextlib.suppress(ZkgroupError):
                late = self._others_ended()  # and have tidied up its folder
            raise self._late() if late else error from None
        self._with.passed("plan written")
        plan, claim = self.plan, self._claim
        found = claim.persist(lambda: binding_layout(claim.registry, self._lake, plan.group, plan.cluster))
        refuse_layout(self._lake, plan.layout, found)
        self._claim.point(None, self.pointer)
        self._with.passed("plan in place")
        self._refuse_if_late()
        self._give_way()

    def _refuse_if_late(self) -> None:
        """Raise where other exports of the group have been here since this one was planned, as its session ended while
        it stood still, or another cluster has a group of this name. They may have filed runs, and have tidied its plan
        up."""
        if self._others_ended() or self._lake.plan(self.plan.group, self.plan.run) is None:
            raise self._late()

    def _others_ended(self) -> bool:
        return self._lake.last(self.plan.group).run != self.plan.previous

    def _late(self) -> RefusedError:
        return RefusedError(
            f"other exports of group {self.plan.group} to {self._store.uri} have ended since this one was planned",
            "nothing was exported: run it again",
        )

    def _take_over(self) -> None:
        """Fence off whoever worked on the run before: only then may its files go."""
        taken = replace(self.pointer, attempt=self._claim.attempt)
        self._claim.point(self.pointer, taken)
        self.pointer = taken
        self._with.passed("taken over")
        self._remove_attempts(but=self._claim.attempt)
        self._give_way()
        self._refuse_if_changed()

    def _give_way(self) -> None:
        """Raise where another group's run came first, or has ended since this one was planned. From here on whoever
        comes later sees this run's pointer, and gives way."""
        plan, claim = self.plan, self._claim
        claim.persist(lambda: give_way(claim.registry, self._lake, plan, claim.attempt, self._with.warn))
        refuse_layout(self._lake, plan.layout, self._lake.layout())
        refuse_beside(self._lake, plan, in_no_file(plan.partitions, fills=plan.kind == "backfill"))
        if plan.kind == "export":
            Book(self._lake, plan.group).refuse_others(plan.partitions, plan.topics)
        self._with.passed("first in place")

    def _write(self) -> Written:
        """Have the ranges read and written. Where that fails because what is read has changed, this is the reason that
        is raised."""
        try:
            return write_ranges(self.plan, self._lake, f"{self._folder}/{self._claim.attempt}", self._with)
        except ZkgroupError:
            with contextlib.suppress(UnreachableError):
                self._refuse_if_changed()
            raise

    def _decide(self, written: Written) -> Manifest:
        """planned → decided: the point of no return."""
        plan, parts = self.plan, written.parts
        self._with.progress(Progress("publishing", 0, 0))
        tell_of(words_on_gaps(parts, "retention"), self._with.warn)
        if not plan.record_unexplained:
            refuse_unexplained(parts)
        refuse_fewer(parts)
        tell_of(words_on_gaps(parts, "unexplained"), self._with.warn)
        self._refuse_if_changed()
        refuse_beside(self._lake, plan, first_time(parts))
        self._refuse_if_found()
        self._with.passed("checked")
        if self._with.member is not None:
            return self._decide_held(self._with.member, written)
        manifest, data = self._write_manifest(written)
        decided = replace(self.pointer, state="decided", manifest=digest(data))
        self._claim.point(self.pointer, decided, [part.plan for part in parts if part.moves])
        self.pointer = decided
        self._with.passed("decided")
        return manifest

    def _refuse_if_found(self) -> None:
        """Raise where a file is there again that was to be replaced since it was lost."""
        for name in sorted({lost.file for part in self.plan.partitions for lost in part.again}):
            if self._store.size(name) is not None:
                raise RefusedError(f"{self._store.uri}/{name} was missing, and is there again", "run it again")

    def _decide_held(self, member: Membership, written: Written) -> Manifest:
        """planned → committed: of what the member holds, in one transaction with its offsets. What it does not hold any
        more is left out: its files, which hold nothing else, go with the attempt, and whoever owns it goes on where
        the group stands."""
        parts, files = written.parts, written.files
        for _ in range(_DECISIONS):
            held = self._claim.persist(lambda: member.held(self._claim.registry))
            held &= self._claim.persist(partial(self._claim.untouched, [part.plan for part in parts]))
            for part in parts:
                if part.plan.partition not in held:
                    self._with.warn(f"{part.plan.partition} was taken over by another member: it is not exported")
            parts = [part for part in parts if part.plan.partition in held]
            files = [file for file in files if TopicPartition(file.topic, file.slices[0].partition) in held]
            if not parts:
                raise RefusedError(
                    f"another member has taken over all that was to be exported for group {self.plan.group}",
                    "nothing was committed: export again",
                )
            # Nobody can export again what is committed: from here on the files must be there, whatever fails.
            self._store.settle(f"{self._folder}/{file.work}" for file in files)
            manifest, data = self._write_manifest(Written(parts, files, written.times))
            committed = replace(self.pointer, state="committed", manifest=digest(data))
            try:
                self._claim.decide_and_commit(self.pointer, committed, parts)
            except NotHeld as error:
                log.info("%s; once more", error.message)
                continue
            self.pointer = committed
            self._with.passed("decided")
            return manifest
        raise RefusedError(
            f"group {self.plan.group} rebalances again and again", "nothing was committed: export when it is at rest"
        )

    def _write_manifest(self, written: Written) -> tuple[Manifest, bytes]:
        plan, parts = self.plan, written.parts
        previous = self._lake.last(plan.group)
        manifest = Manifest(
            plan.run,
            plan.group,
            plan.kind,
            plan.cluster,
            self.pointer.plan,
            self._claim.attempt,
            plan.planned,
            now_ms(),
            plan.isolation,
            tuple(parts),
            extended(previous.coverage, plan.topics, parts, written.times, fills=plan.kind == "backfill"),
            previous.run,
            tuple(written.files),
            plan.layout,
            previous.joined if plan.kind == "backfill" else self._with.member is not None,
            roll=previous.roll(plan.run),
        )
        data = encode_manifest(manifest)
        self._store.write(f"{self._folder}/{self._claim.attempt}/{MANIFEST}", data)
        self._with.passed("manifest written")
        return manifest, data

    def _decided(self) -> Manifest:
        """The manifest that the pointer names."""
        found = self._lake.named(self.plan.group, self.pointer)
        if found is not None:
            return found
        raise RefusedError(
            f"the manifest of run {self.plan.run} is not in {self._store.uri}/{self._folder} as it was decided",
            "somebody changed or restored the folder: restore it, or end the run with --settle forget",
        )

    def _publish_as_ours(self, manifest: Manifest) -> None:
        """As ``publish``. What goes wrong after somebody else has ended the run tells nothing of the folder."""
        try:
            publish(self._lake, self.plan, self.pointer, manifest, self._with)
        except ZkgroupError as error:
            try:
                found, _ = self._claim.persist(self._claim.pointer)
            except ZkgroupError:  # what went wrong first matters more
                raise error from None
            if found is not None and found.run == self.plan.run:
                raise
            raise RefusedError(
                f"run {self.plan.run} of group {self.plan.group} was ended by another process while this one stood "
                "still",
                "--history tells how; the next export takes what is new",
            ) from None

    def _commit(self, manifest: Manifest) -> None:
        """decided → (none)."""
        try:
            self._refuse_if_changed()
            self._claim.commit(self.pointer, manifest.parts, passed=self._with.passed)
        except (Moved, Remade, Live) as error:
            raise RefusedError(
                f"run {self.plan.run} of group {self.plan.group} is published and cannot be committed: {error.message}",
                error.again,
            ) from None
        self._with.passed("committed")

    def _refuse_if_changed(self) -> None:
        """Raise where members came, an offset that is to move was touched, or a topic is not the planned one."""

        def look() -> None:
            found_pointer, _ = self._claim.pointer()
            if found_pointer != self.pointer:
                if self.pointer.state == "planned":
                    raise self._claim.taken_over(found_pointer)
                return  # whoever goes on with it tells, or has committed
            group = ExportGroup(self._claim.registry, self.plan.group, self._with.warn)
            if self.plan.kind == "export" and self._with.member is None:
                try:
                    group.refuse_if_live()
                except RefusedError as error:
                    raise Live(error.message, error.remedy) from None
            found = group.identities(self.plan.topics)
            for topic, planned in self.plan.topics.items():
                if topic in found and not found[topic].same(planned):
                    raise Remade(f"topic {topic} was deleted and made again", "export again")
                if topic not in found and self.pointer.state == "planned":
                    raise Remade(f"topic {topic} was deleted", "export again, without it")
            if self.pointer.state == "planned" and self._with.member is None:
                self._claim.refuse_if_moved([part for part in self.plan.partitions if part.moves])

        self._claim.persist(look)

    def _tidy(self) -> None:
        self._remove_attempts()
        self._with.passed("tidied up")

    def _remove_attempts(self, but: str | None = None) -> None:
        for name in self._store.names(self._folder):
            if name not in (PLAN, MANIFEST, SETTLED, but):
                self._store.remove(f"{self._folder}/{name}")

    # --- ending otherwise -------------------------------------------------------------------------------------------

    def abandon(self, *, begun: bool = True) -> bool:
        """Drop a run that is not decided. One that is, or that somebody else took over, is left alone: False.
        ``begun``: it did not have to stand back at once, and where it was to begin is kept."""
        if self.pointer.state != "planned" or not self._claim.drop(self.pointer):
            return False
        if MANIFEST not in self._store.names(self._folder):  # there: another process has finished the run
            self._remove_attempts()  # a store that is full has room then
            if begun:
                remember(self._lake, self.plan)
            self._store.remove(self._folder)
        return True

    def settle(self, how: Literal["keep", "withdraw"], *, skip_lost: bool = False) -> Manifest | None:
        """End a run that cannot be committed. ``keep``: its files stay, offsets that somebody else moved stay, too.
        ``withdraw``: files of what is not committed go, with ``skip_lost`` also where no log has their messages any
        more. None where it had not been decided: then nothing is left."""
        if self.pointer.state == "planned":
            if how == "keep":
                raise RefusedError(
                    f"run {self.plan.run} of group {self.plan.group} is not decided: there are no files to keep",
                    "the same command without --settle goes on with it, --settle withdraw gives it up",
                )
            self.abandon()
            return None
        manifest = self._decided()
        if self.pointer.state == "committed":
            if how == "withdraw":
                raise RefusedError(
                    f"the offsets of run {self.plan.run} are committed: without its files their messages would be lost",
                    "--settle keep publishes them, as the same command without --settle does",
                )
            return self.carry_out(resumed=True)
        if how == "keep" and self.pointer.state == "decided":
            publish(self._lake, self.plan, self.pointer, manifest, self._with)
            keep(self._claim, self._lake, self.plan, self.pointer, manifest, self._with)
        else:
            ended = self._claim, self._lake, self.plan, self.pointer, manifest, self._with
            withdraw(*ended, skip_lost=skip_lost)
        self._tidy()
        return manifest
