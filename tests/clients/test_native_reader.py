"""The native reader alone: who owns memory, signals, forks, and arguments that are wrong."""

from __future__ import annotations

import gc
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from both_readers import Sent, send
from servers import pause, resume
from support import fresh_name, wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.native_reader import NativeMessages, native_module, open_reader, reader_in_use
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import create_topic

if native_module() is None:
    pytest.skip("there is no native reader", allow_module_level=True)


def native_reader(kafka: KafkaSettings, topic: str, **options: str) -> Any:
    module: Any = native_module()
    options |= {"bootstrap.servers": kafka.bootstrap, "group.id": "x", "enable.auto.commit": "false"}
    reader = module.Reader(options)
    reader.assign([(topic, 0, 0)])
    return reader


def some(reader: Any, least: int = 1) -> Any:
    """A batch of at least so many messages."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        batch = reader.consume(4000, 64 << 20, 1.0)
        if len(batch) >= least:
            return batch
    raise AssertionError("nothing came")


def test_a_batch_outlives_its_reader(kafka: KafkaSettings, filled: str) -> None:
    """What was read is there after close(), until it is released; then its calls raise."""
    reader = native_reader(kafka, filled)
    batch = some(reader)
    before = bytes(batch.values(0, len(batch)))
    reader.close()
    reader.close()
    assert bytes(batch.values(0, len(batch))) == before
    with pytest.raises(RuntimeError, match=r".+"):
        reader.consume(1, 1, 0.0)
    batch.release()
    for call in (lambda: batch.values(0, 1), lambda: batch.json(0, 1), lambda: batch.message(0)):
        with pytest.raises(ValueError, match=r".+"):
            call()


def test_the_first_messages_of_a_batch_are_freed_alone(kafka: KafkaSettings, filled: str) -> None:
    """Those behind them stay; what is freed is refused, and freed once."""
    reader = native_reader(kafka, filled)
    batch = some(reader, 10)
    rest = bytes(batch.json(5, len(batch)))
    for count in (3, 5, 0, -7, 5):
        batch.release_first(count)
    assert bytes(batch.json(5, len(batch))) == rest
    for start, stop in ((0, 1), (4, len(batch)), (0, len(batch))):
        with pytest.raises(ValueError, match=r".+"):
            batch.columns(start, stop, "b", "b", 9)
    with pytest.raises(ValueError, match=r".+"):
        batch.message(4)
    with pytest.raises(TypeError):
        batch.release_first("5")
    batch.release_first(2**40)
    batch.release()
    batch.release_first(1)
    reader.close()


def test_messages_of_a_batch_are_put_in_another_order(kafka: KafkaSettings, filled: str) -> None:
    """Within a slice, each once; what is no order is refused, and changes nothing."""
    reader = native_reader(kafka, filled)
    batch = some(reader, 10)
    before = list(NativeMessages(batch, 0, len(batch)).offsets())
    for places in ([0, 0], [0, 2], [-1, 0], [0, "1"], [2**70, 0]):
        with pytest.raises((ValueError, TypeError, OverflowError)):
            batch.reorder(2, places)
    for start in (-1, len(batch) - 1, 2**62):
        with pytest.raises(ValueError, match=r".+"):
            batch.reorder(start, [0, 1])
    batch.reorder(2, [])
    assert list(NativeMessages(batch, 0, len(batch)).offsets()) == before
    NativeMessages(batch, 2, 6).reorder([3, 0, 2, 1])
    order = [0, 1, 5, 2, 4, 3, *range(6, len(batch))]
    assert list(NativeMessages(batch, 0, len(batch)).offsets()) == [before[place] for place in order]
    assert [batch.message(place)[2] for place in range(6)] == [before[place] for place in order[:6]]
    batch.release()
    reader.close()


def test_close_and_release_in_another_thread(kafka: KafkaSettings, filled: str) -> None:
    """Neither frees what a call in another thread works on; twenty times over."""
    for _ in range(20):
        reader = native_reader(kafka, filled)
        batch = some(reader)
        calls = [
            lambda batch=batch: batch.json(0, len(batch)),
            lambda batch=batch: batch.columns(0, len(batch), "b", "j", 9),
        ]
        calls.append(lambda reader=reader: reader.consume(100, 1 << 20, 1.0))
        ended: list[str] = []

        def repeat(call: Callable[[], Any], ended: list[str] = ended) -> None:
            with pytest.raises((ValueError, RuntimeError)) as raised:
                deque(iter(call, None), maxlen=0)  # until it raises
            ended.append(str(raised.value))

        threads = [threading.Thread(target=repeat, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        time.sleep(0.02)
        reader.close()
        batch.release()
        for thread in threads:
            thread.join(20)
        assert sorted(ended) == ["the batch was released"] * 2 + ["the reader is closed"]


def test_keys_and_headers_count_into_the_size_of_a_batch(kafka: KafkaSettings, make_topic: Callable[..., str]) -> None:
    """Large keys and headers, with small values, make small batches."""
    topic = make_topic()
    send(kafka, topic, [Sent(bytes(20_000), b"v", 0, 1, [("h", bytes(20_000))]) for _ in range(600)])
    reader = native_reader(kafka, topic)
    held, count = [], 0
    while count < 600:
        batch = some(reader)
        count += len(batch)
        batch.release()
    reader.assign([(topic, 0, 0)])
    count = 0
    while count < 600:
        batch = reader.consume(4000, 1 << 20, 1.0)
        if len(batch):
            assert batch.key_bytes == 20_000 * len(batch)
            assert batch.header_bytes >= 20_000 * len(batch)
            held.append(batch.key_bytes + batch.header_bytes)
            count += len(batch)
        batch.release()
    reader.close()
    assert max(held) < 2 << 20


@pytest.mark.parametrize(
    "positions",
    [
        None,
        (),
        [1],
        ["abc"],
        [("t", 0)],
        [("t", "0", 0)],
        [(b"t", 0, 0)],
        [("t", 0, 0, 0)],
        [("t", 2**40, 0)],
        [["t", 0, 0]],
    ],
)
def test_assign_checks_its_items(kafka: KafkaSettings, positions: Any) -> None:
    """What is no list of (topic, partition, offset) is refused."""
    module: Any = native_module()
    reader = module.Reader({"bootstrap.servers": kafka.bootstrap, "group.id": "x"})
    for call in (reader.assign, reader.add, reader.drop):
        with pytest.raises((TypeError, OverflowError)):
            call(positions)
    reader.close()


def test_places_outside_a_batch_are_refused(kafka: KafkaSettings, filled: str) -> None:
    """So are unknown tokens and kinds of columns."""
    reader = native_reader(kafka, filled)
    batch = some(reader)
    for start, stop in ((-1, 1), (1, 0), (0, len(batch) + 1), (2**62, 2**62)):
        for call in (batch.values, batch.json, batch.offsets):
            with pytest.raises(ValueError, match=r".+"):
                call(start, stop)
    for place in (-1, len(batch)):
        with pytest.raises(IndexError):
            batch.message(place)
    for parts in (("x",), ("",), ("ss",), ("\0",)):
        with pytest.raises(ValueError, match="format"):
            batch.format(parts, 0, 1)
    with pytest.raises(TypeError):
        batch.format((1,), 0, 1)
    with pytest.raises(ValueError, match="column"):
        batch.columns(0, 1, "x", "b", 0)
    batch.release()
    reader.close()


def test_a_list_that_changes_while_it_is_read(kafka: KafkaSettings) -> None:
    """A number's ``__index__`` may empty the list of positions: nothing that is gone is read."""
    positions: list[Any] = []

    class Emptying:
        def __index__(self) -> int:
            positions.clear()
            return 0

    for call in ("assign", "add", "drop"):
        reader = native_module().Reader({"bootstrap.servers": kafka.bootstrap, "group.id": "x"})  # type: ignore[union-attr]
        positions += [("".join(("topic", str(n))), Emptying(), n) for n in range(100)]
        if call == "drop":
            reader.assign([(f"topic{n}", 0, 0) for n in range(100)])
        getattr(reader, call)(positions)
        assert positions == []
        reader.close()


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), 1e300])
def test_times_that_are_no_time_out_are_refused(kafka: KafkaSettings, seconds: float) -> None:
    """So is a descriptor that no process has."""
    reader = native_module().Reader({"bootstrap.servers": kafka.bootstrap, "group.id": "x"})  # type: ignore[union-attr]
    for call in (lambda: reader.consume(1, 1, seconds), lambda: reader.watermarks("t", 0, seconds)):
        with pytest.raises(ValueError, match="time-out"):
            call()
    with pytest.raises(OverflowError):
        reader.wake(2**40)
    reader.close()


