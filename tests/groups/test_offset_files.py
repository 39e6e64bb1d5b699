"""Offset files: what is read from each format, how it is recognised, what is refused and where."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import stat
import tracemalloc
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lines import names
from support import scaled

from zkgroup.errors import UsageError, ZkgroupError
from zkgroup.groups.group_choices import FileFormat
from zkgroup.groups.group_model import Cluster
from zkgroup.groups.offset_files import format_readers as format_readers
from zkgroup.groups.offset_files.atomic_file import write_atomically
from zkgroup.groups.offset_files.file_formats import MAX_BYTES, format_for, format_offsets, parse_offsets, read_offsets
from zkgroup.groups.offset_files.format_readers import MAX_LINE, OffsetFile
from zkgroup.protocol.names import TopicPartition

GROUP = "g"
ORDERS = {TopicPartition("orders", 0): 17, TopicPartition("orders", 12): 0}
legal = st.one_of(
    st.sampled_from(["offsets", "groupid", "partitions", "topic", "0", "a-1", "...", "-", "null"]),
    st.text("aZ09._-", min_size=1, max_size=12).filter(lambda name: name not in (".", "..")),
)
numbers = st.one_of(st.integers(0, 5), st.integers(0, 2**63 - 1))
keys = st.builds(TopicPartition, legal, st.one_of(st.integers(0, 3), st.integers(0, 2**31 - 1)))


def parse(text: str | bytes, form: FileFormat | None = None) -> OffsetFile:
    return parse_offsets(text if isinstance(text, bytes) else text.encode(), "saved", form)


def refused(text: str | bytes, form: FileFormat | None = None) -> str:
    """What is said of a file that is refused."""
    with pytest.raises(UsageError) as caught:
        parse(text, form)
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize("form", get_args(FileFormat))
@given(offsets=st.dictionaries(keys, numbers, min_size=1, max_size=8))
def test_what_is_written_is_read_again(form: FileFormat, offsets: dict[TopicPartition, int]) -> None:
    """Every format round-trips every legal topic and offset, and is recognised for itself."""
    found = parse(format_offsets(form, GROUP, offsets))
    assert found.format == form
    assert found.offsets_of(GROUP) == offsets


@given(offsets=st.dictionaries(keys, numbers, min_size=1, max_size=8), group=st.text("aZ:,/{}é' \"-", min_size=1))
def test_zk_and_json_keep_the_group(offsets: dict[TopicPartition, int], group: str) -> None:
    """The two formats that name the group give it back, whatever ZooKeeper or Kafka take for a name."""
    assert parse(format_offsets("json", group, offsets)).groups == {group: offsets}
    if "/" not in group:
        assert parse(format_offsets("zk", group, offsets)).groups == {group: offsets}


@settings(max_examples=scaled(400))
@given(data=st.one_of(st.binary(max_size=60), st.text('/{}[]",:#0-\n\r\\tconsumersoffsets\x00é \ufeff', max_size=60)))
def test_no_content_breaks_the_reader(data: bytes | str) -> None:
    """Whatever a file has, it is read, or refused in one line that names it."""
    for form in (None, *get_args(FileFormat)):
        try:
            found = parse(data, form)
            said = found.name if any(found.groups.values()) else "read nothing"
        except UsageError as error:
            said = str(error)
        assert said.startswith("saved")


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("zk", "/consumers/g/offsets/orders/0:17\n/consumers/g/offsets/orders/12:0\n"),
        ("zk", "/chroot/consumers/g/offsets/orders/0-0:17\n/a/consumers/g/offsets/orders/3-12:0\n"),
        ("zk", "\n# saved\n\n/consumers/g/offsets/orders/0: 17 \r\n/consumers/g/offsets/orders/12:0"),
        ("csv", "orders,0,17\norders,12,0\n"),
        ("csv", "topic,partition,offset\r\norders,0,17\r\norders,12,0\r\n"),
        ("csv", '"g","orders",0,17\n"g","orders",12,0\n'),
        ("csv", "group,topic,partition,offset\ng,orders,0,17\ng, orders, 12, 0\n"),
        ("csv", "\ufefftopic,partition,committed,committed_at\norders,0,17,\norders,12,0,\n"),
        ("csv", "topic,partition,current,target,change,note\norders,0,5,17,12,\norders,12,,0,,new\n"),
        ("json", '{"groupid": "g", "offsets": {"orders": {"0": 17, "12": 0}}}'),
        ("json", '{"offsets": {"orders": {"0": 17, "12": 0}}}'),
        ("json", '[{"topic":"orders","partition":0,"committed":17},{"topic":"orders","partition":12,"committed":0}]'),
        ("json", '{"group":"g","partitions":[{"topic":"orders","partition":0,"committed":17},'
                 '{"topic":"orders","partition":12,"committed":0}],"findings":[]}'),
        ("rpk", "orders 0 17\norders\t12   0\n"),
        ("rpk", "topic   partition  committed  committed_at  lag\norders  0  17  -  -\norders  12  0  -  -\n"),
        ("rpk", "GROUP TOPIC PARTITION CURRENT-OFFSET LAG\ng orders 0 17 -\ng orders 12 0 -\n"),
        ("spark", '{"orders":{"0":17,"12":0}}'),
    ],
)  # fmt: skip
def test_formats_are_recognised(form: str, text: str) -> None:
    """Each spelling that is in use is distinguished by its content, and forcing its format changes nothing."""
    found = parse(text)
    assert (found.format, found.offsets_of(GROUP)) == (form, ORDERS)
    assert parse(text, found.format) == found


def test_spark_s_places() -> None:
    """Spark's −2 and −1 are the earliest and the latest offset, and nowhere else an offset."""
    assert parse('{"t":{"0":-2,"1":-1,"2":5}}').offsets_of(GROUP) == {
        TopicPartition("t", 0): "earliest", TopicPartition("t", 1): "latest", TopicPartition("t", 2): 5,
    }  # fmt: skip
    assert "-1" in refused('{"groupid":"g","offsets":{"t":{"0":-1}}}')
    assert "-2" in refused("t 0 -2")


