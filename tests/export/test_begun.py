"""Runs that came to nothing, and what retention takes before the next one: where they were to begin is not forgotten.
Real servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from begun import EARLIEST, hurt, interrupted, left, overtake, recorded, refused
from export_points import Paused, driven
from exports import messages_in
from resets import drop_messages
from scenes import Scene, remake, up_to
from support import wait_until
from writing import register

from zkgroup.errors import RefusedError, UnreachableError, ZkgroupError
from zkgroup.export.checks.verify import verify
from zkgroup.export.lake.begun import read_begun
from zkgroup.export.model.layout import LayoutWish
from zkgroup.export.model.words import Policies
from zkgroup.export.planning.bounds import Bound
from zkgroup.export.stores.store import FolderStore
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import Delete, Exists
from zkgroup.sandbox.topics import add_partitions, create_topic, delete_topic
from zkgroup.servers.registry import Registry
from zkgroup.servers.zookeeper import ZooKeeperSettings

WAYS: dict[str, dict[str, Any]] = {
    "earliest": EARLIEST,
    "time": {"begin": Bound("time", millis=1)},
    "policy": {"policies": Policies(no_offset="earliest")},
    "backfill": {**EARLIEST, "backfill": True},
    "backfill of a time": {"begin": Bound("time", millis=1), "backfill": True},
}


@pytest.mark.parametrize("way", WAYS)
def test_what_a_run_was_to_read_and_retention_took_is_asked_about_and_recorded(scene: Scene, way: str) -> None:
    """Where no offset of the group's tells where it was to begin, the plan was all that knew. Whatever else goes wrong
    until there is an answer loses nothing of it, and moves no other partition."""
    wish = WAYS[way]
    error = overtake(scene, **wish)
    what = "the backfill" if "backfill" in way else "it"
    assert error.remedy == (
        f"run {what} again, which does as --on-expired says of what is gone: earliest (or --skip-lost) exports what is "
        "left and records the rest"
    )
    refused(scene, **wish)
    with pytest.raises(UnreachableError, match="the brokers are away"):
        scene.told(passed=hurt, skip_lost=True, **wish)
    add_partitions(scene.registry, scene.topic, 3)
    refused(scene, **wish)
    recorded(scene, **wish)
    found = sorted((row["partition"], row["offset"]) for row in messages_in(scene.out))
    assert found == [(0, n) for n in range(5, 10)] + [(1, n) for n in range(10)]


def test_a_list_of_places_may_name_the_start_of_a_log(scene: Scene) -> None:
    """As offset files do: that is another offset later on; one that is named stays what it is."""
    places: dict[TopicPartition, Any] = {scene.first: "earliest", TopicPartition(scene.topic, 1): 4}
    wish = {"begin": Bound("offsets", offsets=places)}
    overtake(scene, **wish)
    assert [(one.partition, one.offset) for one in read_begun(scene.lake, scene.group)] == [(scene.first, 0)]
    refused(scene, **wish)
    scene.told(skip_lost=True, **wish)
    assert scene.skipped() == [("retention", 0, 5)]
    assert [(row.start, row.end, row.rows) for row in verify(scene.lake)] == [(0, 10, 5), (4, 10, 6)]


def moved(
    scene: Scene, point: str = "files written", offset: int = 0, said: str = "was moved by somebody else"
) -> None:
    """Another partition's offset: the whole run is dropped."""

    def move(passed: str) -> None:
        if passed == point:
            scene.commit(scene.group, {TopicPartition(scene.topic, 1): offset})

    with pytest.raises(RefusedError, match=said):
        scene.told(passed=move, **EARLIEST)


def deleted(scene: Scene) -> None:
    """Another topic of the same run."""
    other = f"{scene.topic}-other"
    create_topic(scene.registry, other, 1)
    scene.fill(other, 3, 1)

    def delete(passed: str) -> None:
        if passed == "files written":
            delete_topic(scene.registry, other)

    with pytest.raises(RefusedError, match=f"topic {other} was deleted"):
        scene.export(scene.group, scene.topic, other, passed=delete)


def withdrawn(scene: Scene) -> None:
    """It was decided, and cannot be committed: an offset that was made meanwhile is in the way, and gone again."""
    moved(scene, "published for good", 7, "--settle withdraw takes the files back")
    assert scene.export(scene.group, settle="withdraw") == []
    scene.registry.write(Delete(znodes.offset(scene.group, TopicPartition(scene.topic, 1))))


def given_up(scene: Scene) -> None:
    """Killed, then ended by hand."""
    left(scene)
    assert scene.export(scene.group, settle="withdraw") == []


