"""A run under way: what all that is done to it is done with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from zkgroup.errors import RefusedError
from zkgroup.export.lake.lake import Lake
from zkgroup.export.lake.leftovers import remove_attempts
from zkgroup.export.model.rundata import Pointer, RunPlan
from zkgroup.export.planning.group import ExportGroup
from zkgroup.export.runs.claim import ExportClaim
from zkgroup.export.runs.refusals import Live, Remade
from zkgroup.export.runs.surroundings import Surroundings


@dataclass
class UnderWay:
    """A run, under its group's claim. ``pointer``: as this process has left it, or has found it."""

    claim: ExportClaim
    lake: Lake
    plan: RunPlan
    pointer: Pointer
    surroundings: Surroundings

    def __post_init__(self) -> None:
        if self.plan.kind == "backfill":  # it moves no offset: it is nobody's share
            self.surroundings = replace(self.surroundings, member=None)

    @classmethod
    def killed(cls, claim: ExportClaim, lake: Lake, plan: RunPlan, hashed: str, surroundings: Surroundings) -> Self:
        """A run that ZooKeeper knows nothing of."""
        pointer = Pointer("planned", plan.run, lake.store.uri, hashed, claim.attempt)
        return cls(claim, lake, plan, pointer, surroundings)

    @property
    def folder(self) -> str:
        """The run's, in the lake."""
        return self.lake.folder(self.plan.group, self.plan.run)

    def __str__(self) -> str:
        return f"run {self.plan.run} of group {self.plan.group}"

    def is_taken_back(self) -> bool:
        """Whether somebody has begun to take back its files; by the lake also where ZooKeeper's data is of an earlier
        time."""
        if self.pointer.state != "decided":
            return self.pointer.state == "withdrawn"
        settled = self.lake.settled(self.plan.group, self.plan.run)
        return settled is not None and settled.how == "withdraw"

    def refuse_if_live(self) -> None:
        """Raise ``Live`` where the group has members."""
        try:
            ExportGroup(self.claim.registry, self.plan.group, self.surroundings.warn).refuse_if_live()
        except RefusedError as error:
            raise Live(error.message, error.remedy) from None

    def refuse_beside_members(self) -> None:
        """Raise ``RefusedError`` where a run that is to be kept would move the offsets of a group that has members."""
        if self.plan.kind == "export":
            try:
                self.claim.persist(self.refuse_if_live)
            except Live as error:
                raise RefusedError(f"{self} cannot be committed: {error.message}", error.again) from None

    def refuse_if_changed(self) -> None:
        """Raise where members came, an offset that is to move was touched, or a topic is not the planned one."""
        self.claim.persist(self._look)

    def _look(self) -> None:
        claim, plan, pointer, member = self.claim, self.plan, self.pointer, self.surroundings.member
        found_pointer, _ = claim.pointer()
        if found_pointer != pointer:
            if pointer.state == "planned":
                raise claim.taken_over(found_pointer)
            return  # whoever goes on with it tells, or has committed
        if plan.kind == "export" and member is None:
            self.refuse_if_live()
        found = ExportGroup(claim.registry, plan.group, self.surroundings.warn).identities(plan.topics)
        for topic, planned in plan.topics.items():
            if topic in found and not found[topic].same(planned):
                raise Remade(f"topic {topic} was deleted and made again", "export again")
            if topic not in found and pointer.state == "planned":
                raise Remade(f"topic {topic} was deleted", "export again, without it")
        if pointer.state == "planned" and member is None:
            claim.refuse_if_moved([part for part in plan.partitions if part.moves])

    def remove_attempts(self, but: str | None = None) -> None:
        """See ``leftovers``."""
        remove_attempts(self.lake, self.plan.group, self.plan.run, but)
