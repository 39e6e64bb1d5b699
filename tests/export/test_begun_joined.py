"""Where runs of a member that came to nothing were to begin, and what other members take. Real servers."""

from __future__ import annotations

from contextlib import ExitStack, closing

from begun import EARLIEST, all_is_held, left, overtake, recorded, refused
from exports import joining, messages_in
from members import connector
from resets import drop_messages
from scenes import Scene
from support import wait_until

from zkgroup.export.checks.verify import verify
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.sandbox import Sandbox


def test_partitions_that_others_hold_wait_for_their_turn(scene: Scene, cluster: Sandbox) -> None:
    """A joined export has nothing to decide about beside them, and loses sight of nothing."""
    wish = {**EARLIEST, "join": joining(scene.group)}
    overtake(scene, **wish)
    with all_is_held(scene, cluster):
        assert scene.told(skip_lost=True, **wish)[1] == []
    recorded(scene, **wish)


def test_what_another_member_takes_over_meanwhile_is_kept_in_mind(scene: Scene, cluster: Sandbox) -> None:
    """The others are exported; of that one the run tells nothing, and nobody has read it yet."""
    wish = {**EARLIEST, "join": joining(scene.group)}
    with ExitStack() as stack:

        def come(point: str) -> None:
            if point == "files written":
                member = connector(cluster.connect, scene.group, consumer_id="0", auto_commit_enable=False)
                stack.enter_context(closing(member)).streams({scene.topic: 1})
                wait_until(lambda: len(member.statistics().owned) == 1, 30, "the member owns its share")

        lines, rows = scene.told(passed=come, **wish)
    assert (lines, rows) == ([f"{scene.first} was taken over by another member: it is not exported"], [0, 1])
    assert {row["partition"] for row in messages_in(scene.out)} == {1}
    drop_messages(scene.kafka, scene.first, 5)
    refused(scene, **EARLIEST)
    recorded(scene, **EARLIEST)
    assert not list(scene.out.rglob("begun.json"))


def test_a_backfill_that_a_joined_export_goes_on_with_is_nobodys_share(scene: Scene, cluster: Sandbox) -> None:
    """It moves no offset, whoever owns what: all of it is exported, and what is gone is recorded."""
    scene.commit(scene.group, {scene.first: 10, TopicPartition(scene.topic, 1): 10})
    left(scene, backfill=True)
    drop_messages(scene.kafka, scene.first, 5)
    with all_is_held(scene, cluster):
        scene.told(skip_lost=True, join=joining(scene.group))
    assert [(row.rows, row.gaps) for row in verify(scene.lake)] == [(5, 5), (10, 0)]