def test_topics_called_like_the_formats_words() -> None:
    """A topic called offsets, groupid or partitions is no reason to take Spark's JSON for another."""
    text = '{"offsets":{"0":1},"groupid":{"0":2},"partitions":{"0":3}}'
    assert parse(text).offsets_of(GROUP) == {
        TopicPartition("offsets", 0): 1, TopicPartition("groupid", 0): 2, TopicPartition("partitions", 0): 3,
    }  # fmt: skip


def test_what_has_no_offset_says_so() -> None:
    """An empty node, −1 in ZooKeeper, and an empty cell below a head are entries without an offset."""
    nothing = {TopicPartition("t", 0): None}
    assert parse("/consumers/g/offsets/t/0:").offsets_of(GROUP) == nothing
    assert parse("/consumers/g/offsets/t/0:-1").offsets_of(GROUP) == nothing
    assert parse("topic,partition,committed\nt,0,\n").offsets_of(GROUP) == nothing
    assert parse("topic partition committed\nt 0 -\n").offsets_of(GROUP) == nothing
    assert parse('[{"topic":"t","partition":0,"committed":null}]').offsets_of(GROUP) == nothing
    assert names(refused("t,0,\n"), "saved", 1, "''")


@pytest.mark.parametrize(
    "line",
    [
        "BROKER INFO",
        "0 -> [::1]:9092",
        "12 -> kafka-1.example.com:9092",
        "[2015-12-01 10:00:00,123] WARN WARNING: ConsumerOffsetChecker is deprecated. (kafka.tools.C$)",
        "log4j:WARN No appenders could be found for logger (kafka.utils.Log4jControllerRegistration$).",
        'SLF4J: Failed to load class "org.slf4j.impl.StaticLoggerBinder".',
        "Error: Could not fetch offset from zookeeper for group 'g' partition 't-1' due to missing offset data"
        " in zookeeper.",
        "Could not fetch offset from zookeeper for group g partition [t,1] due to missing offset data in zookeeper.",
    ],
)
@pytest.mark.parametrize(
    "table", ["Group Topic Pid Offset\n{}g t 0 5\n{}", "{}GROUP, TOPIC, PARTITION, OFFSET\n{}g, t, 0, 5\n"]
)
def test_what_tools_print_around_their_tables(table: str, line: str) -> None:
    """Before, within and behind; what only begins like it is refused."""
    assert parse(table.format(*[f"{line}\n"] * 2)).offsets_of("g") == {TopicPartition("t", 0): 5}
    assert names(refused("t 0 1\nBROKER INFO of ours\n"), "saved", 2, 4, 3)


