"""Which records a survey believes where their claims are in doubt."""

from __future__ import annotations

import struct

import pytest
from support.store_builder import Embedded, LogBuilder, Message, encode_record
from support.surveying import SIZE, a_log_of, came_out, changed, claiming, without


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
