"""Files of offsets as other tools print them: tables, heads in several spellings, old ends of lines."""

from __future__ import annotations

import pytest
from lines import names

from zkgroup.errors import UsageError
from zkgroup.groups.offset_files.file_formats import parse_offsets
from zkgroup.protocol.names import TopicPartition as P

# As the tools of these releases print them.
DESCRIBE_1_1 = """\
Note: This will only show information about consumers that use ZooKeeper (not those using the Java consumer API).

TOPIC                          PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG        CONSUMER-ID
orders                         0          5               1000            995        g1_host-1
orders                         1          -               1000            -          -
"""
DESCRIBE_3_9 = """\

Consumer group 'g1' has no active members.

GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG   CONSUMER-ID     HOST      CLIENT-ID
g1              orders          0          5               1000            995   -               -         -
"""
DESCRIBE_0_8 = (
    "GROUP, TOPIC, PARTITION, CURRENT OFFSET, LOG END OFFSET, LAG, OWNER\ng1, orders, 0, 5, 1000, 995, none\n"
)
CHECKER = """\
Group           Topic                          Pid Offset          logSize         Lag             Owner
g1              orders                         0   5               1000            995             none
"""


@pytest.mark.parametrize(
    ("text", "group", "offsets"),
    [
        (DESCRIBE_1_1, None, {P("orders", 0): 5, P("orders", 1): None}),
        (DESCRIBE_3_9, "g1", {P("orders", 0): 5}),
        (DESCRIBE_3_9.replace("has no active members", "is rebalancing"), "g1", {P("orders", 0): 5}),
        (f"Consumer group 'g1' is rebalancing.\n{DESCRIBE_1_1}", "g1", {P("orders", 0): 5, P("orders", 1): None}),
        (DESCRIBE_0_8, "g1", {P("orders", 0): 5}),
        (CHECKER, "g1", {P("orders", 0): 5}),
        ("orders,0,5\rorders,1,6\r", None, {P("orders", 0): 5, P("orders", 1): 6}),
        ("/consumers/g1/offsets/orders/0:5\r\r/consumers/g1/offsets/t/1:6", "g1", {P("orders", 0): 5, P("t", 1): 6}),
        ('{"groupid": "g1",\r"offsets":\r{"orders": {"0": 5}}}', "g1", {P("orders", 0): 5}),
        ('{"groupid": "g1", "offsets": {"orders": {"0": "5"}}}', "g1", {P("orders", 0): 5}),
        ('[{"topic": "orders", "partition": "0", "target": "5"}]', None, {P("orders", 0): 5}),
    ],
)  # fmt: skip
def test_what_other_tools_print(text: str, group: str | None, offsets: dict[P, int | None]) -> None:
    """Read as it is, sentences before a table included: each offset for its partition, of the group that is named."""
    assert parse_offsets(text.encode(), "f").groups == {group: offsets}


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        (b"\x1e\x8b\x08", ("f", "line 1", "byte 1", "UTF-8")),
        (b"\xff\xfe\x00", ("f", "line 1", "byte 2", "UTF-16")),
        (b'orders,0,"5', ("f", "line 1", 'orders,0,"5', "CSV")),
        (b"Consumer group 'g1' does not exist.\n", ("f", "line 1", 6, 3)),
        (b'{"error": true, "message": "cluster or consumer not found"}', ("f", "error", "true")),
    ],
)
def test_what_cannot_be_read(data: bytes, facts: tuple[object, ...]) -> None:
    """Reported in words for people, not in those of a parser."""
    with pytest.raises(UsageError) as caught:
        parse_offsets(data, "f")
    assert names(str(caught.value), *facts)