def test_utf_16() -> None:
    """What PowerShell redirects into a file is read as well."""
    assert parse("t,0,5\r\n".encode("utf-16")).offsets_of(GROUP) == {TopicPartition("t", 0): 5}


def test_hostile_names_in_zk_lines() -> None:
    """Groups and topics may be called anything that a znode can be; nothing else gets through."""
    ((group, found),) = parse("/consumers/a:b,{c}/offsets/x:y z/3:4").groups.items()
    assert (group, found) == ("a:b,{c}", {TopicPartition("x:y z", 3): 4})
    for text, topic in (
        ("/consumers/g/offsets/../3:4", ".."),
        ("/consumers/g/offsets/a\x1bb/3:4", "a\x1bb"),
        ('{"a/b":{"0":1}}', "a/b"),
    ):
        assert names(refused(text), "saved", repr(topic))


@pytest.mark.parametrize(
    ("text", "place", "facts"),
    [
        ("t 0 1\n\nt 0 2\n", 3, ("t-0", 2, 1, 1)),
        ("/consumers/g/offsets/t/0-3:1\n/consumers/g/offsets/t/1-3:2", 2, ("t-3", 2, 1, 1)),
        ('[{"topic":"t","partition":0,"target":1},{"topic":"t","partition":0,"target":null}]', "$[1]", (1, "$[0]")),
        ("t,0,1\nt,1\n", 2, (2, 3)),
        ("t,0\n", 1, (2, 3, 4)),
        ("t 0 1 2\n", 1, (4, 3)),
        ("t,0,1_000\n", 1, ("'1_000'",)),
        ("t,0,1.5\n", 1, ("'1.5'",)),
        ("t,0,٣\n", 1, ("'٣'",)),
        ("t,0,9223372036854775808\n", 1, ("9223372036854775808",)),
        ("t,-1,5\n", 1, ("'-1'",)),
        ("t,2147483648,5\n", 1, ("2147483648",)),
        ('t,0,"1\n', 1, ()),
        ("topic,partition,lag\nt,0,1\n", 1, ()),
        ("/consumers/g/offsets/t/0:1\n/consumers/g/owners/t/0:x\n", 2, ()),
        ("/consumers/g/offsets/t/leader:1\n", 1, ()),
        ("/consumers//offsets/t/0:1\n", 1, ()),
        ('{"t":{"0":1},}', 1, ()),
        ('{"t":\n{"0":1', 2, ()),
        ('{"t":\n{"0":1.5}}', "$.t.0", (1.5,)),
        ('{"t":\n{"0":true}}', "$.t.0", ("true",)),
        ('{"t":\n{"0":{}}}', "$.t.0", ("{}",)),
        ('{"groupid":"g","offsets":{"t":{"0":1},\n"u":5}}', "$.offsets", ("'u'", 5)),
        ('{"t":{"x":1}}', "$.t.x", ("'x'",)),
        ('{"t":{"0":' + "9" * 50 + "}}", "$.t.0", ()),
        ('{"groupid":\n5,"offsets":{"t":{"0":1}}}', "$.groupid", (5,)),
        ('[{"topic":"t","partition":0,"offset":1},\n5]', "$[1]", (5,)),
        ('[{"topic":"t",\n"partition":0}]', "$[0]", ("offset",)),
        ('[{"topic":5,"partition":0,"offset":1}]', "$[0]", ("topic",)),
        (b"t 0 1\nt 1 \xff\n", 2, (10, "UTF-8")),
        (b"\x7fELF\x02\x01\x01\x00\x00", 1, ()),
        (b"t 0 1\n\x00", 2, ()),
    ],
)  # fmt: skip
def test_what_is_wrong_is_reported_with_its_place(
    text: str | bytes, place: int | str, facts: tuple[object, ...]
) -> None:
    """One line names the file, the line in it or the place in its JSON, and what is wrong there."""
    message = refused(text)
    assert names(message, "saved", place, *facts)
    assert len(message) < 250


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(b"t 0 1\n", mtime=0),
        bz2.compress(b"t 0 1\n"),
        lzma.compress(b"t 0 1\n"),
        lzma.compress(b"t 0 1\n", lzma.FORMAT_ALONE),
        b"PK\x03\x04\x14\x00\x00\x00",
        b"\x28\xb5\x2f\xfd\x24\x06",
        b"\x04\x22\x4d\x18\x64\x40\xa7",
    ],
    ids=["gzip", "bzip2", "xz", "lzma", "zip", "zstd", "lz4"],
)
def test_what_is_compressed_is_to_be_unpacked(data: bytes) -> None:
    """It is no text: the remedy says how a compressed file is read."""
    assert names(refused(data), "saved", "gunzip -c FILE | zkgroup")


