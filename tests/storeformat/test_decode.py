"""The bytes of a record, and how far one may reach."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.in_memory import Bytes
from support.store_builder import BLANK, Message, encode_record

from storeformat import message as m
from storeformat.errors import RecordDefect
from storeformat.kernels import PADDING
from storeformat.record.bodies import uncompressed
from storeformat.record.decode import (
    DecodeRules,
    Fault,
    RecordBlock,
    decode,
    is_directory_name,
    span_texts,
    store_timestamp_at,
)
from storeformat.record.message_ids import (
    OffsetMessageId,
    UniqueKey,
    host_bytes,
    host_text,
    offset_message_ids,
    parse_offset_message_id,
    parse_unique_key,
)
from storeformat.salvage.survey import Follower, Frame, _possible_lengths, claimed_size, judge_frame, parts_end

# -------------------------------------------------------------------------------------------------------- decode
NO_CRC = DecodeRules(check_crc=False)
BASE = 1 << 40
"""Where the buffer lies in the log: offsets need 64 bits."""
COMMIT = 0x8
"""The transaction type of a committed message, in its sysFlag."""


def decode_all(*messages: Message, rules: DecodeRules | None = None) -> tuple[RecordBlock, Fault | None]:
    """The records one after the other, decoded from one buffer at ``BASE``."""
    data = b""
    positions = []
    for message in messages:
        positions.append(len(data))
        data += encode_record(message, BASE + len(data))
    buffer = np.frombuffer(data + bytes(PADDING), np.uint8)
    return decode(buffer, BASE, np.array(positions, np.int64), rules or DecodeRules())


def text_of(block: RecordBlock, name: bytes, row: int = 0) -> str | None:
    spans = block.properties[name]
    return None if spans.lengths[row] < 0 else span_texts(block.buffer, spans, np.array([row]))[0]


HOSTS = [("10.1.2.3", 4321), ("2001:db8::1", 65535)]


@pytest.mark.parametrize("store_host", HOSTS)
@pytest.mark.parametrize("born_host", HOSTS)
@pytest.mark.parametrize("topic", ["T", "%RETRY%" + "g" * 130])
def test_every_field_after_every_host(born_host: tuple[str, int], store_host: tuple[str, int], topic: str) -> None:
    message = Message(
        topic=topic, queue_id=7, queue_offset=(1 << 40) + 5, body=b"hello", tags="a||b", keys="k1 k2", flag=-9,
        sys_flag=COMMIT, born_timestamp=-1, born_host=born_host, store_timestamp=1 << 45, store_host=store_host,
        reconsume_times=3, prepared_transaction_offset=99,
    )  # fmt: skip
    block, fault = decode_all(Message(store_timestamp=1), message)
    assert fault is None
    heads = {name: column[1] for name, column in block.heads._asdict().items()}
    for name in ("queue_id", "queue_offset", "flag", "born_timestamp", "store_timestamp", "reconsume_times",
                 "prepared_transaction_offset"):  # fmt: skip
        assert heads[name] == getattr(message, name), name
    assert heads["physical_offset"] == BASE + block.positions[1]
    assert heads["sys_flag"] & m.TRANSACTION_MASK == COMMIT
    assert heads["magic_code"] == (m.MAGIC_V2 if len(topic) > 127 else m.MAGIC_V1)
    body = int(heads["body_start"])
    assert bytes(block.buffer[body : body + int(heads["body_length"])]) == b"hello"
    assert block.topics[block.topic_codes[1]] == topic.encode()
    assert text_of(block, m.TAGS, 1) == "a||b"
    assert text_of(block, m.KEYS, 1) == "k1 k2"


def one_fault(message: Message, rules: DecodeRules | None = None) -> RecordDefect:
    """The defect of a record that follows a good one; the good one is always decoded."""
    block, fault = decode_all(Message(body=b"good"), message, rules=rules)
    assert len(block) == 1
    assert fault is not None
    assert fault.row == 1
    return fault.defect


@pytest.mark.parametrize(
    ("message", "defect"),
    [
        (Message(magic=0x12345678), RecordDefect.ILLEGAL_MAGIC),
        *((Message(body=body, body_crc=crc), RecordDefect.BODY_CRC) for body, crc in ((b"x", 0), (b"", 77))),
        *((Message(body=body, body_length=length), RecordDefect.LENGTH_MISMATCH)
          for body, length in ((b"", 5), (b"x" * 50, 49), (b"x", (1 << 31) - 1))),
        *((Message(topic_length=length), RecordDefect.LENGTH_MISMATCH) for length in (-1, 127)),
        (Message(tags="T", properties_length=-3), RecordDefect.LENGTH_MISMATCH),
        (Message(properties_length=32_767), RecordDefect.LENGTH_MISMATCH),
        *((Message(**wrong), RecordDefect.BAD_NAME) for wrong in ({"topic": "a/b"}, {"topic": ""}, {"queue_id": -1})),
        (Message(topic=m.SCHEDULE_TOPIC, properties={"DELAY": " 3"}), RecordDefect.BAD_DELAY),
        (Message(topic=m.SCHEDULE_TOPIC, properties={"DELAY": "1_0"}), RecordDefect.BAD_DELAY),
        (Message(properties={"INNER_NUM": "32768", "INNER_BASE": "0"}), RecordDefect.BAD_INNER_BATCH),
        (Message(properties={"INNER_NUM": "2", "INNER_BASE": "x"}), RecordDefect.BAD_INNER_BATCH),
    ],
)  # fmt: skip
def test_what_is_no_record_says_why(message: Message, defect: RecordDefect) -> None:
    assert one_fault(message) == defect


@pytest.mark.parametrize(
    "message",
    [
        Message(body_length=-1),
        Message(properties_length=-1),
        Message(topic="T", properties={"DELAY": "five"}),  # only the schedule topic is read
        Message(topic=m.SCHEDULE_TOPIC, properties={"DELAY": "٣"}),  # a digit to Java
        Message(properties={"INNER_NUM": "x"}),  # without INNER_BASE nobody reads it
        Message(properties={"INNER_NUM": "-32768", "INNER_BASE": "+7"}),
        Message(body=b"b", tags="t", property_crc=True),
        Message(properties={"__CRC32#": "12"}),  # not the ten digits of a broker
    ],
)
def test_what_looks_odd_and_is_a_record(message: Message) -> None:
    block, fault = decode_all(Message(), message)
    assert fault is None
    assert len(block) == 2


def test_no_broker_looks_at_the_crc_of_an_empty_body() -> None:
    """It always writes 0 there; where the log is to end as in a broker's recovery, another number is no end."""
    record = np.frombuffer(encode_record(Message(body=b"", body_crc=77), 0) + bytes(PADDING), np.uint8)
    block, fault = decode(record, 0, np.zeros(1, np.int64), DecodeRules(as_broker=True))
    assert fault is None
    assert len(block) == 1


