"""Runs on their way to the driver."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.uniform_log import uniform_log

from jobs.log.log_scan import sharing
from storeformat.errors import TotalsDisagree
from storeformat.kernels import UnitColumns
from storeformat.log.chain import ChainReport
from storeformat.log.framing import ChainEnd
from storeformat.log.segments import Segment, plan_splits
from storeformat.record.decode import DecodeRules
from storeformat.record.dispatch import DispatchRules, IndexEntries
from udfs.log.batch_queues import NO_BATCHES
from udfs.log.scan import ScanTask, SplitScan, scan_split
from udfs.log.staged_files import Staged
from udfs.log.staged_runs import EntryWriter, Runs, RunWriter


@given(st.integers(0, 50), st.integers(0, 2**32 - 1))
def test_what_is_packed_comes_out_as_it_was(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    runs = Runs(
        *(rng.integers(-(2**31), 2**31, count, dtype=np.int32) for _ in range(2)),
        *(rng.integers(-(2**63), 2**63, count, dtype=np.int64) for _ in range(5)),
        rng.integers(0, 2, count).astype(bool),
    )
    packed = runs.pack()
    assert len(packed) == 49 * count
    again = Runs.unpack(packed)
    for field in fields(Runs):
        here, there = getattr(runs, field.name), getattr(again, field.name)
        assert here.dtype == there.dtype
        assert np.array_equal(here, there)


def test_scans_share_what_they_have_in_common() -> None:
    splits = plan_splits([Segment("/log/0", 0, 300)], 100)
    topics = [(b"a" * 200, b"b" * 200), (b"a" * 200, b"b" * 200), (b"b" * 200,)]
    scans = [
        SplitScan(ChainReport(replace(split), split.start, split.stop, ChainEnd.STOP), topics=tuple(map(bytes, names)))
        for split, names in zip(splits, topics, strict=True)
    ]
    first, second, third = sharing(scans, splits)
    assert [first.topics, second.topics, third.topics] == topics
    assert first.topics is second.topics
    assert third.topics[0] is first.topics[1]
    assert [scan.report.split for scan in (first, second, third)] == splits
    assert all(scan.report.split is split for scan, split in zip((first, second, third), splits, strict=True))
    assert first.batches is NO_BATCHES
    for wrong in (scans[:2], [scans[0], scans[2], scans[1]]):
        with pytest.raises(TotalsDisagree, match="scans were lost"):
            sharing(wrong, splits)


def test_nothing_is_written_where_nothing_is_staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = uniform_log(1 << 20)
    path = tmp_path / "log" / f"{0:020d}"
    path.parent.mkdir()
    path.write_bytes(log.data)
    monkeypatch.chdir(tmp_path)
    (split,) = plan_splits([Segment(str(path), 0, len(log.data))], 1 << 30)
    task = ScanTask("", DecodeRules(), DispatchRules(()))
    here = scan_split(split, task)
    assert (here.units.count, here.entries.count) == (log.messages, 3 * log.messages)
    assert (here.units.path, here.entries.path) == ("", "")
    assert [entry.name for entry in tmp_path.iterdir()] == ["log"]
    (tmp_path / "staging").mkdir()
    there = scan_split(split, replace(task, staging=str(tmp_path / "staging")))
    assert replace(there.units, path="") == here.units
    assert replace(there.entries, path="") == here.entries
    assert {entry.suffix for entry in (tmp_path / "staging").iterdir()} == {".units", ".entries"}


def test_no_runs_have_the_types_of_some() -> None:
    nothing = Runs.concatenate([])
    assert [getattr(nothing, field.name).dtype.str for field in fields(Runs)] == [
        "<i4", "<i4", "<i8", "<i8", "<i8", "<i8", "<i8", "|b1",
    ]  # fmt: skip


def test_sums_of_offsets_have_64_bits() -> None:
    writer, entries = RunWriter("", "s", with_times=False), EntryWriter("", "s.entries")
    for count in (3, 2):
        units = UnitColumns.of(count)
        for column in units:
            column[:] = 0
        units.offsets[:] = 1 << 62
        writer.add(units, np.zeros(count, bool))
        writer.flush()
        entries.add(IndexEntries(np.zeros(count, np.int32), units.offsets, units.store_timestamps), None)
    assert (writer.staged().count, writer.staged().offset_sum) == (5, 1 << 62)
    assert entries.totals() == Staged(5, 1 << 62)


def test_entries_of_tags_have_a_mark(tmp_path: Path) -> None:
    entries = EntryWriter(str(tmp_path), "s.entries")
    entries.add(IndexEntries(np.array([5, 6], np.int32), np.array([10, 20]), np.array([7, 8])), np.array([False, True]))
    entries.close(None, None)
    rows = np.frombuffer(Path(entries.path).read_bytes(), "<i4,<i8,<i8").tolist()
    assert rows == [(5, 10, 7), (6 - (1 << 31), 20, 8)]