@pytest.mark.parametrize("topic", ["BZh9", "BZh91AY", "PK", "sNaPpY"])
def test_text_that_begins_like_a_packed_file_is_text(topic: str) -> None:
    """Topics may be called so."""
    assert parse(f"{topic} 0 1\n").offsets_of(GROUP) == {TopicPartition(topic, 0): 1}


@pytest.mark.parametrize("text", ["", "\n \n", "# nothing\n", "[]", "{}", '{"groupid":"g","offsets":{}}', "\ufeff"])
def test_nothing_in_a_file(text: str) -> None:
    """A file without a single offset is a mistake, not a plan to do nothing."""
    assert names(refused(text), "saved")


def test_json_of_another_kind() -> None:
    """JSON that is nested without end, or no object at all, is refused."""
    for text in ("[" * 100_000, '{"a":' * 100_000, '{"t":{"0":' + "9" * 5000 + "}}"):
        assert len(refused(text)) < 250
    assert names(refused('"text"', "json"), "saved")
    assert names(refused('{"t":{"0":NaN}}'), "saved", "NaN")
    assert names(refused('{"t":{"0": 1, "1": 2, "0": 3}}'), "saved", "'0'")
    assert names(refused('{"t":{"0":1},"u":{},"t":{"0":2}}'), "saved", "'t'")
    assert names(refused('{"groupid":"g","offsets":[]}'), "saved", '"offsets"')


def test_a_format_can_be_forced() -> None:
    """What is ambiguous, or wrongly recognised, is read as it is said to be."""
    assert parse('{"offsets":{"x":{"0":1}}}', "json").format == "json"
    assert names(refused('{"offsets":{"x":{"0":1}}}', "spark"), "saved", "$.offsets.x", "'x'")
    assert names(refused("t,0,1", "zk"), "saved", 1)
    assert names(refused("t,0,1", "json"), "saved", 1)


def test_whose_offsets() -> None:
    """A file of several groups gives each its own; one of other groups only is refused, and says whose it is."""
    found = parse("a,t,0,1\nb,t,0,2\n")
    assert found.offsets_of("b") == {TopicPartition("t", 0): 2}
    with pytest.raises(UsageError, match=r"^saved\b.*'a', 'b'.*\bg\b.*--from-group a\b"):
        found.offsets_of("g")


def test_duplicates_that_agree() -> None:
    """The same entry twice is harmless."""
    assert parse("t 0 1\nt 0 1\n").offsets_of(GROUP) == {TopicPartition("t", 0): 1}


