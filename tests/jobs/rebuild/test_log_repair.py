"""Repaired copies of segments: what they hold where damage was, in small logs."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from support.rebuilding import rebuild_here
from support.store_builder import LogBuilder

from jobs.rebuild.log_repair import repair_log

SEGMENT = 4096
NOON = 1_700_000_000_000


def a_log(segments: int = 1) -> LogBuilder:
    """Records of one queue, 10 ms apart."""
    log = LogBuilder(SEGMENT)
    for number in range(5 * segments):
        if number and number % 5 == 0:
            log.blank()
        log.message(body=b"body of a message %d" % number, store_timestamp=NOON + 10 * number)
    return log


def repaired(root: Path, log: LogBuilder, *changes: tuple[int, bytes], keep: bool = False) -> dict[int, bytes]:
    """The repaired segments of a salvaged log that has other bytes at some offsets."""
    log.write(root)
    for offset, data in changes:
        with (root / "commitlog" / f"{offset - offset % SEGMENT:020d}").open("r+b") as file:
            file.seek(offset % SEGMENT)
            file.write(data)
    (root / "work").mkdir()
    sizes = {"maxHashSlotNum": 100, "maxIndexNum": 50}
    reading = rebuild_here(root, root / "work", sizes, on_damage="salvage", keep_crc_failures=keep).reading
    names = repair_log(reading, str(root / "repaired"))
    return {int(name): (root / "repaired" / name).read_bytes() for name in names}


@pytest.mark.parametrize(("lost", "before"), [(2, 1), (4, 3), (0, 1)])
def test_a_filler_has_the_time_of_the_record_before_it(lost: int, before: int, tmp_path: Path) -> None:
    """At the start of the log it is that of the record after it: times in a log do not run backwards."""
    log = a_log(2)
    placed = log.records[lost]
    data = repaired(tmp_path, log, (placed.offset, b"\xa5" * placed.size))[0]
    assert struct.unpack_from(">q", data, placed.offset + 56) == (NOON + 10 * before,)


def test_a_filler_takes_no_damaged_time(tmp_path: Path) -> None:
    log = a_log()
    lost = log.records[2]
    future = log.records[1].offset + 56, struct.pack(">q", 1 << 50)
    data = repaired(tmp_path, log, (lost.offset, b"\xa5" * lost.size), future)[0]
    (time,) = struct.unpack_from(">q", data, lost.offset + 56)
    assert NOON <= time <= NOON + 30


def test_a_damaged_blank_becomes_what_it_was(tmp_path: Path) -> None:
    log = a_log(2)
    blank = log.records[4].end
    assert repaired(tmp_path, log, (blank + 4, b"\0")) == {0: log.segments[0]}


def test_the_first_record_of_a_segment_is_kept_with_the_crc_of_its_body(tmp_path: Path) -> None:
    log = a_log(2)
    first = log.records[5]
    data = repaired(tmp_path, log, (first.offset + 8, b"\xff\xff\xff\xff"), keep=True)
    assert data == {SEGMENT: log.segments[SEGMENT]}
