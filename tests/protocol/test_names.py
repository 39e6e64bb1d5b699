"""Names: their formats, their rules, and their order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkgroup.errors import UsageError
from zkgroup.protocol.names import (
    INTERNAL_TOPICS,
    ConsumerThreadId,
    OwnerIdentity,
    TopicPartition,
    identify_owner,
    internal_topics,
    make_consumer_id,
    parse_release,
    thread_order,
    utf16_order,
    validate_group_id,
    validate_topic,
)

LEGAL = st.text("abcXYZ019._-", min_size=1, max_size=20)


def test_text_forms() -> None:
    """A partition reads topic-partition, a thread id-index, as in plans and owner nodes."""
    assert str(TopicPartition("my-topic", 3)) == "my-topic-3"
    assert str(ConsumerThreadId("g_host-1402-ab12cd34", 0)) == "g_host-1402-ab12cd34-0"


def test_threads_sort_as_whole_strings() -> None:
    """c-10 comes before c-2, and another consumer's thread may fall between them."""
    threads = [
        ConsumerThreadId("c", 2),
        ConsumerThreadId("c-1", 5),
        ConsumerThreadId("c", 10),
        ConsumerThreadId("c", 1),
    ]
    assert [str(thread) for thread in thread_order(threads)] == ["c-1", "c-1-5", "c-10", "c-2"]


def test_order_is_by_utf16_units() -> None:
    """Java compares UTF-16 units, so that a character beyond U+FFFF comes before U+FF5E; Python alone would differ."""
    assert sorted(["\uff5e", "\U0001f600", "a"], key=utf16_order) == ["a", "\U0001f600", "\uff5e"]
    assert sorted(["\uff5e", "\U0001f600", "a"]) == ["a", "\uff5e", "\U0001f600"]


@given(st.text(), st.text())
def test_a_prefix_sorts_first(text: str, more: str) -> None:
    """As in String.compareTo, a string comes before what extends it."""
    assert utf16_order(text) <= utf16_order(text + more)


def test_consumer_ids() -> None:
    """GROUP_HOST-MILLIS-XXXXXXXX with eight hex digits of the UUID, or GROUP_CONSUMERID."""
    made = make_consumer_id("g", consumer_id=None, host="host", millis=1402, uuid_high64=0xAB12CD34_00000000)
    assert made == "g_host-1402-ab12cd34"
    assert make_consumer_id("g", consumer_id="mine", host="host", millis=1, uuid_high64=0) == "g_mine"


def test_consumer_id_digits_have_no_leading_zeros() -> None:
    """Java prints the long without leading zeros, then takes eight digits; negative ones are two's complement."""
    made = make_consumer_id("g", consumer_id=None, host="h", millis=3, uuid_high64=0x0123456789ABCDEF)
    assert made == "g_h-3-12345678"
    assert make_consumer_id("g", consumer_id=None, host="h", millis=3, uuid_high64=-1) == "g_h-3-ffffffff"


@given(st.text())
def test_no_host_breaks_a_consumer_id(host: str) -> None:
    """Whatever the machine calls itself, the id is a legal node name."""
    assert validate_group_id(make_consumer_id("g", consumer_id=None, host=host, millis=1, uuid_high64=2**63))


@pytest.mark.parametrize("bad", ["", "a/b", "a b", "ä", "a\n"])
def test_a_bad_consumer_id_is_refused(bad: str) -> None:
    """A consumer.id that could be no node name, or that another client might trip over, is a usage error."""
    with pytest.raises(UsageError, match=r"consumer\.id"):
        make_consumer_id("g", consumer_id=bad, host="h", millis=1, uuid_high64=1)


@given(LEGAL)
def test_legal_names_pass(name: str) -> None:
    """Letters, digits, dots, underscores and dashes make a group's and a topic's name."""
    if name not in (".", ".."):
        assert validate_group_id(name) == name
        assert validate_topic(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "gruppe\n", "größe", "a" * 300 + "!", "\x00"])
def test_illegal_names_are_refused(name: str) -> None:
    """Anything else is a usage error of one short line that quotes the name."""
    for validate in (validate_group_id, validate_topic):
        with pytest.raises(UsageError) as caught:
            validate(name)
        assert len(str(caught.value)) < 250
        assert "\n" not in str(caught.value)


def test_topic_names_have_a_limit() -> None:
    """Kafka's 249 characters hold for topics, not for groups."""
    assert validate_topic("t" * 249)
    assert validate_group_id("g" * 250)
    with pytest.raises(UsageError, match="250"):
        validate_topic("t" * 250)


@pytest.mark.parametrize(
    ("owner", "members", "expected"),
    [
        ("g_h-1-ab-0", {"g_h-1-ab"}, OwnerIdentity("g_h-1-ab", 0)),
        ("g_h-1-ab-11", {"g_h-1-ab", "g_h-1-ab-1"}, OwnerIdentity("g_h-1-ab", 11)),
        ("g_c-1-0", {"g_c", "g_c-1"}, OwnerIdentity("g_c-1", 0)),
        ("g_c-1", {"g_c", "g_c-1"}, OwnerIdentity("g_c", 1)),
        ("h:7f1b-4c-1234", {"h:7f1b-4c-1234"}, OwnerIdentity("h:7f1b-4c-1234", None)),
        ("h:7f1b:stream2", {"h:7f1b", "h"}, OwnerIdentity("h:7f1b", None)),
        ("c1-007", {"c1"}, OwnerIdentity("c1", None)),
        ("c10", {"c1"}, None),
        ("gone-0", {"c1"}, None),
        ("", {"c1"}, None),
        ("c1-99999999999999", {"c1"}, OwnerIdentity("c1", None)),
    ],
)
def test_owners_are_identified(owner: str, members: set[str], expected: OwnerIdentity | None) -> None:
    """An owner is looked up among the members, never cut at its last dash and believed."""
    assert identify_owner(owner, members) == expected


@given(st.sets(LEGAL, min_size=1), st.integers(0, 200), st.data())
def test_every_thread_of_a_member_is_found(members: set[str], index: int, data: st.DataObject) -> None:
    """What a Scala consumers writes names itself and its thread, whatever the others are called."""
    member = data.draw(st.sampled_from(sorted(members)))
    assert identify_owner(str(ConsumerThreadId(member, index)), members) == OwnerIdentity(member, index)


def test_owners_of_a_megabyte() -> None:
    """An owner node may hold as much as ZooKeeper takes: the longest member is found all the same, and at once."""
    members = {"g_a", "g_a-1", "g", *(f"other-{n}" for n in range(200))}
    assert identify_owner("g_a-1-" + "-" * 1_000_000, members) == OwnerIdentity("g_a-1", None)
    assert identify_owner("-" * 1_000_000, members) is None
    assert identify_owner("g_ab" + "x" * 1_000_000, members - {"g"}) is None


def test_releases() -> None:
    """Releases are read as numbers; internal topics are known since 0.8.2 and 0.11."""
    assert parse_release("0.8.2.2") == (0, 8, 2)
    assert parse_release("1.1") == (1, 1, 0)
    assert internal_topics("0.8.1.1") == frozenset()
    assert internal_topics("0.10.2.2") == {"__consumer_offsets"}
    assert internal_topics("0.11.0.0") == internal_topics("1.1.1") == INTERNAL_TOPICS


@pytest.mark.parametrize("text", ["", "1", "one", "1.x", "1.1.1.1.1", "9" * 5000 + ".1"])
def test_what_is_no_release_is_refused(text: str) -> None:
    """A release that is no release is a usage error."""
    with pytest.raises(UsageError):
        parse_release(text)
