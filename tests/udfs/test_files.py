"""Files written by tasks, and compared."""

from __future__ import annotations

import hashlib
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.recfunctions import append_fields
from support import java_rules
from support.broker_index import IndexFile
from support.store_builder import LogBuilder

from storeformat.arrays import LogExtent, as_fields
from storeformat.errors import TotalsDisagree
from storeformat.index.index_check import IndexCheck, Rows
from storeformat.index.index_file import ROW
from storeformat.log.segments import Segment
from storeformat.queues import consume_queue
from storeformat.queues.queue_check import Finding, Findings
from storeformat.queues.rocksdb_queues import FAMILIES, VALUE, rocksdb_queues_in
from storeformat.record.decode import DecodeRules
from storeformat.storage import files, rocksdb
from storeformat.store.settings import Settings
from udfs.files import build, rocksdb_pairs
from udfs.files.build import (
    BuildFiles,
    OutputDirectory,
    PlannedIndexFile,
    PlannedQueueFile,
    PlannedQueueFiles,
    Totals,
    rows_of,
)
from udfs.files.rocksdb_pairs import (
    ComparePairs,
    QueueEnds,
    QueuePart,
    UnitSlice,
    WriteTables,
    write_ends,
)
from udfs.files.verify import (
    ComparedQueueFile,
    CompareIndexFiles,
    CompareQueueFiles,
)
from udfs.log.staged_files import Readers, Slices

# --------------------------------------------------------------------------------------------------------- build
SMALL_INDEX = Settings(observed={"maxHashSlotNum": 5, "maxIndexNum": 12})
counts_of_files = st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=4), max_size=20)


def made_in(tmp_path: Path) -> OutputDirectory:
    return OutputDirectory(str(tmp_path / "made"), str(tmp_path / "drafts"))


def queue_files(counts: list[list[int]]) -> PlannedQueueFiles:
    """Files whose slices have these counts, each slice from another source than its neighbours."""
    flat = [count for file in counts for count in file]
    numbers = np.arange(len(counts))
    files, slices = np.zeros(len(counts), consume_queue.FILE), np.zeros(len(flat), consume_queue.SLICE)
    files["key"], files["base"], files["pre_blanks"] = numbers[::-1] << 32 | numbers, numbers * 20_000, numbers % 3
    files["slices"] = [len(file) for file in counts]
    slices["source"], slices["begin"], slices["count"] = np.arange(len(flat)) % 3, np.arange(len(flat)), flat
    topics = tuple(b"topic-%d" % number for number in range(len(counts)))
    return PlannedQueueFiles("consumequeue", topics, files, Slices(("a.units", "b.units", "c.units"), slices))


def said(file: PlannedQueueFile) -> tuple[Any, ...]:
    return file.path, list(file.slices), file.pre_blanks


@given(counts=counts_of_files, most_files=st.integers(1, 8), units=st.integers(1, 200))
def test_batches_are_all_files_in_their_order(counts: list[list[int]], most_files: int, units: int) -> None:
    planned = queue_files(counts)
    batches = planned.batches(most_files, units)
    assert [said(file) for batch in batches for file in batch] == [said(file) for file in planned]
    for batch, following in zip_longest(batches, batches[1:]):
        sizes = batch.counts().tolist()
        assert 1 <= len(sizes) <= most_files
        assert sum(sizes) <= units or len(sizes) == 1
        if following is not None:
            assert len(sizes) == most_files or sum(sizes) + following.counts()[0] > units


def test_a_file_takes_along_only_the_sources_it_has() -> None:
    planned = queue_files([[1, 2], [3], [4, 5, 6, 7]])
    first, second, third = planned
    assert [file.slices.sources for file in planned] == [
        ("a.units", "b.units"), ("c.units",), ("a.units", "b.units", "c.units")
    ]  # fmt: skip
    assert first.path == "consumequeue/topic-2/0/00000000000000000000"
    assert second.path == "consumequeue/topic-1/1/00000000000000020000"
    slices = [("a.units", 3, 4), ("b.units", 4, 5), ("c.units", 5, 6), ("a.units", 6, 7)]
    assert said(third) == ("consumequeue/topic-0/2/00000000000000040000", slices, 2)
    assert planned.counts().tolist() == [3, 3, 22]
    assert [batch.topics for batch in planned.batches(1, 1)] == [(b"topic-2",), (b"topic-1",), (b"topic-0",)]
    assert queue_files([]).batches(5, 5) == []


