"""A new certificate authority and the certificates that it signs, valid for a month: for sandboxes and tests. Needs the
package ``cryptography``."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from zkgroup.sandbox.server_configuration import STORE_PASSWORD

_LIFE: Final = datetime.timedelta(days=30)
# Machines with a slow clock accept them, too.
_SLACK: Final = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Certificate:
    """A certificate with its key. Keys are not shown. That of an authority signs others."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        """The certificate alone."""
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The private key (PKCS#8), not encrypted."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def key_store(self, authority: Certificate) -> bytes:
        """A PKCS#12 store for Java, with ``STORE_PASSWORD``."""
        return pkcs12.serialize_key_and_certificates(
            b"server", self.key, self.certificate, [authority.certificate], _store_encryption()
        )

    def issue(self, name: str, hosts: Sequence[str] = (), *, life: datetime.timedelta = _LIFE) -> Certificate:
        """A certificate for a server at ``hosts``, or for a client. With a ``life`` below zero it has expired."""
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        extensions: list[tuple[x509.ExtensionType, bool]] = [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (x509.ExtendedKeyUsage(uses), False),
        ]
        if hosts:
            extensions.append((x509.SubjectAlternativeName([_general_name(host) for host in hosts]), False))
        return _issue(name, self, extensions, life)

    def trust_store(self) -> bytes:
        """A PKCS#12 store for Java, with ``STORE_PASSWORD``."""
        return pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(self.certificate, b"ca")], _store_encryption()
        )


def make_authority(name: str) -> Certificate:
    """A new authority with a new key."""
    return _issue(name, None, [(x509.BasicConstraints(ca=True, path_length=0), True)], _LIFE)


def _store_encryption() -> KeySerializationEncryption:
    """By ``STORE_PASSWORD``, in one round: ZooKeeper opens its stores for each connection, and the usual 20,000 rounds
    take a fifth of a second there."""
    return PrivateFormat.PKCS12.encryption_builder().kdf_rounds(1).build(STORE_PASSWORD.encode())


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _issue(
    name: str,
    issuer: Certificate | None,
    extensions: Sequence[tuple[x509.ExtensionType, bool]],
    life: datetime.timedelta,
) -> Certificate:
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
