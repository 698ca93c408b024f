"""What survives damage, what a survey calls the rest, and records in the place of damage."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest
from support.in_memory import Bytes
from support.refusals import refusal
from support.store_builder import BLANK, Embedded, LogBuilder, Message, Placed, encode_record

from storeformat.errors import NotAStore, RecordDefect
from storeformat.log import chain_walk
from storeformat.log.chain_walk import BlockWindow, ChainWalk
from storeformat.log.segments import ChainEnd, Segment, Split
from storeformat.record.decode import DecodeRules, decode
from storeformat.salvage import survey as survey_module
from storeformat.salvage.evidence import Neighbours, Side
from storeformat.salvage.repair import (
    MAX_FILLER,
    Patch,
    crc_patch,
    fill_range,
    filler_record,
    is_filler,
)
from storeformat.salvage.survey import Broken, Finding, Survey, survey, zeros_from

SIZE = 8192
RULES = DecodeRules()


def a_log() -> tuple[LogBuilder, list[Placed]]:
    log = LogBuilder(SIZE)
    while log.remaining > 1500:
        number = len(log.records)
        log.message(topic="T", queue_id=number % 3, body=b"body %d " % number + bytes(number % 50))
    return log, list(log.records)


def a_log_of(*queues: int) -> tuple[bytes, list[Placed]]:
    """One record of 20 bytes a queue named, 1 ms apart, the bodies of queue 9 empty."""
    log = LogBuilder(SIZE)
    for queue in queues:
        log.clock += 1
        log.message(topic="T", queue_id=queue, body=b"" if queue == 9 else b"body %15d" % len(log.records))
    return log.segments[0], list(log.records)


def walk(data: bytes, start: int = 0, rules: DecodeRules = RULES) -> tuple[BlockWindow, ChainWalk, list[int]]:
    segment = Segment("x", 0, len(data))
    window = BlockWindow(Bytes(data), segment)  # type: ignore[arg-type]
    chain = ChainWalk(window, Split(0, segment, start, segment.end, segment.end, start), start, rules)
    return window, chain, [int(offset) for block in chain for offset in block.offsets[~block.foreign]]


def surveyed(data: bytes, near: Neighbours | None = None, *, keep: bool = False) -> Survey:
    window, chain, _ = walk(data)
    assert chain.ended == ChainEnd.DEFECT
    near = near or Neighbours(Side(time=1_700_000_000_000), whole=True)
    place = Broken(Segment("x", 0, len(data)), chain.position, chain.defect, len(data), near)
    return survey(window, place, RULES, keep_crc_failures=keep)


def changed(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def without(data: bytes, *records: Placed) -> bytes:
    for record in records:
        data = changed(data, record.offset, b"\xa5" * record.size)
    return data


def claiming(data: bytes, record: Placed, queue_offset: int) -> bytes:
    """The log with the queue offset of a record changed, which nothing checks."""
    return changed(data, record.offset + 20, struct.pack(">q", queue_offset))


def came_out(data: bytes, records: list[Placed]) -> list[int]:
    """The numbers of the records that survived, those after the damage only; nothing else did."""
    proven = walk(data)[2]
    before = [placed for placed in records if placed.offset in proven]
    ends = {(b"T", placed.message.queue_id): (placed.message.queue_offset or 0) + 1 for placed in before}
    pieces = surveyed(data, Neighbours(Side(ends, before[-1].message.store_timestamp), whole=True)).pieces
    offsets = [offset for begin, end in pieces for offset in walk(data[:end], begin)[2]]
    return [next(number for number, placed in enumerate(records) if placed.offset == offset) for offset in offsets]


def gaps_of(found: Survey) -> list[tuple[int, int, Finding]]:
    return [(gap.begin, gap.end, gap.finding) for gap in found.gaps]


# --------------------------------------------------------------------------------------------------------------- survey
def test_of_many_damaged_records_each_is_decoded_some_times(monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogBuilder(1 << 17)
    for _ in range(1000):
        log.message(body=b"abc", body_crc=1)
    rows = 0

    def counting(buffer: Any, offset: int, positions: Any, rules: Any) -> Any:
        nonlocal rows
        rows += len(positions)
        return decode(buffer, offset, positions, rules)

    monkeypatch.setattr(chain_walk, "decode", counting)
    assert len(surveyed(log.segments[0]).gaps) > 0
    assert rows < 100 * 1000


def test_a_blank_closes_what_survived() -> None:
    log, records = a_log()
    log.blank()
    found = surveyed(changed(log.segments[0], records[5].offset + 90, b"\xee"))
    assert found.blank == (records[-1].end, SIZE)
    assert gaps_of(found) == [(records[5].offset, records[5].end, Finding.RECORD)]
    assert found.pieces == ((records[5].end, records[-1].end),)


def test_a_blank_after_what_a_second_look_lets_out() -> None:
    log = LogBuilder(SIZE)
    for queue in (0, 0, 1, 0, 1, 0, 1):
        log.clock += 1
        log.message(topic="T", queue_id=queue, body=b"body %15d" % len(log.records))
    log.blank()
    records = list(log.records)
    data = without(log.segments[0], records[1], records[2], records[4])
    proven = records[0].message
    found = surveyed(data, Neighbours(Side({(b"T", 0): 1}, proven.store_timestamp), whole=True))
    assert found.pieces == ((records[3].offset, records[3].end), (records[5].offset, records[6].end))
    assert found.blank == (records[6].end, SIZE)
    assert gaps_of(found) == [
        (records[1].offset, records[2].end, Finding.BYTES),
        (records[4].offset, records[4].end, Finding.BYTES),
    ]


@pytest.mark.parametrize("block", [1, 2, 3, 5, 1 << 20])
def test_zeros_are_looked_for_block_by_block(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey_module, "SURVEY_BLOCK", block)
    for data, firsts in ((b"abc\0d" + bytes(9), {0: 5, 4: 5, 5: 5, 9: 9}), (b"\0\0", {0: 0}), (b"ab", {0: 2})):
        window = BlockWindow(Bytes(data), Segment("x", 0, len(data)))  # type: ignore[arg-type]
        assert {begin: zeros_from(window, begin, len(data)) for begin in firsts} == firsts


# ------------------------------------------------------------------------------------------------------------ survivors
def test_a_size_that_leads_to_a_later_record_takes_none_with_it() -> None:
    """BODYLEN and BODYCRC of an empty body agree, so the nearer end is the record's."""
    data, records = a_log_of(0, 9, 9, 0, 0)
    data = changed(data, records[1].offset, struct.pack(">i", records[1].size + records[2].size))
    assert came_out(data, records) == [2, 3, 4]