def test_every_property_crc_is_looked_at_whatever_its_digits() -> None:
    for queue_offset in range(40):
        record = bytearray(encode_record(Message(property_crc=True, queue_offset=queue_offset), 0))
        good, bad = bytes(record), bytes([*record[:16], record[16] ^ 1, *record[17:]])  # FLAG: no other check sees it
        wrong = Fault(0, RecordDefect.PROPERTY_CRC)
        for data, rules, expected in ((good, DecodeRules(), None), (bad, DecodeRules(), wrong), (bad, NO_CRC, None)):
            buffer = np.frombuffer(data + bytes(PADDING), np.uint8)
            block, fault = decode(buffer, 0, np.zeros(1, np.int64), rules)
            assert (len(block), fault) == (int(expected is None), expected)


@pytest.mark.parametrize("digit", [b":", b"/"])
def test_a_property_of_that_name_without_digits_is_no_crc(digit: bytes) -> None:
    """A colon is one above the digits, a slash one below."""
    record = bytearray(encode_record(Message(property_crc=True), 0))
    record[-2:-1] = digit
    buffer = np.frombuffer(bytes(record) + bytes(PADDING), np.uint8)
    block, fault = decode(buffer, 0, np.zeros(1, np.int64), DecodeRules())
    assert (len(block), fault) == (1, None)


