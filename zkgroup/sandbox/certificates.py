"""A new certificate authority and the certificates that it signs, valid for a month: for sandboxes and tests."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from zkgroup.errors import MissingExtraError

#: The password of key stores, which Java requires. File permissions protect them.
STORE_PASSWORD: Final = "sandbox"
_LIFE: Final = datetime.timedelta(days=30)
# Machines with a slow clock accept them, too.
_SLACK: Final = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Certificate:
    """A certificate with its key. Keys are not shown. That of an authority signs others."""

    certificate: Any
    key: Any

    @property
    def pem(self) -> bytes:
        """The certificate alone."""
        from cryptography.hazmat.primitives.serialization import Encoding

        pem: bytes = self.certificate.public_bytes(Encoding.PEM)
        return pem

    @property
    def key_pem(self) -> bytes:
        """The private key (PKCS#8), not encrypted."""
        from cryptography.hazmat.primitives import serialization as form

        pem: bytes = self.key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
        return pem

    def key_store(self, authority: Certificate) -> bytes:
        """A PKCS#12 store for Java, with ``STORE_PASSWORD``."""
        from cryptography.hazmat.primitives.serialization import pkcs12

        store: bytes = pkcs12.serialize_key_and_certificates(
            b"server", self.key, self.certificate, [authority.certificate], _store_encryption()
        )
        return store

    def issue(self, name: str, hosts: Sequence[str] = (), *, life: datetime.timedelta = _LIFE) -> Certificate:
        """A certificate for a server at ``hosts``, or for a client. With a ``life`` below zero it has expired."""
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID as Use

        extensions: list[tuple[Any, bool]] = [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (x509.ExtendedKeyUsage([Use.SERVER_AUTH, Use.CLIENT_AUTH]), False),
        ]
        if hosts:
            extensions.append((x509.SubjectAlternativeName([_general_name(host) for host in hosts]), False))
        return _issue(name, self, extensions, life)

    def trust_store(self) -> bytes:
        """A PKCS#12 store for Java, with ``STORE_PASSWORD``."""
        from cryptography.hazmat.primitives.serialization import pkcs12

        entry = pkcs12.PKCS12Certificate(self.certificate, b"ca")
        store: bytes = pkcs12.serialize_java_truststore([entry], _store_encryption())
        return store


def make_authority(name: str) -> Certificate:
    """A new authority with a new key. Raises ``MissingExtraError`` without the package ``cryptography``."""
    try:
        from cryptography import x509
    except ImportError:
        raise MissingExtraError("a secured sandbox", "cryptography", "sandbox") from None
    return _issue(name, None, [(x509.BasicConstraints(ca=True, path_length=0), True)], _LIFE)


def _store_encryption() -> Any:
    """By ``STORE_PASSWORD``, in one round: ZooKeeper opens its stores for each connection, and the usual 20,000 rounds
    take a fifth of a second there."""
    from cryptography.hazmat.primitives.serialization import PrivateFormat

    return PrivateFormat.PKCS12.encryption_builder().kdf_rounds(1).build(STORE_PASSWORD.encode())


def _general_name(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _issue(
    name: str, issuer: Certificate | None, extensions: Sequence[tuple[Any, bool]], life: datetime.timedelta
) -> Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + life) - _SLACK)
        .not_valid_after(now + life)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return Certificate(builder.sign(issuer.key if issuer else key, hashes.SHA256()), key)


def write_private(path: Path, data: bytes | str) -> None:
    """Create a file that only its owner may read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
