"""A log that runs into records of an earlier life of its file."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from support.in_memory import MemoryReader
from support.reading import read_segments
from support.store_builder import LogBuilder, Message

from jobs.verify.verify import earlier_life_note, taken_from
from storeformat.storage import files

SIZE = 1 << 16


def note_of(log: LogBuilder, split_size: int = SIZE) -> str | None:
    contents = {str(base): bytes(data) for base, data in log.segments.items()}
    reading = read_segments(log.segments, split_size)
    with mock.patch.object(files, "RangeReader", MemoryReader), mock.patch.object(MemoryReader, "contents", contents):
        return earlier_life_note(reading)


def a_log(older: int, **fields: Any) -> tuple[LogBuilder, int]:
    """Thirty messages, and some that claim places of the tenth on; returns where these begin."""
    log = LogBuilder(SIZE)
    for number in range(30):
        log.clock += 1
        log.message(Message("Topic", number % 2))
    begin = log.end_offset
    for number in range(older):
        log.message(Message("Topic", number % 2, queue_offset=5 + number // 2, **fields))
    return log, begin


@pytest.mark.parametrize("split_size", [200, SIZE])
def test_the_offset_is_named_from_which_on_times_and_queue_offsets_go_back(split_size: int) -> None:
    log, begin = a_log(6, store_timestamp=1_600_000_000_000)
    note = note_of(log, split_size)
    assert note is not None
    assert f"from offset {begin} on" in note


def test_nothing_is_said_of_a_log_that_goes_on() -> None:
    assert note_of(a_log(0)[0]) is None
    log, _ = a_log(6)
    assert note_of(log) is None, "its times go on"
    log, _ = a_log(1, store_timestamp=1_600_000_000_000)
    assert note_of(log) is None, "one record has a damaged queue offset"
    log, _ = a_log(6, store_timestamp=1_600_000_000_000)
    log.message(Message("Topic", 0, queue_offset=15))
    assert taken_from(read_segments(log.segments, SIZE).queue_runs) is None, "this life goes on after them"
