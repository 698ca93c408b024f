"""Following sizes through a segment, in every implementation, against a slow loop."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.kernel_columns import implementations, padded


@settings(max_examples=3 * settings.default.max_examples, deadline=None)
@given(st.data(), st.lists(st.integers(0, 40), min_size=1, max_size=12))
def test_sizes_lead_up_to_stop_and_within_limit(data: st.DataObject, sizes: list[int]) -> None:
    log = b"".join(size.to_bytes(4, "big") + bytes(max(size - 4, 0)) for size in sizes)
    limit = data.draw(st.integers(0, len(log)))
    stop = data.draw(st.integers(0, limit))
    expected, at = [], 0
    for size in sizes:
        if at >= stop or at + 4 > limit or size < 8 or at + size > limit:
            break
        expected.append(at)
        at += size
    for implementation in implementations():
        positions, reached = implementation.walk_sizes(padded(log), 0, stop, limit)
        assert (positions.tolist(), reached) == (expected, at)