def test_foreign_records_stay_in_the_chain_and_are_marked() -> None:
    block, fault = decode_all(Message(), Message(physical_offset=3), Message())
    assert fault is None
    assert block.foreign.tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("properties", "tags", "keys"),
    [
        (b"", None, None),
        (b"TAGS\x01a\x02KEYS\x01b\x02", "a", "b"),
        (b"TAGS\x01a\x02KEYS\x01b", "a", "b"),
        (b"TAGS\x01\x02KEYS\x01b", None, "b"),
        (b"TAGS\x01a\x02TAGS\x01z", "z", None),
        (b"TAGS\x01a\x01b\x02", "a\x01b", None),
        (b"\x02\x02TAGS\x01a\x02\x02", "a", None),
        (b"\x01TAGS\x01a", None, None),
        (b"xTAGS\x01a", None, None),
        (b"TAGS", None, None),
        (b"KEYS\x01\xed\xa0\x80\xff\x02", None, "\ufffd\ufffd"),
    ],
)
def test_property_grammar(properties: bytes, tags: str | None, keys: str | None) -> None:
    block, fault = decode_all(Message(properties=properties))
    assert fault is None
    assert (text_of(block, m.TAGS), text_of(block, m.KEYS)) == (tags, keys)


@pytest.mark.parametrize(
    ("properties", "tags"),
    [(b"TAGS\x01a\x01b", None), (b"TAGS\x01a\x01\x01", "a"), (b"TAGS\x01\x01a", None), (b"TAGS\x01a", "a")],
)
def test_property_grammar_up_to_490(properties: bytes, tags: str | None) -> None:
    block, _ = decode_all(Message(properties=properties), rules=DecodeRules(split_parser=True))
    assert text_of(block, m.TAGS) == tags


def test_nothing_at_all() -> None:
    block, fault = decode(np.zeros(PADDING, np.uint8), 0, np.zeros(0, np.int64), DecodeRules())
    assert len(block) == 0
    assert fault is None


@pytest.mark.parametrize("as_broker", [False, True])
def test_the_first_fault_counts(as_broker: bool) -> None:
    bad_crc, bad_magic = Message(body=b"x", body_crc=1), Message(magic=1)
    bad_name = replace(bad_crc, topic="a/b")
    block, fault = decode_all(Message(), bad_crc, bad_magic, bad_name, rules=DecodeRules(as_broker=as_broker))
    assert len(block) == 1
    assert fault == Fault(1, RecordDefect.BODY_CRC)
    block, fault = decode_all(Message(), bad_magic, bad_crc, bad_name, rules=DecodeRules(as_broker=as_broker))
    assert len(block) == 1
    assert fault == Fault(1, RecordDefect.ILLEGAL_MAGIC)


@pytest.mark.parametrize("store_host", HOSTS)
@pytest.mark.parametrize("born_host", HOSTS)
def test_one_store_timestamp_is_read_without_the_rest(born_host: tuple[str, int], store_host: tuple[str, int]) -> None:
    time = 0x0102030405060708
    record = encode_record(Message(born_host=born_host, store_host=store_host, store_timestamp=time, topic=""), 0)
    reader = Bytes(b"?" * 9 + record)  # nothing after it
    assert store_timestamp_at(reader, 9) == time  # type: ignore[arg-type]


def test_topics_that_java_reads_alike_are_one() -> None:
    """``new String(bytes, UTF_8)`` makes U+FFFD of what is malformed, and a queue has the name that comes out."""
    names = (b"T\xff", "T", b"T\xfe", b"T\xed\xa0\x80", "T\ufffd", b"T\xff\xff")
    block, fault = decode_all(*(Message(topic=name) for name in names))
    assert fault is None
    found = [block.topics[code].decode() for code in block.topic_codes]
    assert found == ["T\ufffd", "T", "T\ufffd", "T\ufffd", "T\ufffd", "T\ufffd\ufffd"]
    assert len(block.topics) == 3


