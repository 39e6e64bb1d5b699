"""Times, durations and ages as operators write them. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from zkgroup.errors import UsageError

_DURATION: Final = re.compile(
    r"P(?:(?P<weeks>N)W)?(?:(?P<days>N)D)?(?:T(?=[0-9])(?:(?P<hours>N)H)?(?:(?P<minutes>N)M)?(?:(?P<seconds>N)S)?)?".replace(
        "N", r"[0-9]+(?:[.,][0-9]+)?"
    ),
    re.ASCII | re.IGNORECASE,
)
_SECONDS: Final = {"weeks": 604_800, "days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
_CALENDAR: Final = re.compile(r"P[0-9.,]*[0-9][YM].*|P.*[0-9]Y.*", re.ASCII | re.IGNORECASE)
_AGE: Final = re.compile(r"([0-9]{1,9})\s*([smhdw])", re.ASCII | re.IGNORECASE)
_MILLIS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
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


def parse_age(text: str) -> int:
    """Milliseconds of ``30d``, ``12h``, ``90m``, ``45s``, ``2w``, or of an ISO 8601 duration. Raises ``UsageError``."""
    match = _AGE.fullmatch(text.strip())
    if match is not None:
        return int(match[1]) * _MILLIS[match[2].lower()]
    if text.strip()[:1].upper() == "P":
        return parse_duration(text)
    raise UsageError(f"{text[:40]!r} is no age", "write it like 30d, 12h or P30D")
