"""What is asked of a store does not grow with the runs that are over: cron makes thousands."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from threading import Barrier
from typing import Any

import pytest
from exports import as_nobody, at, lake_for_all, offsets, root_of

from zkgroup.errors import ZkgroupError
from zkgroup.export.checks.history import status
from zkgroup.export.lake.book import Book
from zkgroup.export.lake.lake import MANIFEST, Lake
from zkgroup.export.lake.leftovers import remove_garbage
from zkgroup.export.runs.run import PartitionSummary
from zkgroup.export.stores.store import FolderStore, UnlistableError
from zkgroup.servers.registry import Registry

Export = Callable[..., list[PartitionSummary]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a store was asked for what: each is a request at least, where it is no folder."""
    counted: Counter[str] = Counter()
    for name in ("names", "walk", "read", "write", "remove"):

        def count(store: FolderStore, *given: Any, name: str = name, asked: Any = getattr(FolderStore, name)) -> Any:
            counted[name] += 1
            return asked(store, *given)

        monkeypatch.setattr(FolderStore, name, count)
    return counted


def test_what_a_run_left_and_nobody_may_list_stops_no_export(
    in_process: Export, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str]
) -> None:
    """An attempt's folder says nothing of the run that it is in; that one's own folder may."""
    topic, group = make_topic(), unique("group")
    fill(topic, 20)
    with lake_for_all() as lake:
        in_process(group, topic, until=at(topic, 10), root=root_of(lake))
        (run,) = lake.runs(group)
        folder = root_of(lake) / lake.folder(group, run)
        attempt = folder / "attempt"
        attempt.mkdir()
        attempt.chmod(0)
        with as_nobody():
            assert remove_garbage(lake, group, "any", lambda *_: None) == 0
        assert (folder / MANIFEST).exists()
        folder.chmod(0o311)
        with as_nobody(), pytest.raises(UnlistableError, match=f"cannot list {folder}"):
            remove_garbage(lake, group, "any", lambda *_: None)
        folder.chmod(0o755)
        in_process(group, topic, root=root_of(lake))
        assert offsets(lake) == list(range(20))


@pytest.mark.parametrize(("ahead", "most"), [(False, 8), (True, 12)], ids=["", "with a backfill ahead"])
def test_an_export_asks_no_more_after_many_than_after_few(
    in_process: Export, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    asked: Counter[str], lake: Lake, ahead: bool, most: int,
) -> None:  # fmt: skip
    """Of its own group's runs, and of others'; also where a backfill lies ahead of all of them."""
    topics, groups = [make_topic(), make_topic()], [unique("group"), unique("group")]
    for topic in topics:
        fill(topic, 40)
    found: list[dict[str, int]] = []
    in_process(groups[0], topics[0], max_messages=2)
    if ahead:
        in_process(groups[0], topics[0], backfill=True, begin=at(topics[0], 35), until=at(topics[0], 38))
    for many in (4, 11):
        while len(lake.runs(groups[0])) < many:
            for group, topic in zip(groups, topics, strict=True):
                in_process(group, topic, max_messages=2)
        asked.clear()
        (row,) = in_process(groups[0], topics[0], max_messages=2)
        found.append(dict(asked))
        asked.clear()
        in_process(groups[0], topics[0], until=at(topics[0], row.end))
        found.append(dict(asked))
        assert len(lake.runs(groups[0])) == many + 1
    assert found[:2] == found[2:]
    assert sum(found[1].values()) <= most


def test_of_a_store_that_is_far_many_things_are_asked_at_once(
    in_process: Export, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    lake: Lake, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """In a lake of 151 groups an export took 29 s where a request takes 10 ms: each group was asked by itself."""
    topic, group = make_topic(), unique("group")
    fill(topic, 4)
    in_process(group, topic, until=at(topic, 2))
    (run,) = lake.runs(group)
    for other in range(4):
        shutil.copytree(root_of(lake) / lake.folder(group, run), root_of(lake) / lake.folder(f"other{other}", run))
    together = Barrier(4, timeout=20)
    read = FolderStore.read

    def wait_for_the_others(store: FolderStore, name: str) -> bytes | None:
        if "/other" in name:
            together.wait()
        return read(store, name)

    monkeypatch.setattr(FolderStore, "read", wait_for_the_others)
    assert len(Book(lake, group).others) == 4


def test_a_folder_that_is_closed_to_this_user_is_seen_before_the_decision(
    in_process: Export, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    registry: Registry,
) -> None:  # fmt: skip
    """Another user's folder of a partition: the run was decided by one who cannot finish it."""
    topic, group = make_topic(), unique("group")
    fill(topic, 20)
    with lake_for_all() as lake:
        in_process(group, topic, until=at(topic, 10), root=root_of(lake))
        for folder in (root_of(lake), *(path for path in root_of(lake).rglob("*") if path.is_dir())):
            folder.chmod(0o777)
        closed = root_of(lake) / f"topic={topic}/partition=0"
        closed.chmod(0o755)
        with as_nobody(), pytest.raises(ZkgroupError, match=f"cannot write {closed}: no permission in {closed}") as no:
            in_process(group, topic, root=root_of(lake))
        assert no.value.remedy == "let this user write there, then run it again"
        assert status(registry, group, lake) == []
        closed.chmod(0o777)
        with as_nobody():
            in_process(group, topic, root=root_of(lake))
        assert offsets(lake) == list(range(20))
