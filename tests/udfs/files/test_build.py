"""Queue files to make, as columns: what a part of them holds, and how they are shared out to tasks."""

from __future__ import annotations

import hashlib
import pickle
import struct
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import java_rules
from support.broker_index import IndexFile
from support.store_builder import LogBuilder

from storeformat.errors import TotalsDisagree
from storeformat.index.entries import ROW
from storeformat.log.segments import Segment
from storeformat.queues import consume_queue
from storeformat.storage import files
from udfs.files import build
from udfs.files.build import (
    BuildExtFiles,
    BuildFiles,
    BuildIndexFiles,
    BuildQueueFiles,
    PlannedExtFile,
    PlannedIndexFile,
    PlannedQueueFile,
    PlannedQueueFiles,
)
from udfs.files.output_files import FileRow, FileRows, OutputDirectory
from udfs.log.staged_files import Slices

counts_of_files = st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=4), max_size=20)


def queue_files(counts: list[list[int]]) -> PlannedQueueFiles:
    """Files whose slices have these counts, each slice from another source than its neighbours."""
    flat = [count for file in counts for count in file]
    return PlannedQueueFiles(
        directory="consumequeue",
        topics=tuple(b"topic-%d" % number for number in range(len(counts))),
        topic_of=np.arange(len(counts), dtype=np.int32)[::-1],
        queue_ids=np.arange(len(counts), dtype=np.int32),
        first_queue_offsets=np.arange(len(counts)) * 1_000,
        pre_blanks=np.arange(len(counts), dtype=np.int32) % 3,
        edges=np.cumsum([0, *map(len, counts)]).astype(np.int32),
        slices=Slices(
            sources=("a.units", "b.units", "c.units"),
            source_of=(np.arange(len(flat)) % 3).astype(np.int32),
            begins=np.arange(len(flat), dtype=np.int32),
            counts=np.array(flat, np.int32),
        ),
        fillers=np.arange(len(flat)) % 2 == 0,
        ext_begins=np.arange(len(flat)) * 7,
    )


def said(file: PlannedQueueFile) -> tuple[Any, ...]:
    assert file.fillers is not None
    assert file.ext_begins is not None
    return file.path, list(file.slices), file.pre_blanks, file.fillers.tolist(), file.ext_begins.tolist()


@given(counts=counts_of_files, most_files=st.integers(1, 8), units=st.integers(1, 200))
def test_batches_are_all_files_in_their_order(counts: list[list[int]], most_files: int, units: int) -> None:
    planned = queue_files(counts)
    batches = planned.batches(most_files, units)
    assert [said(file) for batch in batches for file in batch] == [said(file) for file in planned]
    for batch, following in zip_longest(batches, batches[1:]):
        sizes = [count for _, count in batch.units()]
        assert 1 <= len(sizes) <= most_files
        assert sum(sizes) <= units or len(sizes) == 1
        if following is not None:
            assert len(sizes) == most_files or sum(sizes) + next(iter(following.units()))[1] > units


def test_a_file_takes_along_only_the_sources_it_has() -> None:
    planned = queue_files([[1, 2], [3], [4, 5, 6, 7]])
    assert [file.slices.sources for file in planned] == [
        ("a.units", "b.units"),
        ("c.units",),
        ("a.units", "b.units", "c.units"),
    ]
    assert planned[0].path == "consumequeue/topic-2/0/00000000000000000000"
    assert planned[1].path == "consumequeue/topic-1/1/00000000000000020000"
    assert list(planned.units())[2] == ("consumequeue/topic-0/2/00000000000000040000", 22)
    assert b"b.units" not in pickle.dumps(planned[1])
    assert said(planned[-1]) == (
        "consumequeue/topic-0/2/00000000000000040000",
        [("a.units", 3, 4), ("b.units", 4, 5), ("c.units", 5, 6), ("a.units", 6, 7)],
        2, [False, True, False, True], [21, 28, 35, 42],
    )  # fmt: skip
    assert planned[1:2].topics == (b"topic-1",)
    assert (len(planned[2:1]), len(planned[:0].batches(5, 5)), planned[:0].counts().tolist()) == (0, 0, [])
    assert replace(planned, ext_begins=None)[1].ext_begins is None


