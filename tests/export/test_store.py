"""The folder that an export writes to: files appear at once, never over others, and can be taken back."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from exports import as_nobody, files_in
from lines import names

from zkgroup.errors import RefusedError, UsageError, ZkgroupError
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.model.address import ObjectAddress, parse_address
from zkgroup.export.stores.store import FolderStore, remedy_of


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("/a/b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("file://localhost/a", "/a"),
        ("file:///a%20b", "/a b"),
        ("file:///a%3Fb%23c%25", "/a?b#c%"),
        ("/a?b#c%", "/a?b#c%"),
    ],
)
def test_folders_are_named_by_path_or_file_uri(uri: str, path: str) -> None:
    """The spellings that Spark and Java take for a local folder."""
    assert parse_address(uri) == Path(path)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        " ",
        *[
            "ftp://host/x",
            "file://host/a",
            "file:///a?b",
            "file:///a#b",
            "file:///a%zz",
            "file:///a%",
            "gs:///x",
            "s3://",
            "s3:///x",
        ],
        *[
            "s3://b/x?endpoint=h",
            "s3://b/x?scheme=ftp",
            "gs://b/x?scheme=ftp",
            "s3://b/x#y",
            "s3://b/a//b",
            "s3://b/../c",
        ],
    ],
)
def test_other_destinations_are_refused_in_words(uri: str) -> None:
    """What cannot be written to, or would lose a part of its name, is said at once."""
    with pytest.raises(UsageError):
        parse_address(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "s3://KEY:QX/ZW@bucket/l",
        "s3://KEY:QX/ZW/ZW@bucket/l?scheme=http",
        "s3a://KEY:QX?ZW@bucket/l",
        "s3://KEY:QX@ZW/ZW@bucket/l",
        "s3://KEY:QXZW/x",
        "s3://KEY:12/QXZW@bucket/l",
        "gs://KEY:QX/ZW@bucket/l",
        "abfs://lake:QX/ZW==@account.dfs.core.windows.net/a",
        "abfss://:QX/ZW@account.blob.core.windows.net/lake/a?account_key=QXZW",
    ],
)
def test_a_key_that_is_torn_is_refused_and_not_quoted(uri: str) -> None:
    """A slash in a secret, unescaped, ends what a URI calls its host: half a key would be a bucket, and be shown."""
    with pytest.raises(UsageError) as raised:
        parse_address(uri, {})
    assert "%2F" in str(raised.value)
    for piece in ("KEY", "QX", "ZW"):
        assert piece not in str(raised.value)


@pytest.mark.parametrize(
    "uri",
    [
        *(
            f"{before}s3://KEY:QXZW@bucket/l"
            for before in (" ", "\t", "\u00a0", "'", '"', "=", "/", "./", "lake ", "file:///")
        ),
        *(
            f"s3{torn}KEY:QXZW@bucket/l"
            for torn in (" ://", "//", ";//", "::", ":\\\\", "\uff1a//", "\uff1a\uff0f\uff0f")
        ),
    ],
)
def test_what_was_to_be_a_uri_is_no_folder(uri: str) -> None:
    """A blank, a quote, a slip of the finger: a folder of that name would be made, show the key, and its messages would
    count as exported."""
    with pytest.raises(UsageError) as raised:
        parse_address(uri, {})
    assert "QXZW" not in str(raised.value)


@pytest.mark.parametrize(
    "path", ["s3", "s3-lake/a", "out/s3", "out/a//b", "/s3//b", "./s3//b", "my-gs//2024", "a:b", "C:\\x"]
)
def test_folders_have_all_other_names(path: str) -> None:
    """Whatever looks like no URI."""
    assert parse_address(path, {}) == Path(path).absolute()


@pytest.mark.parametrize(
    "uri",
    [
        "abfs://lake@account/a",
        "abfs://lake/a",
        "abfs://account.dfs.core.windows.net/lake/a",
        "abfs://lake@account.blob.core.windows.net/a",
        "abfs://account@127.0.0.1/lake/a",
        "abfs://account.blob.core.windows.net/",
        "abfs://lake:geheim@account.dfs.core.windows.net/a",
        "abfss://:geheim@account.blob.core.windows.net/lake/a",
    ],
)
def test_what_azures_client_would_take_for_something_else_is_refused(uri: str) -> None:
    """Another container; or a key that it would not use."""
    with pytest.raises(UsageError, match=r"abfss?:.*(://CONTAINER@ACCOUNT\.dfs\.|sig=)") as raised:
        parse_address(uri, {})
    assert "geheim" not in str(raised.value)


def test_what_may_stand_in_a_prefix_is_no_key() -> None:
    """An @ behind the bucket is a name's own where nothing before it looks like a key."""
    for uri in ("s3://bucket/a@b", "hdfs://name:8020/a@b", "s3://KEY:ge%2Fheim@bucket/a%40b"):
        assert isinstance(parse_address(uri, {}), ObjectAddress)


