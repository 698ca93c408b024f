"""Exceptions, record defects, and limits on what is read whole or listed.

Exceptions are for files and contracts: each class is one condition with one exit code, and carries where (path,
absolute offset) and what (found, expected). Record defects are codes in a column, because a vectorised decode cannot
raise per row; each is the first failed check, in the order of ``CommitLog#checkMessageAndReturnSize``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any


class StoreFormatError(Exception):
    """Base of this package's errors; picklable, so that one raised in a Spark task reaches the driver complete."""

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


class NotAStore(StoreFormatError):
    """The input is not a valid store: stray files, wrong lengths, a gap between segments."""


class WrongSettings(StoreFormatError):
    """A setting has an invalid value, or contradicts the store."""


class MissingInput(StoreFormatError):
    """The input does not exist or cannot be read."""

    exit_code = 66


class Refused(StoreFormatError):
    """The program must not go on: live store, output not empty, manifest that does not match."""

    exit_code = 2


class DamagedLog(Refused):
    """The log is damaged and the policy is ``fail``."""


class UsageError(StoreFormatError):
    """The command line is wrong."""

    exit_code = 64


class DependencyMissing(StoreFormatError):
    """Java, a jar or a file system client is missing."""

    exit_code = 69


class WriteFailed(StoreFormatError):
    """Reading or writing failed: disk full, permission, a file that changed meanwhile."""

    exit_code = 74


class TotalsDisagree(StoreFormatError):
    """The output does not hold what was read: a defect of this program. Never publish it."""

    exit_code = 70


class RecordDefect(IntEnum):
    """Why the bytes at a chain position are no record, in the order of the checks. A FOREIGN_OFFSET record is skipped,
    not the end of the chain. OLDER_LOG: times are older and queue offsets are used by surrounding segments.
    """

    words: str

    def __new__(cls, code: int, words: str = "") -> RecordDefect:  # noqa: PYI034  (Self is of Python 3.11)
        member = int.__new__(cls, code)
        member._value_ = code
        member.words = words
        return member

    def __str__(self) -> str:
        return f"{self.words} [{self.name}]"

    OK = 0, "a record"
    UNWRITTEN = 1, "zeros where a record should be"
    TRUNCATED = 2, "a record reaches past the end of its segment"
    ILLEGAL_MAGIC = 3, "no record starts where the previous one ends (illegal magic code)"
    SIZE_TOO_SMALL = 4, "a record's size is too small"
    LENGTH_MISMATCH = 5, "the lengths inside a record do not add up to its size"
    BODY_CRC = 6, "a body does not match its CRC"
    PROPERTY_CRC = 7, "a record does not match its property CRC"
    BAD_DELAY = 8, "the delay level of a delayed message is not a number"
    BAD_INNER_BATCH = 9, "an inner batch has no proper count or base"
    BAD_NAME = 10, "a record's topic or queue id cannot be a directory"
    FOREIGN_OFFSET = 11, "a record carries the offset of another place (was its segment renamed or moved?)"
    RECORD_TOO_LARGE = 12, "a record claims more than 256 MiB"
    OLDER_LOG = 13, "a segment starts with records of an older log"
    BAD_ENTRY = 14, "the head of a DLedger entry contradicts its place or the record in it"
    ENTRY_OUT_OF_ORDER = 15, "a DLedger entry does not follow the one before it (index or term)"


READ_WHOLE = 256 << 20  # bytes of a file that is parsed whole: no broker, Delta table or rebuild has a larger one
MAPPED_FILE = (1 << 31) - 1  # bytes of a queue file: a broker maps its files with an int length
LISTED = 1_000  # rows of a list in a report; counts are complete
