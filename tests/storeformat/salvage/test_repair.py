"""Records in the place of damage."""

from __future__ import annotations

import pytest

from storeformat.log.segments import Segment
from storeformat.salvage.repair import MAX_FILLER, fill_range


@pytest.mark.parametrize("more", [-1, 0, 1, 90, 91, 92, MAX_FILLER - 91, MAX_FILLER - 1, MAX_FILLER, MAX_FILLER + 1])
def test_fillers_leave_no_rest_that_is_too_small_for_a_record(more: int) -> None:
    size = MAX_FILLER + more
    patches = list(fill_range(100, 100 + size, Segment("x", 0, 1 << 24), 5))
    assert [patches[0].offset, *(patch.end for patch in patches)] == [
        *(patch.offset for patch in patches),
        100 + size,
    ]
    assert all(91 <= len(patch.data) <= MAX_FILLER for patch in patches)
