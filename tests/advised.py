"""What a finding advises, typed as it stands there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from cli import run


def type_in(remedy: str, connect: str, command: str = "[a-z-]+", chosen: Mapping[str, str] | None = None) -> None:
    """Run the command in ``remedy`` that begins with ``command`` (a regular expression) and ends with ``--execute``, on
    the servers at ``connect``; it must be there, and succeed. ``chosen``: what is typed for words that stand for what a
    person has to choose."""
    advised = re.search(rf"zkgroup ((?:{command}) .*?--execute)", remedy)
    assert advised is not None, remedy
    words = [(chosen or {}).get(word, word) for word in shlex.split(advised[1])]
    result = run(*words, "-z", connect)
    assert result.returncode == 0, (words, result.stderr)
