"""Make ``docs/reference/output-schemas.json``: a JSON Schema of what each command prints with ``--output json``.

Usage: ``make_output_schemas.py`` writes it; ``--check`` ends with 1 where it is not what would be written. The columns
are the commands' own, the types are those of their rows. Of what is no row, the types stand here.
"""

from __future__ import annotations

import inspect
import json
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, Union, get_args, get_origin

from zkgroup.commands import (
    _assignment_view,
    _group_changes,
    _history,
    _watch,
    config,
    delete_group,
    export,
    inspect_group,
    list_groups,
    migrate_group,
    offsets,
    owners,
    release_owners,
    sandbox,
    topics,
    version,
)
from zkgroup.commands._output import Column, behind_columns, iso_utc
from zkgroup.config.connection_settings import ShownSetting
from zkgroup.export.checks.run_reports import RunRow, StatusRow
from zkgroup.export.checks.verify import VerifyRow
from zkgroup.export.run.run_context import PartitionSummary
from zkgroup.groups.assignment.assignment_plan import Row as AssignmentRow
from zkgroup.groups.assignment.assignment_plan import Share
from zkgroup.groups.changes.inactive_groups import CandidateGroup
from zkgroup.groups.changes.node_removals import ReleaseRow
from zkgroup.groups.changes.plan import OffsetChange
from zkgroup.groups.findings.finding_kinds import Severity
from zkgroup.groups.group_model import OffsetStore, State, Store
from zkgroup.groups.monitoring.group_check import GroupStatus, Status
from zkgroup.groups.monitoring.group_check import State as CheckState
from zkgroup.groups.monitoring.lag_history import HistoryPoint
from zkgroup.groups.snapshot.table_rows import GroupRow, MemberRow, OwnerRow, PartitionRow, TopicPartitionRow, TopicRow
from zkgroup.groups.watch.timeline import Kind
from zkgroup.sandbox.sandbox_state import ProcessRow

FILE: Final = Path(__file__).resolve().parents[1] / "docs" / "reference" / "output-schemas.json"
#: A type of Python, or a schema, for each name; one that ends with ? may be missing.
Fields: TypeAlias = Mapping[str, Any]


class Schema(dict[str, Any]):
    """A schema that no type stands for."""