def test_a_damaged_sys_flag_of_an_empty_record_hides_nothing() -> None:
    """With long hosts, the zeros that are taken for BODYLEN belong to the next record."""
    data, records = a_log_of(0, 9, 1, 0, 0)
    data = changed(data, records[1].offset + 36, struct.pack(">i", 0x30))
    assert came_out(data, records) == [2, 3, 4]


def test_what_sizes_alone_call_a_body_is_searched_when_a_record_begins_before_its_end() -> None:
    """A page of an older log lies over record 1: its sizes agree, and its properties seem to hold record 5."""
    data, records = a_log_of(*[0] * 8)
    begin, reached = records[1].offset, records[5]
    tail = b"\x01T" + struct.pack(">h", reached.size)
    body = bytes(reached.offset - len(tail) - begin - 88)
    older = encode_record(Message(topic="T", body=body, properties=b"x" * reached.size, store_timestamp=5), begin)
    data = changed(data, begin, older[:88])
    data = changed(data, reached.offset - len(tail), tail)
    assert came_out(data, records) == [2, 3, 5, 6, 7], "4 lost its end"


def test_a_record_alone_between_lost_ones_survives() -> None:
    data, records = a_log_of(0, 0, 1, 0, 1, 0, 1)
    assert came_out(without(data, records[2], records[4]), records) == [3, 5, 6]
    assert came_out(without(data, records[1], records[2], records[4]), records) == [3, 5, 6]


