"""What access lists tell of a change before it is tried."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable

import pytest
from cli import run
from writing import P, values

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.changes.access_lists import CREATE, DELETE, WRITE, lacks
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import OPEN, Acl, Create, Ensure
from zkgroup.sandbox.local_cluster import Sandbox

SHOWN = "app:" + base64.b64encode(hashlib.sha1(b"app:secret").digest()).decode()
AUTH = (("digest", "app:secret"),)
READABLE = Acl("world", "anyone", 1)


@pytest.mark.parametrize(
    ("acl", "auth", "expected"),
    [
        (OPEN, (), False),
        ((READABLE,), (), True),
        ((), (), True),
        ((READABLE,), AUTH, True),
        ((READABLE, Acl("digest", SHOWN, 31)), (), True),
        ((READABLE, Acl("digest", SHOWN, 31)), AUTH, False),
        ((READABLE, Acl("digest", SHOWN, 1)), AUTH, True),
        ((Acl("digest", SHOWN, 31),), (("digest", "app:wrong"),), True),
        ((Acl("digest", "app:x", 31),), AUTH, False),  # servers do not show digests to everybody
        ((Acl("digest", "other:x", 31),), AUTH, True),
        ((READABLE,), (("digest", "super:any"),), False),
        ((Acl("sasl", "kafka", 31),), (), False),  # who we are to SASL is not known here
        ((Acl("ip", "10.0.0.0/8", 31),), (), False),
    ],
)
def test_what_is_surely_missing(acl: tuple[Acl, ...], auth: tuple[tuple[str, str], ...], expected: bool) -> None:
    """Only what cannot be allowed counts: where nobody can tell, nothing is said."""
    assert all(lacks(acl, auth, permission) is expected for permission in (WRITE, CREATE, DELETE))


def test_a_plan_tells_what_execute_may_not(
    cluster: Sandbox, registry: Registry, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """An offset that may only be read, and a group whose node takes no children: the plan says so, --execute is refused
    with exit code 5, and nothing is changed."""
    group, topic = unique("guarded"), make_topic(2)
    settings = ZooKeeperSettings(cluster.connect, connect_timeout=20.0, auth=AUTH)
    with Registry(settings, 20.0) as owner:
        owner.write(Ensure(znodes.consumers()))
        mine = (READABLE, Acl("digest", SHOWN, 31))
        owner.write(Create(znodes.group(group), acl=OPEN))
        owner.write(Ensure(znodes.offset_topic(group, topic)))
        owner.write(Create(znodes.offset(group, P(topic, 0)), b"5", acl=mine))
        server = ("-z", cluster.connect)
        reset = ("reset-offsets", group, "--topic", topic, "--to-offset", "0", "--store", "zookeeper", *server)
        planned = run(*reset, "--output", "json")
        assert (planned.returncode, len(json.loads(planned.stdout))) == (0, 2)
        lacking = f"nodes of group {group} may not be changed: /consumers/{group}/offsets/{topic}/0 (not to be written)"
        assert f"--execute would be refused: {lacking}: connect with credentials" in planned.stderr
        refused = run(*reset, "--execute")
        assert refused.returncode == 5, refused.stderr
        assert f"cannot change /consumers/{group}/offsets/{topic}/0: not authorised; nothing was written" in (
            refused.stderr
        )
        assert values(registry, group, P(topic, 0), P(topic, 1)) == [5, None]

        closed = unique("closed")
        owner.write(Create(znodes.group(closed), acl=mine))
        owner.write(Create(znodes.ids(closed), acl=OPEN))
        delete = ("delete-group", closed, "--store", "zookeeper", *server)
        planned = run(*delete)
        assert f"/consumers/{closed} (not to be rid of children)" in planned.stderr
        refused = run(*delete, "--execute")
        assert refused.returncode == 5, refused.stderr
