"""Comparison of rebuilt files with those of a golden store (``support.golden``), the broker's own.

What is compared is decoded with formats of this module's own, so that a mistake in ``storeformat`` cannot hide here.

A comparison returns a list of :class:`Difference`, at most one a file: the first unit that differs, decoded.
The three modes of the manifest:

=========  ==========================================================================================
exact      every consume queue, batch, ext and index file byte for byte, index files in order of name
from_min   the head of the log is gone: units below ``log.min_offset`` count as pre-blank, files of
           nothing else do not count, and of the index the (key hash, offset) pairs from there on count
to_end     the log was truncated once: bytes after the end of a queue are old, the index is exact
=========  ==========================================================================================
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from support.golden import GoldenStore, chain

CQ_UNIT = struct.Struct(">qiq")
BATCH_UNIT = struct.Struct(">qiqqqhii")
EXT_UNIT = struct.Struct(">hqqh")
INDEX_HEADER = struct.Struct(">qqqqii")
INDEX_ENTRY = struct.Struct(">iqii")
PRE_BLANK = CQ_UNIT.pack(0, 0x7FFFFFFF, 0)
UNWRITTEN = bytes(CQ_UNIT.size)

CQ_FIELDS = ("phy_offset", "size", "tags_code")
BATCH_FIELDS = (*CQ_FIELDS, "store_time", "msg_base_offset", "batch_size", "compacted", "reserved")
INDEX_HEADER_FIELDS = (
    "begin_timestamp",
    "end_timestamp",
    "begin_phy_offset",
    "end_phy_offset",
    "hash_slot_count",
    "index_count",
)
INDEX_ENTRY_FIELDS = ("key_hash", "phy_offset", "time_diff", "prev_index")


@dataclass(frozen=True)
class Difference:
    file: str
    unit: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.file}: {self.unit}: expected {self.expected}, found {self.found}"


# --- consume queues ---------------------------------------------------------------------------------------------
def queue_differences(expected_root: Path, actual_root: Path, store: GoldenStore) -> list[Difference]:
    """What differs in consume, batch and ext queues; the actual ones are of the log below ``dispatched_up_to``."""
    differences: list[Difference] = []
    for artefact in ("consumequeue", "batchconsumequeue", "consumequeue_ext"):
        expected = _files_below(expected_root / artefact)
        actual = _files_below(actual_root / artefact)
        if artefact == "consumequeue":
            for file in store.files_only_the_log_knows - expected.keys():
                actual.pop(file, None)
            if store.compare == "from_min":
                expected = _from_min(expected, store.min_offset)
                actual = _from_min(actual, store.min_offset)
            elif store.compare == "to_end":
                expected = _to_end(expected, chain(expected_root, store))
        elif artefact == "consumequeue_ext":
            bitmap = int(store.entry.get("filter_bitmap_bytes", 0))
            expected = {file: _without_bitmaps(data, bitmap) for file, data in expected.items()}
            actual = {file: _without_bitmaps(data, bitmap) for file, data in actual.items()}
        unit = {"consumequeue": (CQ_UNIT, CQ_FIELDS), "batchconsumequeue": (BATCH_UNIT, BATCH_FIELDS)}.get(artefact)
        differences += _compare_files(expected, actual, unit)
    return differences


def _files_below(directory: Path) -> dict[str, bytes]:
    if not directory.is_dir():
        return {}
    return {
        path.relative_to(directory.parent).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def _from_min(files: Mapping[str, bytes], min_offset: int) -> dict[str, bytes]:
    """The files with units below ``min_offset`` as pre-blanks, without the files that then hold nothing else."""
    masked: dict[str, bytes] = {}
    for file, data in files.items():
        units = bytearray(data)
        alive = False
        for position in range(0, len(units), CQ_UNIT.size):
            if units[position : position + CQ_UNIT.size] == UNWRITTEN:
                break
            if CQ_UNIT.unpack_from(units, position)[0] < min_offset:
                units[position : position + CQ_UNIT.size] = PRE_BLANK
            else:
                alive = True
        if alive:
            masked[file] = bytes(units)
    return masked


def _to_end(files: Mapping[str, bytes], records: Mapping[int, int]) -> dict[str, bytes]:
    """The broker's files with zeros for the old units after a queue's end: they point at no record of the log."""
    cleaned: dict[str, bytes] = {}
    for file, data in files.items():
        alive = [
            number for number, (offset, size, _) in enumerate(CQ_UNIT.iter_unpack(data)) if records.get(offset) == size
        ]
        if alive:
            cleaned[file] = data[: CQ_UNIT.size * (alive[-1] + 1)].ljust(len(data), b"\0")
    return cleaned


def _without_bitmaps(data: bytes, bitmap_bytes: int) -> bytes:
    """An ext file with zeros for the filter bit maps: they come from consumers, no log can give them back."""
    masked, position = bytearray(data), 0
    while position + EXT_UNIT.size <= len(masked):
        size, _, _, bitmap = EXT_UNIT.unpack_from(masked, position)
        if size < EXT_UNIT.size or bitmap != bitmap_bytes:
            break
        masked[position + EXT_UNIT.size : position + size] = bytes(size - EXT_UNIT.size)
        position += size
    return bytes(masked)


def _compare_files(
    expected: Mapping[str, bytes], actual: Mapping[str, bytes], unit: tuple[struct.Struct, tuple[str, ...]] | None
) -> list[Difference]:
    differences = []
    for file in sorted(expected.keys() | actual.keys()):
        if file not in actual:
            differences.append(Difference(file, "file", f"{len(expected[file])} bytes", "no such file"))
        elif file not in expected:
            differences.append(Difference(file, "file", "no such file", f"{len(actual[file])} bytes"))
        elif expected[file] != actual[file]:
            differences.append(_first_unit(file, expected[file], actual[file], unit))
    return differences


def _first_unit(
    file: str, expected: bytes, actual: bytes, unit: tuple[struct.Struct, tuple[str, ...]] | None
) -> Difference:
    if len(expected) != len(actual):
        return Difference(file, "length", str(len(expected)), str(len(actual)))
    position = _first_byte(expected, actual)
    if unit is None:
        span = slice(position, position + 20)
        return Difference(file, f"byte {position}", expected[span].hex(), actual[span].hex())
    layout, fields = unit
    number = position // layout.size
    return Difference(
        file,
        f"unit {number}",
        _decoded(layout, fields, expected, number * layout.size),
        _decoded(layout, fields, actual, number * layout.size),
    )


def _first_byte(expected: bytes, actual: bytes) -> int:
    """The first position at which two byte strings of one length differ."""
    low, high = 0, len(expected)
    while high - low > 1:
        middle = (low + high) // 2
        if expected[low:middle] == actual[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _decoded(layout: struct.Struct, fields: tuple[str, ...], data: bytes, position: int) -> str:
    if layout.size > len(data) - position:
        return data[position:].hex()
    raw = data[position : position + layout.size]
    if not any(raw):
        return "unwritten"
    if layout is CQ_UNIT and raw == PRE_BLANK:
        return "pre-blank"
    return ", ".join(f"{field}={value}" for field, value in zip(fields, layout.unpack(raw), strict=True))


# --- index ------------------------------------------------------------------------------------------------------
def index_differences(
    expected_root: Path, actual_root: Path, store: GoldenStore, *, from_begin: bool = True
) -> list[Difference]:
    """What differs between index files, in order of name. Of a store with ``index_begins_at`` the pairs of key hash and
    offset from there on are compared; without ``from_begin`` the actual index has no others, and every byte counts.
    """
    slots = int(store.settings["maxHashSlotNum"])
    expected, actual = _files_below(expected_root / "index"), _files_below(actual_root / "index")
    first_offset = store.min_offset if store.compare == "from_min" else None
    if store.index_begins_at is not None and from_begin:
        first_offset = store.index_begins_at
    if first_offset is not None:
        return _compare_pairs(expected, actual, slots, first_offset)
    if len(expected) != len(actual):
        return [Difference("index", "number of files", str(len(expected)), str(len(actual)))]
    differences = []
    for number, (file, data) in enumerate(expected.items()):
        want, found = data, list(actual.values())[number]
        if store.killed and number == len(expected) - 1:
            want = _counted_from_one(data, found)
        if want != found:
            differences.append(_first_index_unit(f"{file} (index file {number})", want, found, slots))
    return differences


def _counted_from_one(expected: bytes, found: bytes) -> bytes:
    """An empty last index file as a broker leaves it when stopped: killed before a flush, it still counts from 0."""
    if not any(expected[36:40]) and found[36:40] == b"\0\0\0\1" and not any(expected[40:]):
        return expected[:36] + found[36:40] + expected[40:]
    return expected


def _compare_pairs(
    expected: Mapping[str, bytes], actual: Mapping[str, bytes], slots: int, first_offset: int
) -> list[Difference]:
    want = [pair for pair in _pairs(expected.values(), slots) if pair[1] >= first_offset]
    have = [pair for pair in _pairs(actual.values(), slots) if pair[1] >= first_offset]
    for number, (one, other) in enumerate(zip(want, have, strict=False)):
        if one != other:
            return [Difference("index", f"pair {number} from {first_offset} on", str(one), str(other))]
    if len(want) != len(have):
        return [Difference("index", f"number of pairs from {first_offset} on", str(len(want)), str(len(have)))]
    return []


def _pairs(files: Iterable[bytes], slots: int) -> Iterator[tuple[int, int]]:
    for data in files:
        for number in range(1, INDEX_HEADER.unpack_from(data)[5]):
            key_hash, phy_offset, _, _ = INDEX_ENTRY.unpack_from(data, 40 + 4 * slots + INDEX_ENTRY.size * number)
            yield key_hash, phy_offset


def _first_index_unit(file: str, expected: bytes, actual: bytes, slots: int) -> Difference:
    if len(expected) != len(actual):
        return Difference(file, "length", str(len(expected)), str(len(actual)))
    entries = 40 + 4 * slots
    # Entries first: a wrong entry also shows in its slot and in the header, and says more than they do.
    if expected[entries:] != actual[entries:]:
        number = _first_byte(expected[entries:], actual[entries:]) // INDEX_ENTRY.size
        position = entries + number * INDEX_ENTRY.size
        want = _decoded(INDEX_ENTRY, INDEX_ENTRY_FIELDS, expected, position)
        return Difference(file, f"entry {number}", want, _decoded(INDEX_ENTRY, INDEX_ENTRY_FIELDS, actual, position))
    if expected[40:entries] != actual[40:entries]:
        number = _first_byte(expected[40:entries], actual[40:entries]) // 4
        want_slot, have_slot = (struct.unpack_from(">i", data, 40 + 4 * number)[0] for data in (expected, actual))
        return Difference(file, f"slot {number}", str(want_slot), str(have_slot))
    for field, one, other in zip(
        INDEX_HEADER_FIELDS, INDEX_HEADER.unpack_from(expected), INDEX_HEADER.unpack_from(actual), strict=True
    ):
        if one != other:
            return Difference(file, f"header {field}", str(one), str(other))
    raise AssertionError("the files are equal")
