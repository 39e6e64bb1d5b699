"""A topic in a destination belongs to one group of one cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from export_points import Export, Paused
from exports import messages_in, problems

from zkgroup.errors import RefusedError
from zkgroup.export.destination.run_log import Destination, OwnedError, claim_topics, read_owners
from zkgroup.export.stores.store import FolderStore


@pytest.fixture
def other(unique: Callable[[str], str]) -> str:
    return unique("other")


def test_several_groups_share_a_destination_with_different_topics(
    in_process: Export, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    destination: Destination, tmp_path: Path,
) -> None:  # fmt: skip
    """Each has a log of its own."""
    for _ in range(2):
        topic = make_topic()
        fill(topic, 10)
        in_process(unique("group"), topic)
    assert len(destination.groups()) == 2
    assert len(messages_in(tmp_path / "out")) == 20
    assert problems(destination) == []


def test_a_second_group_is_refused_by_the_first_ones_name(
    in_process: Export, forty: tuple[str, str], other: str, tmp_path: Path
) -> None:
    """Before it reads anything, also when there is nothing new."""
    topic, group = forty
    in_process(group, topic, max_messages=10)
    points: list[str] = []
    with pytest.raises(OwnedError, match=rf"\b{topic}\b.*{tmp_path}/out\b.*\b{group}\b.*--take-over {group}\b"):
        in_process(other, topic, on_point=points.append)
    assert points == []
    assert len(messages_in(tmp_path / "out")) == 10


def test_a_group_takes_over_by_name(
    in_process: Export, forty: tuple[str, str], other: str, destination: Destination, tmp_path: Path
) -> None:
    """It continues where the other one's exports end; the other one is refused then, and may take over again."""
    topic, group = forty
    in_process(group, topic, max_messages=10)
    with pytest.raises(OwnedError, match=f"--take-over {group}"):
        in_process(other, topic, take_over="somebody")
    (row,) = in_process(other, topic, take_over=group, max_messages=10)
    assert (row.start, row.end) == (10, 20)
    with pytest.raises(OwnedError, match=f"--take-over {other}"):
        in_process(group, topic)
    (row,) = in_process(other, topic, max_messages=10)
    assert (row.start, row.end) == (20, 30)
    (row,) = in_process(group, topic, take_over=other, on_mismatch="lake")
    assert (row.start, row.end) == (30, 40)
    assert len(messages_in(tmp_path / "out")) == 40
    assert problems(destination) == []


def test_two_groups_at_once(
    in_process: Export, forty: tuple[str, str], other: str, destination: Destination, tmp_path: Path
) -> None:
    """Both have begun when neither owns the topic: the first to decide does, the other one is refused."""
    topic, group = forty
    with Paused(lambda passed: in_process(group, topic, on_point=passed), "files written") as first:
        in_process(other, topic)
        with pytest.raises(OwnedError, match=f"--take-over {other}"):
            first.finish()
    assert len(messages_in(tmp_path / "out")) == 40
    assert problems(destination) == []


def test_nothing_is_taken_over_from_an_export_under_way(
    in_process: Export, forty: tuple[str, str], other: str, tmp_path: Path
) -> None:
    """It is finished first."""
    topic, group = forty
    in_process(group, topic, max_messages=10)
    with Paused(lambda passed: in_process(group, topic, on_point=passed), "record written") as first:
        with pytest.raises(RefusedError, match=rf"\b{group}\b.*--abandon"):
            in_process(other, topic, take_over=group)
        first.finish()
    in_process(other, topic, take_over=group)
    assert len(messages_in(tmp_path / "out")) == 40


def test_of_two_claims_at_once_at_most_one_holds(tmp_path: Path) -> None:
    """Written first and then listed: the second group sees the first."""
    destination = Destination(FolderStore(tmp_path))
    claim_topics(destination, ["orders"], "a", ["c"])
    claim_topics(destination, ["orders"], "a", ["c"])
    with pytest.raises(OwnedError, match=r"\borders\b.*\ba\b.*\bc\b.*--take-over a\b"):
        claim_topics(destination, ["orders"], "b", ["c"])
    with pytest.raises(OwnedError, match=r"\borders\b.*\ba\b.*\bc\b.*--take-over a\b"):
        claim_topics(destination, ["orders"], "a", ["another"])
    (owner,) = read_owners(destination, ["orders"])["orders"]
    assert (owner.group, owner.cluster, owner.is_former) == ("a", "c", False)
