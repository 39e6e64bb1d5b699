"""The tutorial and the how-to pages: every command in them runs, and prints what they show.

Each page has a sandbox of its own, in a state folder of its own, since what it shows are all groups of a cluster.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from cli import run
from documented_examples import command_lines, run_examples, stopping
from group_nodes import Groups, static
from servers import Sandbox
from support import wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.config.setting_files import STATE_VARIABLE
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Ensure
from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic, produce

DOCS = Path(__file__).resolve().parents[1] / "docs"
MESSAGES = 3000
TOPIC = "orders"
PARTITIONS = 3


@pytest.fixture
def own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A state folder of the page's own; what its commands have left running in it is ended."""
    state = tmp_path / "state"
    state.mkdir()
    monkeypatch.setenv(STATE_VARIABLE, str(state))
    with stopping():
        yield state


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Where the page's commands are typed."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


class Scenes:
    """What each how-to begins with: groups as its pain leaves them. Their members are nodes of sessions of ours."""

    def __init__(self, registry: Registry, living: Registry, former: Registry) -> None:
        self.registry = registry
        self.living = Groups(living, lambda stem: stem)
        self.former = Groups(former, lambda stem: stem)

    def all(self) -> None:
        """Every one, until they are old enough to be no rebalance that is going on."""
        for make in (self.unread, self.half_claimed, self.former_session, self.beyond, self.leftover, self.half_built):
            make()
        for group in ("billing", "shipping", "indexer"):
            shown = ("-c", "sandbox", "inspect-group", group, "--section", "findings", "--output", "json")
            wait_until(lambda shown=shown: "rebalance-in-progress" not in run(*shown).stdout)

    def _offsets(self, start: int = 100) -> dict[tuple[str, int | str], int | bytes]:
        return {(TOPIC, number): start + number for number in range(PARTITIONS)}

    def unread(self) -> None:
        """Two members whose rebalances failed: registered, and owning nothing."""
        members = {"@_web1": static({TOPIC: 1}), "@_web2": static({TOPIC: 1})}
        self.living.make(members, {}, self._offsets(), name="billing")

    def half_claimed(self) -> None:
        """A registered member, and claims of one that is gone, which no session will ever end."""
        self.living.make({"@_new": static({TOPIC: 1})}, {(TOPIC, 0): "@_new-0"}, self._offsets(), name="shipping")
        for number in (1, 2):
            self.registry.write(Create(f"{znodes.owner_topic('shipping', TOPIC)}/{number}", b"shipping_old-0"))

    def former_session(self) -> None:
        """A member that lost its session, came back, and whose owner nodes are still those of the old one."""
        self.former.make(None, {(TOPIC, n): "@_py-0" for n in range(PARTITIONS)}, self._offsets(), name="indexer")
        self.living.make({"@_py": static({TOPIC: 1})}, name="indexer")

    def beyond(self) -> None:
        """Offsets of a topic that was deleted and recreated: one beyond the new log, one within it."""
        self.living.make(offsets={(TOPIC, 0): 250_000, (TOPIC, 1): 17, (TOPIC, 2): 31_337}, name="backup")

    def leftover(self) -> None:
        """What console consumers leave behind."""
        for number in (10417, 59001, 88123):
            self.living.make({}, {}, self._offsets(10), name=f"console-consumer-{number}")

    def half_built(self) -> None:
        """A group that was only begun: nodes, and nothing in them."""
        self.registry.write(Ensure(znodes.ids("newcomer")))
        self.registry.write(Ensure(znodes.owner_topic("newcomer", "gone")))


def now_column(page: str) -> list[str]:
    """The command lines in the second column of a page's tables."""
    cells = [re.split(r"(?<!\\)\|", line)[2] for line in page.splitlines() if line.startswith("| ")]
    return [line for cell in cells for line in command_lines(cell)]


def test_what_is_typed_now_works(
    cluster: Sandbox,
    registry: Registry,
    groups: Groups,
    make_topic: Callable[..., str],
    work: Path,
    unique: Callable[[str], str],
) -> None:
    """Each line of the tables "before, now" runs on real servers, G and T standing for a group and a topic that are
    there. What would change something shows its plan; what would go on for ever, or judge all groups that tests have
    made, is only parsed, elsewhere."""
    topic = make_topic(8)
    group = groups.make({}, {}, {(topic, number): 0 for number in range(8)}, name=unique("typed"))
    registry.write(Ensure(znodes.owner(group, TopicPartition(topic, 0))))  # that no session owns
    saved = work / "saved.txt"
    names = {"G": group, "T": topic, "U": topic, "F": str(saved), "FILE": str(work / "metrics"), "TIME": "2024-05-01"}
    names |= {"G1": group, "G2": unique("other")}
    assert run("offsets", group, "--save", str(saved), "-z", cluster.connect).returncode == 0
    plans: set[tuple[str, ...]] = set()
    for line in now_column((DOCS / "how-to" / "coming-from-other-tools.md").read_text(encoding="utf-8")):
        _, *typed = shlex.split(line)
        words = [re.sub(r"^(\w+)(?=$|:)", lambda word: names.get(word[1], word[1]), word) for word in typed]
        if words[0] != "consume" and not {"--watch", "--undo", "--all"} & set(words):
            plans.add(tuple(word for word in words if word != "--execute"))
    for plan in sorted(plans):
        done = run(*plan, "-z", cluster.connect)
        # A group without members is not to be rebalanced, and has no owners.
        is_refused = plan[0] == "assign" or "--verify" in plan
        expected = range(4) if "--check" in plan else (0, 4, 5, 6) if is_refused else (0,)
        assert done.returncode in expected, (plan, done.stderr)
    assert len(plans) > 25


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("own_state")
def test_the_how_to_pages(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pain as it is found, and its remedy: shown, and where that is the point, done."""
    with Sandbox() as sandbox, ExitStack() as sessions:
        registry, living, former = (sessions.enter_context(sandbox.registry()) for _ in range(3))
        monkeypatch.setenv("ZOOKEEPER", sandbox.connect)
        create_topic(registry, TOPIC, PARTITIONS)
        messages = [ProducerRecord(b"order %d" % number, None, number % PARTITIONS) for number in range(MESSAGES)]
        produce(KafkaSettings(sandbox.bootstrap), TOPIC, messages)
        Scenes(registry, living, former).all()
        assert run_examples(DOCS / "how-to" / "recipes.md", work) > 15


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("own_state")
def test_the_tutorial(work: Path, pytestconfig: pytest.Config) -> None:
    """From the first sandbox to its end; in the long run exports have Spark."""
    spark = pytestconfig.getoption("--long")
    assert run_examples(DOCS / "tutorial" / "first-half-hour.md", work, spark=spark) > 15
