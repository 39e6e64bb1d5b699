"""Whatever an export passes over is told, and recorded where that was asked for, also where nothing is to be read."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cli import run
from export_points import driven
from exports import committed_end, joining, messages_in, published_in
from resets import drop_messages
from scenes import Scene, remake, up_to
from support import wait_until

from zkgroup.errors import RefusedError
from zkgroup.export.checks.verify import VerifyRow, verify
from zkgroup.export.model.words import Policies
from zkgroup.export.planning.beginnings import NoOffsetError
from zkgroup.export.planning.bounds import Bound
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import Delete
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.sandbox.topics import add_partitions
from zkgroup.servers.kafka import producer
from zkgroup.servers.zookeeper import ZooKeeperSettings


def set_back(scene: Scene) -> str:
    """All is exported, then an operator sets one partition back."""
    up_to(scene, 10)
    scene.commit(scene.group, {scene.first: 2})
    return f"{scene.first} is left out: {scene.first} is at 2, exported up to 10"


def expired(scene: Scene) -> str:
    """Retention has passed by where the group stands."""
    up_to(scene, 3)
    drop_messages(scene.kafka, scene.first, 5)
    return f"{scene.first} is left out: its log starts at 5, behind 3"


def added(scene: Scene) -> str:
    """A partition that earlier exports did not see."""
    up_to(scene, 10)
    add_partitions(scene.registry, scene.topic, 3)
    return f"{scene.topic}-2 is left out: it has no committed offset"


def uncommitted(scene: Scene) -> str:
    """The group knows but one of the partitions, and has read all of that."""
    scene.commit(scene.group, {TopicPartition(scene.topic, 1): 10})
    return f"{scene.first} is left out: it has no committed offset"


def made_again(scene: Scene) -> str:
    """The topic is another one."""
    up_to(scene, 10)
    remake(scene)
    return f"{scene.first} is left out: its topic was made again"


@pytest.mark.parametrize(
    ("trouble", "option", "rest"),
    [
        (set_back, "disagreement", [1]),
        (expired, "expired", [1]),
        (added, "new_partition", [0, 1]),
        (uncommitted, "no_offset", [1]),
        (made_again, "recreated", []),
    ],
)
def test_what_is_left_out_is_told_where_nothing_else_is_new(
    scene: Scene, trouble: Callable[[Scene], str], option: str, rest: list[int]
) -> None:
    """Each time: a job that runs every hour must not look well while a partition waits until retention takes it."""
    line = trouble(scene)
    policies = Policies(**{option: "skip"})  # type: ignore[arg-type]
    for _ in range(2):
        lines, rows = scene.told(policies=policies)
        assert line in lines
        assert len(lines) == (2 if option in ("recreated", "no_offset") else 1)  # the latter's folder is empty
        assert rows == rest


def test_of_very_many_partitions_the_first_are_told_of(
    scene: Scene, make_topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    """The others are in the log: cron's mail is no place for a thousand lines."""
    many, lines = make_topic(25), list[str]()
    with caplog.at_level("INFO", "zkgroup.export.runs.surroundings"):
        scene.export(scene.group, many, begin=None, policies=Policies(no_offset="skip"), warn=lines.append)
    assert lines == [
        *(f"{many}-{number} is left out: it has no committed offset" for number in range(20)),
        "and 5 more like these, which -v names",
    ]
    assert [record.getMessage() for record in caplog.records] == [
        f"{many}-{number} is left out: it has no committed offset" for number in range(20, 25)
    ]


def test_the_command_tells_when_everything_is_left_out(scene: Scene, cluster: Sandbox) -> None:
    """An empty table is explained on stderr, and ``--quiet`` alone silences it."""
    told = ["export", scene.topic, "-g", scene.group, "--to", str(scene.out), "--on-no-offset", "skip"]
    done = run(*told, "-z", cluster.connect, "--output", "json")
    assert (done.returncode, done.stdout.split()) == (0, ["[]"])
    assert done.stderr.splitlines() == [
        f"zkgroup: warning: {scene.topic}-{number} is left out: it has no committed offset" for number in range(2)
    ]
    assert run(*told, "-z", cluster.connect, "--quiet").stderr == ""