def slices_of(path: Path, *rows: tuple[int, int, bool], ext_numbers: Sequence[int] | None = None) -> Slices:
    table = np.array([(0, *row) for row in rows], consume_queue.SLICE)
    if ext_numbers is not None:
        table = append_fields(table, "ext_number", np.array(ext_numbers), usemask=False)
    return Slices((str(path),), table)


def test_a_pre_blank_unit_among_the_messages_is_refused(tmp_path: Path) -> None:
    """Consumers would skip all messages of the log's first segment after it."""
    staged = tmp_path / "s.units"
    staged.write_bytes(consume_queue.pack_units([500, 0, 600], [91, 0x7FFFFFFF, 91], [7, 0, 8]).tobytes())
    file = PlannedQueueFile("consumequeue", ("T", 3), 120, Slices.of((str(staged), 0, 3)))
    task = BuildFiles(made_in(tmp_path), Settings(observed={"mappedFileSizeConsumeQueue": 120}))
    with pytest.raises(TotalsDisagree, match="pre-blank"):
        list(task(iter([[file]])))
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("begins", [[-1, -1], [0, -1], [-1, 2], [3, 6]])
def test_addresses_take_the_place_of_tags_codes(tmp_path: Path, begins: list[int]) -> None:
    """Two ext units of 20 bytes fill a file of 44; the copies of a filler share one."""
    staged = tmp_path / "f.units"
    staged.write_bytes(consume_queue.pack_units([500, 600, 700], [91, 92, 93], [7, 8, 9]).tobytes())
    slices = slices_of(staged, (0, 2, True), (1, 2, False), ext_numbers=begins)
    file = PlannedQueueFile("consumequeue", ("T", 3), 0, slices)
    output = made_in(tmp_path)
    sizes = {"mappedFileSizeConsumeQueue": 100, "mappedFileSizeConsumeQueueExt": 44}
    (_,) = BuildFiles(output, Settings(observed=sizes))(iter([[file]]))
    units = consume_queue.parse_units((tmp_path / "made" / file.path).read_bytes())

    def address(number: int) -> int:
        return number // 2 * 44 + number % 2 * 20 - (1 << 63)

    first = [7, 7] if begins[0] < 0 else [address(begins[0])] * 2
    rest = [8, 9] if begins[1] < 0 else [address(begins[1]), address(begins[1] + 1)]
    assert units["tags_code"].tolist() == [*first, *rest, 0]


def test_a_file_has_the_time_of_its_last_message(tmp_path: Path) -> None:
    log = LogBuilder(1024, base=1024)
    records = [log.message(topic="T", store_timestamp=1_700_000_000_000 + 10_000 * number) for number in range(3)]
    segment = tmp_path / f"{1024:020d}"
    segment.write_bytes(log.segments[1024])
    staged = tmp_path / "s.units"
    staged.write_bytes(consume_queue.pack_units([one.offset for one in records], [9] * 3, [0] * 3).tobytes())
    output = made_in(tmp_path)
    for count in (3, 2):
        file = PlannedQueueFile("consumequeue", ("T", count), 0, Slices.of((str(staged), 0, count)))
        segments = (Segment("none", 0, 1024), Segment(str(segment), 1024, 1024))
        (_,) = BuildFiles(output, Settings(observed={"mappedFileSizeConsumeQueue": 100}), segments)(iter([[file]]))
        assert (tmp_path / "made" / file.path).stat().st_mtime == 1_700_000_000 + 10 * (count - 1)


