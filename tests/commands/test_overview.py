"""What is said of many groups at once: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from broken_groups_by_hand import ALONE
from judged import having, inactive

from zkgroup.commands._overview import print_overview, print_summary
from zkgroup.groups.judging.inspection import Inspection, inspect, worst_first
from zkgroup.groups.model import GroupSnapshot


def inspected(groups: Iterable[tuple[str, GroupSnapshot]]) -> Sequence[Inspection]:
    return worst_first(inspect(replace(snapshot, group=name)) for name, snapshot in groups)


def test_what_is_said_of_many_groups_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A thousand groups with the same warning are a line each and one finding; what only one has is told of it."""
    away = replace(inactive(), warnings=("log offsets are not known: brokers gave no answer",))
    lost = having(ALONE, 1, log_start=60)
    many = [(f"g{number:04}", away) for number in range(1000)]
    print_summary(inspected([*many, ("alone", lost)]))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 1020
    assert "1000 groups alike: g0000, g0001, g0002 and 997 more" in lines
    assert [line for line in lines if "incomplete-look" in line] == ["warning   incomplete-look: GROUP"]
    assert lines.count("alone") == 1
    assert any("zkgroup reset-offsets alone " in line for line in lines)
    assert lines[-1] == "zkgroup inspect-group --explain CODE tells more about a finding"


def test_commands_for_many_groups_name_none_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    """A remedy is the same but for the group's name, quoted or not; a name that is part of another word stays."""
    lost = having(ALONE, 1, log_start=60)
    print_summary(inspected([(name, lost) for name in ("a b", "orders", "g2", "g3")]))
    out = capsys.readouterr().out
    assert out.count("offset-before-start") == 1
    assert "zkgroup reset-offsets GROUP --topic" in out
    few = inspected([(name, lost) for name in ("g1", "g2", "g3")])
    print_summary(few)
    out = capsys.readouterr().out
    assert out.count("offset-before-start") == 3
    assert "alike" not in out


def test_a_lag_of_a_part_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    """Where one partition's end is not known, the sum of the others is not given as the whole."""
    print_overview(inspected([("g", having(ALONE, 1, log_start=None, log_end=None, log_error="no answer"))])[0])
    head, row = (line.split() for line in capsys.readouterr().out.splitlines()[:2])
    assert row[head.index("lag")] == "≥50"
