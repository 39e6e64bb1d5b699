"""The kinds of findings, their wording, and their pages: ``docs/reference/findings``, here as ``zkgroup/pages``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Final, Literal, NamedTuple, TypeAlias

from zkgroup.errors import Remedy, UsageError, as_remedy, did_you_mean
from zkgroup.protocol.names import TopicPartition, span_list
from zkgroup.text import Command, duration_text, listed, short

Severity = Literal["critical", "warning", "info"]

SECOND: Final = 1000
DAY: Final = 86_400 * SECOND

#: How many examples a message names.
MAX_EXAMPLES: Final = 3
#: Names come from ZooKeeper and may be long: a message stays readable, also as a field of CSV.
MAX_MESSAGE: Final = 4000
#: A link from one page to another.
_LINK: Final = re.compile(r"\[([^\]]+)\]\(([a-z-]+)\.md\)")
#: Worst first.
SEVERITIES: Final[tuple[Severity, ...]] = ("critical", "warning", "info")


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact about a group that needs attention.

    ``critical``: messages are not read, are lost, or will be as soon as a member starts; ``warning``: it may come to
    that, or could not be judged; ``info``: good to know. ``subject``: the group, a member, a topic, a node (its path),
    or partitions of one topic (``orders-3``, ``orders-0..2, orders-5``). ``message`` is a predicate of the subject.
    ``remedy``: None where another finding, which this one follows from, has it.
    """

    code: str
    severity: Severity
    subject: str
    message: str
    remedy: Remedy | None

    @property
    def commands(self) -> tuple[Command, ...]:
        return self.remedy.commands if self.remedy is not None else ()

    @property
    def page(self) -> Command:
        """The command that prints the page that explains findings of this kind."""
        return "inspect-group", "--explain", self.code


def page_text(code: str) -> str:
    """The page of a kind, with commands instead of links. Raises ``UsageError`` for an unknown code."""
    if code not in KINDS:
        raise UsageError(f"{code!r} is the code of no finding", did_you_mean(code, KINDS, f"one of {', '.join(KINDS)}"))
    text = resources.files("zkgroup").joinpath("pages", f"{code}.md").read_text(encoding="utf-8")
    return _LINK.sub(r"\1 (--explain \2)", text)


class Kind(NamedTuple):
    """The possible severities of a kind, and its meaning in one line."""

    severities: tuple[Severity, ...]
    meaning: str


_C: Final = ("critical",)
_W: Final = ("warning",)
_I: Final = ("info",)
_CW: Final = ("critical", "warning")
_WI: Final = ("warning", "info")
_CI: Final = ("critical", "info")
_CWI: Final = ("critical", "warning", "info")

