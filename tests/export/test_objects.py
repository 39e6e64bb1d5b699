"""Exports to an object store: a real endpoint, its failures, and the protocol's points on it."""

from __future__ import annotations

import errno
import socket
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from export_points import Export, Points, drive_export
from exports import FOLDERS, InProcess, join_lines, problem_rows
from lines import names
from object_store_server import KEY, SECRET, Harm, HarmfulProxy, Request, filesystem, uri_of

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError, UnreachableError, UsageError, ZkgroupError
from zkgroup.export.checks.run_reports import history
from zkgroup.export.checks.verify import verify
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.model.address import ObjectAddress, parse_address
from zkgroup.export.planning.export_request import COMMITTED, EARLIEST
from zkgroup.export.stores import object_store
from zkgroup.export.stores.object_store import ObjectStore, store_failure, uri_with_defaults, without_secrets
from zkgroup.export.stores.store import Store, open_store
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Exists, Get, Node

PUBLISHED = ["0-10", "10-20"]


@pytest.fixture
def proxy(s3_server: int) -> Iterator[HarmfulProxy]:
    """Between an export and its store."""
    with HarmfulProxy(s3_server) as proxy:
        yield proxy


@pytest.fixture
def store(s3_server: int, bucket: str) -> Store:
    """A place in a bucket."""
    return open_store(parse_address(uri_of(s3_server, f"{bucket}/out")))


def test_a_bucket_that_is_not_there_is_named(s3_server: int) -> None:
    """Found out before any work."""
    with pytest.raises(UsageError, match=r"\bnowhere-at-all\b"):
        open_store(parse_address(uri_of(s3_server, "nowhere-at-all/x"))).check()


@pytest.fixture
def to_store(registry: Registry, kafka: KafkaSettings, s3_server: int, bucket: str) -> Export:
    """``to_store(group, topic, port=…)``: one export into the bucket's ``out``, without Spark."""
    from zkgroup.export.run.run_export import ExportRequest, run_export

    def run(group: str, *topics: str, port: int = s3_server, **options: Any) -> Any:
        on_point = options.pop("on_point", lambda _: None)
        root = parse_address(uri_of(port, f"{bucket}/{options.pop('place', 'out')}"))
        request = ExportRequest(group, root, topics, **{"begin": EARLIEST, "range_messages": 10, **options})
        return run_export(request, registry, lambda: kafka, on_point=on_point, runner=InProcess)

    return run


@pytest.fixture
def is_complete(s3_server: int, bucket: str, registry: Registry) -> Callable[[str, str, str], None]:
    """``is_complete(group, topic, "out")``: everything is there once and committed, and nothing else is left."""

    def check(group: str, topic: str, place: str = "out") -> None:
        outside = filesystem(s3_server)
        rows = ds.dataset(f"{bucket}/{place}", filesystem=outside, partitioning=FOLDERS).to_table().to_pylist()
        found = sorted((row["topic"], row["partition"], row["offset"], row["value"]) for row in rows)
        assert found == [(topic, p, i, b"m%06d" % (i * 2 + p)) for p in range(2) for i in range(20)]
        store = open_store(parse_address(uri_of(s3_server, f"{bucket}/{place}")))
        names = sorted(file.name for file in store.walk(""))
        assert [name for name in names if not name.startswith("_zkgroup/")] == [
            f"topic={topic}/partition={p}/{piece}.parquet" for p in range(2) for piece in PUBLISHED
        ]
        kept = [name.split("/")[1:3] for name in names if name.startswith("_zkgroup/")]
        assert [(folder, name) for folder, name in kept if folder != "layout"] == [("log", group), ("topics", topic)]
        assert len(kept) == 3
        nodes = registry.read([Get(znodes.offset(group, TopicPartition(topic, p))) for p in range(2)])
        assert [(node.data, node.stat.version) for node in nodes if isinstance(node, Node)] == [(b"20", 0)] * 2
        assert [row.problem for row in verify(Destination(store))] == [None, None]

    return check


