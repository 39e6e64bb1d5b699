"""What a finding advises, typed as printed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from cli import run


def type_in(commands: Sequence[str], connect: str, command: str = "") -> None:
    """Run each of ``commands``, or those that match ``command`` (a regular expression), as they stand, on the servers
    at ``connect``; there must be one, and all must succeed."""
    chosen = [one for one in commands if re.search(command, one)]
    assert chosen, commands
    for line in chosen:
        program, *words = shlex.split(line)
        result = run(*words, env={"ZKGROUP_ZOOKEEPER": connect})
        assert (program, result.returncode) == ("zkgroup", 0), (line, result.stderr)
