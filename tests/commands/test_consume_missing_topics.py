"""``consume`` of topics that are not there."""

from __future__ import annotations

from collections.abc import Callable

from cli import run
from lines import names

from zkgroup.sandbox.local_cluster import Sandbox

Unique = Callable[[str], str]


def test_a_filter_that_nothing_passes(cluster: Sandbox, unique: Unique) -> None:
    """Who is to leave at the end has nothing to wait for: 4 without a group; a member leaves with 0, and says why."""
    group = unique("group")
    arguments = ["-z", cluster.connect, "consume", "--whitelist", "nothing-matches", "-e"]
    plain, member = run(*arguments), run(*arguments, "-g", group)
    assert (plain.returncode, plain.stdout) == (4, "")
    assert names(plain.stderr, "'nothing-matches'")
    assert (member.returncode, member.stdout) == (0, "")
    assert (names(member.stderr, "warning", "'nothing-matches'"), member.stderr.count("\n")) == (True, 1)


def test_a_cluster_of_0_8_without_a_topic(make_cluster: Callable[..., Sandbox]) -> None:
    """Its brokers do not even tell of themselves: still the topic is what is missing."""
    sandbox = make_cluster(kafka="0.8.2.2")
    for group, code in (["-g", "g"], 0), ([], 4):
        missing = run("-z", sandbox.connect, "consume", "nope", "-n", "1", *group)
        assert (missing.returncode, missing.stdout) == (4, "")
        assert names(missing.stderr, "nope")
        nothing = run("-z", sandbox.connect, "consume", "--whitelist", ".*", "-e", *group)
        assert (nothing.returncode, nothing.stdout, nothing.stderr.count("\n")) == (code, "", 1), nothing.stderr
