"""Two copies of a segment held against each other, and one made of several."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from support.store_builder import LogBuilder

from storeformat.log.segments import Segment
from udfs.log.log_copies import MadeSegment, SharedRange, compare_copies, make_segment, ranges_by_segment


def segment(path: Path, content: bytes) -> Segment:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return Segment(str(path), 0, len(content))


def test_bodies_that_differ_belong_to_two_logs(tmp_path: Path) -> None:
    log, other = LogBuilder(1024), LogBuilder(1024)
    for number in range(2):
        log.message(body=b"mine")
        other.message(body=b"mine" if number == 0 else b"mink")
    one, two = segment(tmp_path / "one", log.segments[0]), segment(tmp_path / "two", other.segments[0])
    first = next(at for at in range(1024) if log.segments[0][at] != other.segments[0][at])
    (difference,) = compare_copies(iter([SharedRange(one, two, 0, log.end_offset)]))
    assert difference == first


def test_a_segment_of_its_own_bytes_and_those_of_a_copy(tmp_path: Path) -> None:
    own, copy = segment(tmp_path / "own", b"a" * 60), segment(tmp_path / "copy", b"b" * 100)
    short = replace(own, size=100, missing=40)
    path = tmp_path / "made" / "0"
    make_segment(MadeSegment(short, str(path), ((10, 20, copy), (70, 80, copy))))
    assert path.read_bytes() == b"a" * 10 + b"b" * 10 + b"a" * 40 + bytes(10) + b"b" * 10 + bytes(20)


def test_ranges_are_cut_at_the_ends_of_a_segment() -> None:
    assert ranges_by_segment([(0, 5), (8, 12), (15, 30), (20, 21)], Segment("x", 10, 10)) == [(10, 12), (15, 20)]


def test_properties_that_differ_without_a_crc_show_no_side_that_is_right(tmp_path: Path) -> None:
    log = LogBuilder(1024)
    record = log.message(body=b"body", keys="k")
    other = bytearray(log.segments[0])
    other[record.end - 2] ^= 1
    sides = segment(tmp_path / "one", log.segments[0]), segment(tmp_path / "other", bytes(other))
    (difference,) = compare_copies(iter([SharedRange(*sides, 0, log.end_offset)]))
    assert difference == record.end - 2
