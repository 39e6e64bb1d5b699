"""What ZooKeeper's client logs with ``-vv``: requests and answers, without what is made of passwords."""

from __future__ import annotations

import logging

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kazoo.protocol import serialization as wire
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl, make_digest_acl_credential

from zkgroup.clients.zookeeper.session import KAZOO_LOG


@given(st.text(min_size=1).filter(lambda user: ":" not in user), st.sampled_from(["%s", "%r"]))
@example("it's", "%s")
@example("both \"quotes' ", "%r")
def test_no_digest_is_logged(user: str, form: str) -> None:
    """Of a request that sets access lists, and of an answer that shows them; all else of them is there."""
    try:
        digest = make_digest_acl_credential(user, "secret").rpartition(":")[2]
    except UnicodeEncodeError:
        return  # no name that ZooKeeper could be given
    lists = [make_digest_acl(user, "secret", all=True), *OPEN_ACL_UNSAFE]
    for about in (wire.Create("/a", b"data", lists, 0), (lists, "stat"), lists[0]):
        record = logging.LogRecord("kazoo.zkgroup", logging.DEBUG, "", 0, f"xid %d: {form}", (7, about), None)
        assert KAZOO_LOG.filter(record)
        message = record.getMessage()
        assert digest not in message
        assert message.startswith("xid 7: ")
        assert "scheme='digest'" in message


def test_passwords_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Requests that carry them are named only."""
    with caplog.at_level(logging.DEBUG, KAZOO_LOG.name):
        KAZOO_LOG.debug("Sending %s and %s", wire.Auth(0, "digest", "me:secret"), 5)
    assert caplog.messages == ["Sending Auth(…) and 5"]
