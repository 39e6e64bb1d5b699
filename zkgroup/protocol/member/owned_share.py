"""OWNING: look after a share that is read."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from zkgroup.protocol import events as ev
from zkgroup.protocol import procedures as do
from zkgroup.protocol.member.acquisition import Acquiring
from zkgroup.protocol.member.commits import Commits
from zkgroup.protocol.member.member_context import Ground
from zkgroup.protocol.member.offset_loading import Starts
from zkgroup.protocol.member.phases import Phase
from zkgroup.protocol.names import TopicPartition, spans

#: Where a partition starts that is held back is asked again after so long, doubled each time up to the longest.
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
#: How long a partition may be held back before that is told: a new one has no leader for a moment.
HELD_GRACE: Final = 3.0


class Owning:
    """Commits, sees that what is owned stays ours and that the group stays as it is, and asks again where to start in
    partitions that are ``held`` back. One thing at a time, when nothing else is under way."""

    def __init__(self, ground: Ground, commits: Commits, acquiring: Acquiring) -> None:
        self._ground = ground
        self._commits = commits
        self._acquiring = acquiring
        self.held: Mapping[TopicPartition, str] = {}
        self._commit_due = False
        self._collecting = False
        self._held_due = self._tell_due = False
        self._held_pause = FIRST_PAUSE
        self._told: set[TopicPartition] = set()  # of those that are held back, or were before a rebalance

    def begin(self, starts: Starts) -> None:
        """A share has been granted."""
        g = self._ground
        self.held = starts.held
        self._told.update(starts.malformed)
        self._told.intersection_update(g.holdings.share)
        self._tell_read(starts)
        self._held_due, self._held_pause = False, FIRST_PAUSE
        if self.held.keys() - self._told:
            g.timers.set("tell held", g.now + HELD_GRACE, self._time_to_tell)
        self.resume()

    def resume(self) -> None:
        """Go on with what is owned, if anything is."""
        g = self._ground
        g.enter(Phase.OWNING)
        if g.settings.auto_commit and g.granted and "commit" not in g.timers:
            g.timers.set("commit", g.now + g.settings.auto_commit_interval, self._time_to_commit)
        if self.held and "held" not in g.timers:
            g.timers.set("held", g.now + self._held_pause, self._time_to_ask)

    def forget(self) -> None:
        """Nothing is owned any more."""
        self.held = {}
        self._commit_due = self._collecting = self._held_due = self._tell_due = False

    def advance(self) -> None:
        """Nothing is under way: do what is due."""
        g = self._ground
        if g.unsure:
            self._verify_registry()
        elif g.holdings.doubtful:
            self._verify_owners()
        elif self._commit_due or self._commits.asked:
            self._collect()
        elif self._held_due:
            self._ask_for_held()

    # ------------------------------------------------------------ is everything as it was?

    def _verify_registry(self) -> None:
        """Watches were lost, or topics have come or gone: read the group again, and act if it differs."""
        g, before = self._ground, self._acquiring.registry
        g.unsure = False

        def verified(registry: do.Registry) -> None:
            if registry != before:
                g.dirty = g.dirty or "the group has changed"

        def failed(error: Exception) -> None:
            g.dirty = g.dirty or f"the group cannot be read: {error}"

        g.talk.run(self._acquiring.reading, verified, failed)

    def _verify_owners(self) -> None:
        """Watch owner nodes, and see that they are still ours. Done after a claim, too, when reading has begun."""
        g = self._ground
        share = g.holdings.look()

        def looked(lost: tuple[TopicPartition, ...]) -> None:
            g.holdings.looked(kept=not lost)
            if lost:
                g.dirty = g.dirty or f"the owner node of {lost[0]} was changed by somebody else"

        def failed(error: Exception) -> None:
            g.holdings.looked(kept=False)
            g.dirty = g.dirty or f"owner nodes cannot be read: {error}"

        g.talk.run(lambda: do.lost(g.settings.group, share, g.session_id), looked, failed)

    # ------------------------------------------------------------ commits

    def _time_to_commit(self) -> None:
        g = self._ground
        if g.phase is Phase.OWNING:
            self._commit_due = True
            g.timers.set("commit", g.now + g.settings.auto_commit_interval, self._time_to_commit)

    def _collect(self) -> None:
        if not self._collecting:
            self._collecting = True
            self._ground.do(ev.Collect())

    def collected(self, event: ev.Collected) -> None:
        """What the streams have consumed is known: commit it, if it is still wanted."""
        g = self._ground
        self._collecting = False
        if g.phase is Phase.OWNING and event.generation == g.generation and g.idle:
            self._commit_due = False
            self._commits.commit(event.consumed, self._committed)

    def _committed(self, error: Exception | None) -> None:
        if error is not None:
            self._ground.log(logging.WARNING, f"commit failed, the next one will try again: {error}")

    # ------------------------------------------------------------ partitions that are held back

    def _time_to_tell(self) -> None:
        """They have been held back for a while: if they still are, it is no matter of a moment."""
        self._tell_due = self._held_due = True

    def _tell_held(self) -> None:
        g = self._ground
        self._tell_due = False
        news = {partition: why for partition, why in self.held.items() if partition not in self._told}
        for topic, why in sorted({(partition.topic, why) for partition, why in news.items()}):
            mine = [partition for partition in news if (partition.topic, news[partition]) == (topic, why)]
            verb = "is" if len(mine) == 1 else "are"
            g.log(logging.WARNING, f"{spans(mine)} {verb} owned and not read: {why}")
        self._told.update(news)

    def _tell_read(self, starts: Starts) -> None:
        if back := self._told & starts.offsets.keys():
            self._told -= back
            self._ground.log(logging.WARNING, f"reads {spans(back)} now")

    def _time_to_ask(self) -> None:
        self._held_due = True

    def _ask_for_held(self) -> None:
        self._held_due = False
        self._acquiring.load_held(self.held, self._loaded, lambda _: self._ask_later())

    def _loaded(self, starts: Starts) -> None:
        g = self._ground
        share = g.holdings.share
        if starts.offsets:
            g.do(ev.Extend(g.generation, {p: (share[p], offset) for p, offset in starts.offsets.items()}))
            self._tell_read(starts)
        self.held = starts.held
        self._ask_later()

    def _ask_later(self) -> None:
        g = self._ground
        if self._tell_due:
            self._tell_held()
        if self.held:
            self._held_pause = min(LONGEST_PAUSE, self._held_pause * 2)
            g.timers.set("held", g.now + self._held_pause, self._time_to_ask)