def test_some_of_the_records_of_a_block() -> None:
    """Rows are those asked for, topics and buffer stay whole, and offsets are those of the log."""
    block, _ = decode_all(*(Message(topic=f"T{number}", tags=f"t{number}", queue_id=number) for number in range(4)))
    for some in (block.take(np.array([2, 0])), block.take(np.array([False, True, True, False])), block.head(2)):
        rows = some.heads.queue_id.tolist()
        assert some.offsets.tolist() == block.offsets[rows].tolist()
        assert [some.topics[code] for code in some.topic_codes] == [b"T%d" % row for row in rows]
        assert [text_of(some, m.TAGS, at) for at in range(len(some))] == [f"t{row}" for row in rows]
        assert (some.buffer is block.buffer, some.buffer_offset, some.topics) == (True, BASE, block.topics)
    assert block.head(4) is block
    assert block.take(slice(1, 3)).heads.queue_id.tolist() == [1, 2]


def test_directory_names() -> None:
    assert is_directory_name("%RETRY%组|+x".encode())
    assert is_directory_name(b"\xff")
    assert not any(map(is_directory_name, (b"", b".", b"..", b"../x", b"a\0", b"/", b"x" * 256)))


# --------------------------------------------------------------------------------------------------------- hosts
@pytest.mark.parametrize(
    ("stored", "text"),
    [
        ("c0a8000900002a9f", "192.168.0.9:10911"),
        ("7f000001ffffffff", "127.0.0.1:-1"),  # the port is any i32
        ("fe800000000000000000000000000001" + "00002a9f", "[fe80::1]:10911"),
    ],
)
def test_there_and_back(stored: str, text: str) -> None:
    assert host_text(bytes.fromhex(stored)) == text
    assert host_bytes(text) == bytes.fromhex(stored)


def test_what_is_no_host() -> None:
    for text in ("", "192.168.0.9", "host:10911", "192.168.0.9:x", "192.168.0.9:4294967296"):
        assert host_bytes(text) is None
    with pytest.raises(ValueError, match=r"^7 bytes are not a host address$"):
        host_text(bytes(7))


# -------------------------------------------------------------------------------------------------------- bodies
PLAIN = b"body " * 1000


def compressed(plain: bytes, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(plain)
    return bytes(memoryview(sink.getvalue()))


ZLIB, LZ4, ZSTD = zlib.compress(PLAIN), compressed(PLAIN, "lz4"), compressed(PLAIN, "zstd")


@pytest.mark.parametrize(
    ("stored", "flag", "expected"),
    [
        (PLAIN, 0x0, PLAIN),
        (PLAIN, 0x300, PLAIN),
        (ZLIB, 0x1, PLAIN),
        (ZLIB, 0x301, PLAIN),
        (LZ4, 0x101, PLAIN),
        (ZSTD, 0x20D, PLAIN),
        (ZLIB[:-1], 0x1, None),
        (b"", 0x1, None),
        (LZ4, 0x201, None),
        (PLAIN, 0x401, None),
    ],
)
def test_a_body_as_its_flags_say(stored: bytes, flag: int, expected: bytes | None) -> None:
    assert uncompressed(stored, flag) == expected


@pytest.mark.parametrize(("stored", "flag"), [(ZLIB, 0x1), (LZ4, 0x101), (ZSTD, 0x201)])
def test_a_body_cannot_ask_for_all_memory(stored: bytes, flag: int) -> None:
    assert uncompressed(stored, flag, most=len(PLAIN) - 1) is None
    assert uncompressed(stored, flag, most=0) is None
    assert uncompressed(stored, flag, most=len(PLAIN)) == PLAIN
    assert uncompressed(zlib.compress(bytes(4 << 20)), 0x1) == bytes(4 << 20)
    assert uncompressed(zlib.compress(bytes((4 << 20) + 1)), 0x1) is None, "what is shown grows with what is stored"


# --------------------------------------------------------------------------------------------------- message ids
V4_HOST = bytes([192, 168, 0, 9]) + (10911).to_bytes(4, "big")
V6_HOST = bytes.fromhex("fe800000000000000000000000000002") + (2).to_bytes(4, "big")
# Made by a 4.9.8 broker for its records at 0 (v4) and 939 (v6).
V4_ID = "C0A8000900002A9F0000000000000000"
V6_ID = "FE8000000000000000000000000000020000000200000000000003AB"


def test_ids_of_a_real_broker() -> None:
    ids = offset_message_ids(pa.array([V4_HOST, V6_HOST, None, b"short"], pa.binary()), [0, 939, 5, 6])
    assert ids.to_pylist() == [V4_ID, V6_ID, None, None]
    assert ids.type == pa.string()
    ids.validate(full=True)
    assert offset_message_ids(pa.array([V4_HOST], pa.binary(8)), [0]).to_pylist() == [V4_ID]
    v4, v6 = parse_offset_message_id(V4_ID), parse_offset_message_id(V6_ID.lower())
    assert v4 == OffsetMessageId(bytes([192, 168, 0, 9]), 10911, 0)
    assert v6 == OffsetMessageId(V6_HOST[:16], 2, 939)
    assert (v4.address, v6.address) == ("192.168.0.9", "fe80::2")


@given(
    st.lists(
        st.one_of(st.none(), st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20), st.just(b"")),
        max_size=20,
    ),
    st.integers(0, 3),
    st.data(),
)
def test_columns_equal_single_ids(hosts: list[bytes | None], skipped: int, data: st.DataObject) -> None:
    hosts_kept = hosts[skipped:]
    offsets = data.draw(
        st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=len(hosts_kept), max_size=len(hosts_kept))
    )
    ids = offset_message_ids(pa.array(hosts, pa.binary())[skipped:], np.array(offsets, dtype=np.int64)).to_pylist()
    for host, offset, found in zip(hosts_kept, offsets, ids, strict=True):
        if not host:
            assert found is None
            continue
        expected = OffsetMessageId(host[:-4], int.from_bytes(host[-4:], "big", signed=True), offset)
        assert found == str(expected)
        assert parse_offset_message_id(found) == expected


