"""Entries of a DLedger log: what is one, what may follow it, how far they are committed, what survives damage."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from support.entry_log import HEAD, EntryLogBuilder, encode_entry
from support.in_memory import Bytes
from support.store_builder import Message, encode_record, overwrite_log

from storeformat.errors import NotAStore, RecordDefect
from storeformat.log.chain_walk import BlockWindow, ChainWalk, chain_from, search_certificate
from storeformat.log.dledger import (
    ENTRIES,
    HEAD_SIZE,
    Committed,
    EntryFraming,
    committed_end,
    committed_index,
    framing_of,
)
from storeformat.log.record_ref import RecordRef
from storeformat.log.segments import PLAIN, ChainEnd, EntryNumber, Segment, Split
from storeformat.record.decode import DecodeRules
from storeformat.salvage import survey
from storeformat.salvage.survey import Broken, DeadRange, Finding, Survey
from storeformat.store.segment_files import find_segments

# -------------------------------------------------------------------------------------------------------------- dledger
SIZE = 8192
RULES = DecodeRules()


def a_log(count: int = 20) -> EntryLogBuilder:
    log = EntryLogBuilder(SIZE)
    for number in range(count):
        log.message(topic="T", queue_id=number % 3, body=b"body %d " % number + bytes(number % 50), tags="t")
    return log


def walk(data: bytes, block_size: int = SIZE, base: int = 0) -> tuple[BlockWindow, ChainWalk, list[int]]:
    segment = Segment("x", base, len(data), ENTRIES)
    window = BlockWindow(Bytes(data), segment)  # type: ignore[arg-type]
    chain = ChainWalk(window, Split(0, segment, base, segment.end, segment.end, base), base, RULES, block_size)
    return window, chain, [int(offset) for block in chain for offset in block.offsets]


def changed(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


@pytest.mark.parametrize("block_size", [60, 200, 1000, SIZE])
def test_entries_lead_to_their_records(block_size: int) -> None:
    log = a_log()
    _, chain, found = walk(log.segments[0], block_size)
    assert found == [placed.offset for placed in log.records]
    assert (chain.position, chain.ended, chain.defect) == (log.end_offset, ChainEnd.DEFECT, RecordDefect.UNWRITTEN)
    assert (chain.first, chain.last) == (EntryNumber(0, 0), EntryNumber(19, 0))


def test_a_blank_closes_a_file() -> None:
    log = a_log()
    blank = log.blank()
    _, chain, found = walk(log.segments[0])
    assert len(found) == 20
    assert (chain.position, chain.ended) == (blank, ChainEnd.BLANK)
    _, chain, _ = walk(changed(log.segments[0], blank + 4, struct.pack(">i", 99)))
    assert (chain.ended, chain.defect) == (ChainEnd.DEFECT, RecordDefect.LENGTH_MISMATCH)


@pytest.mark.parametrize(
    ("field", "value", "defect"),
    [
        pytest.param(0, struct.pack(">i", 2), RecordDefect.ILLEGAL_MAGIC, id="magic"),
        pytest.param(4, struct.pack(">i", 60), RecordDefect.SIZE_TOO_SMALL, id="size too small"),
        pytest.param(4, struct.pack(">i", 1 << 20), RecordDefect.TRUNCATED, id="size too large"),
        pytest.param(4, struct.pack(">i", 180), RecordDefect.BAD_ENTRY, id="size wrong"),
        pytest.param(8, struct.pack(">q", 9), RecordDefect.ENTRY_OUT_OF_ORDER, id="index"),
        pytest.param(8, struct.pack(">q", -1), RecordDefect.BAD_ENTRY, id="index negative"),
        pytest.param(24, struct.pack(">q", 5), RecordDefect.BAD_ENTRY, id="pos"),
        pytest.param(44, struct.pack(">i", 5), RecordDefect.BAD_ENTRY, id="body length"),
        pytest.param(48, struct.pack(">i", 150), RecordDefect.BAD_ENTRY, id="the record's own size"),
        pytest.param(52, struct.pack(">i", 1), RecordDefect.ILLEGAL_MAGIC, id="the record's magic"),
        pytest.param(76, struct.pack(">q", 1), RecordDefect.FOREIGN_OFFSET, id="the record's own offset"),
        pytest.param(138, b"?", RecordDefect.BODY_CRC, id="body"),
    ],
)
def test_a_damaged_entry_is_named_and_only_it_is_lost(field: int, value: bytes, defect: RecordDefect) -> None:
    log = a_log()
    lost = log.records[5]
    entry = lost.offset - HEAD.size
    data = changed(log.segments[0], entry + field, value)
    for block_size in (SIZE, 200, 60):
        _, chain, found = walk(data, block_size)
        assert found == [placed.offset for placed in log.records[:5]]
        assert (chain.position, chain.ended, chain.defect) == (entry, ChainEnd.DEFECT, defect)
        assert (chain.first, chain.last) == (EntryNumber(0, 0), EntryNumber(4, 0))
    survey = surveyed(data)
    assert survey.pieces == ((lost.end, log.end_offset),)
    (gap, rest) = survey.gaps
    assert (gap.begin, gap.end, gap.finding) == (entry, lost.end, Finding.RECORD)
    assert (rest.begin, rest.end, rest.finding) == (log.end_offset, SIZE, Finding.ZEROS)
    if field in (4, 8, 24, 44):  # the record itself is sound
        assert gap.record is not None
        assert (gap.record.offset, gap.record.queue_offset) == (lost.offset, lost.message.queue_offset)


def test_copies_of_entries_in_a_lost_body_do_not_survive() -> None:
    log = a_log(5)
    held = encode_record(Message("Copied", queue_offset=0, store_timestamp=1), 0)
    where = log.end_offset + HEAD.size + 88 + HEAD.size
    log.message(body=encode_entry(encode_record(Message("Copied"), where), 3, 0, where - HEAD.size) + held)
    lost = log.records[-1]
    log.message(body=b"the next")
    survey = surveyed(changed(log.segments[0], lost.offset - HEAD.size + 4, struct.pack(">i", 1 << 20)))
    assert survey.pieces == ((lost.end, log.end_offset),)
    assert survey.gaps[0].finding == Finding.RECORD


def test_entries_of_an_older_term_after_the_end_are_stale() -> None:
    """What a follower is left with that cut its tail off: the next entry lies just where the old one did."""
    log = a_log()
    cut = log.records[10]
    old_end = log.end_offset
    log.truncate(cut.offset - HEAD.size)
    log.term = 2
    log.message(topic="T", queue_id=1, body=cut.message.body, tags="t")
    assert log.end_offset == cut.end
    for block_size in (SIZE, 60):
        _, chain, found = walk(log.segments[0], block_size)
        assert found == [placed.offset for placed in log.records]
    assert (chain.position, chain.defect) == (cut.end, RecordDefect.ENTRY_OUT_OF_ORDER)
    survey = surveyed(log.segments[0])
    assert survey.pieces == ()
    assert [(gap.begin, gap.end, gap.finding) for gap in survey.gaps] == [
        (cut.end, old_end, Finding.STALE),
        (old_end, SIZE, Finding.ZEROS),
    ]


def test_only_a_whole_entry_is_certified() -> None:
    log = a_log(3)
    where = log.end_offset + HEAD.size + 88
    log.message(body=encode_record(Message("Copied"), where))  # a record without an entry around it
    log.message()
    data, segment = log.segments[0], Segment("x", 0, SIZE, ENTRIES)
    window = BlockWindow(Bytes(data), segment)  # type: ignore[arg-type]
    begins = [placed.offset - HEAD.size for placed in log.records]
    for before, at in pairwise(begins):
        assert search_certificate(window, before + 1, SIZE, SIZE, 100).first == at
    assert search_certificate(window, begins[-1] + 1, SIZE, SIZE, 100).first is None
    for field in (0, 4, 8, 24, 44, 48):  # magic, size, index, place, body length, TOTALSIZE
        at = begins[0] + field
        other = BlockWindow(Bytes(changed(data, at, b"\xff")), segment)  # type: ignore[arg-type]
        assert search_certificate(other, 0, SIZE, SIZE).first == begins[1], field
    assert search_certificate(window, 1, begins[1], SIZE).first is None


def test_numbers_go_on() -> None:
    last, follows = EntryNumber(5, 2), ENTRIES.follows
    assert follows(last, EntryNumber(6, 2))
    assert follows(last, EntryNumber(6, 3))
    assert not follows(last, EntryNumber(6, 1))
    assert EntryFraming(6).follows(last, EntryNumber(6, 1))
    assert not EntryFraming(5).follows(last, EntryNumber(6, 1))
    assert not follows(last, EntryNumber(7, 2))
    assert not EntryFraming(9).follows(last, EntryNumber(7, 2))
    assert follows(last, EntryNumber(7, 2), gap=True)
    assert not follows(last, EntryNumber(5, 2), gap=True)
    assert follows(None, EntryNumber(7, 2))
    assert follows(last, None)


@pytest.mark.parametrize(
    ("head", "base", "framing"),
    [
        (encode_entry(bytes(91), 0, 0, 8192), 8192, ENTRIES),
        (struct.pack(">ii", -1, 8192) + bytes(40), 8192, None),
        (encode_record(Message(), 8192), 8192, PLAIN),
        (struct.pack(">iI", 8192, 0xCBD43194) + bytes(40), 8192, PLAIN),
        (encode_entry(bytes(91), 0, 0, 4096), 8192, None),
        (b"anything at all, as long as it is no head of either", 0, None),
        (bytes(48), 0, None),
        (b"\1", 0, None),
    ],
)
def test_the_first_bytes_show_the_framing(head: bytes, base: int, framing: object) -> None:
    assert framing_of(head, base) == framing


# --------------------------------------------------------------------------------------------- how far is it committed
def committed(log: EntryLogBuilder, root: Path, index: int) -> Committed:
    log.write(root, index)
    group = root / "dledger-n0"
    assert committed_index(str(group / "checkpoint")) == index
    return committed_end(find_segments([str(group / "data")], None), index)


def two_files() -> EntryLogBuilder:
    log = a_log(20)
    log.blank()
    for number in range(5):
        log.message(body=b"in the second file %d" % number)
    return log


@pytest.mark.parametrize("index", [0, 7, 18, 19, 20, 23])
def test_what_is_committed_ends_where_its_last_entry_does(tmp_path: Path, index: int) -> None:
    log = two_files()
    found = committed(log, tmp_path, index)
    assert found.end == log.records[index].end
    assert f"committedIndex={index}" in found.note


def test_a_log_that_is_all_committed_has_no_such_end(tmp_path: Path) -> None:
    assert committed(two_files(), tmp_path / "end", 24) == Committed()
    closed = a_log(20)
    closed.blank()  # the next file is there, and empty
    assert committed(closed, tmp_path / "blank", 19) == Committed()
    segments = find_segments([str(tmp_path / "blank" / "dledger-n0" / "data")], None)
    assert len(segments) == 2
    assert committed_end(segments[:1], 19) == Committed()  # it is not there yet


def test_a_checkpoint_that_does_not_fit_the_log(tmp_path: Path) -> None:
    ahead = committed(two_files(), tmp_path / "ahead", 30)
    end = two_files().end_offset
    assert ahead == Committed(None, "entry 30 is committed, but the entries end after number 24", end)
    nothing = committed(two_files(), tmp_path / "nothing", -1)
    assert (nothing.end, "no entry of this log is committed" in nothing.note) == (0, True)


def zeroed(log: EntryLogBuilder, root: Path, *lost: int) -> None:
    """Zeros entries of a log, by their numbers."""
    for placed in (log.records[number] for number in lost):
        overwrite_log(root / "dledger-n0" / "data", placed.offset - HEAD_SIZE, bytes(placed.size + HEAD_SIZE))


@pytest.mark.parametrize(
    ("lost", "index", "end"),
    [
        ((0,), 7, lambda log: log.records[7].end),
        ((0, 1, 2), 1, lambda log: log.records[3].offset - HEAD_SIZE),
        (tuple(range(20)), 7, lambda log: SIZE),
        ((5,), 7, lambda log: log.records[7].end),
        ((7,), 7, lambda log: log.records[8].offset - HEAD_SIZE),
        ((5, 9), 12, lambda log: log.records[12].end),
        ((18, 19), 19, lambda log: SIZE),
        ((20,), 20, lambda log: log.records[21].offset - HEAD_SIZE),
        ((20,), 22, lambda log: log.records[22].end),
    ],
    ids=["the first is lost", "it and all before it", "its file", "one before it", "it alone", "two before it",
         "the last of its file", "the first of a file", "one before it in the last file"],
)  # fmt: skip
def test_what_lies_after_damage_is_no_more_committed_than_before(
    lost: tuple[int, ...], index: int, end: Callable[[EntryLogBuilder], int], tmp_path: Path
) -> None:
    log = two_files()
    log.write(tmp_path)
    zeroed(log, tmp_path, *lost)
    found = committed_end(find_segments([str(tmp_path / "dledger-n0" / "data")], None), index)
    assert found.end == end(log)
    assert f"entries from offset {found.end} on are not known to be committed" in found.note


@pytest.mark.parametrize(
    ("number", "wrong", "end"),
    [(19, 17, None), (19, 500, 19), (10, 500, 20), (10, 3, 20)],
    ids=["the last, backwards", "the last, forwards", "one before it, forwards", "one before it, backwards"],
)
def test_an_entry_with_a_wrong_number_is_not_counted(number: int, wrong: int, end: int | None, tmp_path: Path) -> None:
    log = a_log(22 if end == 20 else 20)
    log.write(tmp_path)
    starts = [placed.offset - HEAD_SIZE for placed in log.records]
    overwrite_log(tmp_path / "dledger-n0" / "data", starts[number] + 8, wrong.to_bytes(8, "big"))
    found = committed_end(find_segments([str(tmp_path / "dledger-n0" / "data")], None), 19)
    assert (found.end, found.missing_from) == (None if end is None else starts[end], starts[number])
    assert found.note.startswith(f"entry 19 is committed, but the entries end after number {number - 1}")


def test_a_note_says_what_is_committed_and_what_is_not_known(tmp_path: Path) -> None:
    log = two_files()
    log.write(tmp_path)
    segments = find_segments([str(tmp_path / "dledger-n0" / "data")], None)
    zeroed(log, tmp_path, 7)
    end, follower = log.records[6].end, log.records[8].offset - HEAD_SIZE
    note = f"entry 7 is committed, but the entries end after number 6; entries from offset {follower} on are not known"
    assert committed_end(segments, 7) == Committed(follower, f"{note} to be committed (committedIndex=7)", end)
    zeroed(log, tmp_path, *range(20))
    found = committed_end(segments, 7)
    assert (found.end, found.missing_from, "the log has none before number 20" in found.note) == (SIZE, 0, True)
    assert committed_end(segments[1:], 7) == Committed(SIZE, "no entry of this log is committed (committedIndex=7)")


def test_a_file_that_was_listed_too_early_is_no_loss(tmp_path: Path) -> None:
    alone = a_log(20)
    alone.write(tmp_path / "alone")
    zeroed(alone, tmp_path / "alone", 0)
    found = committed_end(find_segments([str(tmp_path / "alone" / "dledger-n0" / "data")], None), 7)
    assert found.end == alone.records[7].end, "the only file is searched after zeros"
    closed = a_log(20)
    closed.blank()
    closed.write(tmp_path, 25)
    (tmp_path / "dledger-n0" / "data" / f"{SIZE:020d}").unlink()
    assert committed_end(find_segments([str(tmp_path / "dledger-n0" / "data")], None), 25) == Committed()


def test_a_checkpoint_may_be_missing_or_empty(tmp_path: Path) -> None:
    assert committed_index(str(tmp_path / "checkpoint")) is None
    (tmp_path / "checkpoint").write_text("endIndex=5\n")
    assert committed_index(str(tmp_path / "checkpoint")) is None
    os.truncate(tmp_path / "checkpoint", 1 << 30)
    with pytest.raises(NotAStore, match="too large"):
        committed_index(str(tmp_path / "checkpoint"))


@pytest.mark.parametrize(
    ("line", "index"),
    [
        ("committedIndex=5", 5),
        (" committedIndex = -1 ", -1),
        ("committedIndex=9223372036854775807", (1 << 63) - 1),
        *((f"committedIndex={text}", None) for text in ("", "X5", "--5", "5-", "\u00b2", 1 << 63, "9" * 5000)),
        *((text, None) for text in ("committedIndex", "xcommittedIndex=5", "committedindex=5")),
    ],
)
def test_a_line_of_a_checkpoint(line: str, index: int | None, tmp_path: Path) -> None:
    """What is no number is as if the line were not there: the next one counts."""
    path = tmp_path / "checkpoint"
    path.write_text(f"endIndex=7\n{line}\n", encoding="utf-8")
    assert committed_index(str(path)) == index
    path.write_bytes(b"\xff=1\n" + path.read_bytes() + b"committedIndex=3\n")
    assert committed_index(str(path)) == (3 if index is None else index)


# ------------------------------------------------------------------------------------------------------- dledger survey
Range = tuple[int, int]
ILLEGAL = RecordDefect.ILLEGAL_MAGIC
UNWRITTEN = RecordDefect.UNWRITTEN


def a_segment(count: int = 6, *, closed: bool = False, term: int = 0) -> tuple[bytearray, list[Range], EntryLogBuilder]:
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
    found = survey.survey(window, broken, DecodeRules(), keep_crc_failures=keep)
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
    data, entries, log = a_segment()
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
    data, entries, _ = a_segment()
    for at in (entries[2][0], entries[2][0] + HEAD.size + 3):  # the entry's magic, and TOTALSIZE
        data[at] ^= 0x7F
    assert surveyed(data).gaps[0] == DeadRange(*entries[2], Finding.RECORD, ILLEGAL)
    data, *_ = a_segment()
    for at in (entries[2][0], entries[2][0] + HEAD.size + 4):  # the entry's magic, and the record's
        data[at] ^= 0x7F
    assert surveyed(data).gaps[0] == DeadRange(*entries[2], Finding.RECORD, ILLEGAL)


def test_a_message_whose_crc_is_wrong_is_named_or_kept() -> None:
    data, entries, log = a_segment()
    placed = log.records[2]
    data[placed.offset + 88] ^= 1  # the first byte of the body
    record = RecordRef(placed.offset, placed.message.store_timestamp or 0, b"T", 1, 2)
    lost = surveyed(data)
    assert lost.gaps[0] == DeadRange(*entries[2], Finding.RECORD, RecordDefect.BODY_CRC, record)
    kept = surveyed(data, keep=True)
    assert (kept.kept, kept.pieces) == ((entries[2],), ((entries[2][1], log.end_offset),))
    assert findings(kept) == [tail(log)]


def test_two_damaged_entries_are_who_knows_how_many() -> None:
    data, entries, log = a_segment()
    data[entries[2][0]] = data[entries[3][0]] = 0x7F
    found = surveyed(data, keep=True)
    assert found.kept == ()
    assert findings(found) == [(entries[2][0], entries[3][1], Finding.BYTES, ILLEGAL), tail(log)]
    assert found.pieces == ((entries[4][0], log.end_offset),)
    data, entries, log = a_segment()
    data[0] = 0x7F  # nothing is proven before it: it is not counted
    assert findings(surveyed(data)) == [(*entries[0], Finding.BYTES, ILLEGAL), tail(log)]


def test_two_breaks_in_one_segment() -> None:
    data, entries, log = a_segment(7)
    data[entries[1][0]] = data[entries[4][0]] = 0x7F
    found = surveyed(data)
    assert [gap[:3] for gap in findings(found)[:2]] == [(*entries[1], Finding.RECORD), (*entries[4], Finding.RECORD)]
    assert found.pieces == ((entries[1][1], entries[3][1]), (entries[4][1], log.end_offset))


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
    monkeypatch.setattr(survey, "SURVEY_BLOCK", block)
    data, entries, log = a_segment(12)
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
    data, entries, log = a_segment()
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
    data, entries, _ = a_segment(closed=True)
    data[entries[2][0]] = 0x7F
    found = surveyed(data)
    assert (found.pieces, found.blank) == (((entries[3][0], entries[5][1]),), (entries[5][1], SIZE))
    assert [gap[:3] for gap in findings(found)] == [(*entries[2], Finding.RECORD)]


@pytest.mark.parametrize("closed", [False, True])
def test_the_last_entry_of_a_segment(closed: bool) -> None:
    data, entries, _ = a_segment(closed=closed)
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
    data, entries, log = a_segment(closed=closed)
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
    data, entries, _ = a_segment(closed=True)
    end = entries[5][1]
    data[end + at] ^= 0x15
    found = surveyed(data)
    assert (found.blank, found.pieces) == (None, ())
    assert [gap[:3] for gap in findings(found)] == [(end, SIZE, Finding.BLANK)]


def test_bytes_before_stale_entries_are_lost() -> None:
    _, entries, log = a_segment(9)
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
    data, entries, log = a_segment(term=5)
    data[entries[2][0]] = 0x7F
    for begin, _ in entries[3:]:
        data[begin + 16 : begin + 24] = struct.pack(">q", 4)
    assert surveyed(data, committed=5).pieces == ((entries[3][0], log.end_offset),)
    assert surveyed(data, committed=2).pieces == ()


def test_nothing_is_read_after_the_limit() -> None:
    data, entries, _ = a_segment()
    data[entries[2][0]] = 0x7F
    limit = entries[4][1]
    found = surveyed(data, limit=limit)
    assert (found.pieces, [gap[:3] for gap in findings(found)]) == (
        ((entries[3][0], limit),),
        [(*entries[2], Finding.RECORD)],
    )
    cut = surveyed(data, limit=entries[2][1] + 16)
    assert [gap[:3] for gap in findings(cut)] == [(entries[2][0], entries[2][1] + 16, Finding.BYTES)]


def test_zeros_between_entries_are_lost_pages() -> None:
    data, entries, log = a_segment()
    data[entries[2][0] : entries[3][1]] = bytes(entries[3][1] - entries[2][0])
    found = surveyed(data)
    assert findings(found) == [(entries[2][0], entries[3][1], Finding.BYTES, UNWRITTEN), tail(log)]
