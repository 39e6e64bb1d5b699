"""TLS with brokers of 0.9, the oldest that have it, which cannot be asked for their versions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli import run

from zkgroup.sandbox.certificates import STORE_PASSWORD, Authority
from zkgroup.sandbox.probe import HOST, free_port
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.sandbox.topics import fill_topic


@pytest.mark.long
def test_tls_with_0_9(make_sandbox: Callable[..., Sandbox], zookeeper: Sandbox, tmp_path: Path) -> None:
    """A group is consumed in, looked at and reset by time over TLS; SASL is refused, since no listener has it; a
    broker's certificate of another authority is told."""
    authority = Authority.make("old")
    (tmp_path / "server.p12").write_bytes(authority.issue(HOST, [HOST]).key_store(authority.own))
    (tmp_path / "ca.pem").write_bytes(authority.own.pem)
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
    assert refused.returncode == 2
    assert "no registered broker has a SASL_SSL listener (they offer PLAINTEXT, SSL)" in refused.stderr
    (tmp_path / "ca.pem").write_bytes(Authority.make("other").own.pem)
    strange = run("consume", "t", "--until-end", *tls)
    assert strange.returncode == 3
    assert "its certificate is of an authority that is not known here" in strange.stderr
