"""What is asked of a store does not grow with the runs that are over: cron makes thousands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from exports import at

from zkgroup.export.lake import Lake
from zkgroup.export.run import PartitionSummary
from zkgroup.export.store import FolderStore

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
