"""Records in the place of damage."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.store_builder import Message, encode_record

from storeformat.log.segments import Segment
from storeformat.salvage.repair import MAX_FILLER, crc_patch, fill_range, home_patches, is_filler, join_ranges


@pytest.mark.parametrize("more", [-1, 0, 1, 90, 91, 92, MAX_FILLER - 91, MAX_FILLER - 1, MAX_FILLER, MAX_FILLER + 1])
def test_fillers_leave_no_rest_that_is_too_small_for_a_record(more: int) -> None:
    size = MAX_FILLER + more
    patches = list(fill_range(100, 100 + size, Segment("x", 0, 1 << 24), 5))
    assert [patches[0].offset, *(patch.end for patch in patches)] == [
        *(patch.offset for patch in patches),
        100 + size,
    ]
    assert all(91 <= len(patch.data) <= MAX_FILLER for patch in patches)


def test_the_topic_of_fillers_may_be_cut() -> None:
    cut = [b"rmq_sys_lost"[:length] for length in range(13)]
    assert [is_filler(topic) for topic in cut] == [False] + [True] * 12
    assert not is_filler(b"rmq_sys_lost2")
    assert not is_filler(b"RMQ")


@pytest.mark.parametrize("hosts", [{}, {"born_host": ("2001:db8::1", 5), "store_host": ("2001:db8::2", 5)}])
@pytest.mark.parametrize(("old", "new"), [("Topic", "T0pic"), ("Topic", "Other2"), ("T" * 300, "U" * 300)])
def test_a_record_gets_another_place_and_topic_where_its_length_fits(
    old: str, new: str, hosts: dict[str, tuple[str, int]]
) -> None:
    message = Message(topic=old, queue_id=7, queue_offset=8, body=b"some body", tags="t", **hosts)
    record = bytearray(encode_record(message, 4096))
    for patch in home_patches(bytes(record), 4096, new.encode(), 3, 1 << 40):
        record[patch.offset - 4096 : patch.end - 4096] = patch.data
    kept = new if len(new) == len(old) else old
    assert record == encode_record(replace(message, topic=kept, queue_id=3, queue_offset=1 << 40), 4096)


def test_a_negative_body_length_counts_as_none() -> None:
    message = Message(topic="Topic", body=b"", body_length=-5)
    record = encode_record(message, 0)
    assert [patch.data for patch in home_patches(record, 0, b"Other", 0, 0)][2:] == [b"Other"]
    assert crc_patch(record, 0).data == bytes(4)


def test_ranges_are_cut_at_segments_and_joined_within_them() -> None:
    one, other = Segment("a", 0, 100), Segment("b", 100, 100)
    assert join_ranges([(150, 160), (160, 170), (0, 5)], [one, other]) == [(one, 0, 5), (other, 150, 170)]
    assert join_ranges([(99, 101), (101, 102)], [one, other]) == [(one, 99, 100), (other, 100, 102)]
    assert join_ranges([(5, 5), (200, 300)], [one, other]) == []
