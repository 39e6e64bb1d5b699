"""What files tell of the log that their messages are of: in their footers, and by the marks in their names."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exports import made_again, published_in, root_of

from zkgroup.errors import RefusedError
from zkgroup.export.checks.verify import verify
from zkgroup.export.lake.book import Book
from zkgroup.export.lake.lake import Lake
from zkgroup.export.model.documents import decode_log, encode_log
from zkgroup.export.model.rundata import TopicIdentity
from zkgroup.export.model.words import Policies
from zkgroup.export.planning.group import ExportGroup
from zkgroup.export.runs.run import PartitionSummary
from zkgroup.export.stores.store import FolderStore
from zkgroup.servers.registry import Registry

Export = Callable[..., list[PartitionSummary]]


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", '"x"', "{}", '{"cluster": 1, "czxid": 2, "topic_id": null, "tag": null}',
        '{"cluster": "c", "czxid": true, "topic_id": null, "tag": null}',
        '{"cluster": "c", "czxid": 2, "topic_id": 3, "tag": null}', '{"cluster": "c", "czxid": 2, "topic_id": null}',
    ],
)  # fmt: skip
def test_a_footer_that_nobody_can_read_tells_no_log(text: str) -> None:
    """It is as if it told none."""
    assert decode_log(text) is None


def test_a_footer_tells_the_log(
    in_process: Export, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    registry: Registry, tmp_path: Path,
) -> None:  # fmt: skip
    """As it is read again."""
    lake = Lake(FolderStore(tmp_path / "out"))
    topic, group = make_topic(), unique("group")
    fill(topic, 5)
    in_process(group, topic)
    (name,) = published_in(root_of(lake))
    text = pq.read_metadata(root_of(lake) / name).metadata[b"zkgroup.log"].decode()
    looker = ExportGroup(registry, group, lambda _: None)
    identity = looker.identities([topic])[topic]
    assert decode_log(text) == (looker.cluster(), TopicIdentity(identity.czxid, identity.topic_id))
    assert text == encode_log(looker.cluster(), identity)


def test_marks_of_files_that_tell_no_log(tmp_path: Path) -> None:
    """Of an older release: the mark itself is the log's birth; what has none is the first of all, unless there are
    marked ones beside it."""
    lake = Lake(FolderStore(tmp_path))

    def mark(czxid: int) -> str | None:
        return Book(lake, "g").logs({"t": TopicIdentity(czxid)}, ("here",))["t"].tag

    def put(name: str, **told: str) -> None:
        path = tmp_path / "topic=t" / "partition=0" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(
            pa.table({"offset": [0]}).replace_schema_metadata({f"zkgroup.{key}": value for key, value in told.items()}),
            path,
        )

    assert mark(7) is None
    put("0-1.parquet")
    assert mark(7) is None
    put("0-1.g1f.parquet")
    assert [mark(0x1F), mark(0x2A)] == ["1f", "2a"]
    put("1-2.parquet", log=encode_log("here", TopicIdentity(7)))
    assert [mark(7), mark(0x1F), mark(0x2A)] == [None, "1f", "2a"]
    shutil.rmtree(tmp_path / "topic=t")
    put("1-2.parquet", log=encode_log("elsewhere", TopicIdentity(7)))
    assert mark(8) is None  # no incarnation of it: in the way


@pytest.mark.parametrize("with_manifest", [True, False])
def test_an_older_log_that_comes_back_beside_a_newer_one_is_named(
    in_process: Export, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    registry: Registry, tmp_path: Path, with_manifest: bool,
) -> None:  # fmt: skip
    """The lake was away when the group began anew with the new log, so that its files have no mark: what the older one
    holds is not what is to be exported, and no adoption changes that."""
    lake = Lake(FolderStore(tmp_path / "out"))
    root, away = root_of(lake), tmp_path / "away"
    topic, group = make_topic(), unique("group")
    fill(topic, 30)
    in_process(group, topic)
    root.rename(away)
    made_again(registry, topic)
    fill(topic, 10)
    in_process(group, topic, policies=Policies(recreated="earliest"))
    older = published_in(away)
    for name in older:
        (away / name).rename(root / name)
    folder = root / lake.folder(group, "")
    (run,) = (path for path in (away / folder.relative_to(root)).iterdir() if path.is_dir())
    if with_manifest:
        run.rename(folder / run.name)
    fill(topic, 4)
    with pytest.raises(RefusedError, match=f"of the {topic} that was deleted") as raised:
        in_process(group, topic)
    assert run.name in str(raised.value)
    assert "--adopt" not in str(raised.value.remedy)
    assert "elsewhere" in str(raised.value.remedy)
    for name in older:
        (root / name).unlink()
    if with_manifest:
        shutil.rmtree(folder / run.name)
    assert [(row.start, row.end) for row in in_process(group, topic)] == [(10, 14)]
    assert [row.problem for row in verify(lake) if row.problem] == []