_NAMES: Final = {str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null"}
_TIME: Final = Schema({"type": ["string", "null"], "format": "date-time"})
_PARTITION: Final = {"topic": str, "partition": int}
_VARIANT: Final = {"strategy": str, "compat": str}


def schema_of(kind: Any) -> dict[str, Any]:
    """The schema of a type. A mapping is the fields of an object; a list has the type of its items."""
    if isinstance(kind, Schema):
        return dict(kind)
    if isinstance(kind, Mapping):
        return object_of(kind)
    if isinstance(kind, list):
        return {"type": "array", "items": schema_of(kind[0])}
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return {}
    if kind in _NAMES:
        return {"type": _NAMES[kind]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (list, tuple, frozenset, Sequence):
        return {"type": "array", "items": schema_of(arguments[0])}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": schema_of(arguments[1])}
    if origin in (Union, types.UnionType):
        return any_of([schema_of(one) for one in arguments])
    raise TypeError(f"no schema of {kind!r}")


def any_of(schemas: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The union of schemas; plain types and values in one list."""
    if all(one.keys() == {"type"} for one in schemas):
        return {"type": [one["type"] for one in schemas]}
    if all(one.keys() == {"enum"} or one == {"type": "null"} for one in schemas):
        return {"enum": [value for one in schemas for value in one.get("enum", [None])]}
    return {"anyOf": list(schemas)}


def object_of(fields: Fields) -> dict[str, Any]:
    """The schema of an object with these fields, and no others."""
    return {
        "type": "object",
        "properties": {name.removesuffix("?"): schema_of(kind) for name, kind in fields.items()},
        "required": [name for name in fields if not name.endswith("?")],
        "additionalProperties": False,
    }


def row(kind: type, columns: Sequence[Column | str], optional: Sequence[str] = (), **others: Any) -> dict[str, Any]:
    """The fields of a row. ``others``: the types of columns that are no attributes of ``kind``."""
    fields: dict[str, Any] = {}
    for column in columns:
        one = Column(column) if isinstance(column, str) else column
        name = f"{one.name}?" if one.name in optional else one.name
        fields[name] = others[one.name] if one.name in others else _type(kind, one)
    return fields


def _type(kind: type, column: Column) -> Any:
    if column.convert is iso_utc:
        return _TIME
    name = column.attribute or column.name
    for base in kind.__mro__:
        declared = inspect.get_annotations(base).get(name)
        if isinstance(found := vars(base).get(name), property):
            declared = inspect.get_annotations(found.fget)["return"]
        if declared is not None:
            hint = eval(declared, vars(sys.modules[base.__module__])) if isinstance(declared, str) else declared
            return str | None if column.convert is not None else hint
    raise TypeError(f"{kind} has no {name}")


def outputs() -> dict[str, Any]:
    """The output of each command, by its words: an array, or an object. TOPIC and FILE stand for a name."""
    in_time = behind_columns("json")
    group = row(GroupRow, (*list_groups.COLUMNS, "lag_at_least", "lag_unknown", *in_time))
    sections = {
        "members": row(MemberRow, inspect_group.COLUMNS["members"]),
        "partitions": row(
            PartitionRow,
            (*inspect_group.COLUMNS["partitions"], *inspect_group.STORE_COLUMNS, *in_time),
            inspect_group.STORE_COLUMNS,
        ),
        "findings": {
            **dict.fromkeys(("code", "subject", "message", "page"), str),
            "severity": Severity,
            "remedy": str | None,
            "commands": list[str],
        },
    }
    totals = {
        name: group[name] for name in ("lag", "lag_at_least", "lag_unknown", "lag_seconds", "lag_seconds_at_least")
    }
    inspected = {
        "group": str,
        "taken_at": _TIME,
        "store": Store,
        "state": State,
        "strategy": str | None,
        "topics": int,
        **totals,
        **{name: [fields] for name, fields in sections.items()},
    }
    checked = {
        "group": str,
        "state": CheckState,
        "reasons": [{"state": CheckState, "reason": str}],
        **totals,
        "max_lag": int | None,
        **dict.fromkeys(("partitions", "unowned", "members", "snapshots"), int),
        "status": GroupStatus | None,
        "catch_up_seconds": float | None,
        "not_ok": [{**_PARTITION, "status": Status}],
    }
    topic = row(TopicRow, (*topics.HEAD, *topics.CONFIGS, "groups"))
    saved = {"store": OffsetStore, **_PARTITION, "before": int | None, "written": int | None}
    backup = {
        "time": _TIME,
        **dict.fromkeys(("command", "group", "file"), str),
        "offsets": int,
        "nodes": int,
        "zookeeper": str | None,
    }
    change = row(OffsetChange, ("topic", "partition", "store", "current", "target", "change", "note"), ["store"])
    migrated = {
        **_PARTITION,
        "source": int,
        **dict.fromkeys(("current", "target", "change", "log_start", "log_end"), int | None),
        "note": str | None,
    }
    many = dict.fromkeys(migrate_group.GROUP_COLUMNS, int | None) | {
        "group": str,
        "state": migrate_group.State,
        "note": str | None,
    }
    candidates = [row(CandidateGroup, delete_group.CANDIDATE_COLUMNS)]
    removed = [row(OffsetChange, _group_changes.DELETE_COLUMNS)]
    processes = [row(ProcessRow, sandbox.COLUMNS)]
    content = Any  # text, {"base64": …}, null; by a schema whatever that says
    event = dict.fromkeys(_watch.COLUMNS, str | None) | {
        "time": _TIME,
        "event": Kind,
        "partition": int | None,
        "from": str | int | None,
        "to": str | int | None,
        "seconds": float | None,
        "message": str,
    }
    return {
        "assign": _assignment(),
        "backups": [backup],
        "backups FILE": {
            **backup,
            "offsets": [saved],
            "nodes": [{"path": str, "bytes": int}],
            "undo": str,
        },
        "config check": [row(config.Checked, config.CHECKED, message=str)],
        "config show": [row(ShownSetting, config.SHOWN)],
        "consume": {
            **_PARTITION,
            "offset": int,
            "timestamp": _TIME,
            "timestamp_raw?": int,
            "timestamp_type": Literal["CreateTime", "LogAppendTime"] | None,
            "key": content,
            "key_raw?": content,
            "key_error?": str,
            "value": content,
            "value_raw?": content,
            "value_error?": str,
            "headers": [{"key": str, "value": content}],
        },
        "copy-group": [change],
        "delete-group": removed,
        "delete-group --pattern": candidates,
        "delete-group --undo": candidates,
        "export": [row(PartitionSummary, (*export.COLUMNS, "table"), optional=("table",))],
        "export --history": [row(RunRow, export.HISTORY)],
        "export --status": [row(StatusRow, (*export.STATUS, "advice"), advice=str)],
        "export --verify": [row(VerifyRow, export.VERIFY)],
        "inspect-group": inspected,
        "inspect-group --all": [inspected],
        "inspect-group --check": checked,
        "inspect-group --all --check": {"state": CheckState, "groups": [checked]},
        "inspect-group --history": [row(HistoryPoint, _history.COLUMNS)],
        "inspect-group --explain": {"code": str, "severities": list[Severity], "meaning": str, "text": str},
        **{f"inspect-group --section {name}": [fields] for name, fields in sections.items()},
        **{f"inspect-group --all --section {name}": [{"group": str, **fields}] for name, fields in sections.items()},
        "inspect-group --watch": event,
        "inspect-group --replay": event,
        "list-groups": [
            {**group, "changed_at": _TIME, "finding": str | None, "severity": Literal["critical", "warning"] | None}
        ],
        "migrate-group": [migrated],
        "migrate-group --all": [many],
        "migrate-group --pattern": [many],
        "migrate-group --to-cluster": [
            {
                **migrated,
                "to_topic": str,
                "match": Literal["exact", "earlier", "not found"],
                "repeated": int | None,
            }
        ],
        "offsets": [
            row(
                PartitionRow,
                (*offsets.COLUMNS, *offsets.STORE_COLUMNS, *in_time),
                (*offsets.STORE_COLUMNS, *map(str, in_time)),
            )
        ],
        "owners": [row(OwnerRow, (*owners.COLUMNS, "store"), ["store"])],
        "release-owners": [row(ReleaseRow, release_owners.COLUMNS)],
        "rename-group": [change],
        "reset-offsets": [{**change, "target_time": _TIME}],
        "sandbox fill": [{**_PARTITION, "log_start": int, "log_end": int}],
        "sandbox start": processes,
        "sandbox status": processes,
        "topics": [topic],
        "topics TOPIC": {
            "topic": str,
            **{name: topic[name] for name in topics.CONFIGS},
            "partitions": [row(TopicPartitionRow, topics.PARTITIONS)],
            "groups": [row(GroupRow, (*topics.GROUPS, "lag_at_least", "lag_unknown"))],
        },
        "unsubscribe": removed,
        "version": dict.fromkeys(version.versions(), str | None) | {"zkgroup": str, "python": str},
    }


def _assignment() -> Fields:
    """What ``assign`` prints."""
    variants = [_VARIANT]
    return {
        "group": str,
        **_VARIANT,
        "assignment": [row(AssignmentRow, _assignment_view.COLUMNS)],
        "unassigned": [_PARTITION],
        "conflicts": [{"kind": str, "members": list[str], "partitions": [_PARTITION], "message": str}],
        "matches_current": bool,
        "changes": dict.fromkeys(_assignment_view.CHANGES, int),
        "shares": [row(Share, _assignment_view.SHARE_COLUMNS)],
        "outcomes": [{"holders": list[str], "losers": list[str], "unread": [_PARTITION], "matches_current": bool}],
        "more_outcomes": bool,
        "ties": [[_PARTITION]],
        "explanation": {
            "exact": variants,
            "best": Schema({"anyOf": [object_of(_VARIANT), {"type": "null"}]}),
            "differences": int,
            "deviating": list[str],
            "blocked": list[str],
            "refused": [{**_VARIANT, "message": str}],
            "may_run": Schema({"type": "object", "additionalProperties": schema_of(variants)}),
        },
        "rebalanced?": {"seconds": float, "answered": bool, "defects": list[str], "still": list[str]},
    }


def text() -> str:
    """The file, with a line for each output."""
    lines = [f'"{name}": {json.dumps(schema_of(kind))}' for name, kind in outputs().items()]
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What zkgroup prints with --output json",
        "description": "Each of $defs is named after a command, and the options that decide. consume and inspect-group "
        "--watch print an object a line: its schema is given.",
    }
    begin, defined = json.dumps(head, indent=1).removesuffix("\n}"), ",\n  ".join(lines)
    return f'{begin},\n "$defs": {{\n  {defined}\n }}\n}}\n'


def main() -> int:
    """Write the file, or check it."""
    if "--check" not in sys.argv:
        FILE.write_text(text(), encoding="utf-8")
    elif not FILE.exists() or FILE.read_text(encoding="utf-8") != text():
        sys.stderr.write(f"{FILE} is out of date: run scripts/make_output_schemas.py\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