def built(tmp_path: Path, units: Sequence[tuple[int, int, int]], **settings: Any) -> FileRow:
    """The row of a queue file of six units that is built of these staged ones."""
    staged = tmp_path / "s.units"
    staged.write_bytes(consume_queue.pack_units(*zip(*units, strict=True)).tobytes())
    file = PlannedQueueFile("consumequeue", ("T", 3), 120, Slices.of((str(staged), 0, len(units))), **settings)
    task = BuildQueueFiles(OutputDirectory(str(tmp_path / "made"), str(tmp_path / "drafts")), file_size=120)
    (batch,) = task(iter([[file]]))
    (row,) = FileRows.of([batch])
    return row


def test_a_file_is_read_back_before_it_gets_its_name(tmp_path: Path) -> None:
    row = built(tmp_path, [(500, 91, 7), (600, 91, 8)], pre_blanks=1)
    made = tmp_path / "made" / "consumequeue" / "T" / "3" / f"{120:020d}"
    content = made.read_bytes()
    assert (row.path, row.count, row.offset_sum) == (f"consumequeue/T/3/{120:020d}", 2, 1100)
    assert (row.content.size, row.content.data_size) == (120, 60) == (len(content), len(content.rstrip(b"\0")))
    assert row.content.sha256 == hashlib.sha256(content[:60]).digest()
    assert list((tmp_path / "drafts").iterdir()) == []


def test_copies_of_a_neighbour_fill_the_places_of_lost_units(tmp_path: Path) -> None:
    staged = tmp_path / "f.units"
    staged.write_bytes(consume_queue.pack_units([500, 600], [91, 92], [7, 8]).tobytes())
    slices = Slices((str(staged),), *(np.array(column, np.int32) for column in ([0, 0], [0, 1], [3, 1])))
    file = PlannedQueueFile("consumequeue", ("T", 3), 0, slices, fillers=np.array([True, False]))
    task = BuildQueueFiles(OutputDirectory(str(tmp_path / "made"), str(tmp_path / "drafts")), file_size=100)
    (_,) = task(iter([[file]]))
    units = consume_queue.parse_units((tmp_path / "made" / file.path).read_bytes())
    assert units["phy_offset"].tolist() == [500, 500, 500, 600, 0]


def test_a_pre_blank_unit_among_the_messages_is_refused(tmp_path: Path) -> None:
    """Consumers would skip all messages of the log's first segment after it."""
    with pytest.raises(TotalsDisagree, match="pre-blank"):
        built(tmp_path, [(500, 91, 7), (0, 0x7FFFFFFF, 0), (600, 91, 8)])
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("begins", [[-1, -1], [0, -1], [-1, 2], [3, 6]])
def test_addresses_take_the_place_of_tags_codes(tmp_path: Path, begins: list[int]) -> None:
    """Two ext units of 20 bytes fill a file of 44; the copies of a filler share one."""
    staged = tmp_path / "f.units"
    staged.write_bytes(consume_queue.pack_units([500, 600, 700], [91, 92, 93], [7, 8, 9]).tobytes())
    slices = Slices((str(staged),), *(np.array(column, np.int32) for column in ([0, 0], [0, 1], [2, 2])))
    file = PlannedQueueFile("consumequeue", ("T", 3), 0, slices, 0, np.array([True, False]), np.array(begins))
    output = OutputDirectory(str(tmp_path / "made"), str(tmp_path / "drafts"))
    (_,) = BuildQueueFiles(output, file_size=100, ext_file_size=44)(iter([[file]]))
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
    output = OutputDirectory(str(tmp_path / "made"), str(tmp_path / "drafts"))
    for count in (3, 2):
        file = PlannedQueueFile("consumequeue", ("T", count), 0, Slices.of((str(staged), 0, count)))
        segments = (Segment("none", 0, 1024), Segment(str(segment), 1024, 1024))
        (_,) = BuildQueueFiles(output, 100, stamped_from=segments)(iter([[file]]))
        assert (tmp_path / "made" / file.path).stat().st_mtime == 1_700_000_000 + 10 * (count - 1)


def test_units_of_batch_queues_are_counted_as_they_lie_there(tmp_path: Path) -> None:
    unit = struct.Struct(">qiqqqhii")
    rows = [unit.pack(500, 91, 7, 11, 0, 2, -1, 0), unit.pack(600, 92, 7, 12, 2, 1, -1, 0)]
    (tmp_path / "s").write_bytes(b"".join(rows))
    file = PlannedQueueFile("batchconsumequeue", ("T", 3), 0, Slices.of((str(tmp_path / "s"), 0, 2)))
    output = OutputDirectory(str(tmp_path / "made"), str(tmp_path / "drafts"))
    (batch,) = BuildQueueFiles(output, file_size=138, batch_queues=True)(iter([[file]]))
    (row,) = FileRows.of([batch])
    assert (row.path, row.count, row.offset_sum) == ("batchconsumequeue/T/3/" + "0" * 20, 2, 1100)
    assert (tmp_path / "made" / row.path).read_bytes() == b"".join(rows).ljust(138, b"\0")