def test_a_backfill_tells_what_it_leaves_out(scene: Scene) -> None:
    """What is gone from the log of what it would fill, though there is nothing else to fill."""
    scene.commit(scene.group, {scene.first: 7, TopicPartition(scene.topic, 1): 0})
    scene.export(scene.group, scene.topic)
    drop_messages(scene.kafka, scene.first, 7)
    begin = Bound("offsets", offsets={scene.first: 0})
    lines, rows = scene.told(backfill=True, begin=begin, policies=Policies(expired="skip"))
    assert (lines, rows) == ([f"{scene.first} is left out: its log starts at 7, behind 0"], [])


def test_a_gap_is_recorded_though_nothing_is_new(scene: Scene) -> None:
    """Who says ``--on-disagreement group`` once is asked no second time, and the gap is in the books."""
    up_to(scene, 4)
    scene.commit(scene.group, {scene.first: 10})
    believed = Policies(disagreement="group")
    with pytest.raises(RefusedError, match="exported up to 4"):
        scene.told()
    assert scene.told(policies=believed) == ([f"{scene.first}: offsets 4 to 9 are not exported (moved)"], [0, 1])
    assert scene.skipped() == [("moved", 4, 10)]
    runs = scene.lake.runs(scene.group)
    assert scene.told() == scene.told(policies=believed) == ([], [0, 1])
    assert scene.lake.runs(scene.group) == runs
    assert verify(scene.lake)[0] == VerifyRow(scene.topic, 0, 0, 10, 4, 0, 6, 1, None)
    assert [row.rows for row in scene.export(scene.group, scene.topic, backfill=True)] == [6]


def test_a_topic_made_again_that_goes_on_is_recorded_at_once(scene: Scene) -> None:
    """``--on-recreated committed``, once: also where the group has read all of the new log."""
    up_to(scene, 10)
    remake(scene)
    lines, _ = scene.told(policies=Policies(recreated="committed"))
    assert lines == [
        f"{scene.topic}-{number}: its topic was made again: what was left of the old log is not exported"
        for number in range(2)
    ]
    assert scene.told() == ([], [0, 1])


def test_a_backfill_of_what_is_gone_for_good_is_recorded(scene: Scene) -> None:
    """A lost file of which the log has nothing any more: said once, and ``--verify`` is content from then on."""
    up_to(scene, 10)
    (name,) = [name for name in published_in(scene.out) if "partition=0" in name]
    (scene.out / name).unlink()
    drop_messages(scene.kafka, scene.first, 10)
    lines, rows = scene.told(backfill=True, begin=Bound("offsets", offsets={scene.first: 0}), skip_lost=True)
    assert lines == [
        f"{scene.first}: {name} is missing: of its messages the log has none any more",
        f"{scene.first}: offsets 0 to 9 are not exported (retention)",
    ]
    assert rows == [0]
    assert [row.problem for row in verify(scene.lake)] == [None, None]
    assert scene.told(backfill=True, begin="earliest", skip_lost=True) == ([], [])


def test_nobody_joins_to_record_what_others_have_read(scene: Scene) -> None:
    """Beside members the group stands elsewhere than the lake ends at any time: that alone makes no rebalance."""
    up_to(scene, 4)
    scene.commit(scene.group, {scene.first: 10})
    points: list[str] = []
    lines, rows = scene.told(join=joining(scene.group), passed=points.append)
    assert (lines, rows, points) == ([], [0, 1], [])


