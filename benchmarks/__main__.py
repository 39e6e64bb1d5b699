"""Run benchmarks and print their table.

python -m benchmarks                       all of them
python -m benchmarks --only rebalance --rounds 3
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from benchmarks.consume import Bench, count_only, memory, values
from benchmarks.describe import describe, list_groups
from benchmarks.export import export, limit, schemas, tables, topics
from benchmarks.load import SIZES, load
from benchmarks.measure import Row, machine
from benchmarks.rebalance import rebalance
from benchmarks.reset import reset
from zkgroup.sandbox.local_cluster import Sandbox

KINDS = (
    "count",
    "values",
    "memory",
    "rebalance",
    "describe",
    "list",
    "reset",
    "export",
    "limit",
    "topics",
    "tables",
    "schemas",
    "load",
)

#: For a broker whose speed is measured: the whole compiler, as in production.
UNDER_LOAD = "-XX:TieredStopAtLevel=4"


def main() -> None:
    """Start a sandbox, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=KINDS, help="repeatable; all by default")
    parser.add_argument("--rounds", type=int, default=5, help="counted runs of each (5)")
    parser.add_argument("--messages", type=int, default=5_000_000, help="in the topic (5 million)")
    parser.add_argument("--size", type=int, default=100, help="bytes of a value (100)")
    parser.add_argument("--partitions", type=int, default=1000, help="to rebalance and to describe (1000)")
    parser.add_argument("--many-partitions", type=int, default=10_000, help="to describe and to reset (10,000)")
    parser.add_argument("--load", action="append", type=_size, metavar="MEMBERS:PARTITIONS", help="sizes of groups")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # installed, zkgroup has its bytecode
    wanted = options.only or KINDS
    if "load" in wanted:
        with Sandbox("benchmarks-load", tick_ms=1000, java_options=("-Xmx2g", UNDER_LOAD)) as sandbox:
            load(sandbox, options.rounds, options.load or SIZES)
        print(f"\n{machine()}.\n")
        if wanted == ["load"]:
            return
    rows: list[Row] = []
    java_options = ("-Xmx1g", UNDER_LOAD)
    with tempfile.TemporaryDirectory() as folder, Sandbox("benchmarks", java_options=java_options) as sandbox:
        bench = Bench(sandbox, Path(folder), options.messages, options.size)
        if {"count", "values", "memory"} & set(wanted):
            bench.fill(options.size)
        if "count" in wanted:
            rows.append(count_only(bench, options.rounds))
        if "values" in wanted:
            rows += values(bench, options.rounds)
        if "memory" in wanted:
            rows += memory(bench, min(2, options.rounds))
        if "rebalance" in wanted:
            rows += rebalance(sandbox, options.rounds, options.partitions)
        if "list" in wanted:
            rows.append(list_groups(bench, options.rounds))
        if "describe" in wanted:
            rows += describe(bench, options.rounds, options.partitions, options.many_partitions)
        if "reset" in wanted:
            rows += reset(bench, options.rounds, options.many_partitions)
        if "export" in wanted:
            rows += export(bench, options.rounds, options.messages)
        if "tables" in wanted:
            rows += tables(bench, options.rounds, options.messages)
        if "schemas" in wanted:
            rows += schemas(bench, options.rounds, options.messages // 5)
        if "export" not in wanted:  # parts of that
            if "limit" in wanted:
                rows.append(limit(bench, options.rounds, options.messages))
            if "topics" in wanted:
                rows.append(topics(bench, options.rounds))
    what = f"{options.messages:,} messages of {options.size} bytes, 4 partitions, Kafka {sandbox.release.version}"
    print(f"{what}; {machine()}.")
    print("Medians of runs taken in turn, in brackets the least and the most.\n")
    print("| work | peer | peer | zkgroup | ratio | goal | met |\n|---|---|---|---|---|---|---|")
    for row in rows:
        print(row.line())


def _size(text: str) -> tuple[int, int]:
    members, _, partitions = text.partition(":")
    return int(members), int(partitions)


if __name__ == "__main__":
    main()
