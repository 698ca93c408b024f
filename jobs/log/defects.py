"""Why bytes are no record, in words."""

from __future__ import annotations

from storeformat.errors import RecordDefect

_WORDS = {
    RecordDefect.UNWRITTEN: "zeros where a record should be",
    RecordDefect.TRUNCATED: "a record reaches past the end of its segment",
    RecordDefect.ILLEGAL_MAGIC: "no record starts where the previous one ends (illegal magic code)",
    RecordDefect.SIZE_TOO_SMALL: "a record's size is too small",
    RecordDefect.LENGTH_MISMATCH: "the lengths inside a record do not add up to its size",
    RecordDefect.BODY_CRC: "a body does not match its CRC",
    RecordDefect.PROPERTY_CRC: "a record does not match its property CRC",
    RecordDefect.BAD_DELAY: "the delay level of a delayed message is not a number",
    RecordDefect.BAD_INNER_BATCH: "an inner batch has no proper count or base",
    RecordDefect.BAD_NAME: "a record's topic or queue id cannot be a directory",
    RecordDefect.FOREIGN_OFFSET: "a record carries the offset of another place (was its segment renamed or moved?)",
    RecordDefect.RECORD_TOO_LARGE: "a record claims more than 256 MiB",
    RecordDefect.OLDER_LOG: "a segment starts with records of an older log",
    RecordDefect.BAD_ENTRY: "the head of a DLedger entry contradicts its place or the record in it",
    RecordDefect.ENTRY_OUT_OF_ORDER: "a DLedger entry does not follow the one before it (index or term)",
}


def describe(defect: RecordDefect) -> str:
    """Returns a defect in words, with its code in capitals for those who search."""
    return f"{_WORDS[defect]} [{defect.name}]"
