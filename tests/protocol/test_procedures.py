"""What a member does with ZooKeeper, step by step, against a model of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim.shop import MINE, Shop

from zkgroup.errors import FilterLimitError, MalformedZnodeError, UsageError
from zkgroup.protocol import procedures as do
from zkgroup.protocol import znodes
from zkgroup.protocol.names import INTERNAL_TOPICS, ConsumerThreadId, TopicPartition, internal_topics
from zkgroup.protocol.operations import Code, Delete, Failure, SetData
from zkgroup.protocol.znodes import Registration

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
ME = ConsumerThreadId("me", 0)
SHARE = {T0: ME, T1: ME, T2: ConsumerThreadId("me", 1)}


# --- registering ----------------------------------------------------------------------------------------------------


def test_register_makes_the_parents_and_watches() -> None:
    """The first member of a group makes its folders; its own id node is watched."""
    shop = Shop()
    assert shop.register() is True
    assert shop.server.nodes["/consumers/g/ids/me"].owner == shop.me
    shop.server.apply(shop.other, Delete("/consumers/g/ids/me"))
    assert shop.notified == ["/consumers/g/ids/me"]


def test_register_again_in_the_same_session_is_no_conflict() -> None:
    """After a lost reply our own node is there already."""
    shop = Shop()
    shop.register()
    assert shop.register() is True


def test_register_waits_for_another_session() -> None:
    """An id held by another session is not touched, and its end is watched."""
    shop = Shop()
    shop.make("/consumers/g/ids/me", b"{}", ephemeral=True)
    assert shop.register() is False
    shop.server.end_session(shop.other)
    assert shop.notified == ["/consumers/g/ids/me"]


def test_nobody_registers_below_an_ephemeral_node() -> None:
    """Where somebody has made ``ids`` one, ZooKeeper refuses children: reported at once, not tried for ever."""
    shop = Shop()
    shop.make("/consumers/g/ids", b"", ephemeral=True)
    with pytest.raises(do.RegistryRefusedError, match="/consumers/g/ids/me"):
        shop.register()


def test_a_missing_chroot_is_not_made() -> None:
    """A member makes no chroot: it would sit alone in a cluster that does not exist."""
    procedure = do.register("g", "me", b"{}", 1)
    next(procedure)
    procedure.send((Failure(Code.NO_NODE), Failure(Code.NO_NODE)))
    with pytest.raises(UsageError, match="chroot"):
        procedure.send((None,))


# --- looking and reading --------------------------------------------------------------------------------------------


def test_brokers_are_watched_only_while_there_is_none() -> None:
    """A broker that comes or goes while others stay is no reason to rebalance."""
    shop = Shop()
    assert shop.run(do.any_broker()) is False
    shop.make("/brokers/ids/1")
    assert shop.notified == ["/brokers/ids"]
    shop.notified.clear()
    assert shop.run(do.any_broker()) is True
    shop.make("/brokers/ids/2")
    assert shop.notified == []


def test_partitions_are_in_numeric_order_and_topics_may_be_missing() -> None:
    """Keys are strings: 9 comes before 10. A topic that is not there (yet) has no partitions, and is watched."""
    shop = Shop()
    shop.register()
    registry = shop.read(Registration("static", {"t": 1, "later": 1}, 1))
    assert registry.partitions == {"t": (0, 9, 10)}
    assert registry.members == {"me": {"t": 1, "later": 1}}
    shop.make("/brokers/topics/later", b'{"version":1,"partitions":{"0":[1]}}')
    assert shop.notified == ["/brokers/topics/later"]


@pytest.mark.parametrize("damage", [b"", b"{oops", b"{}", b'{"version":1}', b"\xff"])
def test_a_topic_whose_node_is_damaged_keeps_nobody_from_the_others(damage: bytes) -> None:
    """As for the Scala consumer it has no partitions, and its node is watched; what is wrong with it is reported."""
    shop = Shop()
    shop.register()
    shop.make("/brokers/topics/bad", damage)
    registry = shop.read(Registration("static", {"t": 1, "bad": 1}, 1))
    assert registry.partitions == {"t": (0, 9, 10), "bad": ()}
    (why,) = registry.damaged
    assert "/brokers/topics/bad" in why
    shop.server.apply(shop.other, SetData("/brokers/topics/bad", b'{"version":1,"partitions":{"0":[1]}}'))
    assert shop.notified == ["/brokers/topics/bad"]
    assert shop.read(Registration("static", {"t": 1, "bad": 1}, 1)).damaged == ()


@pytest.mark.parametrize("damage", [b"[1]", b'{"partitions":[0]}', b'{"partitions":{"x":[1]}}'])
def test_damage_that_stops_the_scala_consumer_stops_us(damage: bytes) -> None:
    """Where every attempt of theirs fails there is no plan that all share."""
    shop = Shop()
    shop.register()
    shop.make("/brokers/topics/bad", damage)
    with pytest.raises(MalformedZnodeError, match="/brokers/topics/bad"):
        shop.read(Registration("static", {"t": 1, "bad": 1}, 1))


@pytest.mark.parametrize(
    ("pattern", "strategy", "notified"),
    [
        ("static", "range", False),
        ("static", "roundrobin", True),
        ("white_list", "range", True),
        ("black_list", "roundrobin", True),
    ],
)
def test_new_topics_are_watched_where_a_filter_may_take_them(pattern: Any, strategy: str, notified: bool) -> None:
    """The list of topics matters to filters, and to roundrobin, which deals out what anybody's filter takes."""
    shop = Shop()
    shop.register()
    shop.read(Registration(pattern, {"t": 1}, 1), strategy)
    shop.make("/brokers/topics/new")
    assert shop.notified == (["/brokers/topics"] if notified else [])