@pytest.mark.parametrize("text", ["", "C0A8", V4_ID[:-1], V4_ID + "00", V4_ID[:-1] + "G", V4_ID[:-2] + " 1", "١" * 32])
def test_text_that_is_no_id(text: str) -> None:
    assert parse_offset_message_id(text) is None
    assert parse_unique_key(text) is None


# 2023-11-14 22:13:20.000 UTC is 1,203,200,000 ms after 2023-11-01 00:00 UTC.
BORN = 1_700_000_000_000
SPAN = 1_203_200_000


def test_unique_key_of_a_client() -> None:
    text = "0A010203" + "1A2B" + "18B4AAC2" + f"{SPAN:08X}" + "FFFE"
    key = parse_unique_key(text)
    assert key == UniqueKey(bytes([10, 1, 2, 3]), 0x1A2B, 0x18B4AAC2, SPAN, 0xFFFE)
    assert str(key) == text
    assert (key.ip, key.is_grpc) == ("10.1.2.3", False)
    assert key.timestamp(BORN + 20) == BORN
    assert key.timestamp(BORN, utc_offset_ms=8 * 3600 * 1000) == BORN - 8 * 3600 * 1000


def test_month_is_the_one_that_brings_the_id_closest() -> None:
    last_of_october = UniqueKey(bytes(4), 0, 0, 31 * 86_400_000 - 5, 0)
    first_of_november = 1_698_796_800_000
    assert last_of_october.timestamp(first_of_november + 3) == first_of_november - 5
    january = 1_704_067_200_000
    assert UniqueKey(bytes(4), 0, 0, 31 * 86_400_000 - 1, 0).timestamp(january + 1) == january - 1
    assert UniqueKey(bytes(4), 0, 0, 5, 0).timestamp(1 << 62) is None
    assert UniqueKey(bytes(4), 0, 0, 5, 0).timestamp(-(1 << 50)) is None


def test_unique_key_on_ipv6() -> None:
    text = "FE800000000000000000000000000002" + "0001" + "00000002" + "00000003" + "0004"
    key = parse_unique_key(text)
    assert key == UniqueKey(V6_HOST[:16], 1, 2, 3, 4)
    assert (key.ip, str(key)) == ("fe80::2", text)


