"""A lake that two clusters export to: numbers of the one say nothing of the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli import run

from zkgroup.errors import RefusedError
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.model.plan_types import Policies
from zkgroup.export.planning.bounds import EARLIEST
from zkgroup.export.planning.group_state import GroupState
from zkgroup.export.run.run_export import PartitionSummary
from zkgroup.export.stores.store import FolderStore
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.servers.registry import Registry

InProcess = Callable[..., list[PartitionSummary]]


def test_a_lake_of_another_cluster_is_told_as_one(
    in_process: InProcess, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """A group of the same name, and a topic of the same name, elsewhere: nothing was made again, and to export the log
    from its start is no remedy. A cluster whose nodes were copied may say so."""
    topic, group = make_topic(), unique("group")
    fill(topic, 10)
    in_process(group, topic, max_messages=4)
    destination = Destination(FolderStore(tmp_path / "out"))
    path = tmp_path / "out" / destination.folder(group, destination.runs(group)[0]) / "manifest.json"
    document = json.loads(path.read_text())
    document["coverage"][topic]["czxid"] += 1 << 40
    document["coverage"][topic]["topic_id"] = None
    path.write_text(json.dumps(document))
    with pytest.raises(RefusedError, match="topics were deleted and made again"):
        in_process(group, topic)
    path.write_text(json.dumps(document | {"cluster": "elsewhere"}))
    with pytest.raises(RefusedError, match=rf"of another cluster .*elsewhere; .*{destination.runs(group)[0]}") as raised:
        in_process(group, topic)
    assert "--to" in str(raised.value.remedy)
    assert "earliest" not in str(raised.value.remedy)
    with pytest.raises(RefusedError, match="of another cluster"):
        in_process(group, topic, policies=Policies(recreated="earliest"))
    with pytest.raises(RefusedError, match="of another cluster"):
        in_process(group, topic, policies=Policies(recreated="committed"))
    (row,) = in_process(group, topic, policies=Policies(recreated="same"))
    assert (row.start, row.end) == (4, 10)


def of_cluster(destination: Destination, group: str, run: str, cluster: str) -> str:
    """Have a run be of another cluster; which it was of."""
    path = Path(str(destination.store.uri)) / destination.folder(group, run) / "manifest.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"cluster": cluster}))
    return str(document["cluster"])


@pytest.mark.parametrize("way", [{}, {"backfill": True, "begin": EARLIEST}, {"adopt": True}])
@pytest.mark.parametrize("same", [False, True])
def test_a_group_exports_from_one_cluster_to_a_lake(
    in_process: InProcess, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    tmp_path: Path, way: dict[str, Any], same: bool,
) -> None:  # fmt: skip
    """Also where it exported other topics there; or the same one, whose numbers in both ZooKeepers are alike: offsets
    of the one log were taken for the other one's. A run that comes back tells it as the newest does."""
    group, destination = unique("group"), Destination(FolderStore(tmp_path / "out"))
    topics = [make_topic(), make_topic()]
    for topic in topics:
        fill(topic, 10)
    in_process(group, topics[0])
    (first,) = destination.runs(group)
    here = of_cluster(destination, group, first, "elsewhere")
    with pytest.raises(RefusedError, match=f"of another cluster has exported .cluster elsewhere; .* is {here}"):
        in_process(group, topics[not same], **way)
    away = (tmp_path / "out" / destination.folder(group, first)).rename(tmp_path / "away")
    in_process(group, topics[1])
    away.rename(tmp_path / "out" / destination.folder(group, first))
    with pytest.raises(RefusedError, match=f"of another cluster has exported .cluster elsewhere; .* is {here}"):
        in_process(group, topics[1], **way)


def test_offsets_here_say_nothing_of_exports_elsewhere(
    in_process: InProcess, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    cluster: Sandbox, tmp_path: Path,
) -> None:  # fmt: skip
    """``--verify --group`` told of a group that stands elsewhere, and advised what is refused."""
    topic, group, destination = make_topic(), unique("group"), Destination(FolderStore(tmp_path / "out"))
    fill(topic, 10)
    in_process(group, topic)
    of_cluster(destination, group, destination.runs(group)[0], "elsewhere")
    to = ("-z", cluster.connect, "export", "--to", destination.store.uri, "--verify")
    done = run(*to, "--group", group)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (5, "", 1)
    assert "of another cluster has exported (cluster elsewhere; " in done.stderr
    assert run(*to).returncode == 0


def test_a_topic_of_another_cluster_is_no_other_groups(
    in_process: InProcess, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """Its numbers may be those of the one here; other topics are not in its way."""
    topic, other, destination = make_topic(), make_topic(), Destination(FolderStore(tmp_path / "out"))
    groups = [unique("group"), unique("group")]
    fill(topic, 10)
    in_process(groups[0], topic, max_messages=4)
    of_cluster(destination, groups[0], destination.runs(groups[0])[0], "elsewhere")
    with pytest.raises(RefusedError, match=rf"what group {groups[0]} of another cluster has exported of {topic} "):
        in_process(groups[1], topic)
    in_process(groups[1], other)


def test_a_cluster_that_has_got_an_id_is_the_same(
    in_process: InProcess, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    registry: Registry, tmp_path: Path,
) -> None:  # fmt: skip
    """Brokers write one from 0.10.1 on; before, its birth was its name."""
    topic, group, destination = make_topic(), unique("group"), Destination(FolderStore(tmp_path / "out"))
    fill(topic, 10)
    in_process(group, topic, max_messages=4)
    of_cluster(destination, group, destination.runs(group)[0], GroupState(registry, group, print).clusters()[-1])
    (row,) = in_process(group, topic)
    assert (row.start, row.end) == (4, 10)
