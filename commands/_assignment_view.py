"""The output of ``assign``: rows on stdout and a summary on stderr, or one JSON object."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import typer

from zkgroup.errors import Notice, ZkgroupError
from zkgroup.groups.assignment.assignment_plan import (
    Row,
    Share,
    nearest,
    present_conflicts,
    rows_of,
    shares_of,
    unreadable_owners,
)
from zkgroup.groups.assignment.strategy_inference import VARIANTS, StrategyInference, Variant, owned_now
from zkgroup.groups.assignment.trigger_rebalance import Rebalanced
from zkgroup.groups.assignment.what_if import Choice, Conflict, Outcome, ScenarioPlan
from zkgroup.groups.group_model import GroupSnapshot
from zkgroup.protocol.names import TopicPartition, span_list
from zkgroup.text import counted, listed

from ._context import warn
from ._output import SPARE, Output, has_objects, is_table, print_object, print_rows
from ._shared_options import GlobalOptions
from ._terminal_text import escape, folded

COLUMNS = ("topic", "partition", "owner", "member", "current", "change")
SHARE_COLUMNS = ("member", "streams", "idle", "now", "planned", "gains", "loses")
OUTCOME_COLUMNS = ("outcome", "unread", "live", "holders", "losers")
CHANGES = {
    "move": "to move",
    "stream": "to another stream",
    "claim": "to claim",
    "release": "to release",
    "tied": "tied",
}
# Outcomes that a terminal lists; JSON has all of them.
SHOWN_OUTCOMES = 10
SHOWN_NAMES = 3


@dataclass(frozen=True)
class AssignmentView:
    """A plan, the group (None if it does not exist), and the result of a triggered rebalance."""

    group: str
    snapshot: GroupSnapshot | None
    inference: StrategyInference
    base: Choice
    plan: ScenarioPlan
    rebalanced: Rebalanced | None = None

    @cached_property
    def outcome(self) -> Outcome:
        return nearest(self.plan, self.snapshot)[0]

    @cached_property
    def matches(self) -> bool:
        """True if the live owners match the plan."""
        return nearest(self.plan, self.snapshot)[1] and (bool(self.outcome.holders) or not self.plan.wanted)

    @cached_property
    def rows(self) -> list[Row]:
        live, unreadable = owned_now(self.snapshot), unreadable_owners(self.snapshot)
        return rows_of(self.plan.assignment(self.outcome), self.plan.wanted, live, unreadable)

    @cached_property
    def shares(self) -> list[Share]:
        unreadable, plan = unreadable_owners(self.snapshot), self.plan
        return shares_of(self.rows, owned_now(self.snapshot), plan.streams, unreadable, plan.filtering)

    @cached_property
    def conflicts(self) -> list[Conflict]:
        return [*present_conflicts(self.snapshot), *self.plan.conflicts]

    @property
    def changes(self) -> dict[str, int]:
        """The number of partitions by their change."""
        counts = Counter(row.change for row in self.rows)
        return {change: counts[change] for change in CHANGES}  # type: ignore[index]


def show(
    ctx: typer.Context, view: AssignmentView, output: Output, problems: Sequence[Notice | ZkgroupError] = ()
) -> None:
    """Print the plan. ``problems`` are warnings."""
    if has_objects(output):
        print_object(as_object(view), output)
    else:
        print_rows(view.rows, COLUMNS, output, spare=("member", *SPARE))
        if is_table(output) and not ctx.ensure_object(GlobalOptions).quiet:
            sys.stdout.flush()
            room = shutil.get_terminal_size().columns if sys.stderr.isatty() else sys.maxsize
            sys.stderr.writelines(f"{folded(line, room, '', ' ' * 6)}\n" for line in ["", *_headline(view)])
            if view.shares:
                sys.stderr.write("\n")
                print_rows(view.shares, SHARE_COLUMNS, output, stream=sys.stderr)
            if len(view.plan.outcomes) > 1:
                sys.stderr.write("\n")
                _print_outcomes(view, output)
            sys.stderr.flush()
        # The outcomes show colliding claims; there may be thousands of pairs.
        problems = [*problems, *(each.notice for each in view.conflicts if each.kind != "claim")]
    warn(ctx, problems)


def as_object(view: AssignmentView) -> dict[str, Any]:
    variant, inference = view.base.variant, view.inference
    found: dict[str, Any] = {
        "group": view.group,
        "strategy": variant.strategy,
        "compat": variant.compat,
        "assignment": [asdict(row) for row in view.rows],
        "unassigned": _pairs(view.outcome.unread),
        "conflicts": [
            {"kind": one.kind, "members": one.members, "partitions": _pairs(one.partitions), "message": str(one.notice)}
            for one in view.conflicts
        ],
        "matches_current": view.matches,
        "changes": view.changes,
        "shares": [asdict(share) for share in view.shares],
        "outcomes": [
            {
                "holders": list(outcome.holders),
                "losers": list(outcome.losers),
                "unread": _pairs(outcome.unread),
                "matches_current": view.matches and outcome is view.outcome,
            }
            for outcome in view.plan.outcomes
        ],
        "more_outcomes": view.plan.more,
        "ties": [_pairs(tie) for tie in view.plan.ties],
        "explanation": {
            "exact": [_variant(each) for each in inference.exact],
            "best": inference.best and _variant(inference.best),
            "differences": inference.differences,
            "deviating": list(inference.deviating),
            "blocked": list(inference.blocked),
            "refused": [_variant(each) | {"message": why} for each, why in inference.refused.items()],
            "may_run": {member: [_variant(v) for v in may] for member, may in inference.may_run.items()},
        },
    }
    if view.rebalanced is not None:
        found["rebalanced"] = {
            "seconds": round(view.rebalanced.seconds, 3),
            "answered": view.rebalanced.answered,
            "defects": list(view.rebalanced.defects),
            "still": list(view.rebalanced.still),
        }
    return found


def _pairs(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": pair.topic, "partition": pair.partition} for pair in partitions]


def _variant(variant: Variant) -> dict[str, str]:
    return {"strategy": variant.strategy, "compat": variant.compat}


def _headline(view: AssignmentView) -> list[str]:
    changes = ", ".join(f"{count} {CHANGES[change]}" for change, count in view.changes.items() if count)
    members = sum(1 for streams in view.plan.streams.values() if streams)
    unread = view.outcome.unread
    lines = [
        f"plan  {view.base.variant.text}: {counted(len(view.plan.wanted), 'partition')}, {counted(members, 'member')}; "
        + (changes or "nothing changes")
        + (f"; unread: {listed(span_list(unread))}" if unread else ""),
    ]
    if view.snapshot is not None:
        unreadable = view.snapshot.has_hidden_owners
        lines.append(f"live  {'the owners cannot be read' if unreadable else _explained(view.inference)}")
    if stopping := [each.members[0] for each in view.conflicts if each.kind == "registration"]:
        lines.append(f"but   the registration of {_names(stopping)} is to be mended first: see below")
    if view.rebalanced is not None:
        seconds = f"{view.rebalanced.seconds:.1f} s"
        if view.rebalanced.answered and view.rebalanced.still:
            lines.append(f"done  others rebalanced, {_names(view.rebalanced.still)} did not; watched for {seconds}")
        elif view.rebalanced.answered and view.rebalanced.defects:
            lines.append(f"done  the group rebalanced, and is not at the plan after {seconds}: see below")
        elif view.rebalanced.answered:
            lines.append(f"done  the group rebalanced, and was at rest again after {seconds}")
        else:
            lines.append(f"done  no member answered: in {seconds} no owner node was made or deleted")
    return [escape(line) for line in lines]


def _explained(inference: StrategyInference) -> str:
    if inference.best is None:
        return "nothing is owned"
    if len(inference.exact) == len(VARIANTS):
        return "the owners are the plan of every strategy, in every release"
    if inference.exact:
        return f"the owners are the plan of {', and of '.join(variant.text for variant in inference.exact)}"
    differences = counted(inference.differences, "difference")
    parts = [f"the owners are no plan; nearest: {inference.best.text} with {differences}"]
    if inference.deviating:
        parts.append(f"deviating: {_names(inference.deviating)}")
    if inference.blocked:
        parts.append(f"blocked: {_names(inference.blocked)}")
    return "; ".join(parts)


def _print_outcomes(view: AssignmentView, output: Output) -> None:
    first = view.plan.outcomes[:SHOWN_OUTCOMES]
    rows = [
        {
            "outcome": number,
            "unread": len(outcome.unread),
            "live": "now" if view.matches and outcome is view.outcome else None,
            "holders": _names(outcome.holders),
            "losers": _names(outcome.losers) or None,
        }
        for number, outcome in enumerate(first, 1)
    ]
    print_rows(rows, OUTCOME_COLUMNS, output, stream=sys.stderr)
    more = len(view.plan.outcomes) - len(first)
    if view.plan.more:
        sys.stderr.write(f"and more than {more} others: which one it comes to is a race (--outcomes works out more)\n")
    elif more:
        sys.stderr.write(f"and {more} others, shown by --output json; which one it comes to is a race\n")


def _names(members: Sequence[str]) -> str:
    return listed(members, most=SHOWN_NAMES)
