"""What ``inspect-group`` shows on a terminal: the numbers first, names that may be long last."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from ._pasting import folded
from ._render import AtLeast, iso_utc, print_marked, print_rows
from ._text import escape, one_line, shortened, shown_name

if TYPE_CHECKING:
    from zkgroup.groups.judging.inspection import Inspection
    from zkgroup.groups.judging.kinds import Finding, Severity
    from zkgroup.groups.looking.listing import GroupRow

HEAD = ("group", "store", "state", "strategy", "members", "topics", "partitions", "lag", "taken_at")
MEMBERS = ("owned", "streams", "subscription", "host", "member")
PARTITIONS = ("topic", "partition", "committed", "log_end", "lag", "leader", "owner")
BOTH = ("topic", "partition", "committed_zookeeper", "committed_kafka", "log_end", "lag", "leader", "owner")
#: What is said of more groups than these is said once, and so many of them are named.
NAMED_GROUPS = 3
#: Colours that are told apart on a dark and on a light ground; the words say the same without them.
STYLES: Mapping[Severity, str] = {"critical": "bold red", "warning": "bold yellow", "info": "bold blue"}
SUMMARY = ("group", "store", "state", "members", "partitions", "lag", "critical", "warning", "info")
#: What a narrow terminal goes without, the least first.
HEAD_SPARE = ("taken_at", "topics")
SUMMARY_SPARE = ("info", "partitions")


def table_row(row: GroupRow) -> dict[str, Any]:
    """A group's row for a table: the lag that is known of a part is marked."""
    return {**asdict(row), "lag": shown_lag(row)}


def shown_lag(row: GroupRow) -> int | None:
    """The lag for a table and a message; None where nothing of it is known."""
    return AtLeast(row.lag_at_least) if row.lag is None and row.lag_at_least is not None else row.lag


def print_overview(one: Inspection) -> None:
    """One group: a line about it, its members, its partitions, what is wrong."""
    row = {**table_row(one.summary), "strategy": one.strategy, "taken_at": iso_utc(one.snapshot.taken_at)}
    print_rows([row], HEAD, "table", spare=HEAD_SPARE)
    if members := one.rows("members"):
        _title("members")
        print_rows(members, MEMBERS, "table")
    if partitions := one.rows("partitions"):
        _title("partitions")
        print_rows(partitions, BOTH if one.store == "both" else PARTITIONS, "table")
    _title("findings" if one.findings else "no findings")
    _print_findings(one.findings)
    if one.findings:
        _say_more()


def print_summary(found: Sequence[Inspection], completed: Callable[[str], str] = lambda remedy: remedy) -> None:
    """Many groups: a line about each, then what is wrong with them; what is only good to know is left out.
    ``completed`` is given each remedy that is shown, and makes its commands such that they can be pasted."""
    rows = [
        {**table_row(one.summary), **{severity: one.count(severity) for severity in ("critical", "warning", "info")}}
        for one in found
    ]
    print_rows(rows, SUMMARY, "table", spare=SUMMARY_SPARE)
    shared, own = _shared([(one.snapshot.group, one.findings) for one in found])
    for groups, findings in shared:
        more = len(groups) - NAMED_GROUPS
        names = ", ".join(shortened(name) for name in groups[:NAMED_GROUPS])
        _title(f"{len(groups)} groups alike: {names} and {more} more")
        _print_findings([replace(one, remedy=completed(one.remedy)) for one in findings])
    for group, findings in own:
        _title(group)
        _print_findings([replace(one, remedy=completed(one.remedy)) for one in findings])
    if shared or own:
        _say_more()


def _shared(
    found: Iterable[tuple[str, Sequence[Finding]]],
) -> tuple[list[tuple[tuple[str, ...], list[Finding]]], list[tuple[str, list[Finding]]]]:
    """What is said of many groups in the same words, once for all of them, GROUP standing for the name of each; and the
    rest, group by group. What is only good to know is left out."""
    worth = {group: [one for one in findings if one.severity != "info"] for group, findings in found}
    alike: dict[Finding, list[str]] = {}
    general: dict[tuple[str, Finding], Finding] = {}
    for group, findings in worth.items():
        for finding in findings:
            plain = general[group, finding] = _without_name(finding, group)
            alike.setdefault(plain, []).append(group)
    many: dict[tuple[str, ...], list[Finding]] = {}
    for plain, groups in alike.items():
        if len(groups) > NAMED_GROUPS:
            many.setdefault(tuple(groups), []).append(plain)
    own = [
        (group, [one for one in findings if len(alike[general[group, one]]) <= NAMED_GROUPS])
        for group, findings in worth.items()
    ]
    return list(many.items()), [(group, findings) for group, findings in own if findings]


def _without_name(finding: Finding, group: str) -> Finding:
    """With GROUP for its name, where that is what the name stands for: a topic may be called the same."""
    from zkgroup.groups.shell import quoted

    message = re.sub(rf"(?<=group ){re.escape(group)}(?![\w.-])", "GROUP", finding.message)
    remedy = re.sub(rf"(zkgroup [a-z-]+ |-- ){re.escape(quoted(group))}(?![^\s;:,)])", r"\1GROUP", finding.remedy)
    subject = "GROUP" if finding.subject == group else finding.subject
    return replace(finding, subject=subject, message=message, remedy=remedy)


def _say_more() -> None:
    sys.stdout.write("\nzkgroup inspect-group --explain CODE tells more about a finding\n")


def _title(text: str) -> None:
    sys.stdout.write("\n")
    print_marked([(escape(text), "bold")])


def _print_findings(findings: Sequence[Finding]) -> None:
    # Folded for people, one line each for grep.
    terminal = sys.stdout.isatty()
    columns = shutil.get_terminal_size().columns if terminal else sys.maxsize
    for finding in findings:
        severity = f"{finding.severity:<8}"
        print_marked([(severity, STYLES[finding.severity]), (f"  {finding.code}: {shown_name(finding.subject)}", "")])
        for text in (finding.message, f"→ {finding.remedy}"):
            rest = " " * (12 if text.startswith("→") else 10)
            sys.stdout.write(folded(one_line(text), max(40, columns - 1), " " * 10, rest) + "\n")
