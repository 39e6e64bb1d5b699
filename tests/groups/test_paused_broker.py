"""A broker that pauses, as by a long collection of garbage, amid requests about groups."""

from __future__ import annotations

import gc
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from cli import ZKGROUP, environment, run
from group_nodes import commit_in_kafka
from servers import Sandbox, pause, resume
from support import numbered, wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.group_coordinator import Coordinators
from zkgroup.commands import app
from zkgroup.groups.snapshot.group_reader import read_groups
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children
from zkgroup.sandbox.topic_admin import create_topic, produce

CHECK = ("inspect-group", "--all", "--check", "--history-file")
GROUPS = [f"g{number}" for number in range(20)]


def resume_broker(sandbox: Sandbox) -> None:
    """Its session may have ended meanwhile: then it registers anew."""
    resume(sandbox.broker())
    with sandbox.registry(30.0) as registry:
        wait_until(lambda: registry.read([Children(znodes.broker_ids())]) == [("1",)], 60, "it is registered")


@pytest.fixture(scope="module")
def sandbox(zookeeper: Sandbox) -> Iterator[Sandbox]:
    with (
        Sandbox("paused-broker", zookeeper=zookeeper.address, chroot="/paused") as sandbox,
        sandbox.registry(30.0) as registry,
    ):
        create_topic(registry, "t", 1)
        produce(KafkaSettings(sandbox.bootstrap), "t", numbered(10, 1))
        for group in GROUPS:
            commit_in_kafka(KafkaSettings(sandbox.bootstrap), group, {TopicPartition("t", 0): 4})
        yield sandbox


def test_late_answers_are_left_alone(sandbox: Sandbox) -> None:
    """Look-ups of coordinators are answered when zkgroup does not wait for them any more: librdkafka (2.16) aborts
    where its own request has expired by then."""
    coordinators = Coordinators(KafkaSettings(sandbox.bootstrap), 10)
    assert coordinators.read_group(GROUPS[0]).failures == {}
    pause(sandbox.broker())
    try:
        coordinators.timeout = 1
        silent = coordinators.read_groups(GROUPS)
    finally:
        resume_broker(sandbox)
    assert [(group, set(found.failures)) for group, found in silent.items()] == [
        (group, {"members", "offsets"}) for group in GROUPS
    ]
    coordinators.timeout = 30
    found = coordinators.read_groups(GROUPS)
    assert {group: found[group].offsets[TopicPartition("t", 0)].offset for group in GROUPS} == dict.fromkeys(GROUPS, 4)


@pytest.fixture
def pausing(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    """The broker pauses after it has listed the groups."""
    names = Coordinators.names

    def names_and_pause(coordinators: Coordinators) -> object:
        found = names(coordinators)
        pause(sandbox.broker())
        return found

    monkeypatch.setattr(Coordinators, "names", names_and_pause)
    yield sandbox
    resume_broker(sandbox)


def test_listed_groups_without_an_answer_are_shown(pausing: Sandbox) -> None:
    """None of them is left out."""
    with pausing.registry(30.0) as registry:
        found = read_groups(registry, kafka=KafkaSettings(pausing.bootstrap), timeout=2)
    assert [(one.group, one.store, set(one.kafka_failures)) for one in found] == [
        (group, "kafka", {"members", "offsets"}) for group in sorted(GROUPS)
    ]


def test_listed_groups_without_an_answer_are_checked(
    pausing: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A check of all groups is no OK of none."""
    kept = str(tmp_path / "history")
    try:
        with pytest.raises(SystemExit) as ended:
            app([*CHECK, kept, "-z", pausing.connect, "--connect-timeout", "2"])
    finally:
        gc.enable()  # which the command disables in its own process
    verdict = capsys.readouterr().out
    assert (ended.value.code, verdict.startswith("ZKGROUP UNKNOWN: 20 of 20")) == (3, True), verdict


def test_a_check_without_groups_and_brokers(sandbox: Sandbox, tmp_path: Path) -> None:
    """Which groups there are is not known: no OK either, and no server that is up."""
    at = ("-z", sandbox.connect, "--connect-timeout", "2")
    pause(sandbox.broker())
    try:
        ended = run(*CHECK, str(tmp_path / "history"), *at)
        verified = run("inspect-group", "--all", "--verify", *at)
        command = [ZKGROUP, "inspect-group", "--all", *at, "--serve", "0"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as server:
            try:
                assert server.stderr is not None
                (address,) = re.findall(r"http://\S+", server.stderr.readline())
                with urlopen(address, timeout=30) as answer:
                    assert b"\nzkgroup_up 0\n" in answer.read()
            finally:
                server.kill()
    finally:
        resume_broker(sandbox)
    assert verified.returncode == 3, verified.stderr
    assert (ended.returncode, ended.stdout.startswith("ZKGROUP UNKNOWN: 0 ")) == (3, True), ended.stdout