#: All kinds by their code. Of findings as severe, those that stand first here are shown first: causes before effects.
KINDS: Final[Mapping[str, Kind]] = {
    "cluster-without-broker": Kind(_C, "no broker is registered"),
    "incompatible-broker": Kind(_CI, "a broker whose registration makes members of the Scala consumer fail"),
    "unreadable-node": Kind(_CWI, "a node that cannot be read, or should not be there"),
    "stopping-registration": Kind(_C, "a registration that stops every Scala member of the group"),
    "unreadable-filter": Kind(_CW, "a topic filter that Java, or zkgroup, cannot read"),
    "unportable-registration": Kind(_CW, "a registration that stops members of some releases"),
    "split-group": Kind(_CW, "members in ZooKeeper and members in Kafka under one name"),
    "subscription-disagreement": Kind(_CW, "subscriptions differ, which roundrobin up to 0.10.1 refuses"),
    "unexplained-owners": Kind(_CWI, "the owners are the plan of no strategy and no release"),
    "partition-without-leader": Kind(_CW, "a partition that no broker leads"),
    "persistent-member": Kind(_C, "a registration that will outlive its client"),
    "persistent-owner": Kind(_C, "an owner node that will outlive its client"),
    "unresponsive-member": Kind(_CW, "a member that has not rebalanced since the group changed"),
    "partition-without-owner": Kind(_C, "a subscribed partition without an owner"),
    "member-without-partitions": Kind(_C, "a member that owns nothing while partitions are unread"),
    "owner-without-registration": Kind(_C, "a partition owned by an unregistered member"),
    "owner-without-subscription": Kind(_C, "a partition owned by a member that does not subscribe to it"),
    "owner-beyond-streams": Kind(_C, "a partition owned by a stream that its member does not have"),
    "unreadable-owner": Kind(_C, "an owner node that is empty"),
    "unreadable-offset": Kind(_CWI, "a stored offset that members cannot read"),
    "recreated-topic": Kind(_CWI, "a topic that was deleted and recreated since the offset was written"),
    "offset-before-start": Kind(_CWI, "an offset before the log's start: messages are lost already"),
    "offset-beyond-end": Kind(_CWI, "an offset beyond the log's end"),
    "owner-of-former-session": Kind(_W, "a partition owned by another session than its member's"),
    "unregistered-commits": Kind(_I, "offsets that are committed while no member is registered"),
    "growing-lag": Kind(_WI, "lag grows while nothing is committed"),
    "contradicting-offsets": Kind(_WI, "ZooKeeper and Kafka have different offsets"),
    "partition-without-offset": Kind(_WI, "a partition for which nothing is committed"),
    "doubly-escaped-filter": Kind(_W, "a topic filter whose backslashes are doubled, so that they match nothing"),
    "topic-marked-for-deletion": Kind(_WI, "a topic that is to be deleted"),
    "owner-of-missing-partition": Kind(_W, "an owner node of a partition that does not exist"),
    "offset-of-missing-topic": Kind(_WI, "an offset of a topic that does not exist"),
    "offset-of-missing-partition": Kind(_WI, "an offset of a partition that its topic does not have"),
    "incomplete-snapshot": Kind(_W, "servers did not answer: not everything could be judged"),
    "registration-defect": Kind(_WI, "a registration that is not as it should be, but is read by everyone"),
    "rebalance-in-progress": Kind(_I, "members or owners have just changed, or members have yet to claim anew"),
    "surplus-streams": Kind(_WI, "more streams than partitions: some will never get one"),
    "filter-without-topics": Kind(_WI, "a topic filter that matches no topic"),
    "missing-topic": Kind(_I, "a member subscribes to a topic that does not exist"),
    "offset-without-subscriber": Kind(_I, "offsets of a topic that no member reads any more"),
    "foreign-client": Kind(_I, "members, or nodes, of another client than the Scala consumer's"),
    "leftover-group": Kind(_I, "the nodes of a group without members that has not changed for long"),
}


def finding(code: str, subject: str, message: str, remedy: str | Remedy, severity: Severity | None = None) -> Finding:
    """A finding of a kind; its worst severity where none is given."""
    worst = KINDS[code].severities[0]
    return Finding(code, severity or worst, subject, short(message, MAX_MESSAGE), as_remedy(remedy))


#: What is found of partitions, the predicate of each.
PartitionTexts: TypeAlias = list[tuple[TopicPartition, str]]


def per_topic(
    code: str,
    found: Iterable[tuple[TopicPartition, str]],
    remedy: str | Remedy | Callable[[Sequence[TopicPartition]], Remedy],
    severity: Severity | None = None,
) -> list[Finding]:
    """One finding for each topic, from partitions and the predicate of each (``has no owner``).

    ``remedy``: one for all, or made for the partitions of each topic.
    """
    topics: dict[str, dict[TopicPartition, str]] = {}
    for key, text in found:
        topics.setdefault(key.topic, {})[key] = text
    findings = []
    for text_of in topics.values():
        keys = sorted(text_of)
        texts = set(text_of.values())
        if len(keys) == 1:
            message = text_of[keys[0]]
        elif len(texts) == 1:
            message = f"{len(keys)} partitions, of which each {texts.pop()}"
        else:
            message = f"{len(keys)} partitions: " + first_few([f"{key.partition} {text_of[key]}" for key in keys], "; ")
        advice = remedy if isinstance(remedy, str | Remedy) else remedy(keys)
        findings.append(finding(code, listed(span_list(keys)), message, advice, severity))
    return findings


def first_few(names: Sequence[str], between: str = ", ") -> str:
    """The first few of many names."""
    return listed(names, between, MAX_EXAMPLES)


def ago(millis: int) -> str:
    """How long ago, or how long, in one unit, so that groups with the same finding are alike: ``8 s``, ``3 h``."""
    return duration_text(millis / SECOND, units=1)