def test_killed_at_its_points_and_run_again(
    to_store: Export, filled: str, unique: Callable[[str], str], is_complete: Callable[..., None], s3_server: int,
    bucket: str, short: ZooKeeperSettings, kafka: KafkaSettings, registry: Registry,
) -> None:  # fmt: skip
    """SIGKILL as each point is passed: the next export ends it all, and nobody sees a file before the decision."""
    from zkgroup.export.run.run_export import ExportRequest, run_export

    points: Points = []
    group = unique("group")
    to_store(group, filled, on_point=points.append)
    is_complete(group, filled)
    decided = points.index("decided")
    # What happens to the store between those that are left out is the same as before or after them.
    hurt = ["planned", "files written", "record written", "decided", "published 2 of 4", "tidied up"]
    assert set(hurt) <= set(points)

    def kill_and_go_on(point: str) -> None:
        name = unique("killed")
        uri = uri_of(s3_server, f"{bucket}/{name}")
        code, lines = drive_export(short, kafka, group=name, topics=[filled], out=uri, kill_at=point)
        assert (code, lines[-1]) == (-9, point)
        seen = [file.name for file in open_store(parse_address(uri)).walk(f"topic={filled}")]
        assert not seen or points.index(point) >= decided
        with Registry(short, 10.0) as own:
            request = ExportRequest(name, parse_address(uri), (filled,), begin=EARLIEST, range_messages=10)
            run_export(request, own, lambda: kafka, runner=InProcess)
        is_complete(name, filled, name)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(kill_and_go_on, hurt))


def kinds(requests: list[Request]) -> list[tuple[str, str]]:
    """What an export asks for: method, and whose document or file it is about; each once, in order."""
    return list(dict.fromkeys(map(kind, requests)))


def kind(request: Request) -> tuple[str, str]:
    """The kind of a request."""
    path, _, query = request.path.partition("?")
    name = path.rpartition("/")[2]
    about = name.rpartition(".")[2] if "." in name else "folder"
    about = "list" if "list-type" in query else about
    steps = "".join(word for word in ("uploads", "uploadId", "partNumber", "delete") if word in query)
    return f"{request.method}{' copy' if request.copy else ''} {steps}".strip(), about


