"""What every object store is asked for, and a whole export to each: S3, and emulators of Google's and of Azure's."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from export_points import Points, drive_export
from exports import FOLDERS, join_lines, unassigned_problems
from lines import names
from object_store_server import Harm, HarmfulProxy, uri_of
from other_stores import azure_server, azure_uri, google_server, google_uri

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.export.checks.run_reports import history
from zkgroup.export.checks.verify import verify
from zkgroup.export.destination.coverage import ExpectedFile
from zkgroup.export.destination.file_check import check_file
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.model.address import parse_address
from zkgroup.export.model.plan_types import RecordFile, StoredFile
from zkgroup.export.planning.export_request import COMMITTED, EARLIEST
from zkgroup.export.stores.object_store import ObjectStore
from zkgroup.export.stores.store import Store, open_store

#: ``uri(prefix)``, or by way of another port.
Uri = Callable[..., str]


@pytest.fixture(scope="module")
def gs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Uri]:
    """Google's."""
    with google_server(tmp_path_factory.mktemp("gs") / "server.log") as own:
        yield lambda prefix, port=own: google_uri(port, prefix)


@pytest.fixture(scope="module")
def abfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Uri]:
    """Azure's."""
    with azure_server(tmp_path_factory.mktemp("azurite")) as own:
        yield lambda prefix, port=own: azure_uri(port, prefix)


@pytest.fixture
def s3(s3_server: int, bucket: str) -> Uri:
    """Amazon's."""
    return lambda prefix, port=s3_server: uri_of(port, f"{bucket}/{prefix}")


OTHERS = ["gs", pytest.param("abfs", marks=pytest.mark.long)]


def _place(request: pytest.FixtureRequest, unique: Callable[[str], str]) -> Uri:
    found: Uri = request.getfixturevalue(request.param)
    place = unique("out")
    return lambda name="", **options: found(f"{place}{name}", **options)


@pytest.fixture(params=["s3", *OTHERS])
def place(request: pytest.FixtureRequest, unique: Callable[[str], str]) -> Uri:
    """One in each store: ``place(name)`` is another one in it."""
    return _place(request, unique)


@pytest.fixture(params=OTHERS)
def other(request: pytest.FixtureRequest, unique: Callable[[str], str]) -> Uri:
    """The same without S3, whose own tests are in ``test_objects``."""
    return _place(request, unique)


@pytest.fixture
def store(place: Uri) -> Store:
    """A place as a store."""
    return open_store(parse_address(place()))


def write_work(store: Store, content: bytes) -> str:
    """A task's file."""
    assert isinstance(store, ObjectStore)
    file = store.create(f"work/{uuid4()}.tmp")
    file.sink.write(content)
    assert file.finish() == len(content)
    return file.name


def test_a_store_keeps_documents_and_lists_them(store: Store) -> None:
    """Written whole, replaced, read, listed and removed, like in a folder."""
    assert (store.read("a/x.json"), store.names("a"), list(store.walk(""))) == (None, [], [])
    assert not store.exists()
    store.write("a/x.json", b"one")
    store.write("a/x.json", b"two")
    store.write("a/b/x", b"")
    assert store.exists()
    assert store.read("a/x.json") == b"two"
    assert store.names("a") == ["b", "x.json"]
    assert sorted(store.walk("a")) == [("a/b/x", 0), ("a/x.json", 3)]
    assert (store.size("a/x.json"), store.size("a/b"), store.size("a/none")) == (3, None, None)
    store.remove("a/b")
    store.remove("a/b")
    assert store.names("a") == ["x.json"]


