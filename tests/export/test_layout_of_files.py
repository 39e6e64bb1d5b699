"""A lake whose manifests are gone: its files tell the layout, and where they do not, nobody guesses one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from exports import files_in, published_in, retell

from zkgroup.errors import RefusedError
from zkgroup.export.lake.lake import Lake
from zkgroup.export.lake.layout_of_files import layout_of_files
from zkgroup.export.model.documents import decode_layout, encode_layout
from zkgroup.export.model.encoding import DamagedDocumentError
from zkgroup.export.model.layout import Layout, LayoutWish
from zkgroup.export.model.words import StoredFile
from zkgroup.export.runs.run import PartitionSummary
from zkgroup.export.stores.store import FolderStore
from zkgroup.sandbox.topics import Record, produce
from zkgroup.servers.kafka import KafkaSettings

Export = Callable[..., list[PartitionSummary]]
HOURS = LayoutWish(("date", "hour"), "Europe/Berlin", None, "json")
NOON, HOUR = 1_714_557_600_000, 3_600_000  # 2024-05-01 12:00 in Berlin


def send(kafka: KafkaSettings, topic: str, first: int, last: int) -> None:
    """One message for each hour from noon on, in two partitions by turns."""
    produce(kafka, topic, [Record(b'{"n": %d}' % i, None, i % 2, NOON + i * HOUR) for i in range(first, last)])


def told_by(out: Path) -> set[tuple[str, int]]:
    """Which folder of an hour each message lies in; readers must take the lake for one table. No message is there
    twice."""
    table = ds.dataset(out, partitioning="hive", exclude_invalid_files=False).to_table()
    rows = [(row["value"], row["hour"]) for row in table.to_pylist()]
    assert len(set(rows)) == len(rows)
    return set(rows)


def expected(count: int) -> set[tuple[str, int]]:
    """What ``send`` comes to."""
    return {(f'{{"n": {i}}}', (12 + i) % 24) for i in range(count)}


def lose_all(out: Path) -> None:
    """As somebody does who takes it for rubbish."""
    shutil.rmtree(out / "_zkgroup")


def lose_manifests(out: Path) -> None:
    """The plans stay."""
    for path in out.glob("_zkgroup/*/*/manifest.json"):
        path.unlink()


def forget_layout(out: Path) -> None:
    """Make of all files such as older releases wrote."""
    for path in out.rglob("*.parquet"):
        retell(path, lambda told: [told.pop(f"zkgroup.{name}") for name in ("layout", "log")])


@pytest.mark.parametrize("lose", [lose_all, lose_manifests])
def test_a_lake_without_manifests_keeps_its_layout(
    in_process: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    tmp_path: Path, lose: Callable[[Path], None],
) -> None:  # fmt: skip
    """The call that names no layout, as cron makes it, goes on in that of the files, and each message is there once;
    another layout is refused as ever."""
    topic, group, out = make_topic(2), unique("group"), tmp_path / "out"
    send(kafka, topic, 0, 6)
    in_process(group, topic, layout=HOURS)
    lose(out)
    send(kafka, topic, 6, 10)
    before = files_in(out)
    for wish in (LayoutWish(("partition",)), LayoutWish(zone="UTC"), LayoutWish(value="bytes")):
        with pytest.raises(RefusedError, match="was begun with --partition-by date,hour --time-zone Europe/Berlin"):
            in_process(group, topic, layout=wish)
    assert published_in(out) == [name for name in before if not name.startswith("_zkgroup/")]
    assert sum(row.rows for row in in_process(group, topic)) == 4
    assert told_by(out) == expected(10)
    lake = Lake(FolderStore(out))
    (run,) = lake.runs(group)
    found = lake.manifest(group, run)
    assert found is not None
    assert found[0].layout == Layout(("date", "hour"), "Europe/Berlin", "bytes", "json")


@pytest.mark.parametrize("lose", [lose_all, lose_manifests])
def test_files_that_tell_no_layout_are_not_mixed_with_a_guess(
    in_process: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    committed: Callable[..., int | None], tmp_path: Path, lose: Callable[[Path], None],
) -> None:  # fmt: skip
    """Files of an older release: refused, with what helps, before anything is written; the layout that is named then
    is the lake's from there on. While nothing is new, there is nothing to refuse."""
    topic, group, out = make_topic(2), unique("group"), tmp_path / "out"
    send(kafka, topic, 0, 6)
    in_process(group, topic, layout=HOURS)
    forget_layout(out)
    lose(out)
    assert sum(row.rows for row in in_process(group, topic)) == 0
    send(kafka, topic, 6, 10)
    before = files_in(out)
    with pytest.raises(RefusedError, match=r"holds files, such as topic=.*neither a manifest nor a footer") as raised:
        in_process(group, topic)
    assert raised.value.remedy is not None
    assert "--partition-by" in raised.value.remedy
    assert "\n" not in str(raised.value)
    assert files_in(out) == before
    assert committed(group, topic) == 3
    in_process(group, topic, layout=HOURS)
    send(kafka, topic, 10, 12)
    in_process(group, topic)
    assert told_by(out) == expected(12)


