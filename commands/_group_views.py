"""Snapshots of groups for the commands that only read."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from zkgroup.config import ConnectionSettings
from zkgroup.errors import NotFoundError, did_you_mean

from ._completion_values import complete_partitions
from ._context import bootstrap_brokers, connection, open_registry
from ._shared_options import option
from ._spinner import working

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import KafkaSettings
    from zkgroup.clients.zookeeper.registry import Registry
    from zkgroup.groups.group_model import GroupSnapshot, Store

StoreChoice: TypeAlias = Literal["zookeeper", "kafka", "both"] | None
StoreOption: TypeAlias = Annotated[
    StoreChoice, option("--store", help="The store of the offsets. Default: the stores in which the group has offsets.")
]


def partitions_option(help: str, panel: str | None = None) -> Any:
    """``--topic``, for topics or some of their partitions."""
    return option("--topic", metavar="TOPIC[:P,P-P]", help=help, panel=panel, complete=complete_partitions)


PartitionsOption: TypeAlias = Annotated[
    list[str] | None, partitions_option("Only this topic, or these partitions of it; repeatable.")
]
BehindOption: TypeAlias = Annotated[
    bool | None,
    option(
        "--behind/--no-behind",
        help="Read how old the next message of each partition with lag is. Default: where there are at most 1000.",
        show_default=False,
    ),
]
SHOWN_TOPICS = 10


def brokers_of(settings: ConnectionSettings, registry: Registry | None) -> Callable[[], KafkaSettings]:
    """A function that finds the brokers: those of ``--bootstrap-server``, else the registered ones."""

    def find() -> KafkaSettings:
        from zkgroup.clients.kafka.registered_brokers import (
            Brokers,  # confluent-kafka: 60 ms that not every command needs
        )

        if settings.bootstrap or registry is None:
            return bootstrap_brokers(settings)
        return Brokers(registry.read, settings.kafka, listener=settings.listener).settings()

    return find


@contextmanager
def open_stores(
    settings: ConnectionSettings, store: StoreChoice, groups: Iterable[str] = ()
) -> Iterator[tuple[Registry | None, StoreChoice]]:
    """ZooKeeper, and the store that is meant; Kafka alone, and no ZooKeeper, where only brokers are named. Names that
    none of ``groups`` can have in ZooKeeper are refused before it is opened."""
    if settings.zookeeper is None and settings.bootstrap and store in (None, "kafka"):
        yield None, "kafka"
        return
    from zkgroup.protocol import znodes

    for group in groups:
        znodes.group(group)
    with open_registry(settings) as registry:
        yield registry, store


def read_one_group(
    ctx: typer.Context,
    group: str,
    *,
    store: Store = "both",
    ages: bool | None = False,
    settings: ConnectionSettings | None = None,
) -> GroupSnapshot:
    """One group, in ZooKeeper and in Kafka; ``ages`` as in ``read_group``; ``settings``: of the connection, where they
    are resolved already. Raises ``ZkgroupError`` where there is none, or ZooKeeper is away."""
    from zkgroup.groups.snapshot.group_reader import read_group  # brings kazoo, which --help must not

    disable_garbage_collection()
    settings = settings or connection(ctx)
    with working(ctx, f"reading group {group}"), open_stores(settings, None) as (registry, _):
        brokers = brokers_of(settings, registry)
        return read_group(registry, group, kafka=brokers, store=store, ages=ages, timeout=settings.timeout)


def read_all_groups(
    ctx: typer.Context,
    *,
    store: Store = "both",
    ages: bool | None = False,
    warned: list[str] | None = None,
    settings: ConnectionSettings | None = None,
) -> Sequence[GroupSnapshot]:
    """All groups, in the order of their names; ``warned`` gets what concerns all of them, even if there is none;
    ``ages`` as in ``read_groups``, ``settings`` as in ``read_one_group``. Raises ``ZkgroupError`` where ZooKeeper is
    away."""
    from zkgroup.groups.snapshot.group_reader import read_groups  # as above

    disable_garbage_collection()
    settings = settings or connection(ctx)
    with working(ctx, "reading all groups"), open_stores(settings, None) as (registry, _):
        brokers = brokers_of(settings, registry)
        return read_groups(registry, kafka=brokers, store=store, ages=ages, timeout=settings.timeout, warned=warned)


def disable_garbage_collection() -> None:
    """A snapshot is kept until it is shown, and then the process ends: the garbage collector would only
    walk over it again and again, which takes a quarter of the time."""
    gc.disable()


def check_topics(snapshot: GroupSnapshot, topics: Iterable[str]) -> None:
    """Raise ``NotFoundError`` for a topic that the group has nothing to do with."""
    known = snapshot.subscribed | {partition.topic for partition in snapshot.partitions}
    for name in topics:
        if name not in known:
            raise NotFoundError(
                f"group {snapshot.group} has nothing to do with topic {name!r}: no subscription, no owner, no offset",
                did_you_mean(name, known, f"its topics: {', '.join(sorted(known)[:SHOWN_TOPICS]) or 'none'}"),
            )
