"""librdkafka's log: each failure once, without noise; and why a connection to a broker failed, by its text.

librdkafka (2.16) says "certificate could not be verified" for an unknown authority, an expired certificate and a wrong
host name alike, and "disconnected" for a listener with another protocol. Where TLS may be the cause, a hand-shake of
our own finds out.
"""

from __future__ import annotations

import logging
import re
import ssl
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from zkgroup.clients.connection_security import (
    CLOCKS_DIFFER,
    NO_KDC,
    ConnectionFailure,
    Explanation,
    FailureCause,
    certificate_refused,
    client_refused,
    handshake_error,
    is_no_tls,
    is_tls_server,
    no_ticket,
    ssl_context,
    unknown_service,
)
from zkgroup.config.connection_settings import TlsSettings
from zkgroup.config.settings_table import KERBEROS
from zkgroup.errors import UsageError

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import KafkaError

#: Seconds without a failure after which connections count as recovered: librdkafka retries every second.
MENDED: Final = 5.0
# Warnings that are left out: of settings for brokers before 0.10, and of settings for another kind of client.
_INTENDED: Final = ("broker.version.fallback", "will be ignored by this")
# Brokers drop idle connections: that is no failure, unless it happens before the first answer.
_IDLE: Final = re.compile(r"/[^ ]*: Disconnected")
_DECORATION: Final = re.compile(r"^\[thrd:[^\]]*\]: | \(after [0-9]+ms in state .*\)$")


