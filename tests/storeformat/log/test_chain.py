"""The proof of the chain: wrong guesses of splits are read again."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.store_builder import Embedded, LogBuilder, Message
from support.walking import segments_of, walk

from storeformat.log.block_window import BlockWindow, search_certificate
from storeformat.log.chain import ChainReport, follow_chain
from storeformat.log.framing import ChainEnd
from storeformat.log.segments import Split, plan_splits
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