def test_a_damaged_claim_after_a_record_does_not_speak_against_it() -> None:
    """Record 4 claims the place of record 3, but then there were none between 4 and 5, with nothing lost."""
    data, records = a_log_of(0, 0, 0, 0, 0, 0)
    data = without(claiming(data, records[4], 3), records[1], records[2])
    assert came_out(data, records) == [3, 4, 5]


def test_a_damaged_claim_before_a_record_does_not_speak_against_it() -> None:
    """Record 5 seems to begin its queue anew; record 7 goes on where the queue was before."""
    data, records = a_log_of(0, 0, 0, 0, 1, 0, 1, 0, 1)
    data = without(claiming(data, records[5], 0), records[3], records[6])
    assert came_out(data, records) == [4, 5, 7, 8]


def test_messages_lost_under_a_record_of_another_place_count() -> None:
    """A stretch of the log lies twice, over records 3 and 4: the chain steps over it, and two more places are free."""
    data, records = a_log_of(1, 0, 1, 0, 0, 1, 0, 1)
    twice = changed(data, records[3].offset, data[records[0].offset : records[1].end])
    assert came_out(without(twice, records[1], records[5]), records) == [2, 6, 7]


def test_an_older_record_with_a_time_of_the_future_stays_out() -> None:
    """Two stale records lie over the last four and claim the next places; damage gave the first of them a time that
    nothing after it bounds.
    """
    data, records = a_log_of(*[0] * 8)
    data, at = without(data, *records[4:]), records[5].offset
    for queue_offset, time in ((5, 1 << 47), (6, 5)):
        stale = encode_record(Message(topic="T", queue_offset=queue_offset, body=b"x", store_timestamp=time), at)
        data, at = changed(data, at, stale), at + len(stale)
    assert came_out(data, records) == []


@pytest.mark.parametrize("queue_offset", [0, 1, 3, 4, 40])
def test_a_copy_that_claims_a_place_which_is_not_free_stays_out(queue_offset: int) -> None:
    """A body holds a whole record, sound and timely; its holder loses its head."""
    log = LogBuilder(SIZE)
    for number in range(5):
        log.clock += 1
        copy = Message(topic="T", queue_offset=queue_offset, body=b"copy", store_timestamp=log.clock)
        log.message(topic="T", body=Embedded((copy,), lead=b"lead") if number == 2 else bytes(30))
    records = list(log.records)
    data = changed(log.segments[0], records[2].offset, b"\xa5" * 88)
    assert came_out(data, records) == [3, 4]


def test_a_chain_of_which_most_claims_do_not_fit_stays_out() -> None:
    """Copies in the body of a lost message, of which one hits upon the place of another lost one."""
    log = LogBuilder(SIZE)
    copies = tuple(
        Message(topic="T", queue_id=queue, queue_offset=number, body=b"copy", store_timestamp=log.clock + 5)
        for queue, number in ((0, 3), (0, 77), (3, 50))
    )
    for number in range(8):
        log.clock += 1
        log.message(topic="T", body=Embedded(copies) if number == 2 else bytes(30))
    records = list(log.records)
    data = without(changed(log.segments[0], records[2].offset, b"\xa5" * 88), records[3])
    assert came_out(data, records) == [4, 5, 6, 7]


def test_a_record_that_begins_in_the_properties_of_another_refutes_their_length() -> None:
    """Both lengths of record 1 say that it holds record 2, and the CRC of its body is wrong."""
    data, records = a_log_of(0, 1, 0, 1, 0)
    lost, held = records[1], records[2].size
    data = changed(data, lost.offset, struct.pack(">i", lost.size + held))
    data = changed(data, lost.end - 2, struct.pack(">h", held))
    assert came_out(changed(data, lost.offset + 88, b"?"), records) == [2, 3, 4]