def test_unique_key_of_a_grpc_client() -> None:
    text = "01" + "0242AC110003" + "0A1B" + "05700000" + "00000007"
    key = parse_unique_key(text)
    assert key == UniqueKey(bytes.fromhex("0242AC110003"), 0x0A1B, 0, 0x05700000, 7)
    assert (key.ip, key.is_grpc, str(key)) == (None, True, text)
    assert key.timestamp(0) == (1_609_459_200 + 0x05700000) * 1000
    assert parse_unique_key("02" + text[2:]) is None


@given(st.one_of(st.binary(min_size=16, max_size=16), st.binary(min_size=28, max_size=28)))
def test_any_bytes_of_the_right_length_come_back(raw: bytes) -> None:
    text = raw.hex().upper()
    assert str(parse_unique_key(text)) == text
    assert str(parse_offset_message_id(text)) == text


@pytest.mark.parametrize("hours", [0, 8, -8])
def test_a_month_that_begins_between_the_id_and_the_message(hours: int) -> None:
    december = 1_796_083_200_000 - hours * 3_600_000  # 2026-12-01 where the client is
    made_after = UniqueKey(b"\x0a\x01\x02\x03", 1, 1, 5, 1)
    assert made_after.timestamp(december - 1000, hours * 3_600_000) == december + 5
    assert type(made_after.timestamp(december, 0)) is int
    made_before = UniqueKey(b"\x0a\x01\x02\x03", 1, 1, 30 * 86_400_000 - 5, 1)
    assert made_before.timestamp(december + 1000, hours * 3_600_000) == december - 5


# -------------------------------------------------------------------------------------------------------- record extent
AT = 1 << 40
"""Where the record lies in the log."""
MESSAGE = Message(topic="T", body=b"some body", tags="t", store_timestamp=5)
RECORD = encode_record(MESSAGE, AT)
SIZE = len(RECORD)
BODY_END = 88 + len(b"some body")
LONG = replace(MESSAGE, topic="T" * 200)
"""Its topic has a length of two bytes."""
EMPTY = replace(MESSAGE, body=b"")
HUGE = struct.pack(">i", 1 << 20)
"""A TOTALSIZE that leads out of what can be read."""


def judged(
    record: bytes,
    changes: Mapping[int, bytes] | None = None,
    followers: Mapping[int, Follower] | None = None,
    *,
    rest: int = 1 << 21,
    more: bytes = b"\xa5" * 600,
) -> Frame:
    """The frame of a record with some bytes changed; ``followers`` are by size."""
    data = bytearray(record + more)
    for at, new in (changes or {}).items():
        data[at : at + len(new)] = new
    array = np.frombuffer(bytes(data), np.uint8)
    return judge_frame(array, AT, rest, lambda size: (followers or {}).get(size, Follower.NONE))


def test_sizes_that_agree_are_the_record() -> None:
    """Whatever lies after it; what is the body hangs on its CRC where the head is not certified."""
    offset = {28: b"\0"}
    assert judged(RECORD) == Frame(SIZE, BODY_END, certified=True)
    assert judged(RECORD, {88: b"?"}) == Frame(SIZE, BODY_END, certified=True, sizes_alone=True)
    assert judged(RECORD, {8: b"?"}) == Frame(SIZE, BODY_END, certified=True, sizes_alone=True)
    assert judged(RECORD, {29: b"\x7f"}) == Frame(SIZE, BODY_END)
    assert judged(RECORD, {29: b"\x7f", 88: b"?"} | offset) == Frame(SIZE, 0, sizes_alone=True)
    assert judged(RECORD, {4: b"\0"}) == Frame(SIZE, BODY_END), "its magic is damaged"
    assert judged(encode_record(LONG, AT)) == Frame(SIZE + 200, BODY_END, certified=True)
    assert judged(encode_record(LONG, AT), {4: b"\0"}) == Frame(SIZE + 200, BODY_END)


def test_a_blank_with_one_damaged_field() -> None:
    magic = struct.pack(">I", BLANK)
    assert judged(RECORD, {4: magic}) == Frame(None, 0, is_blank=True)
    assert judged(RECORD, {4: b"\0"}, rest=SIZE) == Frame(None, 0, is_blank=True)
    assert judged(RECORD, {29: b"\x7f"}, rest=SIZE) == Frame(None, 0, is_blank=True)
    assert judged(RECORD, rest=SIZE) == Frame(SIZE, BODY_END, certified=True)


