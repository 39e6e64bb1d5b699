"""OWNING: commit, verify the group and the owner nodes, load partitions that are held back."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from zkgroup.protocol import events as ev
from zkgroup.protocol import procedures as do
from zkgroup.protocol.member.acquisition import Acquisition, StartOffsets
from zkgroup.protocol.member.commits import Commits
from zkgroup.protocol.member.member_context import MemberContext, Phase
from zkgroup.protocol.names import TopicPartition, spans

#: The pause before a partition that is held back is loaded again, in seconds; doubled each time, up to the longest.
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
#: How long a partition may be held back before a warning, in seconds: a new one has no leader for a moment.
HELD_BACK_GRACE: Final = 3.0


class OwnedShare:
    """Commits, verifies share and group, and loads the partitions that are ``held_back``. One request at a time."""

    def __init__(self, context: MemberContext, commits: Commits, acquiring: Acquisition) -> None:
        self._context = context
        self._commits = commits
        self._acquisition = acquiring
        self.held_back: Mapping[TopicPartition, str] = {}
        self._commit_due = False
        self._collecting = False
        self._load_due = self._report_due = False
        self._held_back_pause = FIRST_PAUSE
        self._reported: set[TopicPartition] = set()  # held back, also before a rebalance, and named by a warning

    def begin(self, starts: StartOffsets) -> None:
        """The streams have begun to read the share."""
        ctx = self._context
        self.held_back = starts.held_back
        self._reported.update(starts.malformed)
        self._reported.intersection_update(ctx.owned.share)
        self._report_read(starts)
        self._load_due, self._held_back_pause = False, FIRST_PAUSE
        if self.held_back.keys() - self._reported:
            ctx.timers.set("report held back", ctx.now + HELD_BACK_GRACE, self._on_report_time)
        self.resume()

    def resume(self) -> None:
        """Go on with the share, which may be empty."""
        ctx = self._context
        ctx.enter(Phase.OWNING)
        if ctx.settings.auto_commit and ctx.assigned and "commit" not in ctx.timers:
            ctx.timers.set("commit", ctx.now + ctx.settings.auto_commit_interval, self._on_commit_time)
        if self.held_back and "held back" not in ctx.timers:
            ctx.timers.set("held back", ctx.now + self._held_back_pause, self._on_load_time)

    def forget(self) -> None:
        """The share is given up."""
        self.held_back = {}
        self._commit_due = self._collecting = self._load_due = self._report_due = False

    def advance(self) -> None:
        """Do what is due; no request is under way."""
        ctx = self._context
        if ctx.group_unverified:
            self._verify_registry()
        elif ctx.owned.has_unverified:
            self._verify_owners()
        elif self._commit_due or self._commits.requested:
            self._collect()
        elif self._load_due:
            self._load_held()

    # ------------------------------------------------------------ verification

    def _verify_registry(self) -> None:
        """Read the group again, and rebalance if it has changed: watches were lost, or topics have come or gone."""
        ctx, before = self._context, self._acquisition.registry
        ctx.group_unverified = False

        def verified(registry: do.RebalanceInput) -> None:
            if registry != before:
                ctx.rebalance_reason = ctx.rebalance_reason or "the group has changed"

        def failed(error: Exception) -> None:
            ctx.rebalance_reason = ctx.rebalance_reason or f"the group cannot be read: {error}"

        ctx.zookeeper.run(self._acquisition.read_group, verified, failed)

    def _verify_owners(self) -> None:
        """Watch owner nodes, and check that they are still ours. Done after each claim, when reading has begun."""
        ctx = self._context
        share = ctx.owned.begin_check()

        def checked(lost: tuple[TopicPartition, ...]) -> None:
            ctx.owned.end_check(kept=not lost)
            if lost:
                ctx.rebalance_reason = (
                    ctx.rebalance_reason or f"the owner node of {lost[0]} was changed by another client"
                )

        def failed(error: Exception) -> None:
            ctx.owned.end_check(kept=False)
            ctx.rebalance_reason = ctx.rebalance_reason or f"owner nodes cannot be read: {error}"

        ctx.zookeeper.run(lambda: do.lost(ctx.settings.group, share, ctx.session_id), checked, failed)

    # ------------------------------------------------------------ commits

    def _on_commit_time(self) -> None:
        ctx = self._context
        if ctx.phase is Phase.OWNING:
            self._commit_due = True
            ctx.timers.set("commit", ctx.now + ctx.settings.auto_commit_interval, self._on_commit_time)

    def _collect(self) -> None:
        if not self._collecting:
            self._collecting = True
            self._context.do(ev.Collect())

    def collected(self, event: ev.Collected) -> None:
        """Commit what the streams have consumed, if no rebalance came in between."""
        ctx = self._context
        self._collecting = False
        if ctx.phase is Phase.OWNING and event.generation == ctx.generation and ctx.idle:
            self._commit_due = False
            self._commits.commit(event.consumed, self._committed)

    def _committed(self, error: Exception | None) -> None:
        if error is not None:
            self._context.log(logging.WARNING, f"commit failed, the next one will try again: {error}")

    # ------------------------------------------------------------ partitions that are held back

    def _on_report_time(self) -> None:
        """Report the partitions that are still held back after ``HELD_BACK_GRACE``."""
        self._report_due = self._load_due = True

    def _report_held(self) -> None:
        ctx = self._context
        self._report_due = False
        unreported = {partition: why for partition, why in self.held_back.items() if partition not in self._reported}
        for topic, why in sorted({(partition.topic, why) for partition, why in unreported.items()}):
            mine = [partition for partition in unreported if (partition.topic, unreported[partition]) == (topic, why)]
            verb = "is" if len(mine) == 1 else "are"
            ctx.log(logging.WARNING, f"{spans(mine)} {verb} owned and not read: {why}")
        self._reported.update(unreported)

    def _report_read(self, starts: StartOffsets) -> None:
        if back := self._reported & starts.offsets.keys():
            self._reported -= back
            self._context.log(logging.WARNING, f"reads {spans(back)} now")

    def _on_load_time(self) -> None:
        self._load_due = True

    def _load_held(self) -> None:
        self._load_due = False
        self._acquisition.load_held_back(self.held_back, self._loaded, lambda _: self._load_later())

    def _loaded(self, starts: StartOffsets) -> None:
        ctx = self._context
        share = ctx.owned.share
        if starts.offsets:
            ctx.do(ev.AssignMore(ctx.generation, {p: (share[p], offset) for p, offset in starts.offsets.items()}))
            self._report_read(starts)
        self.held_back = starts.held_back
        self._load_later()

    def _load_later(self) -> None:
        ctx = self._context
        if self._report_due:
            self._report_held()
        if self.held_back:
            self._held_back_pause = min(LONGEST_PAUSE, self._held_back_pause * 2)
            ctx.timers.set("held back", ctx.now + self._held_back_pause, self._on_load_time)
