"""The proof of the chain: wrong guesses of splits are read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.store_builder import Embedded, LogBuilder, Message
from support.walking import segments_of, walk

from storeformat.errors import RecordDefect
from storeformat.log.block_window import BlockWindow, search_certificate
from storeformat.log.chain import Break, Chain, ChainReport, follow_chain
from storeformat.log.dledger import ENTRIES
from storeformat.log.framing import PLAIN, ChainEnd, EntryNumber, Framing
from storeformat.log.segments import Segment, Split, plan_splits
from storeformat.storage import files

SIZE = 4096


def scan(split: Split) -> ChainReport:
    """A split's report, with a guessed start where it has no known one."""
    with files.RangeReader(split.segment.path) as reader:
        start = split.first_record
        if start is None:
            start = search_certificate(BlockWindow(reader, split.segment), split.start, split.stop, split.limit).first
    if start is None:
        return ChainReport(split, None, split.start, ChainEnd.DEFECT)
    known = Split(split.number, split.segment, split.start, split.stop, split.limit, start)
    _, chain = walk(known)
    return ChainReport(split, start, chain.position, chain.ended, chain.defect)


@pytest.mark.parametrize("rejoins", [False, True])
@pytest.mark.parametrize("split_size", [90, 137, 512, SIZE])
def test_a_copy_in_a_body_is_no_record(tmp_path: Path, split_size: int, rejoins: bool) -> None:
    log = LogBuilder(SIZE)
    for _ in range(4):
        log.message(body=b"plain")
        log.message(body=Embedded((Message(body=b"false"), Message(body=b"false too")), lead=b"12345", rejoins=rejoins))
    segments = segments_of(log, tmp_path)
    splits = plan_splits(segments, split_size)
    reports = [scan(split) for split in splits]
    rounds = 0
    chain = follow_chain(segments, splits, reports)
    while chain.rescans:
        for split in chain.rescans:
            reports[split.number] = scan(split)
        chain = follow_chain(segments, splits, reports)
        rounds += 1
    assert rounds > 0 or split_size == SIZE
    starts: list[int] = []
    for report in chain.reports:
        assert report.start is not None
        split = report.split
        starts += walk(Split(0, split.segment, split.start, split.stop, split.limit, report.start))[0]
    assert starts == [placed.offset for placed in log.records]
    assert chain.end == log.end_offset


def test_old_records_under_a_blank_and_after_the_end_stay_out(tmp_path: Path) -> None:
    log = LogBuilder(SIZE)
    records = [log.message(body=bytes(100)) for _ in range(6)]
    log.truncate(records[2].offset)
    log.message(body=bytes(10))
    log.blank()
    log.message(body=b"next")
    segments = segments_of(log, tmp_path)
    splits = plan_splits(segments, 200)
    reports = [scan(split) for split in splits]
    assert any(report.start is not None and report.start > log.records[2].end for report in reports[:20])
    chain = follow_chain(segments, splits, reports)
    while chain.rescans:
        for split in chain.rescans:
            reports[split.number] = scan(split)
        chain = follow_chain(segments, splits, reports)
    assert sum(end - begin for begin, end in chain.blanks) == SIZE - log.records[2].end
    assert chain.end == log.end_offset


# ------------------------------------------------------------------------------------------------------- reports alone
def splits_of(*bases: int, framing: Framing = PLAIN) -> tuple[list[Segment], list[Split]]:
    """Segments of 300 bytes in splits of 100."""
    segments = [Segment("x", base, 300, framing) for base in bases]
    return segments, plan_splits(segments, 100)


def report(split: Split, start: int | None, end: int, ended: ChainEnd = ChainEnd.STOP, **more: Any) -> ChainReport:
    return ChainReport(split, start, end, ended, **more)


def test_a_log_of_nothing_ends_where_it_begins() -> None:
    assert follow_chain([], [], []) == Chain([], [], [], [], 0)
    assert follow_chain([Segment("x", 300, 300)], [], []) == Chain([], [], [], [], 300)


def test_splits_that_a_record_covers_are_passed_over() -> None:
    """Also where it ends just with one, whatever was found there."""
    segments, splits = splits_of(300)
    one = report(splits[0], 300, 500)
    three = report(splits[2], 500, 510, ChainEnd.DEFECT, defect=RecordDefect.UNWRITTEN)
    chain = follow_chain(segments, splits, [one, report(splits[1], 450, 480), three])
    assert chain == Chain([one, three], [], [Break(segments[0], 510, RecordDefect.UNWRITTEN, three)], [], 510)


def test_a_split_that_began_elsewhere_is_read_again() -> None:
    segments, splits = splits_of(300)
    one = report(splits[0], 300, 430)
    chain = follow_chain(segments, splits, [one, report(splits[1], 420, 500), report(splits[2], 500, 600)])
    again = Split(1, segments[0], 400, 500, 600, 430)
    assert (chain.reports, chain.rescans, chain.end) == ([one], [again], 430)


def test_a_blank_leads_to_the_end_of_its_segment() -> None:
    segments, splits = splits_of(0, 300)
    reports = [report(splits[0], 0, 70, ChainEnd.BLANK), *(report(split, None, split.start) for split in splits[1:3])]
    reports += [report(splits[3], 300, 390, ChainEnd.CUT), *(report(split, None, split.start) for split in splits[4:])]
    chain = follow_chain(segments, splits, reports)
    assert (chain.blanks, chain.breaks, chain.rescans, chain.end) == ([(70, 300)], [], [], 390)
    assert chain.reports == [reports[0], reports[3]]


@pytest.mark.parametrize(("first", "broken"), [(7, False), (8, True)])
def test_entries_go_on_from_segment_to_segment(first: int, broken: bool) -> None:
    """A number that does not follow ends the chain; once it has ended, a later one is enough."""
    segments, splits = splits_of(0, 300, framing=ENTRIES)
    ends = [100, 200, 300, 400, 500, 600]
    numbers = [(EntryNumber(2 * at + 1, 0), EntryNumber(2 * at + 2, 0)) for at in range(6)]
    numbers[3] = EntryNumber(first, 0), EntryNumber(8, 0)
    reports = [
        report(split, split.start, end, first_number=one, last_number=other)
        for split, end, (one, other) in zip(splits, ends, numbers, strict=True)
    ]
    chain = follow_chain(segments, splits, reports)
    if broken:
        expected = Break(segments[1], 300, RecordDefect.ENTRY_OUT_OF_ORDER, reports[3])
        assert (chain.reports, chain.breaks, chain.end) == (reports[:3], [expected], 300)
    else:
        assert (chain.reports, chain.breaks, chain.end) == (reports, [], 600)