class ClientLog:
    """The log of one librdkafka client, in a logger of the client's owner.

    librdkafka retries a failed connection for ever. Each failure is logged once, as a warning, until
    ``report_recovery`` finds that connections fail no more. Warnings of intended settings are left out.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._reported: set[str] = set()  # failures
        self._failed_at = 0.0
        #: librdkafka's text on the last connection that failed.
        self.failure = ""
        #: librdkafka's text on why there is no token for OAUTHBEARER.
        self.no_token = ""
        #: Failures are not logged: the caller reports ``failure`` itself.
        self.quiet = False

    def log(self, level: int, _form: str, facility: str, _client: str, text: str) -> None:
        """Called by confluent-kafka (2.16). ``text`` begins with the thread and may end with a duration."""
        if facility == "AUTOCREATE" or (facility == "CONFWARN" and any(part in text for part in _INTENDED)):
            return
        if facility == "FAIL":
            self.failure = text
        text = _DECORATION.sub("", text)
        if self.quiet or (facility == "FAIL" and _IDLE.search(text)):
            self._log.debug("Kafka client: %s", text)
            return
        if facility == "FAIL":
            self._failed_at = time.monotonic()
            failure = text[max(0, text.find("Connect to ")) :]
            if failure in self._reported:
                return
            self._reported.add(failure)
        self._log.log(min(level, logging.WARNING), "Kafka client: %s", text)

    def on_error(self, error: KafkaError) -> None:
        """Called for error events: librdkafka does not log missing tokens, it sends an event."""
        if "OAUTHBEARER token" in error.str():
            self.no_token = error.str()

    def report_recovery(self) -> None:
        """Log, once, that connections fail no more. Owners of lasting clients call it now and then."""
        if self._reported and time.monotonic() - self._failed_at >= MENDED:
            self._reported.clear()
            self._log.warning("Kafka client: connections to brokers fail no more")


_PLACE = re.compile(r"(?:[a-z_]+://)?(\[[^\]]+\]|[^\s/:]+):([0-9]+)/[^\s:]*: ")


def explain(failure: str, properties: Mapping[str, str]) -> ConnectionFailure | None:
    """The error for a failed connection; ``failure`` is librdkafka's log text (facility FAIL).

    None where trying again may help: nothing listens there, the network is down. Connects to the broker, for at most
    two seconds, where that shows more. Secrets are not shown.
    """
    place = next(iter([*_PLACE.finditer(failure)][-1:]), None)
    if place is None:
        return None
    server = f"{place[1]}:{place[2]}"
    text = failure[place.end() :].partition(" (after ")[0]
    at = place[1].strip("[]"), int(place[2])
    found = _explanation(f"the broker at {server}", at, text, failure, properties)
    return None if found is None else ConnectionFailure(*found, server=server)


def _explanation(
    what: str, place: tuple[str, int], text: str, failure: str, properties: Mapping[str, str]
) -> Explanation | None:
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    encrypted = protocol.endswith("SSL")
    if "SASL" in text and "handshake failed" not in text.partition("SASL")[0]:
        return _of_login(what, text, properties)
    # Sometimes OpenSSL's text comes alone. A connection that just ends may be a restarting broker's.
    bare = "SSL routines" in text and "unexpected eof" not in text and "state SSL_HANDSHAKE" in failure
    if encrypted and ("handshake failed" in text or bare):
        return _of_handshake(what, place, text, properties)
    if not encrypted and "Disconnected" in text and is_tls_server(place):
        message = f"{what} speaks TLS at this port, not {protocol}"
        return FailureCause.TLS_REQUIRED, message, "choose another --security-protocol"
    if protocol == "PLAINTEXT" and "Disconnected" in text and "state UP" in failure:
        message = f"{what} ends the connection at the first request"
        return FailureCause.LOGIN_REQUIRED, message, "choose another --security-protocol: it may want a user"
    return None


def _of_login(what: str, text: str, properties: Mapping[str, str]) -> Explanation:
    user = properties.get("sasl.username", "?")
    mechanism = (properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "?").upper()
    if "not valid in current SASL state" in text:
        remedy = "choose another --security-protocol or --listener"
        return FailureCause.NO_SASL, f"{what} has no SASL at this port", remedy
    if mechanism == KERBEROS and (found := _of_kerberos(text, properties)) is not None:
        cause, message, remedy = found
        return cause, f"cannot log in to {what}: {message}", remedy
    if "mechanism" in text and "supported" in text:
        known = text.rpartition("supported mechanisms: ")[2].strip() or "others"
        remedy = f"it knows {known}: choose with --sasl-mechanism"
        return FailureCause.UNKNOWN_MECHANISM, f"{what} does not know {mechanism}", remedy
    if mechanism == KERBEROS:
        message = f"{what} refuses the login with Kerberos"
        return FailureCause.LOGIN_REFUSED, message, "see the broker's log: its keytab, its clock"
    return (
        FailureCause.LOGIN_REFUSED,
        f"{what} refuses the user {user} ({mechanism})",
        "check --sasl-user, its password and --sasl-mechanism",
    )


def _of_kerberos(text: str, properties: Mapping[str, str]) -> Explanation | None:
    """The explanation by the text of Kerberos' library, which is all that Cyrus SASL hands on."""
    keytab, principal = (properties.get(f"sasl.kerberos.{name}") for name in ("keytab", "principal"))
    service = properties.get("sasl.kerberos.service.name", "kafka")
    problems = {
        "Clock skew": CLOCKS_DIFFER,
        "not yet valid": CLOCKS_DIFFER,
        "not found in Kerberos database": unknown_service(f"{service}/HOST", "--sasl-kerberos-service"),
        "KDC": NO_KDC,
        "No worthy mechs": (
            FailureCause.NO_PLUGIN,
            "Cyrus SASL has no plugin for Kerberos",
            "install libsasl2-modules-gssapi-mit (Debian) or cyrus-sasl-gssapi (Red Hat)",
        ),
        "credentials": no_ticket(keytab, principal, "--sasl-kerberos-keytab"),
        "expired": no_ticket(keytab, principal, "--sasl-kerberos-keytab"),
    }
    return next((found for mark, found in problems.items() if mark in text), None)


def _of_handshake(what: str, place: tuple[str, int], text: str, properties: Mapping[str, str]) -> Explanation:
    settings = tls_of(properties)
    try:
        found = handshake_error(ssl_context(settings, "TLS with brokers"), place, place[0])
    except UsageError:  # a folder of authorities, or ``probe``: librdkafka reads what Python does not
        found = None
    if isinstance(found, ssl.SSLCertVerificationError):
        return certificate_refused(found, what, "--ssl-ca-file", "--no-ssl-check-hostname")
    reason = getattr(found, "reason", None) or ""
    if "PLAINTEXT broker" in text or is_no_tls(reason) or isinstance(found, ssl.SSLEOFError):
        message = f"{what} does not speak TLS at this port"
        return FailureCause.NO_TLS, message, "choose another --security-protocol"
    unasked = "authentication might be required" in text or "unexpected message" in text  # the latter is why
    if unasked or (("ALERT" in reason or "alert" in text) if settings.certificate_file else "CERTIFICATE" in reason):
        files = "--ssl-certificate-file and --ssl-key-file"
        return client_refused(what, settings, reason, files)
    return FailureCause.HANDSHAKE_FAILED, f"{what}: the TLS hand-shake failed ({text})", "check its TLS settings"


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