def test_who_goes_on_tells_what_is_passed_over(scene: Scene, short: ZooKeeperSettings) -> None:
    """Whoever planned the run was killed, and may have told nobody: its gaps are told once more, and the next export
    has nothing to say."""
    up_to(scene, 3)
    drop_messages(scene.kafka, scene.first, 5)
    wish = {"group": scene.group, "topics": [scene.topic], "out": scene.out, "skip_lost": True}
    assert driven(short, scene.kafka, kill_at="plan in place", **wish)[0] == -9
    *_, goes_on, gap = scene.told()[0]
    assert goes_on.startswith("going on with run")
    assert gap == f"{scene.first}: offsets 3 to 4 are not exported (retention)"
    assert scene.told() == ([], [0, 1])
    assert [row["offset"] for row in messages_in(scene.out) if row["partition"] == 0] == [0, 1, 2, *range(5, 10)]


def test_a_warning_of_the_planning_is_told_once(scene: Scene) -> None:
    """Though an export that finds something new plans twice."""
    scene.commit(scene.group, {TopicPartition("dead", 0): 3, scene.first: 0, TopicPartition(scene.topic, 1): 0})
    lines: list[str] = []
    scene.export(scene.group, warn=lines.append)
    assert lines == [f"group {scene.group} has offsets of topic dead, which does not exist: it is left out"]


@pytest.mark.parametrize("how", [{"begin": "latest"}, {"policies": Policies(no_offset="latest")}])
def test_what_is_before_the_latest_is_recorded(scene: Scene, how: dict[str, Any]) -> None:
    """A first export that begins at the end reads nothing, says what it passes over, and records that, once."""
    lines, rows = scene.told(**how)
    passed = [f"{TopicPartition(scene.topic, n)}: offsets 0 to 9 are not exported (latest)" for n in range(2)]
    assert (lines, sorted(rows)) == (passed, [0, 1])
    assert scene.skipped() == [("latest", 0, 10)] * 2
    assert scene.told(**how)[0] == []


def test_an_empty_folder_that_a_group_goes_on_in_is_told(scene: Scene, tmp_path: Path) -> None:
    """As that of a lake which is not mounted: nobody has to guess where what the group has read before is."""
    up_to(scene, 4)
    away = tmp_path / "away"
    scene.out.rename(away)
    (line,) = [line for line in scene.told()[0] if "mounted" in line]
    assert line.startswith(f"{scene.out} has no exports: what group {scene.group} has read before ({scene.first} at ")
    assert "--backfill exports it" in line
    scene.fill(scene.topic, 2)
    assert scene.told()[0] == [], "it is no longer empty"


def test_a_folder_that_is_not_mounted_is_told_of_before_there_is_anything_new(scene: Scene) -> None:
    """The next message may be hours away. So it is where the runs are gone, and their files are not."""
    up_to(scene, 10)
    kept = scene.out.with_name("kept")
    scene.out.rename(kept)
    for _ in range(2):
        (line,) = scene.told()[0]
        assert f"{scene.out} has no exports: what group {scene.group} has read before ({scene.first} at 10" in line
        assert not scene.out.exists()
    kept.rename(scene.out)
    assert scene.told()[0] == []
    shutil.rmtree(scene.out / "_zkgroup")
    (line,) = scene.told()[0]
    assert "is in no run's manifest, nor is any file of its topic" in line


def test_an_offset_behind_the_logs_end_keeps_no_other_partition_waiting(scene: Scene) -> None:
    """Whoever wrote it: it is left out when that is asked for, and the lake knows where to go on."""
    up_to(scene, 7)
    scene.commit(scene.group, {scene.first: 99_999})
    scene.fill(scene.topic, 4, 2)
    with pytest.raises(RefusedError, match="is at 99999, its log ends at 12, exported up to 7") as raised:
        scene.told()
    assert "--on-disagreement lake" in str(raised.value.remedy)
    lines, partitions = scene.told(policies=Policies(disagreement="skip"))
    assert ([line for line in lines if "is left out" in line], partitions) == (
        [f"{scene.first} is left out: {scene.first} is at 99999, its log ends at 12, exported up to 7"], [1],
    )  # fmt: skip
    lines, _ = scene.told(policies=Policies(disagreement="lake"))
    assert lines == [f"{scene.first}: the group was moved to 99999: it goes on at 7, where its exports end"]
    assert [row.problem for row in verify(scene.lake) if row.problem] == []
    found = [(row["partition"], row["offset"]) for row in messages_in(scene.out)]
    assert sorted(found) == [(number, offset) for number in range(2) for offset in range(12)]


