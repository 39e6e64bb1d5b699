"""Fixtures of the tests of groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from broken_groups import Maker

from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.servers.registry import Registry


@pytest.fixture(scope="module")
def maker(cluster: Sandbox, registry: Registry) -> Iterator[Maker]:
    """Writes groups; their ephemeral nodes go with the module."""
    with ExitStack() as stack:
        sessions = (stack.enter_context(cluster.registry(30.0)), stack.enter_context(cluster.registry(30.0)))
        maker = Maker(cluster, registry, sessions)
        stack.callback(maker.clear)
        yield maker