# ------------------------------------------------------------------------------------------------------------- findings
@pytest.mark.parametrize(
    ("field", "new"),
    [
        pytest.param(0, struct.pack(">i", 17), id="size too small"),
        pytest.param(0, struct.pack(">i", 1 << 30), id="size too large"),
        pytest.param(0, struct.pack(">i", 700), id="size wrong"),
        pytest.param(4, b"\0\0\0\0", id="magic"),
        pytest.param(8, b"\xff\xff\xff\xff", id="crc"),
        pytest.param(84, struct.pack(">i", 3), id="body length"),
        pytest.param(84, struct.pack(">i", -3), id="body length negative"),
        pytest.param(90, b"\xee", id="body"),
    ],
)
def test_one_damaged_field_costs_just_its_record(field: int, new: bytes) -> None:
    log, records = a_log()
    lost = records[7]
    found = surveyed(changed(log.segments[0], lost.offset + field, new))
    assert gaps_of(found) == [(lost.offset, lost.end, Finding.RECORD), (log.end_offset, SIZE, Finding.ZEROS)]
    assert found.pieces == ((lost.end, records[-1].end),)


def test_a_lost_record_with_a_sound_head_is_named() -> None:
    log, records = a_log()
    found = surveyed(changed(log.segments[0], records[5].offset + 89, b"\xee"))
    record = found.gaps[0].record
    assert record is not None
    assert (record.topic, record.queue_id, record.queue_offset) == (b"T", 2, 1)
    assert found.gaps[0].defect == RecordDefect.BODY_CRC


def test_a_record_that_claims_the_rest_of_its_segment_is_no_blank() -> None:
    """Magic and own offset say that it is one, with a damaged TOTALSIZE."""
    data, records = a_log_of(0, 1, 0, 1)
    lost, follower = records[1], records[2]
    gap = surveyed(changed(data, lost.offset, struct.pack(">i", len(data) - lost.offset))).gaps[0]
    assert (gap.begin, gap.end, gap.finding) == (lost.offset, follower.offset, Finding.RECORD)


def test_old_records_after_a_damaged_blank_stay_out() -> None:
    log = LogBuilder(SIZE)
    for _ in range(30):
        log.message(topic="T", body=bytes(60))
    log.truncate(log.records[10].offset)
    log.clock += 1000
    for _ in range(5):
        log.message(topic="T", body=bytes(61))
    end = log.end_offset
    log.blank()
    data = changed(log.segments[0], end + 4, b"\0")
    near = Neighbours(Side({(b"T", 0): 15}, log.clock), Side({(b"T", 0): 15}, log.clock + 5), whole=True)
    found = surveyed(data, near)
    assert found.pieces == ()
    assert gaps_of(found) == [(end, SIZE, Finding.BLANK)]


def test_old_records_after_the_end_are_stale() -> None:
    log = LogBuilder(SIZE)
    for _ in range(30):
        log.message(topic="T", body=bytes(60))
    log.truncate(log.records[10].offset)
    log.clock += 1000
    log.message(topic="T", body=bytes(61))
    found = surveyed(log.segments[0], Neighbours(Side({(b"T", 0): 11}, log.clock), whole=True))
    assert found.pieces == ()
    assert [gap.finding for gap in found.gaps] == [Finding.BYTES, Finding.STALE, Finding.ZEROS]


def test_whole_records_that_may_be_copies_are_named() -> None:
    log = LogBuilder(SIZE)
    for number in range(5):
        log.clock += 1
        copy = Message(topic="T", queue_offset=40, body=b"copy", store_timestamp=log.clock)
        log.message(topic="T", body=Embedded((copy,), lead=b"lead") if number == 2 else bytes(30))
    records = list(log.records)
    holder, size = records[2], len(encode_record(Message(topic="T", body=b"copy"), 0))
    inside = holder.offset + 88 + len(b"lead")
    near = Neighbours(Side({(b"T", 0): 2}, records[1].message.store_timestamp), whole=True)
    found = surveyed(changed(log.segments[0], holder.offset, b"\xa5" * 88), near)
    assert gaps_of(found) == [
        (holder.offset, inside, Finding.BYTES),
        (inside, inside + size, Finding.AMBIGUOUS),
        (inside + size, holder.end, Finding.BYTES),
        (log.end_offset, SIZE, Finding.ZEROS),
    ]
    assert found.pieces == ((holder.end, log.end_offset),)


