"""Times and durations as people type them."""

from __future__ import annotations

import re
import time
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
_PART: Final = re.compile(
    r"([0-9]{1,9}(?:[.,][0-9]{1,9})?)\s*(s|sec|seconds?|m|min|minutes?|h|hours?|d|days?|w|weeks?)(?![a-z])\s*",
    re.ASCII | re.IGNORECASE,
)
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
#: An hour of one digit.
_HOUR: Final = re.compile(r"(?<![0-9:.+-])(?=[0-9]:[0-9]{2})")
_DAYS: Final = {"today": 0, "yesterday": 1}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time(text: str, now: int | None = None) -> int:
    """Milliseconds since 1970 of a time: ISO 8601, seconds or milliseconds since 1970 (nine digits or more), ``now``,
    ``today``, ``14:00`` (of today), ``yesterday 14:00``, or a duration before ``now`` (milliseconds since 1970, by
    default this moment): ``3h``, ``3h ago``, ``PT3H``. UTC where it names no zone. Times before 1970 count as 1970.

    Raises ``UsageError``, also for a time of day that is still to come: it may mean yesterday.
    """
    now = int(time.time() * 1000) if now is None else now
    padded = _HOUR.sub("0", re.sub(r"\s*UTC$", "Z", text.strip()))
    written = " ".join(padded.lower().split())
    if (found := _iso(padded)) is not None:
        return found
    if written == "now":
        return now
    day, _, clock = written.partition(" ") if written[2:3] != ":" else ("today", "", written)
    if day in _DAYS:
        date = (_EPOCH + timedelta(milliseconds=now) - timedelta(days=_DAYS[day])).date()
        if (found := _iso(f"{date}T{clock.upper() or '00:00'}")) is not None:
            if found > now and clock == written:
                raise UsageError(
                    f"{text[:80]!r} is still to come today: it is {_EPOCH + timedelta(milliseconds=now):%H:%M} UTC",
                    f"write 'yesterday {clock}' or 'today {clock}'",
                )
            return found
    if re.fullmatch(r"[0-9]{9,15}", written, re.ASCII):
        return int(written) * (1000 if len(written) < 12 else 1)
    try:
        return max(0, now - parse_duration(re.sub(r"\s+ago$", "", padded, flags=re.IGNORECASE)))
    except UsageError:
        raise UsageError(
            f"{text[:80]!r} is no time",
            "write it like 2024-05-01T12:00:00, with Z or +02:00 for a zone (else it is UTC), 14:00,"
            " 'yesterday 14:00', '3h ago', PT3H, or seconds or milliseconds since 1970",
        ) from None


def _iso(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max(0, (moment - _EPOCH) // timedelta(milliseconds=1))
    except (ValueError, OverflowError):
        return None


def parse_duration(text: str) -> int:
    """Milliseconds of a duration: ``30m``, ``1d12h``, ``1 h 30 min``, or ISO 8601 (``P1DT2H``); a day has 24 hours.

    Months and years are refused, as they have no fixed length. Raises ``UsageError``.
    """
    written = text.strip()
    if (found := _millis(written)) is not None:
        return found
    match = _DURATION.fullmatch(written)
    parts = {name: value for name, value in match.groupdict().items() if value} if match else {}
    seconds = sum(Decimal(value.replace(",", ".")) * _SECONDS[name] for name, value in parts.items())
    if not parts or seconds > Decimal(10) ** 11:
        raise UsageError(
            f"{text[:80]!r} is no duration",
            "write it like 30m, 3h, 1d12h, or PT30M, P7D, P1DT12H; months and years differ in length",
        )
    return int(seconds * 1000)


def _millis(text: str) -> int | None:
    """Milliseconds of ``1d12h``; None of what is not so written, and of ``1M``, which may be a month."""
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text) or any(unit == "M" for _, unit in parts):
        return None
    return int(sum(Decimal(count.replace(",", ".")) * _UNITS[unit[0].lower()] for count, unit in parts) * 1000)
