"""What a group has read and what copies of its offsets say, and the offsets that lose it nothing: a slow oracle.

Nothing here comes from ``storeformat`` or ``jobs``: a history is played, message by message.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass
class History:
    """One queue and one group: messages from ``begin`` to ``end`` are left, and ``commits`` never went back."""

    begin: int
    end: int
    commits: list[int]

    @property
    def committed(self) -> int:
        return self.commits[-1]

    def unread(self) -> set[int]:
        """The messages that the group has not read: it must get each of them, whatever is made of its offsets."""
        return set(range(max(self.committed, self.begin), self.end))

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
