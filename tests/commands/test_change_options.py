"""Options of commands that change groups, and what is said where they cannot be followed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cli import run
from guarded_changes import P
from lines import names
from resets import Resetter

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.config.time_arguments import parse_time
from zkgroup.groups.changes.reset_plan import Target
from zkgroup.groups.partition_scope import Selection, parse_scope
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Acl, Create, Ensure
from zkgroup.sandbox.local_cluster import Sandbox


@pytest.mark.parametrize(
    ("args", "option"),
    [
        (("reset-offsets", "g", "--topic", "t", "--to-earliest", "--export", "--output", "json"), "--export"),
        (("delete-group", "g", "--backup", "-"), "--backup"),
        (("delete-group", "--undo", "FILE", "--topic", "t"), "--undo"),
        (("rename-group", "g", "g"), "g"),
        (("migrate-group", "--pattern", "g*", "--topic", "t", "--to", "kafka"), "--topic"),
        (("migrate-group", "g", "--to", "kafka", "--topic-map", "t=u"), "--topic-map"),
        (("migrate-group", "--all", "--to", "kafka", "--backup", "FILE"), "--backup"),
        (("offsets", "g", "--save", "-", "--metrics", "-"), "--save"),
        (("topics", "t", "--columns", "topic"), "--columns"),
        (("consume", "t", "--from-beginning", "--offset", "3"), "--offset"),
    ],
)
def test_what_no_command_can_do(args: tuple[str, ...], option: str) -> None:
    """Wrong usage, reported before any server is asked."""
    result = run(*args, "-z", "127.0.0.1:1")
    assert (result.returncode, result.stdout) == (2, "")
    assert names(result.stderr, option)


def test_groups_that_are_not_there(
    cluster: Sandbox, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """Nothing to save or to shift: exit code 4, with a remedy that is about that; a new group may be given offsets."""
    group, topic, server = unique("nobody"), make_topic(1), ("-z", cluster.connect)
    saved = run("offsets", group, "--save", "-", *server)
    assert (saved.returncode, saved.stdout) == (4, "")
    assert names(saved.stderr, group, f"zkgroup -z {cluster.connect} list-groups")
    assert "--topic" not in saved.stderr
    shifted = run("reset-offsets", group, "--topic", topic, "--shift-by", "5", *server)
    assert (shifted.returncode, shifted.stdout) == (4, "")
    assert names(shifted.stderr, group)
    reset = run("reset-offsets", group, "--topic", topic, "--to-earliest", *server)
    assert (reset.returncode, names(reset.stderr, "warning", group)) == (0, True)


def test_an_offset_that_may_not_be_read_is_not_repaired(
    cluster: Sandbox, registry: Registry, unique: Callable[[str], str], make_topic: Callable[..., str]
) -> None:
    """--save names the credentials that are missing, and not a reset that would be refused as well."""
    group, topic = unique("hidden"), make_topic(1)
    registry.write(Ensure(znodes.offset_topic(group, topic)))
    registry.write(Create(znodes.offset(group, P(topic, 0)), b"5", acl=(Acl("digest", "u:nobody", 31),)))
    saved = run("offsets", group, "--save", "-", "-z", cluster.connect)
    assert (saved.returncode, saved.stdout) == (1, "")
    assert names(saved.stderr, group, f"{topic}-0", "zookeeper", "--topic")
    assert f"reset-offsets {group}" not in saved.stderr


def test_a_shift_is_not_run_again(
    registry: Registry, kafka: KafkaSettings, make_topic: Callable[..., str], make_group: Callable[..., str]
) -> None:
    """What is written of a shift would be shifted once more: the plan has another way on than that of all others."""
    topic = make_topic(1)
    group = make_group({P(topic, 0): 0})
    resetter = Resetter(registry, lambda: kafka, group, 20.0)
    selection = Selection(parse_scope([topic]))
    shift, latest = (resetter.plan(to, selection, "zookeeper") for to in (Target("shift", 1), Target("latest")))
    assert (shift.is_shift, names(shift.go_on, "--undo")) == (True, True)
    assert (latest.is_shift, "--undo" in latest.go_on) == (False, False)
    from_now = resetter.plan(Target("time", 1_600_000_000_250, from_now=True), selection, "zookeeper").go_on
    assert names(from_now, "--to-datetime 2020-09-13T12:26:40.250+00:00")  # the duration would count from then
    assert parse_time("2020-09-13T12:26:40.250+00:00") == 1_600_000_000_250
