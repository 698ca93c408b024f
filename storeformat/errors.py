"""What can go wrong with a store, in two kinds.

*Exceptions* are for files and contracts: a caller can do something about them, and each class is one condition with one
exit code of the command line. They carry where (path, absolute offset) and what (found, expected); the message is built
when it is shown.

*Record defects* are codes in a column, because a vectorised decode cannot raise per row. Each code names the first
check that a record failed, in the order of ``CommitLog#checkMessageAndReturnSize``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any


class StoreFormatError(Exception):
    """Base of everything this package raises on purpose.

    ``path`` is the file or directory, ``offset`` an absolute commit-log offset, ``found`` and ``expected`` the two
    sides of a check that failed, ``advice`` what a person can do about it. All are optional keyword arguments and
    picklable, so that an error raised in a Spark task reaches the driver whole.
    """

    exit_code = 65

    def __init__(
        self,
        what: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        found: Any = None,
        expected: Any = None,
        advice: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.path = path
        self.offset = offset
        self.found = found
        self.expected = expected
        self.advice = advice

    def __str__(self) -> str:
        text = self.what
        sides = [
            f"{side} {value}"
            for side, value in (("found", self.found), ("expected", self.expected))
            if value is not None
        ]
        if sides:
            text += ": " + ", ".join(sides)
        where = ", ".join(
            part for part in (self.path, None if self.offset is None else f"offset {self.offset}") if part is not None
        )
        return f"{text} ({where})" if where else text

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.what, self.__dict__.copy())


def _rebuild(cls: type[StoreFormatError], what: str, state: dict[str, Any]) -> StoreFormatError:
    error = cls(what)
    error.__dict__.update(state)
    return error


class NotAStore(StoreFormatError):
    """The input exists but is not what it should be: stray files, lengths that do not fit, a gap between segments."""

    exit_code = 65


class WrongSettings(StoreFormatError):
    """A setting is no valid value, or contradicts what the store shows."""

    exit_code = 65


class MissingInput(StoreFormatError):
    """The input does not exist or cannot be read."""

    exit_code = 66


class Refused(StoreFormatError):
    """The program could go on but must not: live store, output not empty, manifest that does not match."""

    exit_code = 2


class DamagedLog(Refused):
    """The log is damaged and the policy is ``fail``."""


class UsageError(StoreFormatError):
    """The command line is wrong."""

    exit_code = 64


class DependencyMissing(StoreFormatError):
    """Something needed is missing: Java, a jar, a file system client."""

    exit_code = 69


class WriteFailed(StoreFormatError):
    """Reading or writing failed underway: disk full, permission, a file that changed under us."""

    exit_code = 74


class TotalsDisagree(StoreFormatError):
    """What was written does not hold what was read: a defect of this program, never to be published."""

    exit_code = 70


class RecordDefect(IntEnum):
    """Why the bytes at a position of the chain are not a record. ``OK`` is 0; the order is the order of the checks."""

    OK = 0
    UNWRITTEN = 1
    """Size and magic are both zero: nothing was written here (a clean end only in the last written segment)."""
    TRUNCATED = 2
    """The record, or its head, reaches past the end of the segment."""
    ILLEGAL_MAGIC = 3
    SIZE_TOO_SMALL = 4
    """TOTALSIZE is smaller than the smallest record with these flags, or negative."""
    LENGTH_MISMATCH = 5
    """TOTALSIZE is not the sum of the parts: a length field (body, topic or properties) is wrong."""
    BODY_CRC = 6
    PROPERTY_CRC = 7
    BAD_DELAY = 8
    """SCHEDULE_TOPIC_XXXX with a DELAY property that Java's Integer.parseInt rejects."""
    BAD_INNER_BATCH = 9
    """INNER_NUM and INNER_BASE both present, one of them no short or long."""
    BAD_NAME = 10
    """The topic is no file name (empty, '.', '..', holds a slash or NUL) or the queue id is negative: it can have no
    directory."""
    FOREIGN_OFFSET = 11
    """The stored PHYSICALOFFSET is not where the record lies. Not a fault of the chain: stepped over, never
    dispatched."""
    RECORD_TOO_LARGE = 12
    """TOTALSIZE is beyond what this program takes into memory at once."""
    OLDER_LOG = 13
    """A segment begins with records of an older log under offsets of this one: of older times, in places of their
    queues that the segments around it take."""
    BAD_ENTRY = 14
    """The head of a DLedger entry contradicts its place or the record in it."""
    ENTRY_OUT_OF_ORDER = 15
    """The index of a DLedger entry is not the next one, or its term is older than that of the entry before it."""