def forgotten(scene: Scene) -> None:
    """Only its node goes: its plan stays until the next export comes by."""
    left(scene)
    assert scene.export(scene.group, settle="forget") == []


@pytest.mark.parametrize("end", [interrupted, moved, deleted, withdrawn, given_up, forgotten])
def test_however_a_run_ends_that_came_to_nothing(scene: Scene, end: Callable[[Scene], None]) -> None:
    """Retention comes later, when nobody is at work."""
    end(scene)
    drop_messages(scene.kafka, scene.first, 5)
    if end is forgotten:
        with pytest.raises(UnreachableError):
            scene.told(passed=hurt, skip_lost=True, **EARLIEST)
    refused(scene, **EARLIEST)
    recorded(scene, **EARLIEST)


@pytest.mark.parametrize("point", ["plan written", "plan in place", "files written"])
def test_a_run_that_was_killed(scene: Scene, short: ZooKeeperSettings, point: str) -> None:
    """It is gone on with, where its plan was in place; whether that comes to an end or not, what it knew stays."""
    wish = {"group": scene.group, "topics": [scene.topic], "out": scene.out}
    assert driven(short, scene.kafka, kill_at=point, **wish)[0] == -9
    drop_messages(scene.kafka, scene.first, 5)
    if point == "plan written":
        code, lines = driven(short, scene.kafka, kill_at="locked", **wish)
        assert code == -9, lines
        with pytest.raises(RefusedError):
            scene.told(**EARLIEST)  # tidies up
    else:
        with pytest.raises(RefusedError, match="were deleted"):
            scene.told(**EARLIEST)
    refused(scene, **EARLIEST)
    recorded(scene, **EARLIEST)