def test_wrong_properties_are_refused(kafka: KafkaSettings) -> None:
    """By name, without a value that may be a secret."""
    from zkgroup.errors import UsageError

    reader = open_reader(KafkaSettings(kafka.bootstrap, {"fetch.min.bytes": "hunter2"}), native=True)
    with pytest.raises(UsageError, match=r"fetch\.min\.bytes") as raised:
        reader.assign({TopicPartition("t", 0): 0})
    assert "hunter2" not in str(raised.value)
    with pytest.raises(UsageError, match=r"ä{100}"):  # librdkafka's text ends within a character
        open_reader(KafkaSettings(kafka.bootstrap, {"ä" * 400: "1"}), native=True).assign({TopicPartition("t", 0): 0})


@pytest.mark.parametrize("sharers", [1, 2])
def test_a_signal_ends_a_wait_at_once(kafka: KafkaSettings, make_topic: Callable[..., str], sharers: int) -> None:
    """Ctrl-C raises within 0.1 s, in a pair of readers and in one: the median of nine, each sent while it waits."""
    topic, main, delays = make_topic(2), threading.main_thread(), []
    state = Path(f"/proc/self/task/{main.native_id}/stat")
    with closing(open_reader(kafka, native=True, sharers=sharers)) as reader:
        reader.assign({TopicPartition(topic, number): 0 for number in range(2)})
        reader.fetch(1.0)
        for _ in range(9):
            sent: list[float] = []
            waits = threading.Event()

            def interrupt(sent: list[float] = sent, waits: threading.Event = waits) -> None:
                waits.wait(10)  # or it would be sent while this thread is started
                wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "S", 10, "the reader waits")
                sent.append(time.monotonic())
                signal.pthread_kill(main.ident or 0, signal.SIGINT)

            def wait(interrupt: Callable[[], None] = interrupt, waits: threading.Event = waits) -> None:
                thread = threading.Thread(target=interrupt)
                thread.start()
                waits.set()
                reader.fetch(5.0)
                thread.join(10)

            with pytest.raises(KeyboardInterrupt):
                wait()
            delays.append(time.monotonic() - sent[0])
    assert statistics.median(delays) < 0.1, delays


