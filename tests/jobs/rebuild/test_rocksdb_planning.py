"""Which units of a queue stay in RocksDB."""

from __future__ import annotations

import random

from jobs.rebuild import rocksdb_planning


def test_the_last_of_several_intervals_wins() -> None:
    source = random.Random(7)
    for _ in range(300):
        drawn = [(begin, begin + source.randrange(1, 9)) for begin in (source.randrange(40) for _ in range(8))]
        taken: list[tuple[int, int]] = []
        seen: set[int] = set()
        for begin, end in drawn:
            free = [place for low, high in rocksdb_planning._free(taken, begin, end) for place in range(low, high)]
            assert free == [place for place in range(begin, end) if place not in seen]
            seen.update(free)
        assert sorted(seen) == [place for low, high in taken for place in range(low, high)]