@pytest.mark.parametrize("harm", ["refuse", "lose", pytest.param("stall", marks=pytest.mark.long)])
def test_a_request_that_fails_once_is_retried(
    to_store: Export, filled: str, unique: Callable[[str], str], is_complete: Callable[..., None],
    proxy: HarmfulProxy, harm: Harm, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The first request of each kind is refused, or its answer is lost, or nothing comes: the export goes on by itself,
    and everything is there once."""
    monkeypatch.setattr(object_store, "_STALL", 3.0)
    hurt: set[tuple[str, str]] = set()
    wanted = {("PUT", "tmp"), ("PUT copy", "parquet")}
    if harm != "stall":  # the other kinds would only take more time
        wanted |= {("GET", "list"), ("PUT", "json")}

    def choose(request: Request) -> Harm | None:
        if kind(request) in hurt or (harm == "stall" and kind(request) not in wanted):
            return None
        hurt.add(kind(request))
        return harm

    proxy.choose = choose
    group = unique("group")
    to_store(group, filled, port=proxy.port)
    assert wanted <= set(kinds(proxy.harmed))
    is_complete(group, filled)


def test_a_store_that_keeps_failing_is_named_and_all_is_done_when_it_is_back(
    to_store: Export, filled: str, unique: Callable[[str], str], is_complete: Callable[..., None],
    proxy: HarmfulProxy, registry: Registry, bucket: str,
) -> None:  # fmt: skip
    """Whatever kind of request is forbidden for good: one error that names the place; before the decision the group has
    no trace of it; and the same command, when the store is well again, does the rest."""
    to_store(unique("group"), filled, port=proxy.port, place="first")
    asked = [found for found in kinds(proxy.seen) if found[0].startswith("PUT") or found[1] == "list"]
    assert len(asked) >= 4, asked
    for number, bad in enumerate(asked):
        group, place = unique("group"), str(number)
        proxy.choose = lambda request, bad=bad: "forbid" if kind(request) == bad else None
        passed: Points = []
        with pytest.raises(ZkgroupError, match=f"s3://{bucket}"):
            to_store(group, filled, port=proxy.port, place=place, on_point=passed.append)
        if "decided" not in passed:
            assert registry.read([Exists(znodes.group(group))]) == [None], bad
        proxy.choose = lambda _: None
        to_store(group, filled, port=proxy.port, place=place)
        is_complete(group, filled, place)


def test_an_object_that_no_record_names_is_in_a_backfills_way(
    to_store: Export, filled: str, unique: Callable[[str], str], s3_server: int, bucket: str, store: Store,
    proxy: HarmfulProxy,
) -> None:  # fmt: skip
    """One that was renamed may be what is missing: nothing is written in its place, and --verify names both. One that
    may not be read is named as that."""
    group = unique("group")
    to_store(group, filled)
    server = filesystem(s3_server)
    there = f"{bucket}/out/topic={filled}/partition=0"
    withheld = Destination(open_store(parse_address(uri_of(proxy.port, f"{bucket}/out"))))
    proxy.choose = lambda request: "forbid" if request.method == "GET" and "10-20" in request.path else None
    assert [names(str(row.problem), "10-20.parquet", "AWS Error") for row in problem_rows(withheld)] == [True, True]
    server.move(f"{there}/0-10.parquet", f"{there}/part-7.parquet")
    with pytest.raises(RefusedError, match=r"\bpart-7\.parquet\b"):
        to_store(group, filled, backfill=True, begin=EARLIEST, until=COMMITTED)
    missing, unnamed = problem_rows(Destination(store))
    assert (missing.mend, names(str(missing.problem), "partition=0/0-10.parquet")) == ("backfill", True)
    assert (unnamed.mend, names(str(unnamed.problem), "partition=0/part-7.parquet")) == ("person", True)


def test_a_full_disk_of_a_task_is_not_the_stores(store: Store) -> None:
    """What is for a store grows in a folder of the machine first."""
    full = OSError(errno.ENOSPC, "No space left on device")
    assert isinstance(store, ObjectStore)
    reported = store.work_failure(full)
    assert names(reported.message, tempfile.gettempdir(), socket.gethostname(), full.strerror)
    assert names(str(reported.remedy), "TMPDIR")


def test_a_store_that_is_not_there_or_denies_is_reported_without_the_librarys_words() -> None:
    """Out of reach is exit 3; both name the bucket as it is, and quote no library. What is denied names the keys."""
    silent = parse_address("s3://bkt/lake?endpoint_override=127.0.0.1:1&scheme=http&region=us-east-1")
    assert isinstance(silent, ObjectAddress)
    with pytest.raises(UnreachableError) as raised:
        open_store(silent).check()
    assert names(raised.value.message, "s3://bkt")
    assert "AWS Error" not in raised.value.message
    for said in (
        "When getting information for bucket 'bkt': AWS Error ACCESS_DENIED during HeadBucket operation: No response",
        "AWS Error INVALID_ACCESS_KEY_ID during ListObjectsV2 operation: The AWS Access Key Id you provided does not",
    ):
        error = store_failure(silent, "cannot list", OSError(said))
        assert type(error) is ZkgroupError
        assert names(str(error), "cannot list s3://bkt/lake", "AWS_ACCESS_KEY_ID")
        assert "AWS Error" not in error.message
    # Azure's words begin with an address that may be long.
    long = store_failure(silent, "cannot list", OSError(f"{'x' * 600} Azure Error: [AuthorizationFailure] 403 no"))
    assert names(str(long), "s3://bkt/lake", "AWS_ACCESS_KEY_ID")
    assert "Azure Error" not in long.message
    stalled = "google::cloud::Status(DEADLINE_EXCEEDED: Retry policy exhausted: CURL error [28]=Timeout was reached)"
    assert isinstance(store_failure(silent, "cannot list", pa.ArrowException(stalled)), UnreachableError)
    assert "odd" in store_failure(silent, "cannot list", OSError("AWS Error odd")).message


def test_a_process_that_azures_client_would_end_is_another_one() -> None:
    """It throws where it finds no credentials, or may not use them, and pyarrow lets it."""
    with pytest.raises(ZkgroupError, match="abfs://") as raised:
        open_store(parse_address("abfs://lake@account.dfs.core.windows.net/x?enable_tls=false")).check()
    assert "AZURE_CLIENT_ID" in str(raised.value.remedy)


@pytest.mark.parametrize(
    ("uri", "opened"),
    [
        ("gs://b/x", "gs://b/x?retry_limit_seconds=30"),
        ("gs://b/x?retry_limit_seconds=5", "gs://b/x?retry_limit_seconds=5"),
        ("abfs://l@a.dfs.core.windows.net/x?sig=1", "abfs://l@a.dfs.core.windows.net/x?sig=1&background_writes=false"),
        ("hdfs://h:1/x", "hdfs://h:1/x"),
    ],
)
def test_what_pyarrow_leaves_open_is_set(uri: str, opened: str) -> None:
    """Waits have an end, and memory has bounds, unless the URI says otherwise."""
    address = parse_address(uri, {})
    assert isinstance(address, ObjectAddress)
    assert uri_with_defaults(address) == opened


def test_a_signature_is_hidden_however_it_is_written() -> None:
    """Azure's client puts a URI's options in another order, and escapes them in its own way."""
    signature = "geheim/sehr+geheim="
    uri = f"abfs://l@a.dfs.core.windows.net/x?sv=2021&sig={quote(signature, safe='')}"
    address = parse_address(uri, {})
    assert isinstance(address, ObjectAddress)
    for written in (signature, quote(signature), quote(signature, safe=""), quote(signature, safe="").lower()):
        said = without_secrets(address, OSError(f"GET 'https://a/l?sig={written}&sv=2021' Azure Error: [X] 403 no"))
        assert said == "GET 'https://a/l' Azure Error: [X] 403 no"
    for written in (signature, quote(signature), quote(signature, safe="")):
        assert without_secrets(address, OSError(f"{written} is bad")) == "*** is bad"


def test_secrets_are_nowhere(
    filled: str, unique: Callable[[str], str], s3_server: int, bucket: str, registry: Registry, kafka: KafkaSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Keys that stand in the URI are used, and are in no document, footer, node or error."""
    from zkgroup.export.run.run_export import ExportRequest, run_export

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    uri = uri_of(s3_server, f"{KEY}:{quote(SECRET, safe='')}@{bucket}/out")
    root, group, data = parse_address(uri), unique("group"), list[bytes]()

    def read_pointer(_: str) -> None:
        data.extend(node.data for node in registry.read([Get(znodes.export_state(group))]) if isinstance(node, Node))

    run_export(ExportRequest(group, root, (filled,), begin=EARLIEST), registry, lambda: kafka, on_point=read_pointer,
               runner=InProcess)  # fmt: skip
    store = open_store(root)
    for file in store.walk(""):
        data.append(store.read(file.name) or b"")
    with pytest.raises(UsageError) as raised:
        open_store(parse_address(uri.replace(bucket, "elsewhere"))).check()
    data += [str(raised.value).encode(), repr(root).encode(), store.uri.encode()]
    with pytest.raises(UsageError) as raised:
        open_store(parse_address("abfs://lake@account.dfs.core.windows.net/x?account_key=" + SECRET)).check()
    data.append(str(raised.value).encode())
    assert any(b"s3://" in found for found in data)
    for secret in (KEY, SECRET, quote(SECRET, safe="")):
        assert not any(secret.encode() in found for found in data)


def test_runs_are_inspected_in_a_store_as_in_a_folder(
    to_store: Export, filled: str, unique: Callable[[str], str], store: Store, bucket: str, s3_server: int
) -> None:
    """History and verification read the same; a file that goes, or is another one, is named."""
    group = unique("group")
    to_store(group, filled)
    destination = Destination(store)
    assert [(row.state, row.rows, row.files) for row in history(destination)] == [("exported", 40, 4)]
    assert to_store(group, filled)[0].rows == 0
    outside = filesystem(s3_server)
    place = f"{bucket}/out/topic={filled}/partition=0"
    outside.copy_file(f"{place}/0-10.parquet", f"{place}/10-20.parquet")
    outside.delete_file(f"{bucket}/out/topic={filled}/partition=1/0-10.parquet")
    wrong = join_lines(row.problem for row in problem_rows(destination))
    assert names(wrong, "partition=0/10-20.parquet", f"{filled}-0", 0, 10)
    assert names(wrong, "partition=1/0-10.parquet")