def test_a_fork_neither_hangs_nor_frees(kafka: KafkaSettings, filled: str) -> None:
    """In a process that was forked off calls raise, a new reader works, and the end does not wait for threads that are
    not there."""
    reader = native_reader(kafka, filled)
    batch = some(reader)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for call in (lambda: reader.consume(1, 1, 0.1), lambda: batch.values(0, 1)):
                with pytest.raises((RuntimeError, ValueError), match=r".+"):
                    call()
            own = native_reader(kafka, filled)
            assert len(some(own)) > 0
            own.close()
            reader.close()
            batch.release()
            del reader, batch, own
            code = 0
        finally:
            os._exit(code)
    check_child_ends(child)
    assert len(batch.values(0, len(batch))) > 0
    reader.close()


def check_child_ends(child: int) -> None:
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        assert time.monotonic() < deadline, "the child hangs"
        time.sleep(0.05)
    assert os.waitstatus_to_exitcode(ended[1]) == 0


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_close_ends_a_wait_for_a_broker_that_fails(
    make_sandbox: Callable[..., Sandbox], zookeeper: Sandbox, how: str
) -> None:
    """In the middle of a log, in a process that was forked off as Spark's workers are: a poll that waits ends, and so
    does the process."""
    sandbox = make_sandbox(zookeeper=zookeeper.address, chroot=f"/{fresh_name('failing')}")
    kafka, topic = KafkaSettings(sandbox.bootstrap), fresh_name("topic")
    with sandbox.registry(30.0) as registry:
        create_topic(registry, topic)
    send(kafka, topic, [Sent(None, bytes(10_000), 0, 1, []) for _ in range(5000)])
    has_read, reads = os.pipe()  # the child's word for its first batch
    child = os.fork()
    if child == 0:
        code = 1
        try:
            options = {"queued.max.messages.kbytes": "1024", "fetch.message.max.bytes": "100000"}
            reader = native_reader(kafka, topic, **options)
            batch = some(reader)
            os.write(reads, b"1")
            closer = threading.Timer(3.0, reader.close)
            closer.start()
            try:
                while True:
                    reader.consume(4000, 64 << 20, 30.0)
            except RuntimeError:  # it is closed
                closer.join()
            batch.release()
            code = 0
        finally:
            os._exit(code)
    try:
        os.read(has_read, 1)
        pause(sandbox.broker()) if how == "stopped" else sandbox.broker().kill()
        check_child_ends(child)
    finally:
        resume(sandbox.broker())
        os.close(has_read)
        os.close(reads)