def test_a_finished_file_is_published_once_and_never_over_another(store: Store) -> None:
    """A copy under the final name, which may be repeated, also when the working file is gone; another file of that
    name, even of that size, stays."""
    name = write_work(store, b"x" * 100)
    for _ in range(2):
        assert len(list(store.publish([(name, "t/0-1.parquet", 100)]))) == 1
    with pytest.raises(RefusedError, match=rf"{store.uri}/t/0-1\.parquet\b"):
        list(store.publish([(write_work(store, b"y" * 100), "t/0-1.parquet", 100)]))
    with pytest.raises(ZkgroupError, match=rf"{store.uri}/{name}\b.*\b100\b.*\b99\b"):
        list(store.publish([(name, "t/9-9.parquet", 99)]))
    store.remove("work")
    list(store.publish([(name, "t/0-1.parquet", 100)]))
    with store.open("t/0-1.parquet") as file:
        assert file.read() == b"x" * 100
    with pytest.raises(ZkgroupError, match=rf"{store.uri}/{name}\b"):
        list(store.publish([(name, "t/1-2.parquet", 100)]))
    store.remove_file("t/0-1.parquet")
    store.remove_file("t/0-1.parquet")
    assert store.size("t/0-1.parquet") is None


def offsets_in(uri: str, topic: str) -> list[tuple[int, int]]:
    """Partition and offset of each row that a reader sees."""
    outside, path = pafs.FileSystem.from_uri(uri)
    rows = ds.dataset(f"{path}/topic={topic}", filesystem=outside, partitioning=FOLDERS).to_table()
    return sorted((row["partition"], row["offset"]) for row in rows.to_pylist())


def port_of(store: ObjectStore) -> int:
    """Where it listens."""
    options = store.address.options
    there = options.get("endpoint_override") or options["blob_storage_authority"]
    return int(there.rpartition(":")[2])


def list_leftovers(store: Store) -> list[str]:
    """What lies in the destination but data and what reports runs."""
    kept = ("topic=", "_zkgroup/log/", "_zkgroup/topics/", "_zkgroup/layout/")
    return [file.name for file in store.walk("") if not file.name.startswith(kept)]


ALL = [(p, i) for p in range(2) for i in range(20)]


def test_an_export_sees_what_those_before_it_wrote(
    other: Uri, in_process: Callable[..., Any], filled: str, fill: Callable[..., object], unique: Callable[[str], str]
) -> None:
    """Run after run, in history and verification; and a file of another name is seen before it is written
    again."""
    group, root = unique("group"), parse_address(other())
    in_process(group, filled, root=root, range_messages=10)
    assert offsets_in(other(), filled) == ALL
    fill(filled, 20, 2)
    in_process(group, filled, root=root, range_messages=10)
    assert offsets_in(other(), filled) == [(p, i) for p in range(2) for i in range(30)]
    assert in_process(group, filled, root=root)[0].rows == 0
    store = open_store(root)
    destination = Destination(store)
    assert [(row.state, row.rows, row.files) for row in history(destination)] == [
        ("exported", 40, 4),
        ("exported", 20, 2),
    ]
    assert [row.problem for row in verify(destination)] == [None, None]
    assert list_leftovers(store) == []
    outside, path = pafs.FileSystem.from_uri(other())
    there = f"{path}/topic={filled}/partition=0"
    outside.copy_file(f"{there}/0-10.parquet", f"{there}/part-7.parquet")
    outside.delete_file(f"{there}/0-10.parquet")
    with pytest.raises(RefusedError, match=rf"/topic={filled}/partition=0/part-7\.parquet\b.*--verify"):
        in_process(group, filled, root=root, backfill=True, begin=EARLIEST, until=COMMITTED)
    assert names(join_lines(unassigned_problems(Destination(store))), f"topic={filled}/partition=0/part-7.parquet")


@pytest.mark.long  # test_objects has it for S3
def test_killed_at_its_points_there_and_run_again(
    other: Uri, in_process: Callable[..., Any], filled: str, unique: Callable[[str], str], short: ZooKeeperSettings,
    kafka: KafkaSettings,
) -> None:  # fmt: skip
    """The next export ends it all, and nobody sees a file before the decision."""
    points: Points = []
    in_process(unique("group"), filled, root=parse_address(other("-all")), range_messages=10, on_point=points.append)
    decided = points.index("decided")
    for point in ["planned", "files written", "record written", "decided", "published 2 of 4", "tidied up"]:
        assert point in points
        group, place = unique("killed"), other(f"-{points.index(point)}")
        code, lines = drive_export(short, kafka, group=group, topics=[filled], out=place, kill_at=point)
        assert (code, lines[-1]) == (-9, point)
        store = open_store(parse_address(place))
        assert not list(store.walk(f"topic={filled}")) or points.index(point) >= decided
        in_process(group, filled, root=parse_address(place), range_messages=10)
        assert offsets_in(place, filled) == ALL
        assert [row.problem for row in verify(Destination(store))] == [None, None]
        assert list_leftovers(store) == []


