"""The picture of a timeline: XML whatever the names, a colour for each member, and a size that has an end."""

from __future__ import annotations

import time
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st
from lines import names
from support import scaled
from timelines import any_state, state

from zkgroup.groups.watch.event_detector import EventDetector
from zkgroup.groups.watch.timeline import Observation, WatchedGroup, WatchedMember, WatchedPartition
from zkgroup.groups.watch.timeline_picture import colour, picture
from zkgroup.protocol.names import TopicPartition

SVG = "{http://www.w3.org/2000/svg}"


def drawn(states: list[WatchedGroup], group: str = "g") -> ElementTree.Element:
    """The picture of these states, parsed."""
    detector = EventDetector()
    events = detector.detect(states[0])
    entries = [Observation(states[0], tuple(events))]
    for one in states[1:]:
        events = detector.detect(one)
        entries.append(Observation(one, tuple(events)))
    return ElementTree.fromstring(picture(entries, states[0].at, states[-1].at, group))


def fills(root: ElementTree.Element) -> dict[str, str]:
    """Member → the colour of what it owned."""
    paths = [(path.find(f"{SVG}title"), path.get("fill")) for path in root.iter(f"{SVG}path")]
    return {title.text or "": fill or "" for title, fill in paths if title is not None}


def test_a_rebalance() -> None:
    """Two owners have two colours, both are in the legend, and the rebalance between them is marked."""
    root = drawn(
        [
            state(0, {0: "a@5", 1: "a@5"}, "a", 4),
            state(4000, {0: None, 1: None}, "ab", 9),
            state(5000, {0: "a@12", 1: "b@13"}, "ab", 9),
            state(10_000, {0: "a@12", 1: "b@13"}, "ab", 9),
        ]
    )
    colours = fills(root)
    assert set(colours) == {"g_a", "g_b"}
    assert len(set(colours.values())) == 2
    texts = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert any(names(text, "g_a", "00:00:00", "00:00:10") for text in texts)
    assert any(names(text, 1, "1.0 s") for text in texts)
    (mark,) = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "mark"]
    assert mark.get("x") == "400"
    assert int(mark.get("width") or 0) == 101
    (path,) = [path for path in root.iter(f"{SVG}path") if path.get("fill") == colours["g_b"]]
    assert (path.get("d") or "").startswith("M500 16h500v16")


def test_a_rebalance_that_goes_on_is_marked_to_the_end() -> None:
    """The last state that there is may be in the middle of it."""
    root = drawn([state(0, {0: "a@5"}, "a", 4), state(5000, {0: None}, "ab", 9), state(10_000, {0: None}, "ab", 9)])
    (mark,) = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "mark"]
    assert (mark.get("x"), mark.get("width")) == ("500", "500")


@settings(max_examples=scaled(100))
@given(
    st.lists(any_state(), min_size=1, max_size=6),
    st.text(st.characters(codec=None), max_size=30),
    st.text(st.characters(codec=None), max_size=300),
)
def test_any_names(states: list[WatchedGroup], group: str, name: str) -> None:
    """Whatever members, topics and groups are called, the picture is XML."""
    key = TopicPartition(name, 0)
    odd = WatchedGroup(99_999, group, {name: WatchedMember("")}, {key: WatchedPartition(name, name)})
    root = drawn([*sorted(states, key=lambda one: one.at), odd], group)
    assert root.tag == f"{SVG}svg"


def test_its_size_has_an_end() -> None:
    """A thousand partitions that change hands two thousand times, and five thousand: some megabytes, drawn in time."""
    for count in (1000, 5000):
        states = [
            WatchedGroup(
                at * 5000,
                "g",
                {f"g_{n}": WatchedMember("t:1") for n in range(60)},
                {
                    TopicPartition("t", n): WatchedPartition("x", f"g_{(n * 7 + at * (n % 3)) % 60}")
                    for n in range(count)
                },
            )
            for at in range(2_000_000 // count // 5)
        ]
        entries = [Observation(one, ()) for one in states]
        began = time.monotonic()
        text = picture(entries, 0, states[-1].at, "g")
        assert time.monotonic() - began < 60
        assert len(text) < 2_000_000
        root = ElementTree.fromstring(text)
        assert float(root.get("height") or 0) < 2500


def test_every_member_has_a_colour_of_its_own() -> None:
    """As many colours as members, for hundreds of them."""
    assert len({colour(number) for number in range(1, 501)}) == 500


def test_one_snapshot_is_a_picture() -> None:
    """A recording that was ended at once, and a group without anything, can be drawn."""
    assert fills(drawn([state(5, {0: "a@5"}, "a", 4)])).keys() == {"g_a"}
    assert fills(drawn([WatchedGroup(5, "g")])) == {}