def test_roundrobin_reads_every_topic_that_anybody_reads() -> None:
    """range needs our own topics alone; roundrobin deals all of them in one circle."""
    shop = Shop()
    shop.register()
    shop.make("/brokers/topics/u", b'{"version":1,"partitions":{"0":[1]}}')
    shop.make("/consumers/g/ids/x", b'{"version":1,"subscription":{"u":1,"t":1},"pattern":"static","timestamp":"1"}')
    assert shop.read().partitions.keys() == {"t"}
    assert shop.read().members["x"] == {"t": 1}
    assert shop.read(strategy="roundrobin").partitions.keys() == {"t", "u"}


def test_who_subscribes_to_nothing_is_no_member() -> None:
    """A registration without topics changes no plan (and makes everybody rebalance when it comes)."""
    shop = Shop()
    shop.register()
    before = shop.read()
    shop.make("/consumers/g/ids/x", b'{"version":1,"subscription":{},"pattern":"static","timestamp":"1"}')
    assert shop.notified == ["/consumers/g/ids"]
    assert shop.read() == before


def test_a_bad_id_node_fails_the_attempt_and_is_named() -> None:
    """What stops the Scala consumer stops us as well, but we say which node it is."""
    shop = Shop()
    shop.register()
    shop.make("/consumers/g/ids/x", b"no json")
    with pytest.raises(MalformedZnodeError, match="/consumers/g/ids/x"):
        shop.read()


def test_an_expression_that_java_refuses_takes_nothing() -> None:
    """No member of the Scala consumer can rebalance while such a filter is registered, so nobody's plan can differ from
    one without it: we go on, and tell whose it is."""
    shop = Shop()
    shop.register()
    before = shop.read()
    for member in ("x", "y"):
        shop.make(f"/consumers/g/ids/{member}", b'{"version":1,"subscription":{"[t":1},"pattern":"white_list"}')
    registry = shop.read()
    assert registry == before
    assert registry.members == {"me": {"t": 2}}
    assert registry.refused == ("x", "y")


@pytest.mark.parametrize(
    ("expression", "refused"),
    [(r"(t|u)(?<=t+)", UsageError), ("(?:t|tt)*[xy]", FilterLimitError)],
    ids=["not translated", "too much work"],
)
def test_an_expression_that_only_java_can_read_fails_the_attempt(expression: str, refused: type[UsageError]) -> None:
    """Scala consumers plan with what it takes, and we cannot know that: no plan is better than another one.
    Who registered it is named."""
    shop = Shop()
    shop.make("/brokers/topics/" + "t" * 240, b'{"version":1,"partitions":{"0":[1]}}')
    mine = Registration("static", {"t": 1, "t" * 240: 1}, 1)
    shop.register()
    data = znodes.encode_registration(Registration("white_list", {expression: 1}, 1))
    shop.make("/consumers/g/ids/x", data)
    with pytest.raises(refused, match=r"\bx\b") as error:
        shop.read(mine)
    assert error.type is refused


