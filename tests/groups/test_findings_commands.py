"""What findings print, run as printed."""

from __future__ import annotations

import json
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from broken_groups import Maker, make_broken
from cli import run
from support import wait_until

from zkgroup.groups.findings.group_facts import REST
from zkgroup.sandbox.local_cluster import Sandbox

#: How a command line of a finding is shown: alone.
PRINTED = re.compile(r"^ {12}(zkgroup .+)$", re.MULTILINE)

#: Code and command of changes of what members use.
NEEDS_STOP = re.compile(r" (reset-offsets|migrate-group|delete-group) | --member |^topic-marked-for-deletion ")


def words_of(line: str) -> list[str]:
    """What a shell makes of a line: the words of a command, and nothing else."""
    shown = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, text=True, check=True)
    return shown.stdout.split("\0")[:-1]


def test_what_is_printed_runs_as_it_stands(maker: Maker, cluster: Sandbox) -> None:
    """A shell takes each line of each situation: it succeeds, or shows what is so: that members have to be stopped
    first, as its finding says, or that what it verifies is not as it should be."""
    groups = sorted({one.group for one in make_broken(maker)})
    done = time.monotonic()
    wait_until(lambda: time.monotonic() - done > REST / 1000 + 0.5, 30, "the groups are at rest")
    remedies: dict[str, dict[str, str]] = {}
    refusable: set[str] = set()
    for group in groups:
        shown = run("inspect-group", group, "-z", cluster.connect).stdout
        told = json.loads(run("inspect-group", group, "-z", cluster.connect, "--output", "json").stdout)
        found = told["findings"]
        for one in found:
            # A command that changes an active group is refused until its members have been stopped.
            if told["state"] != "inactive":
                refusable |= {line for line in one["commands"] if NEEDS_STOP.search(f"{one['code']} {line}")}
        assert PRINTED.findall(shown) == [line for one in found for line in one["commands"]]
        assert not [one for one in found if "zkgroup" in (one["remedy"] or "")], "no command is among words"
        remedies[group] = {line: one["remedy"] for one in found for line in one["commands"]}
    assert sum(map(len, remedies.values())) > 30

    def paste(lines: dict[str, str]) -> list[tuple[str, str, subprocess.CompletedProcess[str]]]:
        """One after the other: a command refuses to change what another changes at the same time."""
        return [(line, remedy, run(*words_of(line)[1:], timeout=300)) for line, remedy in lines.items()]

    with ThreadPoolExecutor(4) as pool:
        results = [result for of_group in pool.map(paste, remedies.values()) for result in of_group]
    for line, remedy, ended in results:
        may_end = {0, 5} if line in refusable else {0}
        if "--verify" in line or " assign " in line:  # the members of these groups are nodes alone
            may_end |= {5, 6}
        assert ended.returncode in may_end, (line, ended.returncode, ended.stderr, remedy)
        assert "GROUP" not in line
