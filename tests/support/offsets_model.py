"""What a group has read and what copies of its offsets say, and the offsets that lose it nothing: a slow oracle.

Nothing here comes from ``storeformat`` or ``jobs``: a history is played, message by message.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass
class History:
    """One queue and one group over time: ``end`` messages were stored, those below ``begin`` deleted since; the group
    committed ``commits``, one after the other, without ever going back.

    ``checkpoints`` are what POP handed out, [begin, end) each, in the order of the log; without them the group pulled.
    """

    begin: int
    end: int
    commits: list[int]
    checkpoints: list[tuple[int, int]] = field(default_factory=list)

    @property
    def committed(self) -> int:
        return self.commits[-1]

    def unread(self) -> set[int]:
        """The messages that the group has not read: it must get each of them, whatever is made of its offsets. What a
        checkpoint in the log has comes again by itself.
        """
        handed = {number for first, last in self.checkpoints for number in range(first, last)}
        return set(range(max(self.committed, self.begin), self.end)) - handed

    def read_again(self, offset: int) -> set[int]:
        """The messages that the group gets a second time when it begins at an offset."""
        return set(range(max(offset, self.begin), min(self.committed, self.end)))


def pulled(chance: random.Random) -> History:
    """A group that pulls: it commits what it has read."""
    end = chance.randrange(1, 40)
    begin = chance.randrange(0, end)
    commits, at = [0], 0
    while chance.random() < 0.8 and at < end:
        at = chance.randrange(at, end + 1)
        commits.append(at)
    return History(begin, end, commits)


def popped(chance: random.Random) -> History:
    """A group that pops, from the queue's first message on. Some checkpoints were acknowledged in memory and never
    written, others still are in memory: the committed offset stands before the first of these.
    """
    end = chance.randrange(1, 40)
    written: list[tuple[int, int]] = []
    at, committed = 0, None
    while at < end and chance.random() < 0.85:
        stop = min(end, at + chance.randrange(1, 6))
        fate = chance.choice(["written", "written", "written", "acknowledged", "in memory"])
        if fate == "written":
            written.append((at, stop))
        elif fate == "in memory" and committed is None:
            committed = at
        at = stop
    return History(0, end, [at if committed is None else committed], written)
