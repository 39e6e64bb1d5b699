"""A secured sandbox, and what tests use of it: whatever a command prints is looked through for secrets."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cli import run
from cryptography.hazmat.primitives import serialization as form

from zkgroup.sandbox.certificates import Certificate
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.sandbox_security import Security

TOPIC, MESSAGES = "orders", 30
WRONG = "hunter2-is-wrong"


@dataclass
class Secured:
    """The sandbox, and what the tests use of it."""

    sandbox: Sandbox
    folder: Path

    @property
    def security(self) -> Security:
        assert self.sandbox.security is not None
        return self.sandbox.security

    @property
    def authority(self) -> Certificate:
        assert self.sandbox.authority is not None
        return self.sandbox.authority

    @property
    def name(self) -> str:
        return f"sandbox:{self.sandbox.name}"

    @property
    def secrets(self) -> list[str]:
        keys = [self.security.key.read_text(), (self.security.folder / "client.key").read_text()]
        return [
            *(self.security.password(of) for of in ("sasl", "zookeeper", "brokers")),
            *(line for key in keys for line in key.splitlines() if "-" not in line),
            WRONG,
        ]

    def run(self, *args: str, code: int | None = 0, timeout: float = 60.0, **env: str) -> str:
        """Run a command; what it printed to stdout, or to stderr where it fails, of which it has to be one line."""
        result = run(*args, env=env, timeout=timeout)
        self.check(result)
        if code is not None:
            assert result.returncode == code, result.stderr
        if code:
            assert result.stdout == ""
            assert result.stderr.count("\n") == 1, result.stderr
        return result.stderr if result.returncode else result.stdout

    def check(self, result: subprocess.CompletedProcess[str]) -> None:
        """What was printed shows no secret, and nothing that a password is turned into, which could be tried against
        dictionaries."""
        for text in (result.stdout, result.stderr):
            assert not [secret for secret in self.secrets if secret in text]
            assert not re.search(r"response=[0-9a-f]{32}", text)

    def file(self, name: str, content: bytes | str) -> str:
        """A file that only its owner may read."""
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(0o600)
        return str(path)

    def shows(self, certificate: Certificate, prefix: str, stem: str, password: str | None = None) -> list[str]:
        """Options to show a client certificate; ``prefix``: ``--ssl`` or ``--zookeeper``."""
        names = (f"{prefix}-certificate-file", f"{prefix}-key-file")
        protection = form.BestAvailableEncryption(password.encode()) if password else form.NoEncryption()
        key = certificate.key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, protection)
        contents = (certificate.pem, key)
        pairs = zip(names, contents, ("pem", "key"), strict=True)
        return [word for option, data, end in pairs for word in (option, self.file(f"{stem}.{end}", data))]
