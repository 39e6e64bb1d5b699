"""What ``inspect-group`` shows on a terminal: the numbers first, names that may be long last."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ._render import AtLeast, print_rows
from ._text import escape

if TYPE_CHECKING:
    from zkgroup.groups.findings_kinds import Finding
    from zkgroup.groups.inspection import Inspection
    from zkgroup.groups.listing import GroupRow

HEAD = ("group", "store", "state", "strategy", "members", "topics", "partitions", "lag")
MEMBERS = ("owned", "streams", "subscription", "host", "member")
PARTITIONS = ("topic", "partition", "committed", "log_end", "lag", "leader", "owner")
BOTH = ("topic", "partition", "committed_zookeeper", "committed_kafka", "log_end", "lag", "leader", "owner")
SUMMARY = ("group", "store", "state", "members", "partitions", "lag", "critical", "warning", "info")


def table_row(row: GroupRow) -> dict[str, Any]:
    """A group's row for a table: the lag that is known of a part is marked."""
    lag = row.lag
    if lag is None and row.lag_at_least is not None:
        lag = AtLeast(row.lag_at_least)
    return {**asdict(row), "lag": lag}


def print_overview(one: Inspection) -> None:
    """One group: a line about it, its members, its partitions, what is wrong."""
    print_rows([{**table_row(one.summary), "strategy": one.strategy}], HEAD, "table")
    if members := one.rows("members"):
        _title("members")
        print_rows(members, MEMBERS, "table")
    if partitions := one.rows("partitions"):
        _title("partitions")
        print_rows(partitions, BOTH if one.store == "both" else PARTITIONS, "table")
    _title("findings" if one.findings else "no findings")
    _print_findings(one.findings)


def print_summary(found: Sequence[Inspection]) -> None:
    """Many groups: a line about each, then what is wrong with them; what is only good to know is left out."""
    rows = [
        {**table_row(one.summary), **{severity: one.count(severity) for severity in ("critical", "warning", "info")}}
        for one in found
    ]
    print_rows(rows, SUMMARY, "table")
    for one in found:
        worth = [finding for finding in one.findings if finding.severity != "info"]
        if worth:
            _title(one.snapshot.group)
            _print_findings(worth)


def _title(text: str) -> None:
    sys.stdout.write(f"\n{escape(text)}\n")


def _print_findings(findings: Sequence[Finding]) -> None:
    # Folded for people, one line each for grep.
    terminal = sys.stdout.isatty()
    columns = shutil.get_terminal_size().columns if terminal else sys.maxsize
    for finding in findings:
        sys.stdout.write(f"{finding.severity:<8}  {finding.code}: {escape(finding.subject)}\n")
        for text in (finding.message, f"→ {finding.remedy}", f"see {finding.page}"):
            sys.stdout.write(
                textwrap.fill(
                    escape(text),
                    max(40, columns - 1) if terminal else columns,
                    initial_indent=" " * 10,
                    subsequent_indent=" " * 12 if text.startswith("→") else " " * 10,
                    break_long_words=False,
                    break_on_hyphens=False,
                )
                + "\n"
            )
