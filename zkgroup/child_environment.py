"""What this process hands on to its children, and those that run to their end."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_SECRET = re.compile(r"ZKGROUP_\w*PASSWORD")


def childs_environment() -> dict[str, str]:
    """This process's environment without zkgroup's passwords: everybody with the same user, and whatever a child logs
    or starts, could read them there. The rest stays: a child may be zkgroup itself, which needs its folders."""
    return {name: value for name, value in os.environ.items() if not _SECRET.fullmatch(name)}


def run_child(
    command: Sequence[str | Path], timeout: float, lines: str = "", variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program with ``lines`` as its input. Raises ``TimeoutExpired``, and ``OSError`` where it does not start."""
    environment = {**childs_environment(), **(variables or {})}
    return subprocess.run(
        command, input=lines, capture_output=True, text=True, timeout=timeout, check=False, env=environment
    )