def test_a_plan_that_cannot_be_read_at_the_moment_is_kept(
    scene: Scene, short: ZooKeeperSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that refuses once says nothing of what it holds: half of a plan looks otherwise."""
    wish = {"group": scene.group, "topics": [scene.topic], "out": scene.out}
    assert driven(short, scene.kafka, kill_at="plan written", **wish)[0] == -9
    drop_messages(scene.kafka, scene.first, 5)
    read = FolderStore.read

    def denied(store: FolderStore, name: str) -> bytes | None:
        if name.endswith("/plan.json"):
            raise ZkgroupError(f"cannot read {name}: access denied")
        return read(store, name)

    with monkeypatch.context() as patch:
        patch.setattr(FolderStore, "read", denied)
        with pytest.raises(ZkgroupError, match="access denied"):
            scene.told(**EARLIEST)
    assert len(list(scene.out.rglob("plan.json"))) == 1
    with pytest.raises(RefusedError):
        scene.told(**EARLIEST)  # tidies up
    refused(scene, **EARLIEST)
    recorded(scene, **EARLIEST)


def test_a_second_group_that_puts_it_aside(
    scene: Scene, short: ZooKeeperSettings, unique: Callable[[str], str]
) -> None:
    """What the first one was to read it knows when it comes back, elsewhere or for other topics."""
    wish = {"group": scene.group, "topics": [scene.topic], "out": scene.out}
    assert driven(short, scene.kafka, kill_at="plan in place", **wish)[0] == -9
    drop_messages(scene.kafka, scene.first, 5)
    lock = znodes.export_lock(scene.group)
    wait_until(lambda: scene.registry.read([Exists(lock)]) == [None], 30, "its session has ended")
    lines: list[str] = []
    scene.export(unique("other"), scene.topic, warn=lines.append)
    assert any("it is put aside" in line for line in lines)
    with pytest.raises(RefusedError, match="exported them"):
        scene.told(**EARLIEST)
    assert [one.offset for one in read_begun(scene.lake, scene.group)] == [0, 0]
    scene.told(policies=Policies(disagreement="lake"), **EARLIEST)
    assert ("moved", 0, 5) in scene.skipped(), "what the other one has not exported either"


def test_a_partition_that_is_new_begins_where_its_policy_says(scene: Scene) -> None:
    """``--from latest`` says nothing of it; and what was asked with another policy is another question."""
    scene.told(begin="latest")
    add_partitions(scene.registry, scene.topic, 3)
    scene.fill(scene.topic, 30, 3)
    new = TopicPartition(scene.topic, 2)
    wish: dict[str, Any] = {"begin": "latest", "policies": Policies(new_partition="earliest")}
    interrupted(scene, **wish)
    drop_messages(scene.kafka, new, 5)
    with pytest.raises(RefusedError, match=rf"{new} was to begin at 0, its log starts at 5"):
        scene.told(**wish)
    assert new.partition not in scene.told(begin="latest", policies=Policies(new_partition="skip"))[1]
    scene.told(skip_lost=True, **wish)
    assert ("retention", 0, 5) in scene.skipped()


def test_a_backfill_leaves_alone_what_it_does_not_name(scene: Scene) -> None:
    """Whatever another one has asked for."""
    interrupted(scene, backfill=True)
    drop_messages(scene.kafka, scene.first, 5)
    second = TopicPartition(scene.topic, 1)
    wish: dict[str, Any] = {"begin": Bound("offsets", offsets={second: 0}), "policies": Policies(no_offset="earliest")}
    assert scene.told(backfill=True, **wish)[1] == [1]


def test_another_beginning_is_another_question(scene: Scene) -> None:
    """Who asks for another place knowingly leaves out what lies before; the first question stays what it was."""
    overtake(scene, **EARLIEST)
    rows = scene.told(begin="latest", until=Bound("offsets", offsets={}))[1]
    assert rows == [0, 1]
    assert scene.skipped() == [("latest", 5, 10), ("latest", 0, 10)]


def test_other_answers_to_what_is_gone(scene: Scene) -> None:
    """As for an offset that has expired: the partition alone is left out, or goes on at its end."""
    overtake(scene, **EARLIEST)
    lines, rows = scene.told(policies=Policies(expired="skip"), **EARLIEST)
    assert (lines, rows) == ([f"{scene.first} is left out: its log starts at 5, behind 0"], [1])
    scene.told(policies=Policies(expired="latest"), **EARLIEST)
    assert scene.skipped() == [("retention", 0, 5), ("latest", 5, 10)]


@pytest.mark.parametrize(("policy", "rows"), [("skip", [1]), ("latest", [0, 1])])
def test_a_committed_offset_tells_as_well_what_is_gone(scene: Scene, policy: Any, rows: list[int]) -> None:
    """It is left out, or recorded, by the next export; there is nothing to note."""
    up_to(scene, 3)
    scene.fill(scene.topic, 2, 2)
    policies = Policies(expired=policy)
    overtake(scene, policies=policies)
    assert read_begun(scene.lake, scene.group) == []
    assert scene.told(policies=policies)[1] == rows
    assert (("retention", 3, 5) in scene.skipped()) == (policy == "latest")


def test_another_group_that_is_exporting_takes_nothing_of_it(scene: Scene, unique: Callable[[str], str]) -> None:
    """It may fail yet; then nothing is in the way any more."""
    overtake(scene, **EARLIEST)
    other = unique("other")

    def fails(passed: Callable[[str], None]) -> None:
        def at(point: str) -> None:
            passed(point)
            if point == "files written":
                raise UnreachableError("the brokers are away")

        scene.export(other, scene.topic, passed=at)

    with Paused(fails, "files written") as theirs:
        with pytest.raises(RefusedError, match=f"group {other} is exporting"):
            scene.told(skip_lost=True, **EARLIEST)
        with pytest.raises(UnreachableError, match="are away"):
            theirs.finish()
    recorded(scene, **EARLIEST)


def test_a_log_that_was_made_again_has_a_beginning_of_its_own(scene: Scene) -> None:
    """Of the old one nothing is to be had, and nothing of it is missing in the new one."""
    overtake(scene, **EARLIEST)
    remake(scene)
    assert scene.told(**EARLIEST) == ([], [0, 1])


def test_what_was_exported_once_is_not_asked_about(scene: Scene) -> None:
    """The books tell better where the group stands, also when its offsets are gone."""
    interrupted(scene)
    scene.told(**EARLIEST)
    drop_messages(scene.kafka, scene.first, 5)
    scene.registry.write(Delete(znodes.offset(scene.group, scene.first)))
    with pytest.raises(RefusedError, match="exported up to 10"):
        scene.told(**EARLIEST)
    assert scene.told(policies=Policies(disagreement="lake"), **EARLIEST)[1] == [0, 1]
    assert scene.export(scene.group, scene.topic, backfill=True) == []


@pytest.mark.parametrize("backfill", [False, True])
def test_of_each_question_there_is_a_note(scene: Scene, backfill: bool) -> None:
    """As of the days that backfills ask for in turn while a disk is full."""
    first = {"begin": Bound("time", millis=1), "backfill": backfill}
    interrupted(scene, **first)
    interrupted(scene, **{**first, "begin": Bound("time", millis=2)})
    drop_messages(scene.kafka, scene.first, 5)
    refused(scene, **first)
    recorded(scene, **first)
    assert not list(scene.out.rglob("begun.json")), "all that was asked for is accounted for, whoever asked"


@pytest.mark.parametrize("portion", [{"until": 2}, {"max_messages": 4}])
def test_a_backfill_in_portions_forgets_what_it_has_done(scene: Scene, portion: dict[str, Any]) -> None:
    """What lies behind is still to be read; once all is, there is nothing to tell any more."""
    wish: dict[str, Any] = {**EARLIEST, "backfill": True}
    interrupted(scene, backfill=True)
    if "until" in portion:
        both = {scene.first: 2, TopicPartition(scene.topic, 1): 2}
        portion = {"until": Bound("offsets", offsets=both)}
    scene.told(**wish, **portion)
    assert [(one.offset, one.end) for one in read_begun(scene.lake, scene.group)] == [(2, 10), (2, 10)]
    drop_messages(scene.kafka, scene.first, 5)
    with pytest.raises(RefusedError, match=rf"{scene.first} from 2 on, its log starts at 5: 3 offsets are lost"):
        scene.told(**wish)
    scene.told(skip_lost=True, **wish)
    assert not list(scene.out.rglob("begun.json"))


def test_a_backfill_that_is_limited_forgets_none_of_its_pieces(scene: Scene) -> None:
    """It takes some of each: what is missing first counts, and not how far it came."""
    second = TopicPartition(scene.topic, 1)
    scene.commit(scene.group, {scene.first: 4, second: 10})
    scene.export(scene.group, scene.topic, until=Bound("offsets", offsets={scene.first: 6, second: 10}))
    interrupted(scene, backfill=True)
    wish: dict[str, Any] = {**EARLIEST, "backfill": True}
    scene.told(max_messages=4, **wish)
    notes = {one.partition: one.offset for one in read_begun(scene.lake, scene.group)}
    assert notes[scene.first] in (1, 2)
    drop_messages(scene.kafka, scene.first, 4)
    with pytest.raises(RefusedError, match=rf"{scene.first} from {notes[scene.first]} on, its log starts at 4"):
        scene.told(**wish)
    scene.told(skip_lost=True, **wish)
    assert not list(scene.out.rglob("begun.json"))
    assert all(row.problem is None for row in verify(scene.lake))


def test_a_note_that_cannot_be_read_stops_what_needs_it(scene: Scene) -> None:
    """To begin anew would be a guess; what goes on from offsets does not ask."""
    interrupted(scene)
    (path,) = scene.out.rglob("begun.json")
    whole = path.read_text()
    for wrong in ('{"format": 9}', "{", whole.replace('"offset": 0', '"offset": -1')):
        path.write_text(wrong)
        with pytest.raises(ZkgroupError, match=r"begun\.json cannot be read") as raised:
            scene.told(**EARLIEST)
        assert "move it away" in str(raised.value.remedy)
    scene.commit(scene.group, {scene.first: 0, TopicPartition(scene.topic, 1): 0})
    assert scene.told()[1] == [0, 1]


def test_an_export_that_succeeds_leaves_no_note(scene: Scene) -> None:
    """Its run tells better, whatever came to nothing before."""
    interrupted(scene)
    scene.told(**EARLIEST)
    assert not list(scene.out.rglob("begun.json"))


def test_members_that_come_meanwhile_take_nothing_of_it(scene: Scene, second: Registry) -> None:
    """They are in the way as long as they are there; if they commit nothing, what was asked is asked again."""
    overtake(scene, **EARLIEST)
    register(second, scene.group)
    with pytest.raises(RefusedError, match="is live"):
        scene.told(skip_lost=True, **EARLIEST)
    second.write(Delete(znodes.member_id(scene.group, f"{scene.group}_m")))
    recorded(scene, **EARLIEST)


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


def test_what_is_not_decided_cannot_be_kept(scene: Scene) -> None:
    """There is nothing to keep: to give the plan up is asked for by another name."""
    left(scene)
    with pytest.raises(RefusedError, match="is not decided") as raised:
        scene.export(scene.group, settle="keep")
    assert "--settle withdraw gives it up" in str(raised.value.remedy)
    assert len(scene.told(**EARLIEST)[1]) == 2


def test_who_goes_on_with_a_run_goes_on_with_its_layout(scene: Scene) -> None:
    """Another one that is asked for is refused rather than ignored."""
    left(scene, layout=LayoutWish(by=("partition", "date")))
    for wish in (LayoutWish(by=("partition",)), LayoutWish(value="text")):
        with pytest.raises(RefusedError, match="was planned with") as raised:
            scene.told(layout=wish, **EARLIEST)
        assert "leave these options out" in str(raised.value.remedy)
    assert scene.told(layout=LayoutWish(by=("partition", "date")), **EARLIEST)[1] == [0, 1]
