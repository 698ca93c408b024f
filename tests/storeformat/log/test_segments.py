"""Segments and splits."""

from __future__ import annotations

from support.refusals import refusal

from storeformat.errors import NotAStore
from storeformat.log.segments import LogPart, Segment, plan_splits, segment_at, segment_with


def test_splits_tile_every_segment() -> None:
    segments = [Segment("a", 0, 100), Segment("b", 100, 100)]
    splits = plan_splits(segments, 30, LogPart(until=150))
    assert [(split.start, split.stop) for split in splits] == [
        (0, 30), (30, 60), (60, 90), (90, 100), (100, 130), (130, 150),
    ]  # fmt: skip
    assert [split.first_record for split in splits] == [0, None, None, None, 100, None]
    assert {split.limit for split in splits if split.segment.base == 100} == {150}


def test_a_part_ends_in_a_log_where_it_is_told_to() -> None:
    segments = [Segment("a", 100, 100), Segment("b", 200, 100)]
    ends = {until: LogPart(until=until).end_in(segments) for until in (None, 0, 100, 150, 299, 300, 400)}
    assert ends == {None: 300, 0: 100, 100: 100, 150: 150, 299: 299, 300: 300, 400: 300}


def test_a_part_begins_where_it_is_told_to() -> None:
    segments = [Segment("a", 100, 100), Segment("b", 200, 100)]
    splits = plan_splits(segments, 60, LogPart(begin=150))
    assert [(split.number, split.start, split.stop, split.limit, split.first_record) for split in splits] == [
        (0, 150, 200, 200, 150), (1, 200, 260, 300, 200), (2, 260, 300, 300, None),
    ]  # fmt: skip


def test_a_segment_holds_the_offsets_from_its_base_up_to_its_end() -> None:
    segments = [Segment("a", 100, 50), Segment("b", 150, 50), Segment("d", 250, 50)]
    places = {offset: segment_at(segments, offset) for offset in (99, 100, 149, 150, 199, 200, 249, 250, 299, 300)}
    names = {offset: segment.path for offset, segment in places.items() if segment is not None}
    assert names == {100: "a", 149: "a", 150: "b", 199: "b", 250: "d", 299: "d"}
    said = {"what": "no segment of the log holds this offset", "offset": 200}
    assert refusal(NotAStore, lambda: segment_with(segments, 200)) == said
