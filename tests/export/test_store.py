"""The folder that an export writes to: files appear at once, never over others, and can be taken back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from exports import files_in

from zkgroup.errors import RefusedError, UsageError, ZkgroupError
from zkgroup.export.store import FolderStore, parse_destination


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("/a/b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("file://localhost/a", "/a"),
        ("file:///a%20b", "/a b"),
    ],
)
def test_folders_are_named_by_path_or_file_uri(uri: str, path: str) -> None:
    """The spellings that Spark and Java take for a local folder."""
    assert parse_destination(uri) == Path(path)


@pytest.mark.parametrize("uri", ["s3://bucket/x", "hdfs://name:8020/x", "gs://b", "file://host/a", "", " "])
def test_other_destinations_are_refused_in_words(uri: str) -> None:
    """What cannot be written to yet is said at once, and nothing is made of it on the local disk."""
    with pytest.raises(UsageError):
        parse_destination(uri)


def test_a_relative_path_is_taken_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks run elsewhere: they get an absolute path."""
    monkeypatch.chdir(tmp_path)
    assert parse_destination("out/x") == tmp_path / "out" / "x"


def test_a_destination_below_a_file_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    """A folder that can never be is found out before any work, without leaving a trace."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file is no folder"):
        FolderStore(tmp_path / "file" / "out").check()
    FolderStore(tmp_path / "new" / "out").check()
    assert files_in(tmp_path) == ["file"]
    assert not (tmp_path / "new").exists()


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    """A destination that is not there yet."""
    return FolderStore(tmp_path / "out")


def worked(store: FolderStore, name: str, content: bytes) -> str:
    """What a task does: a finished file."""
    folder = Path(store.prepare("work"))
    (folder / name).write_bytes(content)
    return f"work/{name}"


def test_documents_are_replaced_at_once(store: FolderStore) -> None:
    """A whole file or none; what was there is replaced, and nothing else is left in the folder."""
    assert store.read("a/b/plan.json") is None
    store.write("a/b/plan.json", b"one")
    store.write("a/b/plan.json", b"two")
    assert store.read("a/b/plan.json") == b"two"
    assert store.names("a/b") == ["plan.json"]
    assert store.names("nowhere") == store.names("a/b/plan.json") == []


def test_a_document_that_cannot_be_written_leaves_the_old_one(store: FolderStore) -> None:
    """An error with the file's name, and what was there is there."""
    store.write("a/plan.json", b"one")
    (store.root / "a" / "folder.json" / "x").mkdir(parents=True)
    with pytest.raises(ZkgroupError, match=r"cannot write .*folder\.json"):
        store.write("a/folder.json", b"two")
    assert files_in(store.root) == ["a/plan.json"]


def test_publishing_may_be_repeated(store: FolderStore) -> None:
    """The final name is there after the first time, and the second changes nothing; nor after the work went."""
    work = worked(store, "a.tmp", b"AAAA")
    for _ in range(2):
        store.publish(work, "topic=t/partition=0/0-10.parquet", 4)
    store.settle(["topic=t/partition=0/0-10.parquet"])
    store.remove("work")
    store.publish(work, "topic=t/partition=0/0-10.parquet", 4)
    assert files_in(store.root) == ["topic=t/partition=0/0-10.parquet"]
    assert store.size("topic=t/partition=0/0-10.parquet") == 4


def test_publishing_without_hard_links(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that has none: renamed instead, and still neither replaced nor done twice."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    work = worked(store, "a.tmp", b"AAAA")
    for _ in range(2):
        store.publish(work, "0-10.parquet", 4)
    assert files_in(store.root) == ["0-10.parquet"]
    with pytest.raises(RefusedError, match=r"0-10\.parquet exists already"):
        store.publish(worked(store, "b.tmp", b"BBBB"), "0-10.parquet", 4)
    assert (store.root / "0-10.parquet").read_bytes() == b"AAAA"


def test_a_file_is_never_replaced(store: FolderStore) -> None:
    """A final name that is another file's is refused, also by one of the same size."""
    store.publish(worked(store, "a.tmp", b"first"), "0-10.parquet", 5)
    with pytest.raises(RefusedError, match=r"0-10\.parquet exists already"):
        store.publish(worked(store, "b.tmp", b"other"), "0-10.parquet", 5)
    assert (store.root / "0-10.parquet").read_bytes() == b"first"


def test_a_file_that_changed_or_vanished_is_not_published(store: FolderStore) -> None:
    """Only what a task told of, as it told of it."""
    work = worked(store, "a.tmp", b"AA")
    with pytest.raises(ZkgroupError, match="2 bytes, not 4"):
        store.publish(work, "0-10.parquet", 4)
    with pytest.raises(ZkgroupError, match="share the folder"):
        store.publish("work/never.tmp", "10-20.parquet", 4)
    assert files_in(store.root) == ["work/a.tmp"]


def test_what_is_taken_back_leaves_no_empty_folders(store: FolderStore) -> None:
    """Folders that held nothing else go, up to the destination itself; a neighbour keeps them."""
    store.publish(worked(store, "a.tmp", b"A"), "topic=t/partition=0/0-10.parquet", 1)
    store.publish(worked(store, "b.tmp", b"B"), "topic=t/partition=1/0-10.parquet", 1)
    store.remove("work")
    store.unpublish("topic=t/partition=0/0-10.parquet")
    store.unpublish("topic=t/partition=0/0-10.parquet")
    assert store.names("topic=t") == ["partition=1"]
    store.unpublish("topic=t/partition=1/0-10.parquet")
    assert not store.root.exists()
