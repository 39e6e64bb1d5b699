"""Releases of the broker: TLS with 0.9, the oldest that has it, and sandboxes that are secured, first and last."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cli import run
from lines import names
from servers import Sandbox

from zkgroup.errors import UsageError
from zkgroup.sandbox.certificates import make_authority
from zkgroup.sandbox.processes import HOST, free_port
from zkgroup.sandbox.server_configuration import STORE_PASSWORD
from zkgroup.sandbox.topic_admin import fill_topic


@pytest.mark.long
def test_tls_with_0_9(make_sandbox: Callable[..., Sandbox], zookeeper: Sandbox, tmp_path: Path) -> None:
    """A group is consumed in, read and reset by time over TLS; SASL is refused, since no listener has it; a
    broker's certificate of another authority is reported."""
    authority = make_authority("old")
    (tmp_path / "server.p12").write_bytes(authority.issue(HOST, [HOST]).key_store(authority))
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    port, tls_port = free_port(), free_port()
    listeners = f"PLAINTEXT://{HOST}:{port},SSL://{HOST}:{tls_port}"
    sandbox = make_sandbox(
        kafka="0.9.0.1",
        zookeeper=zookeeper.address,
        chroot="/old-tls",
        broker_port=port,
        properties={
            "listeners": listeners,
            "advertised.listeners": listeners,
            "ssl.keystore.location": str(tmp_path / "server.p12"),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.password": STORE_PASSWORD,
            "ssl.key.password": STORE_PASSWORD,
        },
    )
    with sandbox.registry(30.0) as registry:
        fill_topic(registry, "t", 6)
    tls = ("-z", sandbox.connect, "--security-protocol", "SSL", "--ssl-ca-file", str(tmp_path / "ca.pem"))
    read = run("consume", "t", "--group", "g", "--from-beginning", "--until-end", *tls)
    assert (read.returncode, len(read.stdout.splitlines())) == (0, 6), read.stderr
    moved = run("reset-offsets", "g", "--topic", "t", "--to-datetime", "2020-01-01", "--execute", *tls)
    assert moved.returncode == 0, moved.stderr
    found = run("offsets", "g", "--output", "json", *tls)
    assert [(row["committed"], row["lag"]) for row in json.loads(found.stdout)] == [(0, 2)] * 3
    login = ("--sasl-mechanism", "PLAIN", "--sasl-user", "u")
    refused = run("consume", "t", "-z", sandbox.connect, "--security-protocol", "SASL_SSL", *login,
                  env={"ZKGROUP_SASL_PASSWORD": "p"})  # fmt: skip
    assert (refused.returncode, names(refused.stderr, "SASL_SSL", "PLAINTEXT, SSL", "--security-protocol")) == (2, True)
    (tmp_path / "ca.pem").write_bytes(make_authority("other").pem)
    odd = run("consume", "t", "--until-end", *tls)
    assert (odd.returncode, names(odd.stderr, f"{HOST}:{tls_port}", "--ssl-ca-file")) == (3, True), odd.stderr


@pytest.mark.long
@pytest.mark.parametrize("release", ["0.10.2.2", "3.9.1"])
def test_the_first_and_the_last_release_that_can_be_secured(make_sandbox: Callable[..., Sandbox], release: str) -> None:
    """Their listeners, users and certificates are those of 1.1.1; a group is consumed in, and its offsets kept in both
    stores."""
    sandbox = make_sandbox(kafka=release, secure=True, chroot="/secured")
    with sandbox.registry(30.0) as registry:
        fill_topic(registry, "t", 6)
    user = ("-c", f"sandbox:{sandbox.name}")
    kept = ("-X", "offsets.storage=kafka", "-X", "dual.commit.enabled=true")
    read = run("consume", "t", "--group", "g", "--from-beginning", "--until-end", *kept, *user)
    assert (read.returncode, len(read.stdout.splitlines())) == (0, 6), read.stderr
    for store in ("zookeeper", "kafka"):
        found = run("offsets", "g", "--store", store, "--output", "json", *user)
        assert [row["committed"] for row in json.loads(found.stdout)] == [2] * 3, found.stderr
    assert sandbox.security is not None
    files = ("--ssl-certificate-file", str(sandbox.security.certificate), "--ssl-key-file", str(sandbox.security.key))
    clear = ("--security-protocol", "SASL_PLAINTEXT")
    for options in (("--listener", "SSL", *files), ("--listener", "CLIENTS", "--sasl-mechanism", "PLAIN", *clear)):
        found = run("consume", "t", "--from-beginning", "--until-end", *options, *user)
        assert (found.returncode, len(found.stdout.splitlines())) == (0, 6), found.stderr


def test_releases_that_cannot_be_secured() -> None:
    """They are refused before anything is started, with those that can."""
    for release in ("0.8.2.2", "0.10.1.1"):
        with pytest.raises(UsageError, match=rf"{re.escape(release)}\b.* 0\.10\.2\.2, .*, 3\.9\.1$"):
            Sandbox("never", kafka=release, secure=True)