def killed(scene: Scene, short: ZooKeeperSettings, point: str, **wish: Any) -> None:
    """The first export of the group is SIGKILLed there."""
    wish = {"group": scene.group, "topics": [scene.topic], "out": scene.out, "begin": "earliest", **wish}
    assert driven(short, scene.kafka, kill_at=point, **wish)[0] == -9


def test_who_goes_on_may_accept_what_was_not_accepted_before(scene: Scene, short: ZooKeeperSettings) -> None:
    """Retention has taken planned messages since a kill: the same command with the answer goes on, and records it."""
    killed(scene, short, "plan in place")
    drop_messages(scene.kafka, scene.first, 5)
    (*_, gap), rows = scene.told(begin="earliest", skip_lost=True)
    gone = "5 offsets of 0 to 9 were deleted before they were read"
    assert gap == f"{scene.first}: {gone} and are not exported (retention)"
    assert sorted(rows) == [0, 1]
    found, _ = [row for row in verify(scene.lake) if row.problem is None]
    assert (found.start, found.end, found.rows, found.gaps) == (0, 10, 5, 5)


def test_a_lake_whose_only_run_was_withdrawn_is_empty(scene: Scene, short: ZooKeeperSettings) -> None:
    """Its documents are no messages: what a group that was moved meanwhile passes over is told as in a new folder."""
    killed(scene, short, "decided")
    scene.commit(scene.group, {scene.first: 5})
    with pytest.raises(RefusedError, match="was moved by somebody else"):
        scene.told(begin="earliest")
    scene.told(settle="withdraw")
    lines, _ = scene.told(begin="earliest")
    assert [line.partition(": what group")[0] for line in lines] == [f"{scene.out} has no exports"]


@pytest.mark.parametrize(("minutes", "lines"), [(20, 1), (1, 0)])
def test_a_transaction_that_nobody_ends_is_told(scene: Scene, minutes: int, lines: int) -> None:
    """Behind it nothing is exported, which looks as if there were nothing; others end by themselves in time."""
    up_to(scene, 10)
    client = producer(scene.kafka, transactional_id=scene.topic)
    client.init_transactions(30)
    client.begin_transaction()
    since = (int(time.time()) - 60 * minutes) * 1000
    for _ in range(3):
        client.produce(scene.topic, b"open", partition=0, timestamp=since)
    client.flush(30)
    told, _ = scene.told()
    assert len(told) == lines
    for line in told:
        at = datetime.fromtimestamp(since / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        assert line.startswith("what lies behind open transactions is not exported until they end")
        assert line.endswith(f": {scene.first}, 3 offsets from 10 on, since {at}")
    client.abort_transaction(30)
    wait_until(lambda: committed_end(scene.kafka, scene.topic) == 14, 20, "the marker is written")
    assert scene.told()[0] == []


def test_a_group_whose_offsets_were_deleted_is_told_where_its_exports_end(scene: Scene) -> None:
    """It was advised to begin at either end of the log, and both were refused, as if somebody had moved it."""
    up_to(scene, 5)
    for number in range(2):
        scene.registry.write(Delete(znodes.offset(scene.group, TopicPartition(scene.topic, number))))
    with pytest.raises(NoOffsetError, match=f"messages of it are exported here .{scene.first}, exported up to 5") as no:
        scene.told()
    assert no.value.remedy.startswith("--on-disagreement lake goes on where the export ended")
    with pytest.raises(RefusedError, match=f"{scene.first} has no offset, and would begin at 10, exported up to 5"):
        scene.told(begin="latest")
    scene.told(policies=Policies(disagreement="lake"))
    assert len(messages_in(scene.out)) == 20
    assert [row.problem for row in verify(scene.lake) if row.problem] == []
