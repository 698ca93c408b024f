"""Small logs in memory with damage in them, and what a survey finds in one."""

from __future__ import annotations

import struct

from support.in_memory import Bytes
from support.store_builder import LogBuilder, Placed

from storeformat.log.block_window import BlockWindow
from storeformat.log.chain_walk import ChainWalk
from storeformat.log.framing import ChainEnd
from storeformat.log.segments import Segment, Split
from storeformat.record.decode import DecodeRules
from storeformat.salvage.evidence import Neighbours
from storeformat.salvage.survey import Broken, Survey, survey

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
    near = near or Neighbours(whole=True, before=1_700_000_000_000)
    place = Broken(Segment("x", 0, len(data)), chain.position, chain.defect, len(data), near)
    return survey(window, place, RULES, keep_crc_failures=keep)


def changed(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def without(data: bytes, *records: Placed) -> bytes:
    """The log with some records destroyed."""
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
    pieces = surveyed(data, Neighbours(ends, whole=True, before=before[-1].message.store_timestamp)).pieces
    offsets = [offset for begin, end in pieces for offset in walk(data[:end], begin)[2]]
    return [next(number for number, placed in enumerate(records) if placed.offset == offset) for offset in offsets]
