"""Runs that wait for an answer, since retention has taken what they planned. Real servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from export_points import Paused
from exports import joining, messages_in
from members import connector
from resets import drop_messages
from scenes import Scene, remake, up_to
from support import wait_until
from writing import register

from zkgroup.errors import RefusedError, UnreachableError
from zkgroup.export.checks.verify import verify
from zkgroup.export.model.words import Policies
from zkgroup.export.planning.bounds import Bound
from zkgroup.export.runs.refusals import Overtaken
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import Delete
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.sandbox.topics import add_partitions
from zkgroup.servers.registry import Registry


def overtake(scene: Scene, **wish: Any) -> Overtaken:
    """Retention takes five messages behind the plan."""

    def take(point: str) -> None:
        if point == "plan in place":
            drop_messages(scene.kafka, scene.first, 5)

    with pytest.raises(Overtaken, match=rf"{scene.first}: offsets \d to 4 \(\d offsets\) were deleted") as raised:
        scene.told(passed=take, **wish)
    return raised.value


@pytest.mark.parametrize("kind", ["earliest", "offsets", "backfill", "join"])
def test_a_plan_that_retention_overtook_waits_for_an_answer(scene: Scene, kind: str) -> None:
    """Where no offset of the group's tells where it was to begin, nothing but its plan knows what is gone. Whatever
    else goes wrong meanwhile, the answer records it, and moves no other partition."""
    second = TopicPartition(scene.topic, 1)
    places = {scene.first: 2, second: 4} if kind == "offsets" else {scene.first: 0, second: 0}
    wish: dict[str, Any] = {"begin": Bound("offsets", offsets=places) if kind == "offsets" else "earliest"}
    if kind == "join":
        wish["join"] = joining(scene.group)
    if kind == "backfill":
        wish["backfill"] = True
        scene.commit(scene.group, {scene.first: 10, second: 10})
    assert "run it again with --on-expired earliest" in str(overtake(scene, **wish).remedy)
    points: list[str] = []
    with pytest.raises(Overtaken):
        scene.told(passed=points.append, **wish)
    assert "runner started" not in points  # cron asks each minute

    def hurt(point: str) -> None:
        if point == "runner started":
            raise UnreachableError("the brokers are away")

    with pytest.raises(UnreachableError, match="the brokers are away"):
        scene.told(passed=hurt, skip_lost=True, **wish)
    add_partitions(scene.registry, scene.topic, 3)
    (*_, gap), rows = scene.told(skip_lost=True, **wish)
    count = 5 - places[scene.first]
    assert gap == (
        f"{scene.first}: {count} offsets of {places[scene.first]} to 9 were deleted before they were read and are not "
        "exported (retention)"
    )
    assert sorted(rows) == [0, 1]
    found = sorted((row["partition"], row["offset"]) for row in messages_in(scene.out))
    assert found == [(0, n) for n in range(5, 10)] + [(1, n) for n in range(places[second], 10)]
    sums = {
        row.partition: (row.start, row.end, row.rows, row.gaps) for row in verify(scene.lake) if row.problem is None
    }
    assert sums == {0: (places[scene.first], 10, 5, count), 1: (places[second], 10, 10 - places[second], 0)}


def test_members_that_come_meanwhile_end_nothing(scene: Scene, second: Registry) -> None:
    """They are in the way as long as they are there; if they commit nothing, the plan is as right as it was."""
    overtake(scene, begin="earliest")
    register(second, scene.group)
    with pytest.raises(RefusedError, match="is live"):
        scene.told(begin="earliest", skip_lost=True)
    second.write(Delete(znodes.member_id(scene.group, f"{scene.group}_m")))
    scene.told(begin="earliest", skip_lost=True)
    assert [row.gaps for row in verify(scene.lake) if row.partition == 0] == [5]


def test_a_run_that_waits_leaves_no_files_and_can_be_given_up(scene: Scene) -> None:
    """Nothing but its plan stays; without the run the next one begins where the log does."""
    overtake(scene, begin="earliest")
    left = [path.name for path in scene.out.rglob("*") if path.is_file()]
    assert left == ["plan.json"]
    assert scene.export(scene.group, settle="withdraw") == []
    assert not scene.out.exists()
    _, rows = scene.told(begin="earliest")
    assert (sorted(rows), len(messages_in(scene.out))) == ([0, 1], 15)


@pytest.mark.parametrize(("policy", "rows"), [("skip", [1]), ("latest", [0, 1])])
def test_an_answer_that_the_next_plan_gives_needs_no_run_to_wait(scene: Scene, policy: Any, rows: list[int]) -> None:
    """The group's offset tells what is gone: it is left out, or recorded, then; a first export's run waits, as nothing
    else tells."""
    up_to(scene, 3)
    scene.fill(scene.topic, 2, 2)
    policies = Policies(expired=policy)
    error = overtake(scene, policies=policies)
    assert error.remedy == "run it again, which does as --on-expired says"
    assert scene.told(policies=policies)[1] == rows
    assert (("retention", 3, 5) in scene.skipped()) == (policy == "latest")


def test_a_waiting_run_that_cannot_be_carried_out_any_more_goes(scene: Scene) -> None:
    """Its topic is another one: what was planned can be read nowhere."""
    overtake(scene, begin="earliest")
    remake(scene)
    with pytest.raises(RefusedError, match="was deleted and made again"):
        scene.told(begin="earliest")
    assert len(scene.told(begin="earliest")[1]) == 2


def test_what_a_new_log_has_lost_already_is_recorded(scene: Scene) -> None:
    """It began at 0, and the group was to read it from there, or from the offset that is right for it."""
    up_to(scene, 10)
    remake(scene)
    drop_messages(scene.kafka, scene.first, 5)
    lines, rows = scene.told(policies=Policies(recreated="earliest"))
    assert (sorted(rows), lines[1]) == ([0, 1], f"{scene.first}: offsets 0 to 4 are not exported (retention)")
    assert scene.skipped() == [("recreated", 5, 5), ("retention", 0, 5), ("recreated", 0, 0)]
    sums = {row.partition: (row.start, row.end, row.rows) for row in verify(scene.lake) if row.problem is None}
    assert sums[0] == (0, 10, 5)


def test_an_offset_that_is_right_for_a_new_log_may_have_expired(scene: Scene) -> None:
    """That is one trouble more, with answers of its own."""
    up_to(scene, 10)
    remake(scene)
    second = TopicPartition(scene.topic, 1)
    scene.commit(scene.group, {scene.first: 2, second: 2})
    drop_messages(scene.kafka, scene.first, 5)
    with pytest.raises(RefusedError, match=rf"{scene.first} is at 2, its log starts at 5: 3 offsets are lost"):
        scene.told(policies=Policies(recreated="committed"))
    _, rows = scene.told(policies=Policies(recreated="committed"), skip_lost=True)
    assert sorted(rows) == [0, 1]
    assert ("retention", 2, 5) in scene.skipped()


@contextmanager
def all_is_held(scene: Scene, cluster: Sandbox) -> Iterator[None]:
    """A member holds the whole topic, and reads nothing; it comes before any other."""
    with closing(connector(cluster.connect, scene.group, consumer_id="0", auto_commit_enable=False)) as member:
        member.streams({scene.topic: 2})
        wait_until(lambda: len(member.statistics().owned) == 2, 30, "the member owns both partitions")
        yield


def test_others_that_hold_all_partitions_end_no_run_that_waits(scene: Scene, cluster: Sandbox) -> None:
    """A joined export has nothing to decide about beside them; the plan is as right as it was."""
    overtake(scene, begin="earliest")
    with all_is_held(scene, cluster), pytest.raises(RefusedError, match="another member has taken over all"):
        scene.told(begin="earliest", skip_lost=True, join=joining(scene.group))
    scene.told(begin="earliest", skip_lost=True)
    assert [row.gaps for row in verify(scene.lake) if row.partition == 0] == [5]


def test_a_backfill_that_a_joined_export_goes_on_with_is_nobodys_share(scene: Scene, cluster: Sandbox) -> None:
    """It moves no offset, whoever owns what: all of it is exported, and what is gone is recorded."""
    scene.commit(scene.group, {scene.first: 10, TopicPartition(scene.topic, 1): 10})
    overtake(scene, begin="earliest", backfill=True)
    with all_is_held(scene, cluster):
        scene.told(skip_lost=True, join=joining(scene.group))
    assert [(row.rows, row.gaps) for row in verify(scene.lake)] == [(5, 5), (10, 0)]


def test_another_group_that_is_exporting_ends_no_run_that_waits(scene: Scene, unique: Callable[[str], str]) -> None:
    """It may fail yet; then nothing is in the way any more."""
    overtake(scene, begin="earliest")
    other = unique("other")

    def fails(passed: Callable[[str], None]) -> None:
        def at(point: str) -> None:
            passed(point)
            if point == "files written":
                raise UnreachableError("the brokers are away")

        scene.export(other, scene.topic, passed=at)

    with Paused(fails, "files written") as theirs:
        with pytest.raises(RefusedError, match=f"group {other} is exporting"):
            scene.told(begin="earliest", skip_lost=True)
        with pytest.raises(UnreachableError, match="are away"):
            theirs.finish()
    scene.told(begin="earliest", skip_lost=True)
    assert [row.gaps for row in verify(scene.lake) if row.partition == 0] == [5]


def test_what_is_not_decided_cannot_be_kept(scene: Scene) -> None:
    """There is nothing to keep: to give the plan up is asked for by another name."""
    overtake(scene, begin="earliest")
    with pytest.raises(RefusedError, match="is not decided") as raised:
        scene.export(scene.group, settle="keep")
    assert "--settle withdraw gives it up" in str(raised.value.remedy)
    scene.told(begin="earliest", skip_lost=True)
    assert [row.gaps for row in verify(scene.lake) if row.partition == 0] == [5]
