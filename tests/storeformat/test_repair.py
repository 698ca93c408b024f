"""Records in the place of damage."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from support.refusals import refusal
from support.store_builder import BLANK, Message, encode_record
from support.surveying import SIZE, a_log, changed, surveyed, walk

from storeformat.errors import NotAStore, RecordDefect
from storeformat.log.segments import Segment
from storeformat.salvage.findings import Finding
from storeformat.salvage.repair import (
    MAX_FILLER,
    Patch,
    crc_patch,
    fill_range,
    filler_record,
    home_patches,
    is_filler,
    join_ranges,
)


def end_of(patch: Patch) -> int:
    return patch.offset + len(patch.data)


@pytest.mark.parametrize("more", [-1, 0, 1, 90, 91, 92, MAX_FILLER - 91, MAX_FILLER - 1, MAX_FILLER, MAX_FILLER + 1])
def test_fillers_leave_no_rest_that_is_too_small_for_a_record(more: int) -> None:
    size = MAX_FILLER + more
    patches = list(fill_range(100, 100 + size, Segment("x", 0, 1 << 24), 5))
    assert [100, *map(end_of, patches)] == [*(patch.offset for patch in patches), 100 + size]
    assert all(91 <= len(patch.data) <= MAX_FILLER for patch in patches)


def test_the_topic_of_fillers_may_be_cut() -> None:
    cut = [b"rmq_sys_lost"[:length] for length in range(13)]
    assert [is_filler(topic) for topic in cut] == [False] + [True] * 12
    assert not is_filler(b"rmq_sys_lost2")
    assert not is_filler(b"RMQ")


@pytest.mark.parametrize("hosts", [{}, {"born_host": ("2001:db8::1", 5), "store_host": ("2001:db8::2", 5)}])
@pytest.mark.parametrize(("old", "new"), [("Topic", "T0pic"), ("Topic", "Other2"), ("T" * 300, "U" * 300)])
def test_a_record_gets_another_place_and_topic_where_its_length_fits(
    old: str, new: str, hosts: dict[str, tuple[str, int]]
) -> None:
    message = Message(topic=old, queue_id=7, queue_offset=8, body=b"some body", tags="t", **hosts)
    record = bytearray(encode_record(message, 4096))
    for patch in home_patches(bytes(record), 4096, new.encode(), 3, 1 << 40):
        record[patch.offset - 4096 : end_of(patch) - 4096] = patch.data
    kept = new if len(new) == len(old) else old
    assert record == encode_record(replace(message, topic=kept, queue_id=3, queue_offset=1 << 40), 4096)


def test_a_negative_body_length_counts_as_none() -> None:
    message = Message(topic="Topic", body=b"", body_length=-5)
    record = encode_record(message, 0)
    assert [patch.data for patch in home_patches(record, 0, b"Other", 0, 0)][2:] == [b"Other"]
    assert crc_patch(record, 0).data == bytes(4)


def test_ranges_are_cut_at_segments_and_joined_within_them() -> None:
    one, other = Segment("a", 0, 100), Segment("b", 100, 100)
    assert join_ranges([(150, 160), (160, 170), (0, 5)], [one, other]) == [(one, 0, 5), (other, 150, 170)]
    assert join_ranges([(50, 60), (20, 50), (90, 110)], [one, other]) == [
        (one, 20, 60), (one, 90, 100), (other, 100, 110),
    ]  # fmt: skip
    assert join_ranges([(99, 101), (101, 102)], [one, other]) == [(one, 99, 100), (other, 100, 102)]
    assert join_ranges([(5, 5), (200, 300)], [one, other]) == []


def test_fillers_are_records_that_nobody_dispatches() -> None:
    log, records = a_log()
    begin, end = records[4].offset, records[7].offset
    data = changed(log.segments[0], begin, b"\xa5" * (end - begin))
    for patch in fill_range(begin, end, Segment("x", 0, SIZE), 1_700_000_000_000):
        data = changed(data, patch.offset, patch.data)
    _, chain, offsets = walk(data)
    assert chain.defect == RecordDefect.UNWRITTEN
    kept = [placed.offset for placed in records if not begin <= placed.offset < end]
    assert [offset for offset in offsets if offset != begin] == kept
    assert struct.unpack_from(">i", data, begin + 36) == (0xC,), "rolled back: in no queue and no index"


@pytest.mark.parametrize("size", [91, 92, 103, 104, 5000])
def test_a_filler_has_just_the_size_asked_for(size: int) -> None:
    record = filler_record(4096, size, 77)
    topic = b"rmq_sys_lost"[: size - 91]
    body = bytes(size - 91 - len(topic))
    nobody = ("0.0.0.0", 0)
    message = Message(topic=topic, queue_id=0, queue_offset=0, body=body, sys_flag=0xC, tags=None, properties=b"")
    message = replace(message, born_timestamp=77, store_timestamp=77, born_host=nobody, store_host=nobody)
    assert record == encode_record(message, 4096)


@pytest.mark.parametrize(("born", "store"), [(4, 4), (4, 16), (16, 4), (16, 16)])
def test_the_crc_is_that_of_the_body_wherever_addresses_let_it_begin(born: int, store: int) -> None:
    hosts = {4: ("1.2.3.4", 5), 16: ("2001:db8::1", 5)}
    message = Message(topic=b"T", queue_id=0, queue_offset=0, body=b"some body", sys_flag=0, tags=None, properties=b"")
    record = encode_record(replace(message, born_host=hosts[born], store_host=hosts[store]), 4096)
    assert crc_patch(record, 4096) == Patch(4096 + 8, record[8:12])
    assert crc_patch(record[:8] + b"\xff" * 4 + record[12:], 4096) == Patch(4096 + 8, record[8:12])


def test_what_is_too_short_for_a_record_is_refused() -> None:
    said = {"what": "damage too short for a record of its own", "offset": 7, "found": 90, "expected": "at least 91"}
    assert refusal(NotAStore, lambda: filler_record(7, 90, 0)) == said


def test_a_long_range_becomes_several_records_and_the_rest_of_a_segment_a_blank() -> None:
    segment = Segment("x", 0, 1 << 24)
    patches = list(fill_range(100, 3 << 20, segment, 5))
    assert [*map(end_of, patches[:-1])] == [patch.offset for patch in patches[1:]]
    assert end_of(patches[-1]) == 3 << 20
    assert max(len(patch.data) for patch in patches) <= 1 << 20


@pytest.mark.parametrize(("begin", "end"), [(4000, 4500), (4000, 8192), (8000, 8192), (8100, 8192), (8180, 8192)])
def test_after_the_last_damage_of_a_segment_comes_a_blank(begin: int, end: int) -> None:
    """The records before it take all the room, so that they tell of every message that may have been there."""
    segment = Segment("x", 0, SIZE)
    *fillers, blank = fill_range(begin, end, segment, 5, is_last=True)
    at = min(end, SIZE - 8) if min(end, SIZE - 8) - begin >= 91 else begin
    assert blank == Patch(at, struct.pack(">iI", SIZE - at, BLANK))
    assert [(patch.offset, end_of(patch)) for patch in fillers] == ([(begin, at)] if at > begin else [])


def test_a_record_with_a_bad_body_is_kept_on_request() -> None:
    log, records = a_log()
    data = changed(log.segments[0], records[5].offset + 90, b"\xee")
    found = surveyed(data, keep=True)
    assert found.kept == ((records[5].offset, records[5].end),)
    assert [gap.finding for gap in found.gaps] == [Finding.ZEROS]
    patch = crc_patch(data[records[5].offset : records[5].end], records[5].offset)
    _, chain, offsets = walk(changed(data, patch.offset, patch.data))
    assert chain.defect == RecordDefect.UNWRITTEN
    assert offsets == [placed.offset for placed in records]