def test_internal_topics_are_those_of_the_release_that_is_followed() -> None:
    """0.8.1 leaves nothing out of filters, 0.10 only __consumer_offsets, whoever's filter it is; and who was told to
    leave nothing out does not."""
    shop = Shop()
    shop.register()
    mine = Registration("white_list", {".*": 1}, 1)
    for topic in ("__consumer_offsets", "__transaction_state"):
        shop.make(f"/brokers/topics/{topic}", b'{"version":1,"partitions":{"0":[1]}}')
    shop.make("/consumers/g/ids/x", b'{"version":1,"subscription":{"__.*":1},"pattern":"white_list","timestamp":"1"}')

    def topics(release: str, **options: Any) -> tuple[set[str], set[str]]:
        registry = shop.read(mine, "roundrobin", internal=internal_topics(release), **options)
        return set(registry.members["me"]), set(registry.members.get("x", ()))

    assert topics("1.1.1") == ({"t"}, set())
    assert topics("0.10.2.2") == ({"t", "__transaction_state"}, {"__transaction_state"})
    both = {"__consumer_offsets", "__transaction_state"}
    assert topics("0.8.1") == topics("1.1.1", exclude_internal=False) == ({"t"} | both, both)


def test_our_own_id_must_be_there_and_ours() -> None:
    """Gone, or held by another session: register again."""
    shop = Shop()
    shop.make("/consumers/g/ids")
    with pytest.raises(do.OwnIdMissingError):
        shop.read()
    shop.make("/consumers/g/ids/me", b"{}", ephemeral=True)
    with pytest.raises(do.OwnIdMissingError):
        shop.read()


def test_a_member_that_vanishes_in_between_fails_the_attempt() -> None:
    """Between listing and reading a member may leave: the next attempt finds it settled."""
    shop = Shop()
    shop.register()
    shop.make("/consumers/g/ids/x", b"{}")
    procedure = do.read_registry("g", "me", MINE, "range", shop.me, exclude_internal=True, internal=INTERNAL_TOPICS)
    ops = procedure.send([shop.server.apply(shop.me, op) for op in next(procedure)])
    shop.server.apply(shop.other, Delete("/consumers/g/ids/x"))
    with pytest.raises(do.RegistryReadError, match=r"\bx\b"):
        procedure.send([shop.server.apply(shop.me, op) for op in ops])


# --- claiming and releasing -----------------------------------------------------------------------------------------


def test_a_claim_creates_ephemeral_nodes_with_thread_ids() -> None:
    """Owner nodes hold the thread's id, and end with the session."""
    shop = Shop()
    shop.run(do.claim("g", SHARE, shop.me))
    assert shop.owned() == {
        "/consumers/g/owners/t/0": (b"me-0", shop.me),
        "/consumers/g/owners/t/1": (b"me-0", shop.me),
        "/consumers/g/owners/t/2": (b"me-1", shop.me),
    }


def test_our_own_value_under_another_session_is_a_conflict() -> None:
    """A leftover of our id's former session is not ours: CURATOR-444 and its kin."""
    shop = Shop()
    shop.make("/consumers/g/owners/t/1", b"me-0", ephemeral=True)
    with pytest.raises(do.OwnerConflictError) as caught:
        shop.run(do.claim("g", SHARE, shop.me))
    assert caught.value.paths == ("/consumers/g/owners/t/1",)


def test_our_node_of_another_stream_is_replaced() -> None:
    """What an interrupted attempt has left under our session is made right."""
    shop = Shop()
    shop.make("/consumers/g/owners/t/0", b"me-1", ephemeral=True, session=shop.me)
    shop.run(do.claim("g", SHARE, shop.me))
    assert shop.owned()["/consumers/g/owners/t/0"] == (b"me-0", shop.me)


def test_release_deletes_our_session_s_nodes_alone() -> None:
    """Neither a foreign node, nor one that another session has recreated under our name, is deleted."""
    shop = Shop()
    shop.run(do.claim("g", SHARE, shop.me))
    for path in ("/consumers/g/owners/t/0", "/consumers/g/owners/t/1"):
        shop.server.apply(shop.other, Delete(path))
    shop.make("/consumers/g/owners/t/0", b"me-0", ephemeral=True)
    shop.make("/consumers/g/owners/t/1", b"other-0", ephemeral=True)
    shop.run(do.release("g", SHARE, shop.me))
    assert {owner for _, owner in shop.owned().values()} == {shop.other}