UNCLOSED = """
import sys, threading
from zkgroup.clients.kafka import _native
reader = _native.Reader({"bootstrap.servers": sys.argv[1], "group.id": "x", "enable.auto.commit": "false"})
reader.assign([(sys.argv[2], 0, 0)])
while not len(batch := reader.consume(4000, 1 << 20, 1.0)):
    pass
def repeat(call):
    while True:
        call()
for call in (lambda: reader.consume(1, 1, 10.0), lambda: batch.json(0, len(batch)), lambda: batch.message(0)):
    threading.Thread(target=repeat, args=(call,), daemon=True).start()
"""


def test_the_interpreter_ends_while_calls_go_on(kafka: KafkaSettings, filled: str) -> None:
    """A process whose daemon threads are in calls, with a reader and a batch that nobody has closed, ends well."""
    for _ in range(3):
        ended = subprocess.run(
            [sys.executable, "-c", UNCLOSED, kafka.bootstrap, filled], timeout=60, capture_output=True, check=False
        )
        assert (ended.returncode, ended.stderr) == (0, b"")


def test_the_variable_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """``ZKGROUP_NATIVE=0`` chooses the Python reader."""
    assert reader_in_use() == "native"
    monkeypatch.setenv("ZKGROUP_NATIVE", "0")
    assert reader_in_use() == "Python"
    assert type(open_reader(KafkaSettings("127.0.0.1:1"), native=True)).__name__ == "Fetcher"


def test_an_extension_of_another_source_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkout that was updated keeps the extension that was built before."""
    monkeypatch.setattr(native_module(), "interface", 0)
    assert reader_in_use() == "Python"
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_an_extension_that_does_not_load_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A reader that is slower without a word would never be found out."""
    error = ImportError("undefined symbol: rd_kafka_new")
    monkeypatch.setattr("zkgroup.clients.kafka.native_reader.import_extension", Mock(side_effect=error))
    assert reader_in_use() == "Python"
    assert [(record.levelname, record.args) for record in caplog.records] == [("WARNING", (error,))]


def test_an_extension_that_is_absent_is_not_missed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No compiler was there: the Python reader is what was installed."""
    error = ModuleNotFoundError("No module named 'zkgroup.clients.kafka._native'")
    monkeypatch.setattr("zkgroup.clients.kafka.native_reader.import_extension", Mock(side_effect=error))
    assert (reader_in_use(), caplog.records) == ("Python", [])


def test_a_reader_without_a_group_id_is_refused(kafka: KafkaSettings) -> None:
    """librdkafka has no queue for it then."""
    module: Any = native_module()
    with pytest.raises(module.NativeError, match=r"group\.id"):
        module.Reader({"bootstrap.servers": kafka.bootstrap})


def test_sizes_in_the_middle_of_a_message_leave_its_headers(
    kafka: KafkaSettings, make_topic: Callable[..., str]
) -> None:
    """A message's headers become Python objects, which may start the collector, and that any other code."""
    topic = make_topic()
    headers: list[tuple[str, bytes | None]] = [(f"h{number}", b"z" * 5000) for number in range(60)]
    send(kafka, topic, [Sent(None, b"v", 0, 1, headers)])
    with closing(native_reader(kafka, topic)) as reader:
        batch = some(reader)
        before = gc.get_threshold()

        def measure(phase: str, _: object) -> None:
            if phase == "start":
                batch.sizes(0, 1, True)

        gc.callbacks.append(measure)
        gc.set_threshold(1, 1, 1)
        try:
            found = batch.message(0)[6]
        finally:
            gc.set_threshold(*before)
            gc.callbacks.remove(measure)
        assert found == headers