@pytest.mark.parametrize(
    ("uri", "container", "prefix", "shown"),
    [
        ("s3://bucket", "bucket", "", "s3://bucket"),
        ("S3A://bucket/a/b/", "bucket", "a/b", "s3://bucket/a/b"),
        ("s3://KEY:geheim@bucket/a%20b", "bucket", "a b", "s3://bucket/a%20b"),
        ("gs://anonymous@bucket/a", "bucket", "a", "gs://bucket/a"),
        ("abfs://lake@account.dfs.core.windows.net/a?client_secret=geheim", "lake", "a",
         "abfs://lake@account.dfs.core.windows.net/a"),
        ("abfss://account.blob.core.windows.net/lake/a?sig=geheim", "lake", "a",
         "abfss://account.blob.core.windows.net/lake/a"),
        ("hdfs://name:8020/a", "name:8020", "a", "hdfs://name:8020/a"),
        ("hdfs:///a", "", "a", "hdfs:///a"),
    ],
)  # fmt: skip
def test_places_in_stores_are_named_by_uri(uri: str, container: str, prefix: str, shown: str) -> None:
    """Bucket and prefix are taken apart, and what is shown has neither keys nor options."""
    found = parse_address(uri, {})
    assert isinstance(found, ObjectAddress)
    assert (found.container, found.prefix, found.shown) == (container, prefix, shown)
    for text in (str(found), repr(found)):
        assert "geheim" not in text
        assert "KEY" not in text


def test_endpoint_and_region_come_from_the_environment_where_the_uri_has_none() -> None:
    """Tasks on other machines get them, too, since they are part of the tasks' settings."""
    environment = {
        "AWS_ENDPOINT_URL": "http://store:9000/",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_REGION": "eu-west-1",
    }
    found = parse_address("s3://b/x", environment)
    assert isinstance(found, ObjectAddress)
    assert found.options == {"endpoint_override": "store:9000", "scheme": "http", "region": "eu-west-1"}
    found = parse_address("s3://b/x?endpoint_override=other:1&region=r", environment)
    assert isinstance(found, ObjectAddress)
    assert found.options == {"endpoint_override": "other:1", "region": "r"}


def test_a_relative_path_is_taken_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks run elsewhere: they get an absolute path."""
    monkeypatch.chdir(tmp_path)
    assert parse_address("out/x") == tmp_path / "out" / "x"


def test_a_destination_below_a_file_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    """A folder that can never be is found out before any work, without leaving a trace."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=rf"{tmp_path}/file/out\b.*{tmp_path}/file(?!/).*--to"):
        FolderStore(tmp_path / "file" / "out").check()
    FolderStore(tmp_path / "new" / "out").check()
    assert files_in(tmp_path) == ["file"]
    assert not (tmp_path / "new").exists()


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    """A destination that is not there yet."""
    return FolderStore(tmp_path / "out")


def publish(store: FolderStore, work: str, final: str, size: int) -> None:
    """Publish one file."""
    assert len(list(store.publish([(work, final, size)]))) == 1


def write_work(store: FolderStore, name: str, content: bytes) -> str:
    """What a task does: a finished file."""
    store.prepare("work")
    folder = store.root / "work"
    (folder / name).write_bytes(content)
    return f"work/{name}"


def test_documents_are_replaced_at_once(store: FolderStore) -> None:
    """A whole file or none; what was there is replaced, and nothing else is left in the folder."""
    assert store.read("a/b/x.json") is None
    store.write("a/b/x.json", b"one")
    store.write("a/b/x.json", b"two")
    assert store.read("a/b/x.json") == b"two"
    assert store.names("a/b") == ["x.json"]
    assert store.names("nowhere") == store.names("a/b/x.json") == []


def test_a_document_that_cannot_be_written_leaves_the_old_one(store: FolderStore) -> None:
    """An error with the file's name, and what was there is there."""
    store.write("a/x.json", b"one")
    (store.root / "a" / "folder.json" / "x").mkdir(parents=True)
    with pytest.raises(ZkgroupError, match=rf"{store.root}/a/folder\.json\b.*{os.strerror(errno.EISDIR)}"):
        store.write("a/folder.json", b"two")
    assert files_in(store.root) == ["a/x.json"]


def test_publishing_may_be_repeated(store: FolderStore) -> None:
    """The final name is there after the first time, and the second changes nothing; nor after the work went."""
    work = write_work(store, "a.tmp", b"AAAA")
    for _ in range(2):
        publish(store, work, "topic=t/partition=0/0-10.parquet", 4)
    store.sync(["topic=t/partition=0/0-10.parquet"])
    store.remove("work")
    publish(store, work, "topic=t/partition=0/0-10.parquet", 4)
    assert files_in(store.root) == ["topic=t/partition=0/0-10.parquet"]
    assert store.size("topic=t/partition=0/0-10.parquet") == 4


