"""What this process hands on to its children."""

from __future__ import annotations

import os
import re

_SECRET = re.compile(r"ZKGROUP_\w*PASSWORD")


def childs_environment() -> dict[str, str]:
    """This process's environment without zkgroup's passwords: everybody with the same user, and whatever a child logs
    or starts, could read them there. The rest stays: a child may be zkgroup itself, which needs its folders."""
    return {name: value for name, value in os.environ.items() if not _SECRET.fullmatch(name)}
