"""The table of ``inspect-group``: numbers first, long names last."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from math import inf
from typing import TYPE_CHECKING, Any

from zkgroup.errors import Remedy
from zkgroup.text import duration_text, shortened

from ._global_options import GlobalOptions
from ._output import SPARE, AtLeast, Column, Output, behind_columns, print_marked, print_rows, time_column
from ._rendering import render_command
from ._terminal_text import escape, folded, one_line, shown_name

if TYPE_CHECKING:
    from zkgroup.groups.findings.finding_kinds import Finding, Severity
    from zkgroup.groups.findings.inspection import Inspection
    from zkgroup.groups.snapshot.table_rows import GroupRow

BEHIND = behind_columns("table")
HEAD = (
    *("group", "store", "state", "strategy", "members", "topics", "partitions", "lag", *BEHIND),
    *("catch_up", time_column("taken_at")),
)
MEMBERS = ("owned", "streams", "subscription", "host", "member")
PARTITIONS = ("topic", "partition", "committed", "log_end", "lag", *BEHIND, "leader", "owner")
BOTH = ("topic", "partition", "committed_zookeeper", "committed_kafka", "log_end", "lag", *BEHIND, "leader", "owner")
#: A finding of more groups than this is printed once, with so many of their names.
NAMED_GROUPS = 3
#: Colours for dark and light backgrounds.
STYLES: Mapping[Severity, str] = {"critical": "bold red", "warning": "bold yellow", "info": "bold blue"}
SUMMARY = ("group", "store", "state", "members", "partitions", "lag", *BEHIND, "critical", "warning", "info")
#: Columns that a narrow terminal leaves out, the least important first.
SUMMARY_SPARE = ("info", "partitions", "store", "behind")


def table_row(row: GroupRow) -> dict[str, Any]:
    """A group's row for a table; a partial lag is marked: ``≥20``."""
    return {**asdict(row), "lag": shown_lag(row), "behind": row.behind}


def shown_lag(row: GroupRow) -> int | None:
    """The lag for a table or a message; None if it is unknown."""
    return AtLeast(row.lag_at_least) if row.lag is None and row.lag_at_least is not None else row.lag


def headline(one: Inspection, catch_up: float | None) -> tuple[list[Column | str], list[dict[str, Any]]]:
    """The columns and the row of one group. ``catch_up``: seconds until its lag is zero, infinity where it does not
    shrink, None where that is unknown: then there is no such column."""
    row = {**table_row(one.summary), "strategy": one.strategy, "taken_at": one.snapshot.taken_at}
    row["catch_up"] = catch_up and ("never" if catch_up == inf else f"in {duration_text(catch_up)}")
    return [column for column in HEAD if catch_up or column != "catch_up"], [row]


def print_overview(
    one: Inspection, given: GlobalOptions, catch_up: float | None = None, output: Output = "table"
) -> None:
    """Print one group: a headline, its members, its partitions, its findings. ``catch_up`` as in ``headline``."""
    columns, rows = headline(one, catch_up)
    print_rows(rows, columns, output, spare=SPARE)
    if members := one.rows("members"):
        print_title("members")
        print_rows(members, MEMBERS, output, spare=SPARE)
    if partitions := one.rows("partitions"):
        print_title("partitions")
        spare = (*SPARE, "owner")
        print_rows(partitions, BOTH if one.store == "both" else PARTITIONS, output, spare=spare)
    print_title("findings" if one.findings else "no findings")
    print_findings(one.findings, given)
    if one.findings:
        _say_more()


def print_summary(found: Sequence[Inspection], given: GlobalOptions, output: Output = "table") -> None:
    """Many groups: a line about each, then what is wrong with them, what is critical first; what is only good to know
    is left out."""
    rows = [
        {**table_row(one.summary), **{severity: one.count(severity) for severity in ("critical", "warning", "info")}}
        for one in found
    ]
    print_rows(rows, SUMMARY, output, spare=SUMMARY_SPARE)
    blocks = [block for severity in ("critical", "warning") for block in _blocks(found, severity)]
    for title, findings in blocks:
        print_title(title)
        print_findings(findings, given)
    if blocks:
        _say_more()


def _blocks(found: Iterable[Inspection], severity: Severity) -> Iterator[tuple[str, list[Finding]]]:
    """Findings so severe with what stands above them: what is said of many groups in the same words, once for all of
    them with the commands for the first; and the rest, group by group."""
    worth = {one.snapshot.group: [f for f in one.findings if f.severity == severity] for one in found}
    alike: dict[Finding, dict[str, Finding]] = {}
    for group, findings in worth.items():
        for finding in findings:
            alike.setdefault(_without_name(finding, group), {})[group] = finding
    many: dict[tuple[str, ...], list[Finding]] = {}
    for plain, own in alike.items():
        if len(own) > NAMED_GROUPS:
            commands = [command for one in list(own.values())[:NAMED_GROUPS] for command in one.commands]
            remedy = plain.remedy and Remedy(plain.remedy.text, *commands)
            many.setdefault(tuple(own), []).append(replace(plain, remedy=remedy))
            for group, finding in own.items():
                worth[group].remove(finding)
    for groups, findings in many.items():
        names = ", ".join(shortened(name) for name in groups[:NAMED_GROUPS])
        yield f"{len(groups)} groups alike: {names} and {len(groups) - NAMED_GROUPS} more", findings
    yield from ((group, findings) for group, findings in worth.items() if findings)


def _without_name(finding: Finding, group: str) -> Finding:
    """Without the group's name, where that is what the name stands for (a topic may be called the same), and without
    commands, of which each names it."""
    subject = "each group" if finding.subject == group else finding.subject
    return replace(finding, subject=subject, remedy=finding.remedy and Remedy(finding.remedy.text))


def _say_more() -> None:
    sys.stdout.write("\nzkgroup inspect-group --explain CODE explains a finding\n")


def print_title(text: str) -> None:
    """Print a blank line and the title of a section."""
    sys.stdout.write("\n")
    print_marked([(escape(text), "bold")])


def print_findings(findings: Sequence[Finding], given: GlobalOptions) -> None:
    """Print findings, each with its commands: folded on a terminal; one line each for grep."""
    terminal = sys.stdout.isatty()
    columns = max(41, shutil.get_terminal_size().columns) if terminal else sys.maxsize
    for finding in findings:
        severity = f"{finding.severity:<8}"
        print_marked([(severity, STYLES[finding.severity]), (f"  {finding.code}: {shown_name(finding.subject)}", "")])
        for text in (finding.message, f"→ {finding.remedy.text}" if finding.remedy is not None else None):
            if text is not None:
                rest = " " * (12 if text.startswith("→") else 10)
                sys.stdout.write(folded(one_line(text), columns - 1, " " * 10, rest) + "\n")
        # A command is never folded, so that it can be copied.
        sys.stdout.writelines(
            f"            {one_line(render_command(command, given))}\n" for command in finding.commands
        )