def problems_of(store: Store, name: str, size: int = 0) -> list[str]:
    """What is wrong with a file of two rows of topic ``t``."""
    file = RecordFile(name, f"{name}.parquet", "t", 2, size, ())
    return check_file(store, StoredFile(file.name, size), ExpectedFile(file, "g", "00000001-aaaaaaaa", None, ""))


def test_an_unreadable_or_broken_file_is_named(place: Uri, store: Store) -> None:
    """Whatever kind of error pyarrow makes of either."""
    assert isinstance(store, ObjectStore)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"partition": [0, 0], "offset": [3, 4]}), sink)
    whole = sink.getvalue().to_pybytes()
    odd = b"PAR1" + b"\xff" * 40 + b"\x10\0\0\0PAR1"
    for name, content in {"whole": whole, "none": b"", "short": whole[:-9], "odd": odd}.items():
        store.write(f"{name}.parquet", content)
    assert len(problems_of(store, "whole", len(whole))) == 1  # of no topic
    for name in ("none", "short", "odd", "not there"):
        (problem,) = problems_of(store, name)
        assert problem.startswith(f"{name}.parquet cannot be read: ")
    with HarmfulProxy(port_of(store)) as proxy:
        withheld = open_store(parse_address(place(port=proxy.port)))
        harms: list[Harm] = ["forbid", "refuse"]
        for harm in harms:
            proxy.choose = lambda request, harm=harm: (
                harm if request.method == "GET" and "whole" in request.path else None
            )
            (problem,) = problems_of(withheld, "whole", len(whole))
            assert problem.startswith("whole.parquet cannot be read: ")
            assert "sig=" not in problem
            assert "\n" not in problem


def test_a_bucket_that_may_not_be_inspected_itself_is_taken(gs: Uri, unique: Callable[[str], str]) -> None:
    """Google's roles for objects let them be listed, and no more of the bucket; one that hides all is named."""
    name, store = unique("out"), open_store(parse_address(gs("")))
    assert isinstance(store, ObjectStore)
    with HarmfulProxy(port_of(store)) as proxy:
        asked = open_store(parse_address(gs(name, port=proxy.port)))
        proxy.choose = lambda request: "forbid" if request.path.partition("?")[0].endswith("/b/lake") else None
        asked.check()
        assert proxy.harmed
        proxy.choose = lambda _: "forbid"
        with pytest.raises(ZkgroupError, match=r"gs://lake(?!/)"):
            asked.check()


WRITE = """
import sys
from zkgroup.export.model.address import parse_address
from zkgroup.export.stores.store import open_store
open_store(parse_address(sys.argv[1])).write(sys.argv[2], b"new")
"""


def test_a_document_is_whole_or_not_there(place: Uri, store: Store) -> None:
    """Also where the store takes files piece by piece: what was there stays until the new one is."""
    assert isinstance(store, ObjectStore)
    store.write("a/x.json", b"old")
    content = "comp=block" if store.address.scheme == "abfs" else ""
    with HarmfulProxy(port_of(store)) as proxy:
        proxy.choose = lambda request: (
            "forbid" if request.method in ("PUT", "POST") and content in request.path else None
        )
        for name in ("plan", "new"):
            # Elsewhere: pyarrow's writers wait for the network without letting go of the interpreter, the proxy's, too.
            command = [sys.executable, "-c", WRITE, place(port=proxy.port), f"a/{name}.json"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
            assert re.search(rf"ZkgroupError: .*/a/{name}\.json\b", done.stderr), done.stderr
    assert store.read("a/x.json") == b"old"
    assert store.read("a/new.json") is None
