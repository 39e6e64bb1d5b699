"""What pictures share: their head, axes, and text as SVG can hold it. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from math import floor, log10
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from zkgroup.text import shortened

_STYLE: Final = """\
text{font:12px ui-sans-serif,system-ui,sans-serif;fill:#1f2328}.title{font-weight:bold}
.dim{fill:#656d76}.small{font-size:10px}.ground{fill:#fff}.grid{stroke:#9aa4af;stroke-opacity:.35}
@media screen and (prefers-color-scheme:dark){text{fill:#e6edf3}.dim{fill:#9aa4af}.ground{fill:#0d1117}}
"""
_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_DAY: Final = 86_400
# What XML cannot hold, or a reader would obey: control characters, bidirectional marks, halves of surrogates.
_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufffe\uffff]"
)


def svg_head(width: int, height: int, title: str, below: str, style: str, margin: int) -> str:
    """The beginning of a document: its size, the common style and one of its own, a title, and a line below that."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        f' role="img" aria-label={quoteattr(title)}>\n<title>{escape(title)}</title>\n<style>{_STYLE}{style}</style>\n'
        f'<rect class="ground" width="{width}" height="{height}"/>\n'
        f'<text x="{margin}" y="{margin + 8}" class="title">{escape(title)}</text>\n'
        f'<text x="{margin}" y="{margin + 26}" class="dim">{escape(below)}</text>\n'
    )


def time_ticks(begin: int, end: int, most: int = 10) -> list[tuple[int, str]]:
    """Round times between two (milliseconds since 1970), some ``most`` of them at most, and their labels in UTC:
    times of day, and dates where a day begins."""
    seconds = (end - begin) / 1000
    step = next((one for one in _STEPS if seconds / one <= most), _DAY * -(-(end - begin) // (_DAY * 1000 * most)))
    first = -(-begin // (step * 1000))
    form = "%H:%M:%S" if step < 60 else "%H:%M"
    return [
        (at, utc_text(at, "%m-%d" if at % (_DAY * 1000) == 0 and step >= 60 else form))
        for at in (number * step * 1000 for number in range(first, end // (step * 1000) + 1))
    ]


def utc_text(millis: int, form: str = "%Y-%m-%d %H:%M") -> str:
    """A time (milliseconds since 1970) in UTC; ``?`` for one that no calendar has."""
    try:
        return datetime.fromtimestamp(millis / 1000, UTC).strftime(form)
    except (OverflowError, ValueError, OSError):
        return "?"


def round_top(value: float) -> float:
    """The end of an axis from 0: the least round number that is not below ``value``; 1 for 0, and for next to it."""
    if value < 1e-300:  # powers of ten end there
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(power * factor for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15) if power * factor >= value)


def short_number(value: float) -> str:
    """A number in five characters or so: ``0``, ``0.25``, ``12``, ``1.2k``, ``250M``."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size * 0.9995:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def svg_text(text: str, most: int = 60) -> str:
    """The text, cut, with what XML cannot hold as escapes. Angle brackets and quotes are the caller's."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", shortened(text, most))