def test_publishing_without_hard_links(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that has none: renamed instead, and still neither replaced nor done twice."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    work = write_work(store, "a.tmp", b"AAAA")
    for _ in range(2):
        publish(store, work, "0-10.parquet", 4)
    assert files_in(store.root) == ["0-10.parquet"]
    with pytest.raises(RefusedError, match=rf"{store.root}/0-10\.parquet\b"):
        publish(store, write_work(store, "b.tmp", b"BBBB"), "0-10.parquet", 4)
    assert (store.root / "0-10.parquet").read_bytes() == b"AAAA"


def test_a_file_is_never_replaced(store: FolderStore) -> None:
    """A final name that is another file's is refused, also by one of the same size."""
    publish(store, write_work(store, "a.tmp", b"first"), "0-10.parquet", 5)
    with pytest.raises(RefusedError, match=rf"{store.root}/0-10\.parquet\b"):
        publish(store, write_work(store, "b.tmp", b"other"), "0-10.parquet", 5)
    assert (store.root / "0-10.parquet").read_bytes() == b"first"


def test_a_copy_of_a_destination_goes_on(store: FolderStore, tmp_path: Path) -> None:
    """Copied while a run was being published: what had two names is two files there."""
    work = write_work(store, "a.tmp", b"first")
    publish(store, work, "0-10.parquet", 5)
    copy = FolderStore(tmp_path / "copy")
    shutil.copytree(store.root, copy.root)
    publish(copy, work, "0-10.parquet", 5)
    assert (copy.root / "0-10.parquet").read_bytes() == b"first"


def test_a_file_that_changed_or_vanished_is_not_published(store: FolderStore) -> None:
    """Only files that a task has reported, as it has reported them."""
    work = write_work(store, "a.tmp", b"AA")
    with pytest.raises(ZkgroupError, match=rf"{store.root}/{work}\b.*\b2\b.*\b4\b"):
        publish(store, work, "0-10.parquet", 4)
    with pytest.raises(ZkgroupError, match=rf"{store.root}/work/never\.tmp\b"):
        publish(store, "work/never.tmp", "10-20.parquet", 4)
    assert files_in(store.root) == ["work/a.tmp"]


def test_what_is_taken_back_leaves_no_empty_folders(store: FolderStore) -> None:
    """Folders with nothing else in them go, up to the destination itself; a neighbour keeps them."""
    publish(store, write_work(store, "a.tmp", b"A"), "topic=t/partition=0/0-10.parquet", 1)
    publish(store, write_work(store, "b.tmp", b"B"), "topic=t/partition=1/0-10.parquet", 1)
    store.remove("work")
    store.remove_file("topic=t/partition=0/0-10.parquet")
    store.remove_file("topic=t/partition=0/0-10.parquet")
    assert store.names("topic=t") == ["partition=1"]
    store.remove_file("topic=t/partition=1/0-10.parquet")
    assert not store.root.exists()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.EIO, errno.ENOSPC])
def test_a_run_that_is_decided_has_its_destination(number: int) -> None:
    """Another one is advised only where it helps."""
    error = OSError(number, os.strerror(number))
    assert ("--to" in str(remedy_of(error))) == (number != errno.ENOSPC)
    assert "--to" not in str(remedy_of(error, decided=True))


def test_a_folder_that_may_not_be_read_is_distinguished() -> None:
    """As ``lost+found`` to all but root: in the way where a topic's folder is, and nowhere else."""
    denied = os.strerror(errno.EACCES)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "lost+found")
        folder.mkdir(mode=0o700)
        Path(name).chmod(0o755)
        (folder / "file").touch()
        listed = Path(name, "listed")  # and not entered
        listed.mkdir()
        (listed / "file").touch()
        listed.chmod(0o444)
        topic = Path(name, "topic=t/partition=0")
        topic.mkdir(parents=True)
        (topic / "file").touch()
        topic.parent.chmod(0o777)
        Path(name, "link").symlink_to(folder / "file")
        folder.chmod(0)
        try:
            with as_nobody():
                with pytest.raises(ZkgroupError) as raised:
                    list(FolderStore(Path(name)).walk("lost+found"))
                with pytest.raises(ZkgroupError, match=rf"/lost\+found/file\b.*{denied}"):
                    FolderStore(Path(name)).size("lost+found/file")
                destination = Destination(FolderStore(Path(name)))
                others = [file.name for file in destination.data_files()]
                assert others == ["topic=t/partition=0/file"]
                Path(name, "topic=t/partition=1").mkdir(mode=0)
                with pytest.raises(ZkgroupError, match=rf"{name}/topic=t/partition=1\b.*{denied}"):
                    list(destination.data_files())
        finally:
            folder.chmod(0o700)
            listed.chmod(0o700)
    assert names(raised.value.message, folder, denied)
    assert "--to" in str(raised.value.remedy)
