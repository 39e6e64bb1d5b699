"""Running commands and telling what they took."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

#: The zkgroup of the environment that runs the benchmark.
ZKGROUP = str(Path(sys.executable).with_name("zkgroup"))


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a whole command: seconds, and the process's peak memory in MB."""

    seconds: float
    peak_mb: float
    output: str


def run(command: Sequence[str], *, output: Path | None = None, env: Mapping[str, str] | None = None) -> Run:
    """Run a command to its end. Its output goes to ``output`` (a file or device) or is returned."""
    start = time.monotonic()
    with (output or Path(os.devnull)).open("wb") as sink:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if output is None else sink,
            stderr=subprocess.PIPE if output is None else subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
        )
        text = b""
        if output is None:
            out, err = process.communicate()
            text = out + err
            peak = 0.0
            code = process.returncode
        else:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = code = os.waitstatus_to_exitcode(status)
            peak = usage.ru_maxrss / 1024
    if code != 0:
        raise SystemExit(f"{' '.join(command[:3])} … ended with {code}: {text.decode(errors='replace')[-800:]}")
    return Run(time.monotonic() - start, peak, text.decode(errors="replace"))


@dataclass(slots=True)
class Row:
    """One comparison: figures of the peer and of zkgroup, taken in turn.

    ``better``: "more" where a larger figure is better (messages a second), "less" where a smaller one is (seconds).
    ``goal``: how many times better than the peer zkgroup means to be.
    """

    work: str
    peer: str
    unit: str
    better: str
    goal: float
    theirs: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """How many times better zkgroup is, by the medians."""
        theirs, ours = statistics.median(self.theirs), statistics.median(self.ours)
        return ours / theirs if self.better == "more" else theirs / ours

    def line(self) -> str:
        """A row of the table."""

        def figures(values: list[float]) -> str:
            digits = 0 if statistics.median(values) >= 100 else 2
            low, middle, high = min(values), statistics.median(values), max(values)
            return f"{middle:,.{digits}f} ({low:,.{digits}f}–{high:,.{digits}f})"

        met = "yes" if self.ratio >= self.goal else "**no**"
        return (
            f"| {self.work} | {self.peer} | {figures(self.theirs)} {self.unit} | {figures(self.ours)} {self.unit} "
            f"| **{self.ratio:.2f} ×** | {self.goal:g} × | {met} |"
        )


def in_turn(row: Row, rounds: int, theirs: Callable[[], float], ours: Callable[[], float]) -> Row:
    """Measure one peer and zkgroup: see ``all_in_turn``."""
    return all_in_turn([row], rounds, [theirs], ours)[0]


def all_in_turn(
    rows: list[Row], rounds: int, theirs: Sequence[Callable[[], float]], ours: Callable[[], float]
) -> list[Row]:
    """Measure the peer of each row, then zkgroup, and so on: a machine that slows down slows all of them. One round
    before is not counted. The data that one has written is on the disk before the next begins."""
    for number in range(-1, rounds):
        figures = []
        for work in (*theirs, ours):
            os.sync()
            figures.append(work())
        for row, figure in zip(rows, figures, strict=False):
            if number >= 0:
                row.theirs.append(figure)
                row.ours.append(figures[-1])
            print(
                f"  {row.work}: {row.peer} {figure:,.2f}, zkgroup {figures[-1]:,.2f} {row.unit}",
                file=sys.stderr,
                flush=True,
            )
    return rows


def machine() -> str:
    """What the figures were taken on."""
    model = "unknown processor"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, Python {platform.python_version()}, {platform.system()}"
    )
