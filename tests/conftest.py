"""Fixtures for all tests: real servers, started once for the whole run, and the small tools around them.

``zookeeper`` and ``cluster`` are shared: a test takes names of its own from ``unique`` and does them no harm. A test
that stops, pauses or overloads a server makes a private one with ``make_sandbox``. Helpers that are no
fixtures (``wait_until`` …) are in ``support``.
"""

from __future__ import annotations

import compileall
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from group_nodes import Groups, groups_on
from hypothesis import HealthCheck, settings
from mirrored_clusters import Cluster, started
from servers import Sandbox
from support import fresh_name, numbered

import zkgroup
import zkgroup.commands
from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.config.setting_files import STATE_VARIABLE
from zkgroup.errors import UnreachableError
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children, Create, Ensure, Exists, Get, GetAcl, Op, Result, Sync
from zkgroup.sandbox.kafka_releases import kafka_jars
from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic, produce


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run what is marked long")


def pytest_configure(config: pytest.Config) -> None:
    # Under nohup, or in the background of a script, these are ignored, and so they would be in the commands we run.
    for signum in (signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, signal.SIG_DFL if signum == signal.SIGHUP else signal.default_int_handler)
    if hasattr(config, "workerinput"):
        gc.disable()  # until all tests are there
    else:
        compile_product()
    # Workers, and the next run, share the tests that one has compiled: most of the twenty seconds that each needs.
    sys.dont_write_bytecode = False
    # How long an example takes says how busy the machine is. All examples (support.scaled) are for the long run.
    examples = 100 if config.getoption("--long") else 40
    settings.register_profile(
        "any machine", max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("any machine")
    config.addinivalue_line("markers", "long: takes long or downloads much; runs with --long (make test-all)")


def compile_product() -> None:
    """Compile zkgroup once: each of the thousand processes of the tests would take a second of a processor for it. None
    of them writes bytecode, as those do that have a limit of file sizes: Python would leave a cut file behind."""
    for package in (zkgroup, zkgroup.commands):
        compileall.compile_dir(Path(package.__file__).parent, quiet=1, force=True, workers=0)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def pytest_collection_finish() -> None:
    """From here on tests may limit the size of files. The 5,000 tests stay: going through them again and again for
    garbage took a sixth of what a worker needs."""
    sys.dont_write_bytecode = True
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long tests, unless they are asked for. Workers begin with the units that take long."""
    if not config.getoption("--long"):
        left_out = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: -SECONDS.get(unit_of(item.nodeid), 0))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A worker takes one unit after the other. (Groups of xdist 3.8 are none with pytest 9.2.)"""
    from xdist.scheduler import LoadScopeScheduling

    class LoadUnits(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    return LoadUnits(config, log)


#: Units of several files, which share a server: one worker alone starts it.
UNITS = {
    "commands/alone/": "alone",
    "security/": "security",
    **{
        f"export/test_{name}.py": "spark"
        for name in ("exported_messages", "export_contents", "layouts", "readback", "schemas")
    },
    "export/test_undated.py": "spark",
    "groups/test_offset_translation.py": "releases",
    "commands/test_kraft.py": "releases",
    "commands/test_migrate_to_cluster.py": "releases",
}
#: Files without a server: each of their tests is a unit.
SPREAD = ("protocol/test_simulation.py", "protocol/test_member_schedules.py")
#: How many seconds a long unit takes: it is begun early, so that no worker is left with it in the end.
SECONDS = {
    **{"spark": 170, "security": 150, "alone": 150, "releases": 130, "test_readme.py": 130},
    **{"export/test_protocol.py": 120, "export/test_memory.py": 110, "commands/test_export_command.py": 100},
    **{
        "sandbox/test_sandbox_servers.py": 100,
        "test_docs.py": 90,
        "export/test_tables.py": 80,
        "commands/test_sandbox_command.py": 80,
    },
    **{"groups/test_findings_commands.py": 80, "export/test_objects.py": 70, "groups/test_dead_broker.py": 70},
    **{"clients/test_reader_contract.py": 70, "commands/test_consume_faults.py": 70, "export/test_servers_fail.py": 60},
    **{
        "commands/test_export_options.py": 60,
        "releases/test_every_release.py": 50,
        "commands/test_consume_ends.py": 50,
    },
    **{"commands/test_watch_screen.py": 50, "commands/test_assign_execute.py": 50, "groups/test_group_resets.py": 50},
    **{"connector/test_losing.py": 50, "commands/test_consume_reading.py": 50, "groups/test_dead_coordinator.py": 50},
    **{"connector/test_ensemble_fails.py": 50, "groups/test_interrupted_anywhere.py": 50, "export/test_spark.py": 50},
    **{"commands/test_consume_coordinated.py": 50, "commands/test_reset_offsets.py": 50, "export/test_join.py": 50},
    **{"clients/test_range_reader.py": 40, "protocol/test_topic_filter.py": 40, "commands/test_demo.py": 40},
    **{"export/test_stores.py": 40, "export/test_iceberg.py": 40, "commands/test_completions.py": 40},
    **{"commands/test_consume_promises.py": 40, "connector/test_brokers_fail.py": 40, "connector/test_mixed.py": 30},
}


def unit_of(nodeid: str) -> str:
    """The tests that run on one worker: those of ``UNITS``, of a file, or this one alone."""
    file, _, test = nodeid.removeprefix("tests/").partition("::")
    for begin, unit in UNITS.items():
        if file.startswith(begin):
            return unit
    return test if file in SPREAD else file


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Sandboxes and backups of tests never mix with those of the person who runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(STATE_VARIABLE, str(tmp_path_factory.mktemp("state")))
        for name in [name for name in os.environ if name.startswith("ZKGROUP_") and name not in _KEPT]:
            patch.delenv(name)
        yield


_KEPT = (STATE_VARIABLE, "ZKGROUP_CACHE_DIR", "ZKGROUP_IVY_SETTINGS", "ZKGROUP_NATIVE")


@pytest.fixture(scope="session")
def zookeeper(_own_state: None) -> Iterator[Sandbox]:
    """A shared ZooKeeper without brokers."""
    with Sandbox("tests-zookeeper", brokers=0) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def cluster(zookeeper: Sandbox) -> Iterator[Sandbox]:
    """A shared 1.1.1 broker on the shared ZooKeeper, under the chroot ``/cluster``."""
    with Sandbox("tests", zookeeper=zookeeper.address, chroot="/cluster") as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def kafka(cluster: Sandbox) -> KafkaSettings:
    """How to reach the shared broker."""
    return KafkaSettings(cluster.bootstrap)


@pytest.fixture(scope="session")
def oldest(zookeeper: Sandbox) -> Iterator[Cluster]:
    """A broker of the oldest release: without timestamps, headers and transactions."""
    with started("0.8.2.2", zookeeper) as found:
        yield found


@pytest.fixture(scope="session")
def newest(zookeeper: Sandbox) -> Iterator[Cluster]:
    """A broker of the newest release that runs with ZooKeeper. It compacts at once."""
    with started("3.9.1", zookeeper, **{"log.cleaner.backoff.ms": "100"}) as found:
        yield found


class LastingRegistry(Registry):
    """One that opens a session anew when its last is over: a test that has the interpreter for longer than the
    time-out, on a busy machine, is not to fail all that come after it."""

    def _round(self, ops: Sequence[Op], deadline: float) -> list[Result]:
        if self.is_lost:
            self._begin_anew()
        try:
            return super()._round(ops, deadline)
        except UnreachableError:
            if not self.is_lost or not all(isinstance(op, Get | GetAcl | Children | Exists | Sync) for op in ops):
                raise
        self._begin_anew()  # it was over before anybody had noticed: what only reads may read again
        return super()._round(ops, deadline)

    def _begin_anew(self) -> None:
        Registry.__init__(self, self.settings, self.timeout)
        self.__enter__()


@pytest.fixture(scope="session")
def registry(cluster: Sandbox) -> Iterator[Registry]:
    """A registry on the shared cluster, for tests to read and to prepare. It is not the one under test."""
    settings = replace(cluster.registry().settings, session_timeout=10.0)
    with LastingRegistry(settings, 30.0) as registry:
        yield registry


@pytest.fixture
def make_sandbox() -> Iterator[Callable[..., Sandbox]]:
    """``make_sandbox(**options)`` starts a private sandbox, which ends with the test."""
    made: list[Sandbox] = []

    def make(**options: Any) -> Sandbox:
        name = options.pop("name", None) or fresh_name("test")
        sandbox = Sandbox(name, **options)
        made.append(sandbox)
        return sandbox.start()

    yield make
    for sandbox in made:
        sandbox.stop()


@pytest.fixture
def make_cluster(zookeeper: Sandbox, make_sandbox: Callable[..., Sandbox]) -> Callable[..., Sandbox]:
    """``make_cluster(**options)`` starts private brokers on the shared ZooKeeper, which end with the test."""

    def make(**options: Any) -> Sandbox:
        return make_sandbox(zookeeper=zookeeper.address, chroot=f"/{fresh_name('private')}", **options)

    return make


@pytest.fixture
def unique() -> Callable[[str], str]:
    """``unique("orders")`` is a name that no other test uses, for a topic or a group."""
    return fresh_name


@pytest.fixture
def make_topic(registry: Registry, unique: Callable[[str], str]) -> Callable[..., str]:
    """``make_topic(partitions, stem="topic")`` makes a topic of its own on the shared cluster, and returns its name."""

    def make(partitions: int = 1, stem: str = "topic") -> str:
        name = unique(stem)
        create_topic(registry, name, partitions)
        return name

    return make


@pytest.fixture
def make_group(registry: Registry, unique: Callable[[str], str]) -> Callable[..., str]:
    """``make_group({TopicPartition("t", 0): 5}, ids=True)`` writes the nodes of a group without members to the shared
    cluster, and returns its name. ``ids``: whether it has that node."""

    def make(offsets: Mapping[TopicPartition, int] | None = None, *, ids: bool = True) -> str:
        group = unique("group")
        parents = [znodes.ids(group)] if ids else [znodes.group(group)]
        parents += [znodes.offset_topic(group, topic) for topic in sorted({p.topic for p in offsets or ()})]
        made = registry.read([Ensure(path) for path in parents])
        made += registry.read([Create(znodes.offset(group, p), b"%d" % n) for p, n in (offsets or {}).items()])
        assert not any(made), made
        return group

    return make


@pytest.fixture
def second(registry: Registry) -> Iterator[Registry]:
    """Another session on the shared cluster, for what somebody else does; what it has goes with the test."""
    with Registry(registry.settings, 30.0) as other:
        yield other


@pytest.fixture
def in_kafka(kafka: KafkaSettings) -> Iterator[Callable[..., GroupOffsets]]:
    """``in_kafka(group, {partition: offset})`` commits offsets to Kafka for a group; what it returns can read them."""
    opened: list[GroupOffsets] = []

    def commit(group: str, offsets: Mapping[TopicPartition, int] | None = None) -> GroupOffsets:
        opened.append(GroupOffsets(kafka, group))
        opened[-1].commit(offsets or {}, 20.0)
        return opened[-1]

    yield commit
    for one in opened:
        one.close()


@pytest.fixture
def fill(kafka: KafkaSettings) -> Callable[..., list[ProducerRecord]]:
    """``fill(topic, n, partitions=1)`` produces ``n`` numbered messages in turn, and returns them."""

    def send(topic: str, n: int, partitions: int = 1, *, settings: KafkaSettings | None = None) -> list[ProducerRecord]:
        records = numbered(n, partitions)
        produce(settings or kafka, topic, records)
        return records

    return send


@pytest.fixture(scope="session")
def scala_consumer_jars() -> Callable[[Sequence[str]], list[str]]:
    """``scala_consumer_jars(versions)``: the folders with the jars of these Kafka releases, downloaded if need be."""
    return lambda versions: [str(kafka_jars(version)) for version in versions]


@pytest.fixture
def groups(registry: Registry, unique: Callable[[str], str]) -> Iterator[Groups]:
    """Writes groups, whose members go with the test."""
    with groups_on(registry, unique) as found:
        yield found
