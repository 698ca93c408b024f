"""How far a damaged record reaches, by its own bytes: literal frames, and body lengths by trying each."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from support.store_builder import BLANK, Message, encode_record

from storeformat.salvage.survey import Follower, Frame, _possible_lengths, claimed_size, judge_frame, parts_end

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


def test_what_is_refuted_when_a_record_begins_before_the_end() -> None:
    assert Frame(SIZE, BODY_END, (7,), certified=True).refuted() == Frame(None, BODY_END, (7,), certified=True)
    assert Frame(SIZE, BODY_END, sizes_alone=True).refuted() == Frame(None, 0)


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
