"""Why a connection to a broker failed, and what to do, from librdkafka's text.

librdkafka (2.16) says "certificate could not be verified" for an unknown authority, an expired certificate and a wrong
host name alike, and "disconnected" for a listener with another protocol. Where TLS may be the cause, a hand-shake of
our own finds out.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from functools import partial

from zkgroup.clients import tls
from zkgroup.clients.kerberos_errors import CLOCKS_DIFFER, NO_KDC, no_ticket, unknown_service
from zkgroup.config.connection_settings import TlsSettings
from zkgroup.config.settings_table import KERBEROS
from zkgroup.errors import UnreachableError, UsageError

_PLACE = re.compile(r"(?:[a-z_]+://)?(\[[^\]]+\]|[^\s/:]+):([0-9]+)/[^\s:]*: ")


def explain(failure: str, properties: Mapping[str, str]) -> UnreachableError | None:
    """The error for a failed connection; ``failure`` is librdkafka's log text (facility FAIL).

    None where trying again may help: nothing listens there, the network is down. Connects to the broker, for at most
    two seconds, where that shows more. Secrets are not shown.
    """
    place = next(iter([*_PLACE.finditer(failure)][-1:]), None)
    if place is None:
        return None
    host, port = place[1].strip("[]"), int(place[2])
    what = f"the broker at {place[1]}:{port}"
    text = failure[place.end() :].partition(" (after ")[0]
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    encrypted = protocol.endswith("SSL")
    if "SASL" in text and "handshake failed" not in text.partition("SASL")[0]:
        return _of_login(what, text, properties)
    # Sometimes OpenSSL's text comes alone. A connection that just ends may be a restarting broker's.
    bare = "SSL routines" in text and "unexpected eof" not in text and "state SSL_HANDSHAKE" in failure
    if encrypted and ("handshake failed" in text or bare):
        return _of_handshake(what, host, port, text, properties)
    if not encrypted and "Disconnected" in text and tls.speaks_tls((host, port)):
        return UnreachableError(f"{what} speaks TLS at this port, not {protocol}", "choose another --security-protocol")
    if protocol == "PLAINTEXT" and "Disconnected" in text and "state UP" in failure:
        return UnreachableError(
            f"{what} ends the connection at the first request", "choose another --security-protocol: it may want a user"
        )
    return None


def _of_login(what: str, text: str, properties: Mapping[str, str]) -> UnreachableError:
    user = properties.get("sasl.username", "?")
    mechanism = (properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "?").upper()
    if "not valid in current SASL state" in text:
        return UnreachableError(f"{what} has no SASL at this port", "choose another --security-protocol or --listener")
    if mechanism == KERBEROS and (found := _of_kerberos(text, properties)) is not None:
        return UnreachableError(f"cannot log in to {what}: {found[0]}", found[1])
    if "mechanism" in text and "supported" in text:
        known = text.rpartition("supported mechanisms: ")[2].strip() or "others"
        return UnreachableError(f"{what} does not know {mechanism}", f"it knows {known}: choose with --sasl-mechanism")
    if mechanism == KERBEROS:
        return UnreachableError(
            f"{what} refuses the login with Kerberos", "see the broker's log: its keytab, its clock"
        )
    return UnreachableError(
        f"{what} refuses the user {user} ({mechanism})", "check --sasl-user, its password and --sasl-mechanism"
    )


def _of_kerberos(text: str, properties: Mapping[str, str]) -> tuple[str, str] | None:
    """The problem and its remedy, by the text of Kerberos' library, which is all that Cyrus SASL hands on."""
    keytab, principal = (properties.get(f"sasl.kerberos.{name}") for name in ("keytab", "principal"))
    service = properties.get("sasl.kerberos.service.name", "kafka")
    problems = {
        "Clock skew": CLOCKS_DIFFER,
        "not yet valid": CLOCKS_DIFFER,
        "not found in Kerberos database": unknown_service(f"{service}/HOST", "--sasl-kerberos-service"),
        "KDC": NO_KDC,
        "No worthy mechs": (
            "Cyrus SASL has no plugin for Kerberos",
            "install libsasl2-modules-gssapi-mit (Debian) or cyrus-sasl-gssapi (Red Hat)",
        ),
        "credentials": no_ticket(keytab, principal, "--sasl-kerberos-keytab"),
        "expired": no_ticket(keytab, principal, "--sasl-kerberos-keytab"),
    }
    return next((found for mark, found in problems.items() if mark in text), None)


def _of_handshake(what: str, host: str, port: int, text: str, properties: Mapping[str, str]) -> UnreachableError:
    settings = tls_of(properties)
    try:
        found = tls.handshake_error(tls.ssl_context(settings, "TLS with brokers"), (host, port), host)
    except UsageError:
        found = None
    if isinstance(found, ssl.SSLCertVerificationError):
        names = partial(tls.certificate_names, settings, "TLS with brokers", (host, port), host)
        return UnreachableError(
            *tls.certificate_refused(found, what, "--ssl-ca-file", "--no-ssl-check-hostname", names)
        )
    reason = getattr(found, "reason", None) or ""
    shown = settings.certificate_file
    unasked = "authentication might be required" in text or "unexpected message" in text  # the latter is why
    if "PLAINTEXT broker" in text or tls.is_no_tls(reason) or isinstance(found, ssl.SSLEOFError):
        return UnreachableError(f"{what} does not speak TLS at this port", "choose another --security-protocol")
    if shown is None:
        if "certificate" in reason.lower() or unasked:
            return UnreachableError(
                f"{what} wants a client certificate",
                "name yours with --ssl-certificate-file and --ssl-key-file",
            )
    elif tls.has_expired(shown):
        return UnreachableError(f"{what}: the client certificate {shown} has expired", "renew it")
    elif "ALERT" in reason or "alert" in text or unasked:
        return UnreachableError(
            f"{what} refuses the client certificate {shown} ({tls.alert(reason)})",
            "check its authority, which the broker may not know",
        )
    if "certificate verify failed" in text:
        return UnreachableError(f"{what}: its certificate is not trusted", "name its authority with --ssl-ca-file")
    return UnreachableError(f"{what}: the TLS hand-shake failed ({text})", "check its TLS settings")


def tls_of(properties: Mapping[str, str]) -> TlsSettings:
    """The TLS files of librdkafka's properties."""
    return TlsSettings(
        properties.get("ssl.ca.location"),
        properties.get("ssl.certificate.location"),
        properties.get("ssl.key.location"),
        properties.get("ssl.key.password"),
        check_hostname=properties.get("ssl.endpoint.identification.algorithm", "https").lower() != "none",
        verify=properties.get("enable.ssl.certificate.verification", "true").lower() != "false",
    )