# ------------------------------------------------------------------------------------------------- an unfinished record
def half_written(written: int, **changes: int) -> tuple[bytes, Placed, Survey]:
    """A log whose last record ends after so many bytes, with zeros after them; its fields are as told."""
    log = LogBuilder(SIZE)
    log.message(topic="T", body=b"first")
    log.message(topic="T", body=b"x" * 40, tags="t", queue_id=0x01010101, **changes)
    last = log.records[-1]
    data = log.segments[0][: last.offset + written].ljust(SIZE, b"\0")
    return data, last, surveyed(data)


WHOLE = 88 + 40 + 2 + 2 + 7
"""Bytes of that record."""


@pytest.mark.parametrize("written", [4, 6, 8, 9, 16, 36, 47, 56, 60, 89, 127, 129, 130])
def test_the_head_of_a_longer_record_and_zeros_are_an_unfinished_one(written: int) -> None:
    """A broker that dies while it writes leaves it; each of these lengths ends with a byte that is not zero."""
    data, last, found = half_written(written)
    assert last.size == WHOLE
    assert data[last.offset + written - 1]
    end = last.offset + written
    assert gaps_of(found) == [(last.offset, end, Finding.UNFINISHED), (end, SIZE, Finding.ZEROS)]
    assert (found.pieces, found.blank) == ((), None)


@pytest.mark.parametrize(
    ("written", "at", "new"),
    [
        pytest.param(60, 4, b"\xda\xa3\x20\xa8", id="another magic"),
        pytest.param(60, 28, struct.pack(">q", 7), id="another place"),
        pytest.param(60, 0, struct.pack(">i", 60), id="no longer than what is there"),
        pytest.param(60, 0, struct.pack(">i", 90), id="too small for a record"),
        pytest.param(60, 0, struct.pack(">i", 8192 - 97 + 1), id="longer than its segment"),
        pytest.param(60, 0, struct.pack(">i", -5), id="negative"),
        pytest.param(WHOLE, 0, struct.pack(">i", WHOLE + 10), id="whole, but for its size"),
    ],
)
def test_what_no_dying_broker_leaves_is_damage(written: int, at: int, new: bytes) -> None:
    data, last, _ = half_written(written)
    assert last.offset == 97
    found = surveyed(changed(data, last.offset + at, new))
    assert [gap.finding for gap in found.gaps] == [Finding.BYTES, Finding.ZEROS]


@pytest.mark.parametrize(("noise", "finding"), [(8, Finding.UNFINISHED), (9, Finding.BYTES)])
def test_a_few_bytes_before_zeros_tell_nothing(noise: int, finding: Finding) -> None:
    """As many as a size and a magic have may be the first of a page that did not reach the disk whole."""
    log = LogBuilder(SIZE)
    log.message(topic="T", body=b"first")
    found = surveyed(changed(log.segments[0], log.end_offset, b"\xa5" * noise))
    assert [gap.finding for gap in found.gaps] == [finding, Finding.ZEROS]


@pytest.mark.parametrize(("written", "size"), [(60, SIZE - 97), (30, 92)])
def test_a_size_that_just_fits_the_segment_may_be_of_an_unfinished_record(written: int, size: int) -> None:
    data, last, _ = half_written(written)
    found = surveyed(changed(data, last.offset, struct.pack(">i", size)))
    assert [gap.finding for gap in found.gaps] == [Finding.UNFINISHED, Finding.ZEROS]


@pytest.mark.parametrize("written", [4, 60])
def test_nothing_is_unfinished_before_the_end_of_a_segment(written: int) -> None:
    data, last, _ = half_written(written)
    window, chain, _ = walk(data)
    limit = SIZE - 100
    near = Neighbours(Side(time=1_700_000_000_000), whole=True)
    found = survey(window, Broken(Segment("x", 0, SIZE), chain.position, chain.defect, limit, near), RULES)
    assert gaps_of(found) == [
        (last.offset, last.offset + written, Finding.BYTES),
        (last.offset + written, limit, Finding.ZEROS),
    ]


# --------------------------------------------------------------------------------------------------------------- repair
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


def test_a_negative_body_length_counts_as_none() -> None:
    message = Message(topic="Topic", body=b"", body_length=-5)
    record = encode_record(message, 0)
    assert crc_patch(record, 0).data == bytes(4)


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
