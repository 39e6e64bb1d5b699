"""Groups as metrics for Prometheus, in its text format 0.0.4. Pure.

Names and labels are those of kafka_exporter (danielqsj, 1.9), for its dashboards and alerts; others begin with
``zkgroup_``. A series without a value is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from zkgroup.groups.findings.finding_kinds import SEVERITIES
from zkgroup.groups.findings.inspection import Inspection
from zkgroup.groups.monitoring.group_check import GroupCheck, Status

#: Each metric, and what it is.
METRICS: Final = {
    "kafka_consumergroup_current_offset": "Current Offset of a ConsumerGroup at Topic/Partition",
    "kafka_consumergroup_current_offset_sum": "Current Offset of a ConsumerGroup at Topic for all partitions",
    "kafka_consumergroup_lag": "Current Approximate Lag of a ConsumerGroup at Topic/Partition",
    "kafka_consumergroup_lag_sum": "Current Approximate Lag of a ConsumerGroup at Topic for all partitions",
    "zkgroup_consumergroup_lag_seconds": "Age of the next message to be read at Topic/Partition",
    "zkgroup_consumergroup_max_lag_seconds": "Age of the oldest message of a ConsumerGroup that is next to be read",
    "zkgroup_consumergroup_lag_unknown_partitions": "Partitions of a topic whose lag is not known",
    "kafka_consumergroup_members": "Amount of members in a consumer group",
    "kafka_topic_partition_current_offset": "Current Offset of a Broker at Topic/Partition",
    "kafka_topic_partition_oldest_offset": "Oldest Offset of a Broker at Topic/Partition",
    "zkgroup_consumergroup_commit_timestamp_seconds": "When an offset was written last, where it is in ZooKeeper",
    "zkgroup_consumergroup_partition_owned": "Whether a partition of a subscribed topic has an owner",
    "zkgroup_consumergroup_findings": "What is wrong with a group, counted by severity",
    "zkgroup_consumergroup_status": "By the rules of Burrow over the snapshots kept: 1 OK, 2 WARN, 3 ERR",
    "zkgroup_consumergroup_partition_status": "By the rules of Burrow: 1 OK, 2 WARN, 4 STOP, 5 STALL, 6 REWIND",
    "zkgroup_consumergroup_catch_up_seconds": "How long until the lag is gone, at the rates of the snapshots kept",
    "zkgroup_snapshot_timestamp_seconds": "When the snapshot of a group was taken",
    "zkgroup_up": "Whether ZooKeeper and the brokers answered when groups were read last",
    "zkgroup_error_code": "Why they did not, as an exit code of zkgroup: 3 servers out of reach; 0 they did",
    "zkgroup_snapshot_duration_seconds": "How long that reading took",
    "zkgroup_snapshot_age_seconds": "How long ago that reading began",
}
# As Burrow numbers them (1.9.5, core/protocol/evaluator.go).
_STATUS: Final[Mapping[Status, int]] = {"OK": 1, "WARN": 2, "STOP": 4, "STALL": 5, "REWIND": 6}
_GROUP_STATUS: Final = {"OK": 1, "WARN": 2, "ERR": 3}


@dataclass(slots=True)
class _MetricSeries:
    values: dict[str, dict[tuple[tuple[str, str], ...], float]] = field(default_factory=dict)

    def set(self, name: str, value: float | None, **labels: str) -> None:
        if value is not None:
            self.values.setdefault(name, {})[tuple(labels.items())] = value

    def add(self, name: str, value: float | None, **labels: str) -> None:
        if value is not None:
            self.set(name, value + self.values.get(name, {}).get(tuple(labels.items()), 0), **labels)


def format_metrics(inspections: Iterable[Inspection], checks: Mapping[str, GroupCheck] | None = None) -> str:
    """A file for node_exporter's textfile collector. ``checks``: group → its state, where it was checked."""
    series = _MetricSeries()
    for one in inspections:
        _of_group(series, one)
        if checks and (check := checks.get(one.snapshot.group)) is not None:
            _of_check(series, check)
    return "".join(_lines(series))


