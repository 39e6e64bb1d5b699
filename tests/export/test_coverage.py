"""Where a group's exports have come, and what lies ahead of them, from run to run."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from zkgroup.export.lake.ahead import spared
from zkgroup.export.lake.coverage import extended
from zkgroup.export.model.intervals import Interval, overlaps, subtract, union
from zkgroup.export.model.rundata import ManifestPart, TopicCoverage, TopicIdentity
from zkgroup.export.model.words import ExportPlan, PartitionFacts
from zkgroup.export.planning.plan import make_backfill, make_plan
from zkgroup.protocol.names import TopicPartition

T0 = TopicPartition("t", 0)
LOG = {"t": TopicIdentity(7)}
END = 40

BACKFILL = st.tuples(st.just("backfill"), st.integers(0, END), st.integers(1, 12))
EXPORT = st.tuples(st.just("export"), st.integers(0, END), st.integers(1, 12))


def parts_of(plan: ExportPlan) -> list[ManifestPart]:
    """As if all that was planned was read."""
    return [ManifestPart(part, part.end, part.end - part.start, 0, {}) for part in plan.partitions]


@given(st.integers(0, END // 2), st.lists(BACKFILL | EXPORT, max_size=12))
def test_exports_meet_every_offset_once_whatever_was_filled_before(
    begin: int, steps: list[tuple[str, int, int]]
) -> None:
    """In whatever order backfills and exports with limits and ends come: nothing is read twice, the exports have come
    just as far as the group, and what is read until all is done is all that there is from where they began."""
    coverage: dict[str, TopicCoverage] = {}
    stands: int | None = None
    read: list[Interval] = []
    for kind, place, many in [*steps, ("export", END, END)]:
        known = coverage.get("t", TopicCoverage(LOG["t"]))
        held = known.partitions.get(0, ())
        facts = PartitionFacts(T0, stands, 3, 0, END, coverage=held)
        if kind == "backfill":
            plan = make_backfill("g", [replace(facts, begin=place, until=place + many)])
        else:
            if held and held[-1][1] != stands:
                mine, filled = spared(stands, held, [known], 0)
                facts = replace(facts, coverage=mine, filled=filled)
            plan = make_plan("g", [replace(facts, begin=begin, until=place)], max_messages=many)
        parts = parts_of(plan)
        read += [(part.plan.start, part.end) for part in parts if part.plan.start < part.end]
        coverage = extended(coverage, LOG, parts, fills=kind == "backfill")
        stands = next((part.end for part in parts if part.plan.commits), stands)
        if stands is not None:
            known = coverage["t"]
            assert union(known.exported(0))[-1][1] == stands
            assert all(low >= stands for low, _ in known.ahead(0))
            assert union((*known.exported(0), *known.ahead(0))) == union((*known.partitions[0], (stands, stands)))
    assert not overlaps(read)
    assert stands == END
    assert not subtract((begin, END), read)
