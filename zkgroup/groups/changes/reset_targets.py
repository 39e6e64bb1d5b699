"""Times as operators write them, and the offsets that the brokers find for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from zkgroup.clients.kafka.responses import TimeOffsets
from zkgroup.errors import UsageError
from zkgroup.protocol.names import TopicPartition

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import KafkaSettings

_DURATION: Final = re.compile(
    r"P(?:(?P<weeks>N)W)?(?:(?P<days>N)D)?(?:T(?=[0-9])(?:(?P<hours>N)H)?(?:(?P<minutes>N)M)?(?:(?P<seconds>N)S)?)?".replace(
        "N", r"[0-9]+(?:[.,][0-9]+)?"
    ),
    re.ASCII | re.IGNORECASE,
)
_SECONDS: Final = {"weeks": 604_800, "days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
_CALENDAR: Final = re.compile(r"P[0-9.,]*[0-9][YM].*|P.*[0-9]Y.*", re.ASCII | re.IGNORECASE)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time(text: str) -> int:
    """Milliseconds since 1970 of an ISO 8601 time; UTC where it names no zone. Times before 1970 count as 1970.

    Raises ``UsageError``.
    """
    try:
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max(0, (moment - _EPOCH) // timedelta(milliseconds=1))
    except (ValueError, OverflowError):
        raise UsageError(
            f"{text[:80]!r} is no time",
            "write it like 2024-05-01T12:00:00, with Z or +02:00 for a zone; else it is UTC",
        ) from None


def parse_duration(text: str) -> int:
    """Milliseconds of an ISO 8601 duration (``P1DT2H``, ``PT0.5S``, ``P2W``); a day has 24 hours.

    Months and years are refused, as they have no fixed length. Raises ``UsageError``.
    """
    written = text.strip()
    remedy = "write it like PT30M, P7D or P1DT12H"
    match = _DURATION.fullmatch(written)
    parts = {name: value for name, value in match.groupdict().items() if value} if match else {}
    if not parts:
        if _CALENDAR.fullmatch(written):
            raise UsageError(f"{text[:80]!r} counts months or years, which differ in length", "count days: P30D")
        raise UsageError(f"{text[:80]!r} is no duration", remedy)
    if any("." in value or "," in value for value in list(parts.values())[:-1]):
        raise UsageError(f"{text[:80]!r} has a fraction before its last part", remedy)
    seconds = sum(Decimal(value.replace(",", ".")) * _SECONDS[name] for name, value in parts.items())
    if seconds > Decimal(10) ** 11:
        raise UsageError(f"{text[:80]!r} reaches back beyond all time", remedy)
    return int(seconds * 1000)


def find_offsets(
    settings: KafkaSettings, logs: Mapping[TopicPartition, tuple[int, int]], millis: int, timeout: float
) -> TimeOffsets:
    """Ask the brokers, for all partitions at once. Raises ``ZkgroupError`` where one cannot be asked."""
    from zkgroup.clients.kafka.timestamp_search import first_since  # librdkafka: 60 ms

    return first_since(settings, logs, millis, timeout)
