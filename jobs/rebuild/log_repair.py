"""Repaired copies of damaged segments, for a broker that would cut its log at the damage."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from jobs.log.log_scan import LogReading
from jobs.log.verified_chain import time_before
from storeformat.errors import Refused
from storeformat.log.framing import PLAIN
from storeformat.log.segments import Segment, segment_with
from storeformat.salvage.repair import Patch, crc_patch, fill_range, home_patches, join_ranges
from storeformat.storage import files, locations

_CHUNK = 8 << 20


def repair_log(reading: LogReading, directory: str, made: Collection[str] = ()) -> list[str]:
    """Write repaired copies of damaged segments, and all of ``made``; survivors keep their offsets. Returns names."""
    if reading.damaged and any(segment.framing != PLAIN for segment in reading.segments):
        # The members of a group agree on numbers, and no filler has one.
        raise Refused(
            "the log of a DLedger group is damaged where no copy of it is whole, and entries cannot be filled in",
            path=segment_with(reading.segments, reading.damaged[0].begin).path,
            offset=reading.damaged[0].begin,
            advice="name more members with --replica, or leave out --repair-log",
        )
    by_segment: dict[Segment, list[Patch]] = {segment: [] for segment in reading.segments if segment.path in made}
    for segment, patch in _patches(reading):
        by_segment.setdefault(segment, []).append(patch)
    if by_segment:
        files.make_directory(directory)
    for segment, patches in by_segment.items():
        _copy(segment, locations.join(directory, locations.name_of(segment.path)), patches)
    return [locations.name_of(segment.path) for segment in by_segment]


def _patches(reading: LogReading) -> Iterator[tuple[Segment, Patch]]:
    ranges = [(item.begin, item.end) for item in (*reading.damaged, *reading.stale) if item.begin < reading.end]
    records = [scan for scan in reading.scans if scan.records]
    for segment, begin, end in join_ranges(ranges, reading.segments):
        followed = any(end <= (scan.report.start or 0) < segment.end for scan in records)
        after = next((scan.times.first for scan in records if (scan.report.start or 0) >= end), None)
        time = time_before([scan for scan in records if scan.report.end <= begin], after) or after or 0
        for patch in fill_range(begin, end, segment, time, is_last=not followed):
            yield segment, patch
    last = reading.segments[-1]
    for item in reading.damaged:  # what is left of a record where the file was cut: zeros after it could make it whole
        if last.missing and reading.end <= item.begin:
            yield last, Patch(item.begin, bytes(item.end - item.begin))
    for item in reading.kept:
        segment = segment_with(reading.segments, item.begin)
        yield segment, crc_patch(_read(segment, item.begin, item.end - item.begin), item.begin)
    for stray in reading.losses.strays:
        if stray.home is None:
            continue
        segment = segment_with(reading.segments, stray.offset)
        size = int.from_bytes(_read(segment, stray.offset, 4), "big")
        topic, queue_id, queue_offset = stray.home
        record = _read(segment, stray.offset, size)
        for patch in home_patches(record, stray.offset, topic.encode(), queue_id, queue_offset):
            yield segment, patch


def _read(segment: Segment, offset: int, size: int) -> bytes:
    return files.read_range(segment.path, offset - segment.base, size)


def _copy(segment: Segment, target: str, patches: list[Patch]) -> None:
    buffer = bytearray(_CHUNK)
    with files.RangeReader(segment.path) as reader, files.FileWriter(target) as writer:
        for at in range(0, segment.size, _CHUNK):
            chunk = memoryview(buffer)[: min(_CHUNK, segment.size - at)]
            reader.read_into(at, chunk)
            writer.write(chunk)
        for patch in patches:
            writer.write_at(patch.offset - segment.base, patch.data)
