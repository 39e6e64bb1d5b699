"""What members have and get: pure."""

from __future__ import annotations

from diagnosed_groups import filtering, member, owned
from diagnosed_groups import group as group_of

from zkgroup.groups.assignment.assignment_plan import rows_of, shares_of
from zkgroup.groups.assignment.strategy_inference import Variant
from zkgroup.groups.assignment.what_if import Choice, plan_all, scenario_of
from zkgroup.groups.snapshot.table_rows import member_rows

RANGE = Choice(Variant("range", "1.1"))


def test_streams_are_counted_as_everywhere() -> None:
    """A static member has those of each topic, a filter's read all topics: as in the list of members."""
    members = [member("g_a", {"t": 1, "u": 2}), filtering("g_b", "[tu]", {"t": 1, "u": 1}), member("g_c", {"u": 1})]
    snapshot = group_of(members, [owned(name, number, None) for name in "tu" for number in range(2)])
    plan = plan_all(scenario_of(snapshot), RANGE)
    rows = rows_of(plan.assignment(plan.outcomes[0]), plan.wanted, {})
    shares = shares_of(rows, {}, plan.streams, filtering=plan.filtering)
    assert [(share.member, share.streams, share.idle) for share in shares] == [
        ("g_a", 3, 0),
        ("g_b", 1, 0),
        ("g_c", 1, 1),
    ]
    assert [row.streams for row in member_rows(snapshot)] == [3, 1, 1]
