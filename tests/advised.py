"""What a finding advises, typed as it stands there."""

from __future__ import annotations

import re
import shlex

from cli import run


def type_in(remedy: str, connect: str, command: str = "[a-z-]+") -> None:
    """Run the command in ``remedy`` that begins with ``command`` (a regular expression) and ends with ``--execute``, on
    the servers at ``connect``; it must be there, and succeed."""
    advised = re.search(rf"zkgroup ((?:{command}) .*?--execute)", remedy)
    assert advised is not None, remedy
    words = shlex.split(advised[1])
    result = run(*words, "-z", connect)
    assert result.returncode == 0, (words, result.stderr)
