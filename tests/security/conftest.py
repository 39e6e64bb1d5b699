"""A secured sandbox for all tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from secured_sandbox import MESSAGES, TOPIC, Secured
from servers import Sandbox
from support import fresh_name

from zkgroup.sandbox.topic_admin import fill_topic


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A secured sandbox with a topic."""
    with Sandbox(fresh_name("secured"), secure=True) as sandbox:
        with sandbox.registry(30.0) as registry:
            fill_topic(registry, TOPIC, MESSAGES)
        yield Secured(sandbox, tmp_path_factory.mktemp("secured"))