@pytest.mark.parametrize("count_every_put", [False, True])
@pytest.mark.parametrize("rows_at_a_time", [1, 3, 1 << 16])
@pytest.mark.parametrize("entries", [1, 4, 9])
def test_index_files_are_those_of_a_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count_every_put: bool, rows_at_a_time: int, entries: int
) -> None:
    """Two files, the second after the first; the rows of the first are of two sources."""
    monkeypatch.setattr(build.index_file, "ENTRIES_AT_ONCE", rows_at_a_time)
    monkeypatch.setattr(build, "_READ_CHUNK", 20 * max(rows_at_a_time, 2))
    keys = [f"T#key{number % 6}" for number in range(entries + 2)]
    times = [1_700_000_000_000 + 700 * number for number in range(entries + 2)]
    rows = np.zeros(entries + 2, ROW)
    rows["key_hash"] = [java_rules.math_abs(java_rules.hash_code(key)) for key in keys]
    rows["offset"], rows["store_timestamp"] = np.arange(entries + 2) * 100 + 5, times
    sources = []
    for name, part in (("a", rows[:1]), ("b", rows[1:])):
        (tmp_path / name).write_bytes(part.tobytes())
        sources.append(str(tmp_path / name))
    first = Slices.of((sources[0], 0, 1), *([(sources[1], 0, entries - 1)] if entries > 1 else []))
    planned = [
        PlannedIndexFile("index/1", first, None),
        PlannedIndexFile("index/2", Slices.of((sources[1], entries - 1, 2)), first.last),
    ]
    output = made_in(tmp_path)
    made = rows_of(
        pa.Table.from_batches(BuildFiles(output, SMALL_INDEX, count_every_put=count_every_put)(iter(planned)))
    )
    one = IndexFile([0] * 5, 12, count_every_put)
    two = IndexFile([0] * 5, 12, count_every_put)
    for number, (key, time) in enumerate(zip(keys, times, strict=True)):
        if number == entries:
            two.begin_phy_offset = two.end_phy_offset = one.end_phy_offset
            two.begin_timestamp = two.end_timestamp = one.end_timestamp
        assert (one if number < entries else two).put_key(key, 100 * number + 5, time)
    sums = [
        sum(100 * number + 5 for number in range(begin, end)) for begin, end in ((0, entries), (entries, entries + 2))
    ]
    for row, file, count, total in zip(made, (one, two), (entries, 2), sums, strict=True):
        content, used = file.to_bytes(), 40 + 4 * 5 + 20 * (count + 1)
        assert (tmp_path / "made" / row["path"]).read_bytes() == content
        assert (row["count"], row["offset_sum"], row["size"], row["data_size"]) == (count, total, 300, used)
        assert row["sha256"] == hashlib.sha256(content[:used]).digest()
    assert [build.staged_timestamp(sources[1], row) for row in range(2)] == times[1:3]


def test_an_index_file_that_storage_changed_is_never_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.zeros(2, ROW)
    rows["offset"], rows["store_timestamp"] = [5, 7], 1_700_000_000_000
    (tmp_path / "s").write_bytes(rows.tobytes())
    planned = PlannedIndexFile("index/1", Slices.of((str(tmp_path / "s"), 0, 2)), None)
    finish = files.FileWriter.finish
    for position in (35, 40 + 4 * 5 + 20 * 3, 300):
        output = made_in(tmp_path)

        def change(writer: files.FileWriter, size: int, position: int = position) -> None:
            finish(writer, size)
            writer.write_at(position, b"\x07")

        with monkeypatch.context() as patch:
            patch.setattr(files.FileWriter, "finish", change)
            with pytest.raises(TotalsDisagree, match="index file differs"):
                list(BuildFiles(output, SMALL_INDEX)(iter([planned])))
        assert not (tmp_path / "made").exists()


# -------------------------------------------------------------------------------------------------- output files
def left_in(tmp_path: Path) -> list[str]:
    return sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())