@pytest.mark.parametrize("count_every_put", [False, True])
@pytest.mark.parametrize("rows_at_a_time", [1, 3, 1 << 16])
@pytest.mark.parametrize("entries", [1, 4, 9])
def test_index_files_are_those_of_a_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count_every_put: bool, rows_at_a_time: int, entries: int
) -> None:
    """Two files, the second after the first; the rows of the first are of two sources."""
    monkeypatch.setattr(build, "_ROWS_AT_A_TIME", rows_at_a_time)
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
    output = OutputDirectory(str(tmp_path / "made"), str(tmp_path / "drafts"))
    made = FileRows.of(BuildIndexFiles(output, 5, 12, count_every_put)(iter(planned)))
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
        assert (tmp_path / "made" / row.path).read_bytes() == content
        assert (row.count, row.offset_sum, row.content.size, row.content.data_size) == (count, total, 300, used)
        assert row.content.sha256 == hashlib.sha256(content[:used]).digest()
    assert [build.staged_timestamp(sources[1], row) for row in range(2)] == times[1:3]


def test_an_index_file_that_storage_changed_is_never_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.zeros(2, ROW)
    rows["offset"], rows["store_timestamp"] = [5, 7], 1_700_000_000_000
    (tmp_path / "s").write_bytes(rows.tobytes())
    planned = PlannedIndexFile("index/1", Slices.of((str(tmp_path / "s"), 0, 2)), None)
    finish = files.FileWriter.finish
    for position in (35, 40 + 4 * 5 + 20 * 3, 300):
        output = OutputDirectory(str(tmp_path / "made"), str(tmp_path / "drafts"))

        def change(writer: files.FileWriter, size: int, position: int = position) -> None:
            finish(writer, size)
            writer.write_at(position, b"\x07")

        with monkeypatch.context() as patch:
            patch.setattr(files.FileWriter, "finish", change)
            with pytest.raises(TotalsDisagree, match="index file differs"):
                list(BuildIndexFiles(output, 5, 12)(iter([planned])))
        assert not (tmp_path / "made").exists()


def test_both_kinds_of_files_in_one_go(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(np.zeros(1, ROW).tobytes())
    (tmp_path / "u").write_bytes(consume_queue.pack_units([500], [91], [7]).tobytes())
    output = OutputDirectory(str(tmp_path / "made"), str(tmp_path / "drafts"))
    task = BuildFiles(BuildQueueFiles(output, 100), BuildIndexFiles(output, 5, 12))
    index = PlannedIndexFile("index/1", Slices.of((str(tmp_path / "s"), 0, 1)), None)
    queue = PlannedQueueFile("consumequeue", ("T", 3), 0, Slices.of((str(tmp_path / "u"), 0, 1)))
    made = FileRows.of(task(iter([index, [queue], index])))
    assert [(row.path, row.offset_sum) for row in made] == [("index/1", 0), (queue.path, 500), ("index/1", 0)]


@pytest.mark.parametrize("closed", [True, False])
def test_units_have_tags_code_and_time(tmp_path: Path, closed: bool) -> None:
    times_of = {}
    for name, codes in (("s", [7, -8]), ("t", [9])):
        units, times = tmp_path / f"{name}.units", tmp_path / f"{name}.times"
        units.write_bytes(consume_queue.pack_units([0] * len(codes), [1] * len(codes), codes).tobytes())
        times.write_bytes(np.array([1000 + code for code in codes], "<i8").tobytes())
        times_of[str(units)] = str(times)
    first, second = times_of
    file = PlannedExtFile("ext/T/0/0", Slices.of((first, 1, 1), (second, 0, 1)), times_of, closed)
    build = BuildExtFiles(OutputDirectory(str(tmp_path / "made"), str(tmp_path / "drafts")), 64)
    (row,) = FileRows.of(build(iter([file])))
    expected = struct.pack(">hqqh", 20, -8, 992, 0) + struct.pack(">hqqh", 20, 9, 1009, 0)
    expected += b"\xff\xff" if closed else b""
    assert (tmp_path / "made" / "ext/T/0/0").read_bytes() == expected.ljust(64, b"\0")
    assert (row.path, row.count, row.offset_sum, row.content.size) == ("ext/T/0/0", 2, 0, 64)