@pytest.mark.parametrize("room", [0, 36, 90, 91])
def test_less_than_a_record_proves_nothing(room: int) -> None:
    smallest = encode_record(Message(topic="", tags=None), AT)
    assert len(smallest) == 91
    expected = Frame(91, 88, certified=True) if room == 91 else Frame(None, 0)
    assert judged(smallest[:room], more=b"") == expected


@pytest.mark.parametrize("size", [HUGE, struct.pack(">i", 90), struct.pack(">i", -1)])
def test_a_body_with_its_crc_is_proven_and_its_end_by_what_follows(size: bytes) -> None:
    record, nothing = {SIZE: Follower.RECORD}, {SIZE: Follower.NOTHING}
    assert judged(RECORD, {0: size}, record) == Frame(SIZE, BODY_END, (SIZE,), certified=True)
    assert judged(RECORD, {0: size}, nothing) == judged(RECORD, {0: size}) == Frame(None, BODY_END, certified=True)
    assert judged(RECORD, {0: size, 29: b"\x7f"}, record) == Frame(SIZE, BODY_END, (SIZE,))


def test_of_two_ends_at_which_records_begin_the_nearer_one_is_it() -> None:
    for said in (SIZE - 5, SIZE + 50):
        changes = {0: struct.pack(">i", said)}
        both = {SIZE: Follower.RECORD, said: Follower.RECORD}
        ends = tuple(sorted(both))
        assert judged(RECORD, changes, both) == Frame(ends[0], BODY_END, ends, certified=True)
        assert judged(RECORD, changes, {said: Follower.RECORD}) == Frame(said, BODY_END, (said,), certified=True)
    inside = {0: struct.pack(">i", BODY_END - 1)}
    assert judged(RECORD, inside, {BODY_END - 1: Follower.RECORD}) == Frame(None, BODY_END, certified=True)


def test_the_magic_tells_how_long_the_length_of_the_topic_is() -> None:
    """With two bytes it would be 0x0154, and a record would begin at the end that this names."""
    other = 88 + 9 + 2 + 0x0154 + 2
    more = bytes(600)
    followers = {other: Follower.RECORD}
    assert judged(RECORD, {0: HUGE}, followers, more=more) == Frame(None, BODY_END, certified=True)
    without_magic = {0: HUGE, 4: b"\0"}
    assert judged(RECORD, without_magic, followers, more=more) == Frame(other, BODY_END, (other,))


def test_an_empty_body_ends_where_a_record_begins() -> None:
    record = encode_record(EMPTY, AT)
    size = len(record)
    assert judged(record, {0: HUGE}, {size: Follower.RECORD}) == Frame(size, 88, certified=True)
    assert judged(record, {0: HUGE}, {size: Follower.NOTHING}) == Frame(None, 0, certified=True)
    assert judged(record, {0: HUGE, 29: b"\x7f"}, {size: Follower.RECORD}) == Frame(None, 0, (size,))
    assert judged(record, {0: HUGE, 8: b"\1"}, {size: Follower.RECORD}) == Frame(None, 0, (size,), certified=True)
    negative = {0: HUGE, 84: struct.pack(">i", -5)}
    assert judged(record, negative, {size: Follower.RECORD}) == Frame(size, 88, certified=True)


@pytest.mark.parametrize("message", [MESSAGE, LONG, replace(MESSAGE, born_host=("2001:db8::1", 5))])
@pytest.mark.parametrize("follower", [Follower.RECORD, Follower.NOTHING])
def test_a_body_that_has_its_crc_where_totalsize_puts_it(message: Message, follower: Follower) -> None:
    """BODYLEN or SYSFLAG is damaged: some other body length, or other hosts, give this size."""
    record = encode_record(message, AT)
    size, body_at = len(record), 100 if ":" in message.born_host[0] else 88
    for changes in ({body_at - 4: struct.pack(">i", 7)}, {body_at - 4: HUGE}, {36: struct.pack(">i", 0x30)}):
        assert judged(record, changes, {size: follower}) == Frame(size, size, certified=True)
        unproven = judged(record, changes)
        assert (unproven.size, unproven.body_end) == (None, 0)
        wrong = judged(record, changes | {body_at: b"?"}, {size: follower})
        assert wrong == Frame(None, 0, (size,) if follower == Follower.RECORD else (), certified=True)


