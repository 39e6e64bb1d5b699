"""Values that TAB offers: groups, topics, partitions, members, profiles, sandboxes.

Only names of letters, digits and ``._:,-`` are offered: shells evaluate the words, and anybody may write names into
ZooKeeper.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterable
from typing import Final

import typer

from zkgroup.errors import ZkgroupError

TIMEOUT: Final = 0.6  # seconds; starting up takes its share of the second
_SAFE = re.compile(r"[A-Za-z0-9._:,-]+", re.ASCII)


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """Groups in the ZooKeeper, and at the brokers, that the line so far, the environment or a profile names."""
    return _safe(_within(TIMEOUT, lambda offered: _groups(ctx, offered)), incomplete)


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    from zkgroup.protocol import znodes

    return _safe(_within(TIMEOUT, lambda offered: _children(ctx, offered, znodes.topics())), incomplete)


def complete_partitions(ctx: typer.Context, incomplete: str) -> list[str]:
    """``TOPIC:P,P-P``: topics of the cluster, and behind the colon the topic's partitions."""
    topic, colon, numbers = incomplete.rpartition(":")
    if not colon:
        return complete_topic(ctx, incomplete)
    begun = re.split("[,-]", numbers)[-1]
    before = incomplete.removesuffix(begun)
    found = _within(TIMEOUT, lambda offered: _partitions(ctx, offered, topic))
    return _safe((f"{before}{number}" for number in found), incomplete)


def complete_folders(incomplete: str) -> list[str]:
    """Folders of an export, several with commas."""
    before, comma, _ = incomplete.rpartition(",")
    words = [word for word in ("partition", "date", "hour") if word not in before.split(",")]
    return _safe((f"{before}{comma}{word}" for word in [*words, *(() if comma else ("none",))]), incomplete)


def complete_words(*words: str) -> Callable[[str], list[str]]:
    """A completion by these words."""
    return lambda incomplete: _safe(words, incomplete)


def complete_finding(incomplete: str) -> list[str]:
    from zkgroup.groups.findings.finding_kinds import KINDS

    return _safe(KINDS, incomplete)


def complete_member(ctx: typer.Context, incomplete: str) -> list[str]:
    """Members, in ZooKeeper, of the group that the line names."""
    from zkgroup.protocol import znodes

    # Where an option has no value yet, arguments are not dealt out: the group is the first of them.
    group = ctx.params.get("group") or next(iter(ctx.args), None)
    if not isinstance(group, str):
        return []
    return _safe(_within(TIMEOUT, lambda offered: _children(ctx, offered, znodes.ids(group))), incomplete)


def complete_cluster(incomplete: str) -> list[str]:
    """Profiles of ``config.toml``, and the sandboxes."""
    from zkgroup.config.profiles import config_file, read_profiles

    try:
        path, must_exist = config_file(os.environ)
        known = list(read_profiles(path, must_exist=must_exist))
    except ZkgroupError:
        known = []
    return _safe([*known, "sandbox", *(f"sandbox:{name}" for name in _sandboxes() if name != "default")], incomplete)


def complete_sandbox(incomplete: str) -> list[str]:
    """Sandboxes that have left a trace."""
    return _safe(_sandboxes(), incomplete)


def complete_release(incomplete: str) -> list[str]:
    """Releases of Kafka that a sandbox can run."""
    from zkgroup.sandbox.kafka_releases import RELEASES

    return _safe(RELEASES, incomplete)


def _sandboxes() -> list[str]:
    from zkgroup.sandbox.sandbox_state import sandbox_names

    return sandbox_names()


def _children(ctx: typer.Context, offered: list[str], path: str) -> None:
    from zkgroup.protocol.operations import Children

    from ._context import connection, open_registry

    with open_registry(connection(ctx, quiet=True, ask=False)) as registry:
        names = registry.read([Children(path)])[0]
        offered.extend(names if isinstance(names, tuple) else ())


def _partitions(ctx: typer.Context, offered: list[str], topic: str) -> None:
    from zkgroup.protocol import znodes
    from zkgroup.protocol.broker_znodes import decode_topic
    from zkgroup.protocol.operations import Get, Node

    from ._context import connection, open_registry

    path = znodes.topic(topic)
    with open_registry(connection(ctx, quiet=True, ask=False)) as registry:
        (node,) = registry.read([Get(path)])
        if isinstance(node, Node):
            offered.extend(map(str, decode_topic(path, node.data).partitions))


def _groups(ctx: typer.Context, offered: list[str]) -> None:
    """Those in ZooKeeper, as soon as they are known, and those at the brokers."""
    from zkgroup.clients.kafka.group_coordinator import Coordinators
    from zkgroup.clients.kafka.registered_brokers import Brokers
    from zkgroup.protocol import znodes
    from zkgroup.protocol.operations import Children

    from ._context import bootstrap_brokers, connection, consumer_config, open_registry

    settings = connection(ctx, quiet=True, ask=False)
    kafka = bootstrap_brokers(settings) if settings.bootstrap else None
    if settings.zookeeper is not None:
        with open_registry(settings) as registry:
            names = registry.read([Children(znodes.consumers())])[0]
            offered.extend(names if isinstance(names, tuple) else ())
            config = consumer_config(ctx, settings).config
            brokers = Brokers(registry.read, config.kafka, kafka, TIMEOUT, listener=config.listener)
            kafka = brokers.settings()
    if kafka is not None:
        offered.extend(Coordinators(kafka, TIMEOUT).names().names)


def _within(seconds: float, collect: Callable[[list[str]], object]) -> list[str]:
    """What ``collect`` has put into its list by then. Its thread is abandoned: the process is about to end."""

    def run() -> None:
        try:
            with contextlib.suppress(ZkgroupError):  # a TAB has nowhere to complain
                collect(offered)
        finally:
            over.set()

    offered: list[str] = []
    over = threading.Event()
    threading.Thread(target=run, name="zkgroup-complete", daemon=True).start()
    over.wait(seconds)
    return list(offered)


def _safe(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete) and _SAFE.fullmatch(name)})