class Counting(FolderStore):
    """Notes what is asked of it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked: list[str] = []

    def names(self, folder: str) -> list[str]:
        self.asked.append(f"names {folder}")
        return super().names(folder)

    def walk(self, folder: str) -> Iterator[StoredFile]:
        raise AssertionError(f"all of {folder} is listed")

    def open(self, name: str) -> Any:
        self.asked.append(f"open {name}")
        return super().open(name)


@pytest.fixture
def store(tmp_path: Path) -> Counting:
    """A lake's."""
    return Counting(tmp_path)


def put(store: FolderStore, name: str, layout: str | None) -> None:
    """A file that tells a layout, or none."""
    path = store.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {} if layout is None else {"zkgroup.layout": layout}
    pq.write_table(pa.table({"offset": [1]}).replace_schema_metadata(metadata), path)


def test_few_files_are_looked_at_and_the_newest_first(store: Counting) -> None:
    """A lake of many days and topics, of which the last few files alone were written by a release that tells; and where
    nothing is, one listing is all."""
    assert layout_of_files(store, must_tell=True) is None
    assert store.asked == ["names "]
    layout = Layout(("date",), "Asia/Tokyo", "text", "json")
    for day in range(10, 30):
        put(store, f"topic=t/date=2024-05-{day}/0.{day}-{day + 1}.parquet", encode_layout(layout) if day > 27 else None)
    put(store, "topic=s/date=2024-05-10/0.0-1.parquet", None)
    (store.root / "topic=s/date=2024-05-11/0.1-2.parquet").parent.mkdir()
    (store.root / "topic=s/date=2024-05-11/0.1-2.parquet").write_bytes(b"torn")
    store.asked.clear()
    assert layout_of_files(store, must_tell=True) == layout
    assert len(store.asked) == 10, store.asked
    assert store.asked[-1] == "open topic=t/date=2024-05-29/0.29-30.parquet"


def test_what_no_export_has_named_tells_nothing(store: Counting) -> None:
    """Strange files bind nobody, nor do folders that are left empty."""
    layout = encode_layout(Layout(()))
    for name in ("other/0.0-1.parquet", "topic=t/copy.parquet", "topic=t/a/0.0-1.parquet", "_zkgroup/0.0-1.parquet"):
        put(store, name, layout)
    (store.root / "topic=u/date=2024-05-10").mkdir(parents=True)
    assert layout_of_files(store, must_tell=True) is None
    for number in range(20):
        put(store, f"topic=t/0.{number}-{number + 1}.parquet", None)
    assert layout_of_files(store, must_tell=False) is None
    assert sum(one.startswith("open ") for one in store.asked) == 2
    with pytest.raises(RefusedError, match="tells the layout"):
        layout_of_files(store, must_tell=True)


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", '{"by": 3}', '{"by": ["week"]}', "VERSION", "\ufffd"])
def test_a_layout_that_cannot_be_read_is_no_absence(store: Counting, text: str) -> None:
    """A later release may have written it: who does not know that layout must not write beside it."""
    later = orjson.loads(encode_layout(Layout())) | {"version": 99}
    put(store, "topic=t/0.0-1.parquet", orjson.dumps(later).decode() if text == "VERSION" else text)
    with pytest.raises(DamagedDocumentError, match=r"the layout in .*/topic=t/0\.0-1\.parquet cannot be read"):
        layout_of_files(store, must_tell=False)


@pytest.mark.parametrize(
    "layout", [Layout(), Layout(version=1), Layout(("date", "hour"), "Europe/Berlin", "text", "json")]
)
def test_a_layout_is_read_as_it_was_written(layout: Layout) -> None:
    """Its version, too: lakes that were begun before go on as they were."""
    assert decode_layout("THIS", encode_layout(layout)) == layout
