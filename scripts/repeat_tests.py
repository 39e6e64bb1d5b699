"""The tests that ``docs/explanation/guarantees.md`` names, repeated: ``repeat_tests.py RUNS``. One line a run, with the
tests that failed; nothing is tried again. The random faults are left out: ``make faults`` has its own account.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
_NAMED = re.compile(r"`(tests/[\w/]+\.py::\w+)`")
_LEFT_OUT = "tests/connector/test_faults_run.py"


def main(runs: int) -> int:
    """Return 0 if every test passed in every run."""
    page = (ROOT / "docs" / "explanation" / "guarantees.md").read_text(encoding="utf-8")
    tests = [test for test in dict.fromkeys(_NAMED.findall(page)) if not test.startswith(_LEFT_OUT)]
    command = [sys.executable, "-m", "pytest", "-q", "--numprocesses", "2", "--dist", "worksteal", *tests]
    failures = 0
    for run in range(1, runs + 1):
        began = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
        summary = done.stdout.rstrip().rpartition("\n")[2]
        print(f"{run}: {summary}, {time.monotonic() - began:.0f} s", *failed, flush=True)  # noqa: T201
        failures += done.returncode != 0
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
