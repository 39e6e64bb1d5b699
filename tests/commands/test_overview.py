"""What is said of many groups at once: pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from broken_groups_by_hand import ALONE, MIXED
from diagnosed_groups import having, inactive
from lines import names

from zkgroup.commands._group_views import print_overview, print_summary
from zkgroup.commands._output import Output
from zkgroup.commands._shared_options import GlobalOptions
from zkgroup.commands.list_groups import fold_leftovers, print_groups
from zkgroup.errors import Notice
from zkgroup.groups.findings.inspection import Inspection, inspect, worst_first
from zkgroup.groups.group_model import GroupSnapshot

AWAY = Notice("no broker answers")


def inspected(groups: Iterable[tuple[str, GroupSnapshot]]) -> Sequence[Inspection]:
    return worst_first(inspect(replace(snapshot, group=name)) for name, snapshot in groups)


def test_what_is_reported_of_many_groups_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A thousand groups with the same warning are a line each and one finding; what only one has is reported."""
    away = replace(inactive(), warnings=(AWAY,))
    lost = having(ALONE, 1, log_start=60)
    many = [(f"g{number:04}", away) for number in range(1000)]
    print_summary(inspected([*many, ("alone", lost)]), GlobalOptions())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 1020
    assert names("\n".join(lines), 1000, "g0000", "g0001", "g0002", 997)
    assert [line.split()[:2] for line in lines if "incomplete-snapshot" in line] == [
        ["warning", "incomplete-snapshot:"]
    ]
    assert lines.count("alone") == 1
    assert any("zkgroup reset-offsets alone " in line for line in lines)
    assert names(lines[-1], "zkgroup inspect-group --explain CODE")


def test_commands_for_many_groups_are_those_of_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    """A remedy is the same but for the group's name, quoted or not; what is printed can be pasted as it is."""
    lost = having(ALONE, 1, log_start=60)
    print_summary(inspected([(name, lost) for name in ("a b", "orders", "g2", "g3")]), GlobalOptions())
    out = capsys.readouterr().out
    assert out.count("offset-before-start") == 1
    assert "GROUP" not in out
    assert re.findall(r"^ +zkgroup reset-offsets (.+) --topic orders:1 --to-earliest --execute$", out, re.M) == [
        "'a b'", "g2", "g3",
    ]  # fmt: skip
    few = inspected([(name, lost) for name in ("g1", "g2", "g3")])
    print_summary(few, GlobalOptions())
    assert capsys.readouterr().out.count("offset-before-start") == 3


def test_what_is_critical_in_any_group_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    """Findings are in the order of their severity across groups, and of the groups within it."""
    lost = having(ALONE, 1, log_start=60)
    both, warned = replace(lost, warnings=(AWAY,)), replace(inactive(), warnings=(AWAY,))
    print_summary(inspected([("a", warned), ("b", both), ("c", lost)]), GlobalOptions())
    lines = capsys.readouterr().out.splitlines()
    message = [line for line in lines if line in ("a", "b", "c") or line.startswith(("critical ", "warning "))]
    assert message == [
        *("b", "critical  offset-before-start: orders-1", "c", "critical  offset-before-start: orders-1"),
        *("b", "warning   incomplete-snapshot: b", "a", "warning   incomplete-snapshot: a"),
    ]


def test_a_mix_of_strategies_leads(capsys: pytest.CaptureFixture[str]) -> None:
    """What follows from it is named by it, and advises nothing of its own."""
    print_overview(inspected([("g", MIXED)])[0], GlobalOptions())
    out = capsys.readouterr().out
    findings = re.findall(r"^(\w+) +([a-z-]+): (.+)\n((?:  .+\n)+)", out, re.MULTILINE)
    assert [found[:2] for found in findings] == [
        ("critical", "unexplained-owners"),
        ("critical", "partition-without-owner"),
        ("critical", "member-without-partitions"),
    ]
    lead, *others = (found[3] for found in findings)
    assert names(lead, "partition-without-owner", "orders-3..4", "member-without-partitions", "g_b")
    assert "\n            zkgroup assign g --strategy range\n" in lead
    assert not any("→" in one or "zkgroup" in one for one in others)


def test_when_the_lag_is_gone_is_in_the_headline(capsys: pytest.CaptureFixture[str]) -> None:
    """Where snapshots show it; a lag that does not shrink never is."""
    for seconds, shown in ((1500.0, "in 25 min"), (float("inf"), "never")):
        print_overview(inspected([("g", ALONE)])[0], GlobalOptions(), seconds)
        head, row = capsys.readouterr().out.splitlines()[:2]
        assert row[head.index("catch_up") :].startswith(shown)
    print_overview(inspected([("g", ALONE)])[0], GlobalOptions())
    assert "catch_up" not in capsys.readouterr().out


def test_a_lag_of_a_part_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    """Where one partition's end is not known, the sum of the others is not given as the whole."""
    print_overview(
        inspected([("g", having(ALONE, 1, log_start=None, log_end=None, log_error="no answer"))])[0], GlobalOptions()
    )
    head, row = (line.split() for line in capsys.readouterr().out.splitlines()[:2])
    assert row[head.index("lag")] == "≥50"


def test_leftover_groups_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """What is only the rest of a group is counted in a table, unless all are asked for; with anything wrong it is a
    row, and rows for programs have all of it."""
    old = replace(inactive(), last_change=inactive().taken_at - 400 * 86_400_000)
    wrong = replace(old, warnings=(AWAY,))
    found = inspected(
        [("console-consumer-1", old), ("console-consumer-2", old), ("console-consumer-3", wrong), ("live", ALONE)]
    )
    assert [one.worst is None for one in found if one.snapshot.group.startswith("console")].count(True) == 2

    def printed(output: Output, *, folded: bool) -> list[str]:
        rows = fold_leftovers(found, output) if folded else found
        print_groups(rows, "name", output, folded=len(found) - len(rows))
        return capsys.readouterr().out.splitlines()

    shown = printed("table", folded=True)
    assert [line.split()[0] for line in shown[1:3]] in (["console-consumer-3", "live"], ["live", "console-consumer-3"])
    *_, empty, folded = shown
    assert (len(shown), empty, names(folded, 2, "--all")) == (5, "", True)
    assert len(printed("table", folded=False)) == 5
    assert len(printed("csv", folded=True)) == 5