# ----------------------------------------------------------------------------------------------------------- the parts
@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({}, SIZE),
        ({BODY_END: b"\x80"}, None),
        ({BODY_END: b"\xff"}, None),
        ({BODY_END: b"\x7f"}, None),
        ({BODY_END + 2: b"\xff\xff"}, BODY_END + 4),
        ({BODY_END + 2: b"\0\0"}, BODY_END + 4),
        ({BODY_END + 2: b"\0\1"}, BODY_END + 5),
        ({84: HUGE}, None),
    ],
)
def test_parts_end_where_their_lengths_say(changes: Mapping[int, bytes], end: int | None) -> None:
    data = bytearray(RECORD)
    for at, new in changes.items():
        data[at : at + len(new)] = new
    assert parts_end(np.frombuffer(bytes(data), np.uint8)) == end


@pytest.mark.parametrize("hosts", [{}, {"born_host": ("2001:db8::1", 5), "store_host": ("2001:db8::2", 5)}])
@pytest.mark.parametrize("topic", ["T", "T" * 200])
def test_parts_of_every_kind_of_record(topic: str, hosts: dict[str, tuple[str, int]]) -> None:
    record = encode_record(replace(MESSAGE, topic=topic, **hosts), AT)
    whole = np.frombuffer(record + b"\xa5" * 9, np.uint8)
    assert parts_end(whole) == len(record)
    assert [parts_end(whole[: len(record) - cut]) for cut in (0, 1, 7)] == [len(record), None, None]


def test_how_much_must_be_seen_of_a_record() -> None:
    beside = claimed_size(bytes(200), 1 << 30)
    head = bytearray(200)
    most = beside - 2 * (2 + (1 << 15))
    assert most == 112, "the longest head"
    for at in (84, 96, 108):
        head[at : at + 4] = struct.pack(">i", 1000)
        assert claimed_size(bytes(head), 1 << 30) == beside + 1000
        assert claimed_size(bytes(head), 999) == 999
        head[at : at + 4] = bytes(4)
    head[:4] = struct.pack(">i", 1 << 20)
    assert claimed_size(bytes(head), 1 << 30) == 1 << 20
    assert claimed_size(bytes(head), 1 << 20) == 1 << 20
    assert claimed_size(bytes(head), (1 << 20) - 1) < 1 << 20
    assert claimed_size(bytes(head), 50) == 50


def tried(data: bytes, body_at: int, size: int, width: int) -> list[int]:
    """Each body length after which topic and properties end just at a size, one after the other."""
    found = []
    for at in range(body_at, size - width - 1):
        topic = int.from_bytes(data[at : at + width], "big", signed=True)
        end = at + width + topic
        if topic < 0 or end + 2 > size:
            continue
        if end + 2 + max(int.from_bytes(data[end : end + 2], "big", signed=True), 0) == size:
            found.append(at - body_at)
    return found


@pytest.mark.parametrize("width", [1, 2])
def test_body_lengths_are_those_that_one_finds_by_trying(width: int) -> None:
    chance = random.Random(width)
    seen = 0
    for _ in range(300):
        size = chance.randrange(91, 140)
        data = bytes(chance.choice((0, 0, 0, 0, 1, 2, 3, 9, 0x80)) for _ in range(size + 3))
        expected = tried(data, 88, size, width)
        assert list(_possible_lengths(np.frombuffer(data, np.uint8), 88, size, width)) == expected
        seen += len(expected)
    assert seen > 40
    data = bytes(88) + b"\0" * width + b"\x80\0" + b"\xff" * 9
    assert list(_possible_lengths(np.frombuffer(data, np.uint8), 88, 90 + width, width)) == [0]
