"""What survives a break of a chain of DLedger entries: pieces, a BLANK, and what every other range is."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise

import pytest
from support.entry_log import HEAD, SIZE, EntryLogBuilder, encode_entry
from support.in_memory import Bytes
from support.store_builder import Message, encode_record

from storeformat.errors import RecordDefect
from storeformat.log.block_window import BlockWindow
from storeformat.log.chain_walk import chain_from
from storeformat.log.dledger import EntryFraming
from storeformat.log.framing import ChainEnd
from storeformat.log.record_ref import RecordRef
from storeformat.log.segments import Segment
from storeformat.record.decode import DecodeRules
from storeformat.salvage import dledger_survey
from storeformat.salvage.dledger_survey import survey_entries
from storeformat.salvage.findings import Broken, DeadRange, Finding, Survey

Range = tuple[int, int]
ILLEGAL = RecordDefect.ILLEGAL_MAGIC
UNWRITTEN = RecordDefect.UNWRITTEN


def a_log(count: int = 6, *, closed: bool = False, term: int = 0) -> tuple[bytearray, list[Range], EntryLogBuilder]:
    """A segment with so many entries of one queue, and where they lie."""
    log = EntryLogBuilder(SIZE, term=term)
    for number in range(count):
        log.message(topic="T", queue_id=1, body=bytes(number + 1), tags="t")
    entries = [(placed.offset - HEAD.size, placed.end) for placed in log.records]
    if closed:
        log.blank()
    return bytearray(log.segments[0]), entries, log


def surveyed(data: bytes, *, keep: bool = False, limit: int = SIZE, committed: int = -1) -> Survey:
    """The survey from where the chain that starts at 0 breaks."""
    segment = Segment("x", 0, SIZE, EntryFraming(committed))
    window = BlockWindow(Bytes(bytes(data)), segment)  # type: ignore[arg-type]
    walk = chain_from(window, 0, DecodeRules(), stop=limit, limit=limit).finish()
    assert walk.ended == ChainEnd.DEFECT
    broken = Broken(segment, walk.position, walk.defect, limit, last_entry=walk.last)
    found = survey_entries(window, broken, DecodeRules(), keep_crc_failures=keep)
    assert found.broken == broken
    tiles = [*found.pieces, *found.kept, *((gap.begin, gap.end) for gap in found.gaps)]
    tiles += [] if found.blank is None else [found.blank]
    assert sorted(tiles) == tiles_of(walk.position, limit if found.blank is None else SIZE, sorted(tiles))
    return found


def tiles_of(begin: int, end: int, tiles: Sequence[Range]) -> list[Range]:
    """The ranges, if they lie one after the other from ``begin`` to ``end``."""
    edges = [begin, *(last for _, last in tiles)]
    assert edges[-1] == end
    return list(pairwise(edges))


def findings(found: Survey) -> list[tuple[int, int, Finding, RecordDefect]]:
    return [(gap.begin, gap.end, gap.finding, gap.defect) for gap in found.gaps]


def tail(log: EntryLogBuilder) -> tuple[int, int, Finding, RecordDefect]:
    return log.end_offset, SIZE, Finding.ZEROS, UNWRITTEN


def test_one_damaged_entry_between_two_is_one_message_that_its_frame_names() -> None:
    data, entries, log = a_log()
    begin, end = entries[2]
    data[begin] = 0x7F
    found = surveyed(data)
    placed = log.records[2]
    record = RecordRef(placed.offset, placed.message.store_timestamp or 0, b"T", 1, 2)
    assert found.gaps == (
        DeadRange(begin, end, Finding.RECORD, ILLEGAL, record),
        DeadRange(log.end_offset, SIZE, Finding.ZEROS, UNWRITTEN),
    )
    assert (found.pieces, found.kept, found.blank) == (((end, log.end_offset),), (), None)


def test_a_damaged_frame_does_not_say_which_message_it_was() -> None:
    data, entries, _ = a_log()
    for at in (entries[2][0], entries[2][0] + HEAD.size + 3):  # the entry's magic, and TOTALSIZE
        data[at] ^= 0x7F
    assert surveyed(data).gaps[0] == DeadRange(*entries[2], Finding.RECORD, ILLEGAL)
    data, *_ = a_log()
    for at in (entries[2][0], entries[2][0] + HEAD.size + 4):  # the entry's magic, and the record's
        data[at] ^= 0x7F
    assert surveyed(data).gaps[0] == DeadRange(*entries[2], Finding.RECORD, ILLEGAL)


def test_a_message_whose_crc_is_wrong_is_named_or_kept() -> None:
    data, entries, log = a_log()
    placed = log.records[2]
    data[placed.offset + 88] ^= 1  # the first byte of the body
    record = RecordRef(placed.offset, placed.message.store_timestamp or 0, b"T", 1, 2)
    lost = surveyed(data)
    assert lost.gaps[0] == DeadRange(*entries[2], Finding.RECORD, RecordDefect.BODY_CRC, record)
    kept = surveyed(data, keep=True)
    assert (kept.kept, kept.pieces) == ((entries[2],), ((entries[2][1], log.end_offset),))
    assert findings(kept) == [tail(log)]


def test_what_is_wrong_in_another_way_is_not_kept() -> None:
    data, entries, _ = a_log()
    data[entries[2][0]] = 0x7F
    assert surveyed(data, keep=True).kept == ()


def test_two_damaged_entries_are_who_knows_how_many() -> None:
    data, entries, log = a_log()
    data[entries[2][0]] = data[entries[3][0]] = 0x7F
    found = surveyed(data)
    assert findings(found) == [(entries[2][0], entries[3][1], Finding.BYTES, ILLEGAL), tail(log)]
    assert found.pieces == ((entries[4][0], log.end_offset),)


def test_two_breaks_in_one_segment() -> None:
    data, entries, log = a_log(7)
    data[entries[1][0]] = data[entries[4][0]] = 0x7F
    found = surveyed(data)
    assert [gap[:3] for gap in findings(found)[:2]] == [(*entries[1], Finding.RECORD), (*entries[4], Finding.RECORD)]
    assert found.pieces == ((entries[1][1], entries[3][1]), (entries[4][1], log.end_offset))


def test_before_the_first_entry_that_is_proven_nothing_is_counted() -> None:
    data, entries, log = a_log()
    data[0] = 0x7F
    assert findings(surveyed(data)) == [(*entries[0], Finding.BYTES, ILLEGAL), tail(log)]


def test_an_entry_too_small_for_a_record_is_one_message_without_a_name() -> None:
    """Entries 0 and 2 with 139 bytes between them hold a record of 91; with 138 they cannot."""
    log = EntryLogBuilder(SIZE)
    log.message(topic="T")
    begin = log.raw(b"\x7f" * (HEAD.size + 90))
    log.first_index += 1
    log.message(topic="T")
    found = surveyed(log.segments[0])
    assert found.gaps[0] == DeadRange(begin, begin + HEAD.size + 90, Finding.RECORD, ILLEGAL)


@pytest.mark.parametrize("block", [64, 200, 1 << 20])
def test_survivors_are_found_across_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dledger_survey, "SURVEY_BLOCK", block)
    data, entries, log = a_log(12)
    for number in (1, 2, 5, 8):
        data[entries[number][0]] = 0x7F
    found = surveyed(data)
    assert found.pieces == (
        (entries[3][0], entries[4][1]),
        (entries[6][0], entries[7][1]),
        (entries[9][0], log.end_offset),
    )


def test_a_leftover_is_stepped_over() -> None:
    """A certified entry with a number that was used before lies between two that go on."""
    log = EntryLogBuilder(SIZE)
    for _ in range(3):
        log.message(topic="T")
    begin = log.raw(b"\x7f" * 150)
    old = encode_record(Message(topic="T", body=b"old"), log.end_offset + HEAD.size)
    log.raw(encode_entry(old, 1, 0, log.end_offset))
    log.first_index += 1
    follower = log.message(topic="T")
    end = follower.offset - HEAD.size
    found = surveyed(log.segments[0])
    assert [gap[:3] for gap in findings(found)] == [(begin, end, Finding.RECORD), tail(log)[:3]]
    assert found.pieces == ((end, log.end_offset),)


def test_a_survivor_that_is_no_record_itself_leads_on() -> None:
    """It is certified and goes on, but the CRC of its body is wrong: the next break counts from its number."""
    data, entries, log = a_log()
    data[entries[1][0]] = 0x7F
    data[log.records[2].offset + 88] ^= 1
    found = surveyed(data)
    assert found.pieces == ((entries[3][0], log.end_offset),)
    assert [gap[:3] for gap in findings(found)] == [
        (*entries[1], Finding.RECORD),
        (*entries[2], Finding.RECORD),
        tail(log)[:3],
    ]


# ------------------------------------------------------------------------------------------------ the end of a segment
def test_a_blank_closes_what_survived() -> None:
    data, entries, _ = a_log(closed=True)
    data[entries[2][0]] = 0x7F
    found = surveyed(data)
    assert (found.pieces, found.blank) == (((entries[3][0], entries[5][1]),), (entries[5][1], SIZE))
    assert [gap[:3] for gap in findings(found)] == [(*entries[2], Finding.RECORD)]


@pytest.mark.parametrize("closed", [False, True])
def test_the_last_entry_of_a_segment(closed: bool) -> None:
    data, entries, _ = a_log(closed=closed)
    begin, end = entries[5]
    data[begin] = 0x7F
    found = surveyed(data)
    assert found.pieces == ()
    if closed:
        assert (found.blank, findings(found)) == ((end, SIZE), [(begin, end, Finding.BYTES, ILLEGAL)])
    else:
        assert found.blank is None
        assert findings(found) == [(begin, end, Finding.BYTES, ILLEGAL), (end, SIZE, Finding.ZEROS, ILLEGAL)]


@pytest.mark.parametrize("closed", [False, True])
def test_the_last_entry_with_a_wrong_crc_is_one_message(closed: bool) -> None:
    data, entries, log = a_log(closed=closed)
    data[log.records[5].offset + 88] ^= 1
    found = surveyed(data)
    assert found.gaps[0].finding == Finding.RECORD
    assert (found.gaps[0].begin, found.gaps[0].end) == entries[5]
    assert found.gaps[0].record is not None
    assert found.blank == ((entries[5][1], SIZE) if closed else None)
    rest = [] if closed else [(entries[5][1], SIZE, Finding.ZEROS, RecordDefect.BODY_CRC)]
    assert findings(found)[1:] == rest
    assert surveyed(data, keep=True).kept == (entries[5],)


@pytest.mark.parametrize("at", [0, 3, 4, 7])
def test_a_blank_with_one_field_damaged_hides_no_message(at: int) -> None:
    data, entries, _ = a_log(closed=True)
    end = entries[5][1]
    data[end + at] ^= 0x15
    found = surveyed(data)
    assert (found.blank, found.pieces) == (None, ())
    assert [gap[:3] for gap in findings(found)] == [(end, SIZE, Finding.BLANK)]


def test_entries_of_an_older_term_after_the_end_are_stale() -> None:
    _, entries, log = a_log(9)
    log.truncate(log.records[5].offset - HEAD.size)
    log.term = 3
    lost = log.message(log.records[0].message, queue_offset=None, body=bytes(6))
    assert log.end_offset == entries[5][1], "the old entry 6 lies just after"
    found = surveyed(log.segments[0])
    assert lost.end == entries[6][0]
    assert [gap[:3] for gap in findings(found)] == [
        (entries[6][0], entries[8][1], Finding.STALE),
        (entries[8][1], SIZE, Finding.ZEROS),
    ]


def test_bytes_before_stale_entries_are_lost() -> None:
    _, entries, log = a_log(9)
    log.truncate(log.records[5].offset - HEAD.size)
    log.term = 3
    log.message(log.records[0].message, queue_offset=None, body=bytes(6))
    changed = bytearray(log.segments[0])
    changed[entries[6][0]] = 0x7F
    found = surveyed(changed)
    assert [gap[:3] for gap in findings(found)] == [
        (*entries[6], Finding.BYTES),
        (entries[7][0], entries[8][1], Finding.STALE),
        (entries[8][1], SIZE, Finding.ZEROS),
    ]


def test_an_older_term_that_is_committed_is_of_the_log() -> None:
    data, entries, log = a_log(term=5)
    data[entries[2][0]] = 0x7F
    for begin, _ in entries[3:]:
        data[begin + 16 : begin + 24] = struct.pack(">q", 4)
    assert surveyed(data, committed=5).pieces == ((entries[3][0], log.end_offset),)
    assert surveyed(data, committed=2).pieces == ()


def test_nothing_is_read_after_the_limit() -> None:
    data, entries, _ = a_log()
    data[entries[2][0]] = 0x7F
    limit = entries[4][1]
    found = surveyed(data, limit=limit)
    assert (found.pieces, [gap[:3] for gap in findings(found)]) == (
        ((entries[3][0], limit),),
        [(*entries[2], Finding.RECORD)],
    )
    cut = surveyed(data, limit=entries[2][1] + 16)
    assert [gap[:3] for gap in findings(cut)] == [(entries[2][0], entries[2][1] + 16, Finding.BYTES)]


def test_zeros_up_to_the_end_are_zeros() -> None:
    data, _, log = a_log()
    found = surveyed(data)
    assert (found.pieces, found.kept, found.blank) == ((), (), None)
    assert findings(found) == [tail(log)]


def test_zeros_between_entries_are_lost_pages() -> None:
    data, entries, log = a_log()
    data[entries[2][0] : entries[3][1]] = bytes(entries[3][1] - entries[2][0])
    found = surveyed(data)
    assert findings(found) == [(entries[2][0], entries[3][1], Finding.BYTES, UNWRITTEN), tail(log)]