def test_a_node_of_ours_that_somebody_wrote_to_is_released_all_the_same() -> None:
    """Its version is not 0 any more: it is read, and deleted as what it is."""
    shop = Shop()
    shop.run(do.claim("g", SHARE, shop.me))
    shop.server.apply(shop.other, SetData("/consumers/g/owners/t/1", b"?"))
    shop.run(do.release("g", SHARE, shop.me, surely_ours=set(SHARE)))
    assert shop.owned() == {}


def test_a_node_written_to_between_read_and_delete_is_read_again() -> None:
    """An owner node that stays behind would be in the way of all others until our session ends."""
    shop = Shop()
    shop.run(do.claim("g", {T0: ME}, shop.me))
    procedure = do.release("g", [T0], shop.me)
    ops = procedure.send([shop.server.apply(shop.me, op) for op in next(procedure)])
    shop.server.apply(shop.other, SetData("/consumers/g/owners/t/0", b"?"))
    shop.run(procedure, ops)
    assert shop.owned() == {}


def test_lost_owner_nodes_are_seen_and_the_others_watched() -> None:
    """Deleted, re-made or changed nodes are lost; what is kept shows when it changes."""
    shop = Shop()
    shop.run(do.claim("g", SHARE, shop.me))
    assert shop.run(do.lost("g", SHARE, shop.me)) == ()
    shop.server.apply(shop.other, SetData("/consumers/g/owners/t/2", b"?"))
    shop.server.apply(shop.other, Delete("/consumers/g/owners/t/1"))
    assert shop.notified == ["/consumers/g/owners/t/2", "/consumers/g/owners/t/1"]
    assert shop.run(do.lost("g", SHARE, shop.me)) == (T1, T2)


@given(
    chunk=st.integers(1, 4),
    cuts=st.lists(st.integers(0, 25), max_size=4),
    blocked=st.sets(st.sampled_from(sorted(SHARE)), max_size=2),
    stale=st.sets(st.sampled_from(sorted(SHARE)), max_size=3),
)
def test_claims_and_releases_stand_interruptions(
    chunk: int, cuts: list[int], blocked: set[TopicPartition], stale: set[TopicPartition]
) -> None:
    """Interrupted anywhere and begun again, a claim ends with all of the share or with a conflict that names what is in
    the way; the release after it leaves nothing of ours, and all of the others'."""
    shop = Shop()
    for partition in stale - blocked:
        shop.make(znodes.owner("g", partition), b"me-7", ephemeral=True, session=shop.me)
    for partition in blocked:
        shop.make(znodes.owner("g", partition), b"other-0", ephemeral=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(do, "CHUNK", chunk)
        conflict: tuple[str, ...] = ()
        try:
            for cut in cuts:
                shop.cut_off(do.claim("g", SHARE, shop.me), cut)
            shop.run(do.claim("g", SHARE, shop.me))
        except do.OwnerConflictError as error:
            conflict = error.paths
        assert set(conflict) == {znodes.owner("g", partition) for partition in blocked}
        if not blocked:
            assert shop.owned() == {znodes.owner("g", p): (str(t).encode(), shop.me) for p, t in SHARE.items()}
        for cut in cuts:
            shop.cut_off(do.release("g", SHARE, shop.me), cut)
        shop.run(do.release("g", SHARE, shop.me))
    assert shop.owned().keys() == set(conflict)


def test_watch_gone_tells_who_is_left() -> None:
    """Of the nodes in the way those that are there still are returned, and watched."""
    shop = Shop()
    shop.make("/consumers/g/owners/t/1", b"x-0", ephemeral=True)
    paths = ("/consumers/g/owners/t/0", "/consumers/g/owners/t/1")
    assert shop.run(do.watch_gone(paths)) == paths[1:]
    shop.server.end_session(shop.other)
    assert shop.notified == [paths[1]]


@pytest.mark.parametrize("code", [Code.NO_AUTH, Code.OTHER])
def test_what_zookeeper_refuses_is_reported(code: Code) -> None:
    """Missing rights end the member with an error that says what was refused."""
    procedure = do.read_registry("g", "me", MINE, "range", 1, exclude_internal=True, internal=INTERNAL_TOPICS)
    ops = next(procedure)
    with pytest.raises(do.RegistryRefusedError, match=rf"\bg\b.*{code.value}"):
        procedure.send(tuple(Failure(code) for _ in ops))
    claim = do.claim("g", {T0: ME}, 1)
    next(claim)
    if code is Code.OTHER:
        claim.send((Failure(Code.NODE_EXISTS, index=0),))
    with pytest.raises(do.RegistryRefusedError, match=rf"\bg\b.*{code.value}"):
        claim.send((Failure(code),))