def test_a_row_is_of_the_bytes_on_storage(tmp_path: Path) -> None:
    seen = []

    def tally(stored: memoryview) -> Totals:
        seen.append((bytes(stored), left_in(tmp_path)[0].startswith("drafts/")))
        return Totals(2, 7, modified=1_700_000_000_001)

    row = made_in(tmp_path).make_of("a/b", [b"one", b"two"], 10, tally, what="a file")
    assert seen == [(b"onetwo", True)]
    made = tmp_path / "made" / "a" / "b"
    assert made.read_bytes() == b"onetwo".ljust(10, b"\0")
    assert made.stat().st_mtime == 1_700_000_001  # whole seconds, rounded up
    assert (row["path"], row["count"], row["offset_sum"]) == ("a/b", 2, 7)
    assert (row["size"], row["data_size"]) == (10, 6)
    assert row["sha256"] == hashlib.sha256(b"onetwo").digest()
    assert left_in(tmp_path) == ["made/a/b"]


def test_what_fails_gets_no_name(tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"one"
        raise TotalsDisagree("no more")

    def refuse(_stored: memoryview) -> Totals:
        raise TotalsDisagree("not these")

    with pytest.raises(TotalsDisagree, match="no more"):
        made_in(tmp_path).make_of("a", broken(), 10, refuse, what="a file")
    assert left_in(tmp_path) == []
    with pytest.raises(TotalsDisagree, match="not these"):
        made_in(tmp_path).make_of("a", [b"one"], 10, refuse, what="a file")
    assert not (tmp_path / "made").exists()


def test_bytes_that_storage_changed_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte among the zeros: the file holds more than what was written."""
    finish = files.FileWriter.finish

    def finish_and_change(writer: files.FileWriter, size: int) -> None:
        finish(writer, size)
        writer.write_at(8, b"x")

    monkeypatch.setattr(files.FileWriter, "finish", finish_and_change)
    with pytest.raises(TotalsDisagree, match="a queue file"):
        made_in(tmp_path).make_of("a", [b"one"], 10, lambda _stored: Totals(1), what="a queue file")
    assert not (tmp_path / "made").exists()


# -------------------------------------------------------------------------------------------------------- verify
UNITS = [(500, 91, 7), (600, 92, -8), (700, 93, 9)]
"""Commit-log offset, size and tags code."""
PRE_BLANK = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)


def units(*rows: tuple[int, int, int]) -> bytes:
    return b"".join(struct.pack(">qiq", *row) for row in rows)


def compared(
    tmp_path: Path,
    content: bytes | None,
    *,
    rows: list[tuple[int, int, int]] = UNITS,
    begin: int = 0,
    fillers: list[bool] | None = None,
    segments: tuple[Segment, ...] = (),
    topic: str = "T",
) -> ComparedQueueFile:
    """A file of six units held against these rows, of which each is a slice of its own."""
    tmp_path.mkdir(exist_ok=True)
    staged, path = tmp_path / "s.units", tmp_path / "consumequeue" / topic / "3" / f"{120:020d}"
    staged.write_bytes(units(*rows))
    path.parent.mkdir(parents=True)
    if content is not None:
        path.write_bytes(content)
    marks = fillers or [False] * len(rows)
    slices = slices_of(staged, *((number, 1, marks[number]) for number in range(len(rows))))
    file = PlannedQueueFile("consumequeue", (topic, 3), 120, slices, pre_blanks=begin)
    (found,) = CompareQueueFiles(str(tmp_path), 120, segments, DecodeRules(), LogExtent(400, 800))(iter([[file]]))
    assert found.file == file
    return found


def differences(found: ComparedQueueFile) -> list[tuple[int | None, str, int]]:
    return [(one.position, one.cause, one.count) for one in found.units.differences]


def counts(found: ComparedQueueFile) -> dict[str, int]:
    return +found.units.counts


@pytest.mark.parametrize("begin", [0, 1, 3])
def test_a_file_as_the_log_makes_it(tmp_path: Path, begin: int) -> None:
    content = (PRE_BLANK * begin + units(*UNITS)).ljust(120, b"\0")
    found = compared(tmp_path, content, begin=begin)
    assert (found.size, found.first_expected, found.last_expected) == (120, 500, 700)
    assert (differences(found), counts(found)) == ([], {"equal": 3})


def test_a_file_that_is_not_there_lacks_all_units(tmp_path: Path) -> None:
    found = compared(tmp_path, None, begin=1)
    assert (found.size, found.first_expected, found.last_expected) == (None, 500, 700)
    assert (differences(found), counts(found)) == ([(0, "missing_unit", 4)], {})


@pytest.mark.parametrize("length", [119, 121, 140])
def test_a_file_of_another_length_is_not_compared(tmp_path: Path, length: int) -> None:
    found = compared(tmp_path, bytes(length))
    assert (found.size, found.first_expected, found.last_expected) == (length, 500, 700)
    assert (differences(found), counts(found)) == ([(None, "wrong_size", 1)], {})


@pytest.mark.parametrize("place", range(6))
def test_units_are_read_up_to_the_last_that_is_not_zero(tmp_path: Path, place: int) -> None:
    content = bytearray(120)
    content[place * 20 : place * 20 + 20] = units((900, 90, 1))
    found = compared(tmp_path, bytes(content), rows=[])
    assert (found.first_expected, found.last_expected) == (-1, -1)
    assert [(one.cause, one.position) for one in found.units.hazards] == [("units_beyond_log", 20 * place)]


def test_what_is_in_the_place_of_a_lost_message_is_not_known(tmp_path: Path) -> None:
    content = (PRE_BLANK * 2 + units(UNITS[0], (12345, 90, 1), UNITS[2])).ljust(120, b"\0")
    found = compared(tmp_path, content, begin=2, fillers=[False, True, False])
    assert (differences(found), counts(found)) == ([], {"equal": 2, "unproven": 1})
    other = compared(tmp_path / "again", content, begin=2, fillers=[False, False, True])
    assert differences(other) == [(60, "wrong_unit", 1)]


def address(offset: int) -> int:
    """Stands in a unit whose tags code is in consumequeue_ext."""
    return offset - (1 << 63)


@pytest.mark.parametrize(
    ("second", "agrees"),
    [
        (struct.pack(">hqqh", 20, -8, 5, 0), True),
        (struct.pack(">hqqh", 23, -8, 5, 3) + b"map", True),
        (struct.pack(">hqqh", 23, -8, 5, 2) + b"map", False),
        (struct.pack(">hqqh", 20, 8, 5, 0), False),
        (struct.pack(">hqqh", 20, -8, 5, 0)[:-1], False),
        (b"", False),
    ],
)
def test_an_address_leads_to_the_tags_code(tmp_path: Path, second: bytes, agrees: bool) -> None:
    """Into the second of two files of a queue, after another unit."""
    content = units((500, 91, address(0)), (600, 92, address(120)), (700, 93, address(100))).ljust(120, b"\0")
    without = compared(tmp_path / "without", content)
    assert differences(without) == [(0, "wrong_unit", 3)]
    ext = tmp_path / "consumequeue_ext" / "T" / "3"
    ext.mkdir(parents=True)
    (ext / f"{0:020d}").write_bytes(struct.pack(">hqqh", 20, 7, 5, 0))
    (ext / f"{100:020d}").write_bytes(struct.pack(">hqqh", 20, 9, 5, 0) + second)
    found = compared(tmp_path, content)
    assert differences(found) == ([] if agrees else [(20, "wrong_unit", 1)])
    assert counts(found) == {"equal": 2 + agrees, "ext": 2 + agrees}


@pytest.mark.parametrize("base", [0, 4096])
def test_tags_codes_of_delayed_messages(tmp_path: Path, base: int) -> None:
    """The hash of the tags, or a time by another messageDelayLevel, in the place of a delivery time."""
    log = LogBuilder(4096, base=base)
    log.message(topic="Other")
    records = [log.message(topic="SCHEDULE_TOPIC_XXXX", tags=tags) for tags in ("t", "u", "v", "w")]
    path = tmp_path / "segment"
    path.write_bytes(log.segments[base])
    due, hash_of_t = 1_700_000_000_000, java_rules.hash_code("t")
    rows = [(record.offset, record.size, due) for record in records]
    codes = (hash_of_t, hash_of_t, due + 5_000, due + 5_001)
    content = units(*((*row[:2], code) for row, code in zip(rows, codes, strict=True))).ljust(120, b"\0")
    segments = (Segment(str(path), base, 4096),)
    found = compared(tmp_path, content, rows=rows, segments=segments, topic="SCHEDULE_TOPIC_XXXX")
    assert differences(found) == [(20, "wrong_unit", 2)]
    assert counts(found) == {"equal": 2, "delivery_hashes": 1, "delays": 1}
    assert differences(compared(tmp_path, content, rows=rows, segments=segments)) == [(0, "wrong_unit", 4)]


def test_units_after_the_end_of_records_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "first").write_bytes(units((400, 10, 1), (450, 10, 1)))
    (tmp_path / "second").write_bytes(units((510, 20, 1), (500, 10, 1)))
    content = units((500, 10, 2), (460, 10, 1), (510, 21, 1), (450, 10, 7), (510, 10, 1), (510, 20, 0))
    path = tmp_path / "consumequeue" / "T" / "3" / f"{0:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    staged = ((str(tmp_path / "first"), 2, 400, 500), (str(tmp_path / "second"), 2, 500, 600))
    task = CompareQueueFiles(str(tmp_path), 120, (), DecodeRules(), LogExtent(0, 700), staged)
    (found,) = task(iter([[PlannedQueueFile("consumequeue", ("T", 3), 0, Slices.of())]]))
    assert differences(found) == [(0, "extra_unit", 3)]
    assert [(one.cause, one.count) for one in found.units.hazards] == [("old_units", 3)]


def test_units_of_a_batch_queue(tmp_path: Path) -> None:
    unit = struct.Struct(">qiqqqhii")
    rows = [unit.pack(500, 91, 7, 11, 0, 2, -1, 0), unit.pack(600, 92, 7, 12, 2, 1, -1, 0)]
    (tmp_path / "s").write_bytes(b"".join(rows))
    path = tmp_path / "batchconsumequeue" / "T" / "3" / f"{0:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes((rows[0] + unit.pack(600, 92, 7, 12, 3, 1, -1, 0)).ljust(3 * unit.size, b"\0"))
    file = PlannedQueueFile("batchconsumequeue", ("T", 3), 0, Slices.of((str(tmp_path / "s"), 0, 2)))
    (found,) = CompareQueueFiles(str(tmp_path), 138, (), DecodeRules(), LogExtent(400, 800))(iter([[file]]))
    assert differences(found) == [(46, "wrong_unit", 1)]


@pytest.fixture
def entries(tmp_path: Path) -> tuple[list[tuple[str, int]], list[int]]:
    """Sources of staged entries, and the log offset of each entry; some offsets have several."""
    sources, offsets = [], []
    for number, count in enumerate((3, 1, 200, 70)):
        rows = np.zeros(count, ROW)
        first = 10_000 * number
        rows["offset"] = first + np.arange(count) // 3 * 10
        rows["key_hash"] = np.arange(len(offsets), len(offsets) + count)
        (tmp_path / f"{number}.entries").write_bytes(rows.tobytes())
        sources.append((str(tmp_path / f"{number}.entries"), count))
        offsets += rows["offset"].tolist()
    return sources, offsets


def test_entries_are_read_over_the_ends_of_their_files(entries: tuple[list[tuple[str, int]], list[int]]) -> None:
    sources, offsets = entries
    with Readers() as readers:
        staged = CompareIndexFiles("", (7, 10), tuple(sources), LogExtent(0, 0)).rows(readers)
        assert staged.total == len(offsets)
        for begin, end in ((2, 5), (3, 4), (4, 204), (203, 205), (274, 274), (1, 2), (0, 0), (0, 274), (9, 99)):
            assert staged.read(begin, end)["key_hash"].tolist() == [*range(begin, end)]


def test_entries_are_found_by_their_offset(entries: tuple[list[tuple[str, int]], list[int]]) -> None:
    sources, offsets = entries
    with Readers() as readers:
        staged = CompareIndexFiles("", (7, 10), tuple(sources), LogExtent(0, 0)).rows(readers)
        for asked in sorted({offset + step for offset in offsets for step in (-1, 0, 1)}):
            assert staged.find(asked) == sum(offset < asked for offset in offsets), asked


def test_a_log_without_entries() -> None:
    staged = Rows([], lambda *_: pytest.fail("there is no file"))
    assert (staged.total, staged.find(0), len(staged.read(0, 0))) == (0, 0, 0)


@pytest.mark.parametrize("spoiled", [None, 40 + 4 * 7 + 20 * 2 + 3])
def test_an_index_file_against_the_entries_of_the_log(tmp_path: Path, spoiled: int | None) -> None:
    """The second of two sources begins in the middle of the file."""
    made = IndexFile([0] * 7, 10, counts_every_put=False)
    rows = np.zeros(6, ROW)
    for number in range(6):
        key, time = f"T#key{number}", 1_700_000_000_000 + 1500 * number
        assert made.put_key(key, 100 * number, time)
        rows[number] = (java_rules.math_abs(java_rules.hash_code(key)), 100 * number, time)
    sources = []
    for name, part in (("a", rows[:4]), ("b", rows[4:])):
        (tmp_path / name).write_bytes(part.tobytes())
        sources.append((str(tmp_path / name), len(part)))
    content = bytearray(made.to_bytes())
    if spoiled is not None:
        content[spoiled] ^= 1
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20231114221320000").write_bytes(content)
    task = CompareIndexFiles(str(tmp_path), (7, 10), tuple(sources), LogExtent(0, 600))
    (found,) = task(iter([IndexCheck("index/20231114221320000")]))
    assert (found.entries, found.last_offset) == (6, 500)
    assert bool(found.differences) == (spoiled is not None)


# ------------------------------------------------------------------------------------------------- rocksdb pairs
PAIR_UNITS = [(500, 91, 7, 11), (600, 92, -8, 12), (700, 93, 9, 13), (1 << 40, 94, 10, 14)]
"""Commit-log offset, size, tags code and store time of each."""


@pytest.fixture
def staged(tmp_path: Path) -> str:
    """Path of the units; their times are beside them."""
    pytest.importorskip("rocksdict")
    offsets, sizes, tags, times = zip(*PAIR_UNITS, strict=True)
    units, stamps = tmp_path / "s.units", tmp_path / "s.times"
    units.write_bytes(consume_queue.pack_units(offsets, sizes, tags).tobytes())
    stamps.write_bytes(np.array(times, "<i8").tobytes())
    return str(units)


def part_of(staged: str, queue_offset: int, begin: int, count: int, queue_id: int = 3) -> UnitSlice:
    return UnitSlice("T", queue_id, queue_offset, staged, begin, count)


@pytest.fixture
def database(staged: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Units of T:3 from 40 on, of one file; two to be read at a time."""
    monkeypatch.setattr(rocksdb_pairs, "PAIRS_AT_A_TIME", 2)
    planned = ("0", (part_of(staged, 40, 0, 1), part_of(staged, 41, 1, 3)))
    (tmp_path / "tables").mkdir()
    tables = list(WriteTables(str(tmp_path / "tables"))(iter([planned])))
    assert tables == [str(tmp_path / "tables" / "0")]
    assert [path.name for path in (tmp_path / "tables").iterdir()] == ["0"]
    write_ends(str(tmp_path / "ends"), [QueueEnds("T", 3, (40, 500), (43, 1 << 40))], dispatched=793)
    directory = str(tmp_path / "database")
    rocksdb.make_database(directory, {FAMILIES[0]: tables, FAMILIES[1]: [str(tmp_path / "ends")]})
    return directory


def test_pairs_as_a_broker_has_them(database: str) -> None:
    with rocksdb_queues_in(database) as queues:
        units, ends = (list(queues.database.pairs(family)) for family in ("default", "offset"))
    head = "00000001 01 54 01 00000003 01"
    assert units == [
        (bytes.fromhex(f"{head} {number:016x}"), struct.pack(">qiqq", *unit))
        for number, unit in enumerate(PAIR_UNITS, 40)
    ]
    assert ends == [
        (b"\0\0\0\1\1T\1max\1\0\0\0\3", bytes.fromhex(f"{1 << 40:016x} {43:016x}")),
        (b"\0\0\0\1\1T\1min\1\0\0\0\3", bytes.fromhex(f"{500:016x} {40:016x}")),
        (b"\0\0\0\x10\1CHECKPOINT_TOPIC\1max\1\0\0\0\0", bytes.fromhex(f"{793:016x}")),
    ]


def fields_of(unit: tuple[int, ...]) -> dict[str, int] | None:
    return as_fields(np.array([unit], VALUE)[0])


SURPLUS = Finding("extra_unit", 1, 43, None, fields_of(PAIR_UNITS[3]))


@pytest.mark.parametrize(
    ("last", "log", "dispatched", "expected"),
    [
        (None, LogExtent(0, 1), None, SURPLUS),
        (43, LogExtent(0, 1), None, SURPLUS),
        (42, LogExtent(0, 1), None, "beyond"),
        (None, LogExtent(0, 1), 1 << 40, None),
        (None, LogExtent(0, 1), (1 << 40) + 1, SURPLUS),
        (None, LogExtent(0, 1, ((1 << 40, 1 << 41),)), None, None),
        (None, LogExtent(0, 1, ((0, 1 << 40),)), None, SURPLUS),
        (None, LogExtent((1 << 40) + 1, 1), None, "before_log"),
    ],
)
def test_a_unit_that_the_log_does_not_make(
    database: str, staged: str, last: int | None, log: LogExtent, dispatched: int | None, expected: Finding | str | None
) -> None:
    """The last one of four."""
    part = QueuePart(b"T", 3, 40, None, (part_of(staged, 40, 0, 3),), last)
    found = list(ComparePairs(database, log, dispatched)(iter([[part]])))
    assert {(one.topic, one.queue_id) for one in found} == {(b"T", 3)}
    counts = sum((one.found.counts for one in found), Counter())
    assert counts == {"compared": 3, **({expected: 1} if isinstance(expected, str) else {})}
    differences = [one for part in found for one in part.found.differences]
    assert differences == ([expected] if isinstance(expected, Finding) else [])


def test_parts_of_a_queue_are_compared_each_by_itself(database: str, staged: str) -> None:
    """One part ends where the next begins, and nothing is counted twice."""
    parts = [
        QueuePart(b"T", 3, 0, 41, (part_of(staged, 40, 0, 1),)),
        QueuePart(b"T", 3, 41, 43, (part_of(staged, 41, 1, 1), part_of(staged, 42, 2, 1))),
        QueuePart(b"T", 3, 43, None, (part_of(staged, 43, 3, 1),)),
        QueuePart(b"T", 4, 0, None, ()),
    ]
    found = list(ComparePairs(database, LogExtent(0, 1))(iter([parts[:2], parts[2:]])))
    assert not any(one.found.differences for one in found)
    assert sum((one.found.counts for one in found), Counter()) == {"compared": 4}


def test_units_that_are_missing_or_others(database: str, staged: str) -> None:
    """Of another queue none is there; each of the same one, a place further, is another."""
    absent = QueuePart(b"T", 4, 40, None, (part_of(staged, 40, 0, 4, queue_id=4),))
    moved = QueuePart(b"T", 3, 41, None, (part_of(staged, 41, 0, 4),))
    found = defaultdict[int, Findings](Findings)
    for part in ComparePairs(database, LogExtent(0, 1))(iter([[absent, moved]])):
        found[part.queue_id].add(*part.found.differences)
    units = [fields_of(unit) for unit in PAIR_UNITS]
    assert [*found[4].values()] == [Finding("missing_unit", 4, 40, units[0], None)]
    lost = Finding("missing_unit", 1, 44, units[3], None)
    assert [*found[3].values()] == [Finding("wrong_unit", 3, 41, units[0], units[1]), lost]
