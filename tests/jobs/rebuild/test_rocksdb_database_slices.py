"""Which units of a queue stay in RocksDB."""

from __future__ import annotations

import random

import pytest

from jobs.rebuild import rocksdb_database
from udfs.files.rocksdb_pairs import UnitSlice


def test_the_last_of_several_intervals_wins() -> None:
    source = random.Random(7)
    for _ in range(300):
        drawn = [(begin, begin + source.randrange(1, 9)) for begin in (source.randrange(40) for _ in range(8))]
        taken: list[tuple[int, int]] = []
        seen: set[int] = set()
        for begin, end in drawn:
            free = [place for low, high in rocksdb_database._free(taken, begin, end) for place in range(low, high)]
            assert free == [place for place in range(begin, end) if place not in seen]
            seen.update(free)
        assert sorted(seen) == [place for low, high in taken for place in range(low, high)]


@pytest.mark.parametrize("most", [1, 2, 3, 7, 100])
def test_parts_hold_all_units_in_their_order(most: int) -> None:
    """As many as there is room for: a slice goes to the next part whole, unless it is larger than a part."""
    source = random.Random(most)
    slices = [UnitSlice("T", queue, 10 * queue, "u", "t", 100 * queue, source.randrange(1, 9)) for queue in range(30)]
    parts = list(rocksdb_database.in_parts(slices, most))
    units = [(part.queue_id, part.queue_offset + at, part.begin + at) for one in parts for part in one
             for at in range(part.count)]  # fmt: skip
    assert units == [(whole.queue_id, whole.queue_offset + at, whole.begin + at) for whole in slices
                     for at in range(whole.count)]  # fmt: skip
    sizes = [sum(part.count for part in one) for one in parts]
    assert max(sizes) <= most
    for size, following in zip(sizes, parts[1:], strict=False):
        assert size + following[0].count > most
    assert list(rocksdb_database.in_parts([], most)) == []
