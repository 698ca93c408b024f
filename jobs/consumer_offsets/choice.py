"""One offset for each group and queue, so that no group skips a message that it has not read.

==============================  ======================================================================================
source                          the number
==============================  ======================================================================================
the store's own file, sound     what is in it, and nothing else counts
the file before its tear,       that of the first copy that has the queue: a group committed it once, so it had read
``.bak``, replicas              all before
POP checkpoints                 the end of what was handed out from the queue's first message on without a hole, and not
                                beyond the newest checkpoint: what of it is not acknowledged comes again by itself
none                            the queue's first message: a message that was retried, or a checkpoint after a hole,
                                shows that the group reads the topic, and not how far it came
==============================  ======================================================================================

No number goes beyond the end of its queue: what is stored next would be skipped. The last two count only where no copy
has the queue: without an offset consumers begin at its end, unless they say otherwise. A group that was set back, or
forward, after a copy was written begins where that copy says. Groups of the broker itself that no copy has are left
out, for they begin where their queue begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jobs.consumer_offsets.copies import OffsetsCopy
from jobs.consumer_offsets.ranges import QueueRanges, Range, TopicQueue
from storeformat.record.pending import RETRY_PREFIX
from storeformat.store.config.config_files import FileState
from storeformat.store.config.consumer_offsets import SYSTEM_GROUPS, highest_committed
from udfs.log.consumption import Consumption, HandedOut

BEGIN, POP, TIME = "begin of the queue", "POP checkpoints", "time"


@dataclass(frozen=True)
class ChosenOffset:
    """The offset of a group in a queue. ``found`` is what the source had, ``range`` None where it is not known."""

    topic: str
    group: str
    queue_id: int
    offset: int
    source: str
    found: int | None = None
    range: Range | None = None

    @property
    def read_again_at_most(self) -> int | None:
        """How many messages from ``offset`` on the group may have read before; None where that is not known."""
        return None if self.range is None else max(self.range[1] - max(self.offset, self.range[0]), 0)

    @property
    def skipped(self) -> int:
        """How many messages the group passes over that it had not committed: only where it is set to a time."""
        return max(self.offset - self.found, 0) if self.source == TIME and self.found is not None else 0

    def as_row(self) -> dict[str, Any]:
        begin, end = self.range or (None, None)
        return {
            "group": self.group,
            "topic": self.topic,
            "queue_id": self.queue_id,
            "offset": self.offset,
            "source": self.source,
            "found": self.found,
            "begin": begin,
            "end": end,
            "read_again_at_most": self.read_again_at_most,
            "skipped": self.skipped,
        }


def choose(
    copies: Sequence[OffsetsCopy],
    ranges: QueueRanges,
    consumption: Consumption,
    at: Mapping[TopicQueue, int] | None = None,
) -> list[ChosenOffset]:
    """Returns the offsets, by topic, group and queue. ``copies`` are in the order in which they are believed, ``at`` is
    where each queue begins for groups that are set to a time: all but retries and the broker's own.
    """
    sound = bool(copies) and copies[0].content is FileState.SOUND
    if sound:
        copies, consumption = copies[:1], Consumption()
    chosen = list(_from_copies(copies, ranges))
    if not sound or at is not None:
        chosen += _from_log(copies, ranges, consumption)
    if at is not None:
        chosen = [_at_time(one, at) for one in chosen]
    return sorted(chosen, key=lambda one: (one.topic, one.group, one.queue_id))


def _from_copies(copies: Sequence[OffsetsCopy], ranges: QueueRanges) -> Iterator[ChosenOffset]:
    taken: set[tuple[str, str, int]] = set()
    for copy in copies:
        for (topic, group), queues in copy.offsets.items():
            for queue_id, found in queues.items():
                if (topic, group, queue_id) in taken:
                    continue
                taken.add((topic, group, queue_id))
                known = ranges.of(topic, queue_id)
                offset = found if known is None else min(found, highest_committed(group, known[1]))
                if offset >= 0:
                    yield ChosenOffset(topic, group, queue_id, offset, copy.source, found, known)


def _from_log(copies: Sequence[OffsetsCopy], ranges: QueueRanges, consumption: Consumption) -> Iterator[ChosenOffset]:
    """Yields the offsets in queues that no copy has, of topics that a group is known to read."""
    copied = {(*key, queue) for copy in copies for key, queues in copy.offsets.items() for queue in queues}
    read = {(topic, group) for topic, group, _ in (*copied, *consumption.handed_out)} | consumption.subscriptions
    for topic, group in sorted(read):
        if group.startswith(SYSTEM_GROUPS):
            continue
        for queue_id in ranges.queues(topic):
            if (topic, group, queue_id) not in copied:
                begin, end = ranges.known[topic, queue_id]
                handed = consumption.handed_out.get((topic, group, queue_id))
                offset = min(max(_end_of(handed, begin), begin), end)
                source = POP if offset > begin else BEGIN
                yield ChosenOffset(topic, group, queue_id, offset, source, None, (begin, end))


def _end_of(handed: HandedOut | None, begin: int) -> int:
    """Returns the end of what was handed out without a hole from ``begin`` on."""
    if handed is None:
        return begin
    piece = next((end for first, end in handed.pieces if first <= begin < end), begin)
    return min(piece, handed.last_end)


def _at_time(one: ChosenOffset, at: Mapping[TopicQueue, int]) -> ChosenOffset:
    if one.group.startswith(SYSTEM_GROUPS) or one.topic.startswith(RETRY_PREFIX) or one.range is None:
        return one
    before = one.offset if one.found is None else one.found
    return replace(one, offset=at.get((one.topic, one.queue_id), one.range[1]), source=TIME, found=before)