def test_a_hundred_thousand_lines() -> None:
    """A file of 100,000 partitions is read, and an error on its last line is found there, in JSON as well."""
    lines = "".join(f"t {n} {n}\n" for n in range(100_000))
    assert len(parse(lines).offsets_of(GROUP)) == 100_000
    assert names(refused(lines + "t 5 6"), "saved", 100001, "t-5", 6, 5, 6)
    text = '{"t":{\n' + ",\n".join(f'"{n}":{n}' for n in range(100_000))
    assert names(refused(text + ',\n"5x":6}}'), "saved", "$.t.5x", "'5x'")


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("\n" * 2_000_001, "2,000,000"),
        ('{"t":{' + '"1":1,' * 1_100_001, "1,100,000"),
        ('[{"offset":1,' + '"1":1,' * 5_000_001, "5,000,000"),
        ("[" + "0," * 1_100_001, "1,100,000"),
    ],
)
def test_more_than_any_group_has(text: str, limit: str) -> None:
    """A file of more lines or names than all partitions of any cluster take is refused in one line before it is taken
    apart, which takes minutes; those that end in the middle are not even JSON."""
    assert names(refused(text), "saved", limit)


@pytest.mark.parametrize(
    ("form", "begin", "unit"),
    [
        *((form, "", unit) for form in (None, "zk", "csv", "rpk") for unit in ("a,", "a ", "/a", '"",', "#")),
        *((form, "[", unit) for form in (None, "json", "spark") for unit in ('"",', "1,", "[],", "{},")),
    ],
)
def test_a_file_of_separators_takes_no_more_than_itself(form: FileFormat | None, begin: str, unit: str) -> None:
    """Whatever format it is taken for: split, every one of them would take fifty bytes, gigabytes in all."""
    size = 5_000_000
    data = (begin + unit * (size // len(unit))).encode()
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match=r"\b65,536\b|\b1,100,000\b"):
            parse_offsets(data, "saved", form)
        assert tracemalloc.get_traced_memory()[1] < 3 * size
    finally:
        tracemalloc.stop()


def test_a_line_may_be_so_long() -> None:
    """One character more is too many, also where it is blank, as what follows would pass unread."""
    line = "t 0 1" + " " * (MAX_LINE - 5)
    assert parse(f"{line}\nt 1 2").offsets_of(GROUP) == {TopicPartition("t", 0): 1, TopicPartition("t", 1): 2}
    assert names(refused(f"t 1 2\n{line} \n"), "saved", 2, f"{MAX_LINE:,}")
    assert names(refused(f"{' ' * MAX_LINE} t 0 1\nt 1 2\n"), "saved", 1, f"{MAX_LINE:,}")


def test_more_offsets_than_any_group_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few lines and names they take."""
    monkeypatch.setattr(format_readers, "MAX_ENTRIES", 3)
    assert len(parse("".join(f"t {n} {n}\n" for n in range(3))).offsets_of(GROUP)) == 3
    assert names(refused("".join(f"t {n} {n}\n" for n in range(4))), "saved", 3)
    assert names(refused('{"t":{"0":1,"1":1,"2":1,"3":1}}'), "saved", 3)


def test_reading_files(tmp_path: Path) -> None:
    """A file that is missing, a folder, or larger than any offset file can be, is refused by its name."""
    with pytest.raises(UsageError, match=r"/absent: No such file"):
        read_offsets(str(tmp_path / "absent"))
    with pytest.raises(UsageError, match="Is a directory"):
        read_offsets(str(tmp_path))
    with pytest.raises(UsageError, match=rf"/dev/zero\b.*\b{MAX_BYTES >> 20} MiB"):
        read_offsets("/dev/zero")
    (tmp_path / "good").write_text("t 0 1\n")
    assert read_offsets(str(tmp_path / "good")).offsets_of(GROUP) == {TopicPartition("t", 0): 1}


def test_names_that_a_format_cannot_hold() -> None:
    """A topic that only ZooKeeper can hold is written where it can be read again, and refused elsewhere."""
    odd = {TopicPartition("a b", 0): 1}
    assert parse(format_offsets("zk", GROUP, odd)).offsets_of(GROUP) == odd
    assert parse(format_offsets("json", GROUP, odd)).offsets_of(GROUP) == odd
    for form in ("csv", "rpk"):
        with pytest.raises(UsageError, match="--file-format"):
            format_offsets(form, GROUP, odd)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        format_offsets("zk", "a/b", ORDERS)


def test_the_files_of_other_tools_are_written_as_they_read_them() -> None:
    """ImportZkOffsets stops at blank lines, Kafka's CSV has no head, kafka-utils and Spark want these very keys."""
    assert format_offsets("zk", GROUP, ORDERS) == "/consumers/g/offsets/orders/0:17\n/consumers/g/offsets/orders/12:0\n"
    assert format_offsets("csv", GROUP, ORDERS) == "orders,0,17\norders,12,0\n"
    assert format_offsets("rpk", GROUP, ORDERS) == "orders 0 17\norders 12 0\n"
    assert json.loads(format_offsets("json", GROUP, ORDERS)) == {
        "groupid": "g", "offsets": {"orders": {"0": 17, "12": 0}},
    }  # fmt: skip
    assert format_offsets("spark", GROUP, ORDERS) == '{"orders": {"0": 17, "12": 0}}\n'
    assert [format_for(name) for name in ("a.csv", "b/a.JSON", "a.txt", "a")] == ["csv", "json", "zk", "zk"]


@pytest.mark.parametrize(
    "cluster",
    [Cluster("", "4yF-x_0", (21, 1411294187842)), Cluster("", None, (21, 1411294187842)), Cluster("", "4yF-x_0")],
)
def test_a_file_says_of_which_cluster_it_is(cluster: Cluster) -> None:
    """Where its format has a place for that which no other tool minds; files put together say it of each."""
    for form in get_args(FileFormat):
        text = format_offsets(form, GROUP, ORDERS, cluster)
        found = parse(text)
        assert found.offsets_of(GROUP) == ORDERS
        assert found.clusters == ((cluster,) if form in ("zk", "json") else ())
        if form not in ("zk", "json"):
            assert text == format_offsets(form, GROUP, ORDERS)
    text = format_offsets("zk", GROUP, ORDERS, cluster)
    assert parse(text * 2).clusters == (cluster, cluster)
    # ImportZkOffsets stops at the blank line; kafka-utils wants two keys, whatever is next to them.
    assert text.startswith(format_offsets("zk", GROUP, ORDERS) + "\n#")
    assert parse(format_offsets("zk", GROUP, ORDERS) + "# {saved by hand}\n").clusters == ()


def test_saving_replaces_a_file_whole(tmp_path: Path) -> None:
    """A new file gets the umask's mode, one that is there keeps its own, links keep pointing, nothing is left over."""
    target = tmp_path / "saved"
    before = os.umask(0o027)
    try:
        write_atomically(str(target), "one\n")
    finally:
        os.umask(before)
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    target.chmod(0o604)
    link = tmp_path / "link"
    link.symlink_to(target)
    write_atomically(str(link), "two\n")
    assert link.is_symlink()
    assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("two\n", 0o604)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "saved"]


@pytest.mark.parametrize("name", ["群" * 80, "x" * 255], ids=["wide", "long"])
def test_a_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    """What a file system takes for a name, in bytes, is written to: also the longest, and one of wide characters."""
    for text in ("one\n", "two\n"):
        write_atomically(str(tmp_path / name), text)
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: text}


def test_what_cannot_be_saved_leaves_the_old(tmp_path: Path) -> None:
    """A disk without room, or a folder that is not there, is reported by the file's name; the old file stays."""
    with pytest.raises(ZkgroupError, match=r"/none/saved: No such file"):
        write_atomically(str(tmp_path / "none" / "saved"), "x")
    with pytest.raises(ZkgroupError, match="/dev/full"):
        write_atomically("/dev/full", "x")


def test_a_backup_is_no_file_of_offsets() -> None:
    """It is put back by another option, which is named."""
    assert names(refused('{"zkgroup_backup": 2, "change": {"offsets": []}}'), "saved", "--undo")
