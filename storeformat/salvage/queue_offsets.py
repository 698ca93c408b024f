"""The queue offsets that the records of a block claim, and whether they continue what is known.

Queue offsets are dense, so each claim is compared with the previous one in its queue:

==================  ==================================================================================
next place          a succession
a later place       as many messages are missing
place 0             the queue begins, or begins again: a succession only where nothing was known of it
an earlier place    a contradiction, and so is every claim after it, until the queue begins again
a place taken       by what lies after the block: a contradiction
==================  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import compress, repeat

import numpy as np

from storeformat.arrays import Bools, Int64s, stable_order
from storeformat.record.decode import RecordBlock
from storeformat.record.dispatch import dispatched

Queue = tuple[bytes, int]  # topic and queue id


@dataclass(frozen=True)
class Claims:
    """Queued records by queue, then log order: ``sizes[i]`` rows of ``queues[i]`` from ``begins[i]`` on."""

    queues: list[Queue]
    begins: Int64s
    sizes: Int64s
    rows: Int64s
    numbers: Int64s

    @property
    def lasts(self) -> Int64s:
        return self.begins + self.sizes - 1

    def ends(self) -> Iterator[tuple[Queue, int]]:
        """Each queue with its next free place."""
        return zip(self.queues, [number + 1 for number in self.numbers[self.lasts].tolist()], strict=True)


def claims_of(block: RecordBlock) -> Claims:
    rows = np.flatnonzero(dispatched(block))
    codes, queue_ids = block.topic_codes[rows], block.heads.queue_id[rows]
    width = int(queue_ids.max(initial=0)) + 1
    groups = codes.astype(np.int64) * width + queue_ids
    order = stable_order(groups, len(block.topics) * width)
    groups = groups[order]
    begins = np.flatnonzero(np.append(True, groups[1:] != groups[:-1])[: len(groups)])
    firsts = order[begins]
    topics = map(block.topics.__getitem__, codes[firsts].tolist())
    return Claims(
        queues=list(zip(topics, queue_ids[firsts].tolist(), strict=True)),
        begins=begins,
        sizes=np.append(begins, len(groups))[1:] - begins,
        rows=rows[order],
        numbers=block.heads.queue_offset[rows][order],
    )


def is_taken(claims: Claims, ends: Mapping[Queue, int]) -> Bools:
    """Which claims are before the next free place of their queue."""
    return claims.numbers <= np.repeat(_last_places(claims, ends), claims.sizes)


def _last_places(claims: Claims, ends: Mapping[Queue, int]) -> Int64s:
    """The last place, not the next free one, which may not fit 64 bits."""
    return np.array([end - 1 for end in map(ends.get, claims.queues, repeat(0))], np.int64)


@dataclass(frozen=True)
class Comparison:
    """Counts of claims, and ``contradicted``: queues in which every following claim contradicts."""

    claims: int = 0
    successions: int = 0
    missing: int = 0
    contradictions: int = 0
    contradicted: frozenset[Queue] = frozenset()

    @property
    def contradicts(self) -> bool:
        """True if more places are wrong than right."""
        return self.contradictions > 0 and self.successions <= self.contradictions


def compare(
    claims: Claims, ends: Mapping[Queue, int], firsts: Mapping[Queue, int], so_far: Comparison, *, whole: bool
) -> Comparison:
    """Compare claims with the next free places ``ends`` and the places ``firsts`` taken after the block, and add to
    ``so_far``. In a ``whole`` log an unknown queue begins at 0.
    """
    queues, numbers, begins = claims.queues, claims.numbers, claims.begins
    following = np.fromiter(map(firsts.get, queues, repeat(0)), np.int64, len(queues))
    before = np.empty_like(numbers)
    before[1:] = numbers[:-1]
    before[begins] = _last_places(claims, ends)
    births = numbers == 0
    is_wrong = (numbers > 0) & (numbers <= before)
    if so_far.contradicted or is_wrong.any():
        was_wrong = np.fromiter(map(so_far.contradicted.__contains__, queues), bool, len(queues))
        is_wrong = _and_what_follows(is_wrong, births, begins, was_wrong)
    behind = np.repeat(following, claims.sizes)
    against = is_wrong | ((behind != 0) & (behind <= numbers))

    is_known = np.fromiter(map(ends.__contains__, queues), bool, len(queues))
    goes_on = ~(against | births) & (numbers > before)
    goes_on[begins] &= whole | is_known
    between = numbers[goes_on].view(np.uint64) - before[goes_on].view(np.uint64) - np.uint64(1)
    begun = births[begins] & ~against[begins] & ~is_known & whole
    now_wrong = compress(queues, is_wrong[claims.lasts].tolist())
    return Comparison(
        claims=so_far.claims + len(numbers),
        successions=so_far.successions + int(np.count_nonzero(between == 0) + np.count_nonzero(begun)),
        missing=so_far.missing + sum(between[between > 0].tolist()),
        contradictions=so_far.contradictions + int(np.count_nonzero(against)),
        contradicted=so_far.contradicted.difference(queues if so_far.contradicted else ()).union(now_wrong),
    )


def _and_what_follows(is_wrong: Bools, births: Bools, begins: Int64s, was_wrong: Bools) -> Bools:
    """A wrong claim makes the later ones of its queue wrong, until the queue begins again."""
    decisive = births | is_wrong
    decisive[begins] = True
    is_wrong[begins] |= was_wrong & ~births[begins]
    return np.asarray(is_wrong[np.maximum.accumulate(np.where(decisive, np.arange(len(births)), 0))])