def format_state(error_code: int, took: float, age: float) -> str:
    """The state of a server of metrics: how its last reading ended (``error_code``: an exit code), how many seconds it
    took, and how many ago it began."""
    series = _MetricSeries()
    series.set("zkgroup_up", int(error_code == 0))
    series.set("zkgroup_error_code", error_code)
    series.set("zkgroup_snapshot_duration_seconds", round(took, 3))
    series.set("zkgroup_snapshot_age_seconds", round(age, 3))
    return "".join(_lines(series))


def _of_group(series: _MetricSeries, one: Inspection) -> None:
    snapshot = one.snapshot
    group = snapshot.group
    members = len(snapshot.members) + len(snapshot.kafka_members)
    if snapshot.in_zookeeper or not snapshot.kafka_members_unknown:
        series.set("kafka_consumergroup_members", members, consumergroup=group)
    series.set("zkgroup_snapshot_timestamp_seconds", snapshot.taken_at / 1000, consumergroup=group)
    for severity in SEVERITIES:
        series.set("zkgroup_consumergroup_findings", one.count(severity), consumergroup=group, severity=severity)
    series.set("zkgroup_consumergroup_max_lag_seconds", one.summary.lag_seconds, consumergroup=group)
    partial = {p.topic for p in snapshot.partitions if p.is_lag_unknown(one.store)}  # a part is not given as the whole
    for p in snapshot.partitions:
        of_group = {"consumergroup": group, "topic": p.topic}
        partition = str(p.partition)
        committed, lag = p.committed(one.store), p.known_lag(one.store)
        series.set("kafka_consumergroup_current_offset", committed, **of_group, partition=partition)
        series.add("kafka_consumergroup_current_offset_sum", committed, **of_group)
        series.set("kafka_consumergroup_lag", lag, **of_group, partition=partition)
        behind = p.behind(one.store)
        if behind is not None and not behind.is_at_least:
            series.set("zkgroup_consumergroup_lag_seconds", behind.seconds, **of_group, partition=partition)
        unknown = int(p.is_lag_unknown(one.store))
        series.add("zkgroup_consumergroup_lag_unknown_partitions", unknown, **of_group)
        if p.topic not in partial:
            series.add("kafka_consumergroup_lag_sum", lag or 0, **of_group)
        series.set("kafka_topic_partition_current_offset", p.log_end, topic=p.topic, partition=partition)
        series.set("kafka_topic_partition_oldest_offset", p.log_start, topic=p.topic, partition=partition)
        if p.stored is not None and p.stored.offset is not None:
            written = p.stored.changed_at / 1000
            series.set("zkgroup_consumergroup_commit_timestamp_seconds", written, **of_group, partition=partition)
        if p.topic in snapshot.subscribed and not p.is_unreadable:
            owned = int(p.owner is not None)
            series.set("zkgroup_consumergroup_partition_owned", owned, **of_group, partition=partition)


def _of_check(series: _MetricSeries, check: GroupCheck) -> None:
    group = check.group
    if check.complete:
        series.set("zkgroup_consumergroup_status", _GROUP_STATUS[check.progress], consumergroup=group)
    series.set("zkgroup_consumergroup_catch_up_seconds", check.catch_up, consumergroup=group)
    for key, status in check.statuses.items():
        labels = {"consumergroup": group, "topic": key.topic, "partition": str(key.partition)}
        series.set("zkgroup_consumergroup_partition_status", _STATUS[status], **labels)


def _lines(series: _MetricSeries) -> Iterator[str]:
    for name, text in METRICS.items():
        if values := series.values.get(name):
            yield f"# HELP {name} {text}\n# TYPE {name} gauge\n"
            for labels, value in values.items():
                inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
                yield f"{name}{f'{{{inside}}}' if inside else ''} {_number(value)}\n"


def _escaped(text: str) -> str:
    plain = text.encode("utf-8", "replace").decode()  # lone surrogates are no text that a reader takes
    return plain.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(value)
