"""Jobs on the log of a DLedger group: what is read of it, what is left out, and what is refused."""

from __future__ import annotations

import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import planting
from support.drilling import run_job
from support.entry_log import HEAD, SIZE, EntryLogBuilder, a_log
from support.reading import opened, queue_offsets, read, rebuilt
from support.rebuilding import options_for, rebuild_here, verify_here
from support.store_builder import overwrite_log

from jobs.contract.options import (
    DamagePolicy,
    IdOptions,
    InspectOptions,
    KeyOptions,
    LogOptions,
    OffsetOptions,
    PublishOptions,
)
from jobs.contract.report import Report, Reporter
from jobs.log import opening
from jobs.log.log_scan import scan_log
from jobs.log.opening import read_log
from jobs.publish import publish
from jobs.query import inspection, query
from jobs.query.offline_store import OfflineStore
from jobs.rebuild import build_store
from jobs.spark.runner import Runner
from jobs.table import datasource
from jobs.table.datasource import LogStreamReader
from jobs.verify import verify
from storeformat.errors import DamagedLog, Refused
from storeformat.record.decode import DecodeRules
from storeformat.record.dispatch import DispatchRules
from udfs.log.scan import ScanTask
from udfs.table.datasource import LogReader
from udfs.table.rows import RowRules


def damage(root: Path, offset: int, new: bytes) -> None:
    overwrite_log(root / "dledger-n0" / "data", offset, new)


@settings(
    max_examples=min(25, settings.default.max_examples),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(sizes=st.lists(st.integers(0, 900), min_size=1, max_size=40), split_size=st.sampled_from([7, 100, 1000, 5000]))
def test_any_split_size_reads_the_same_records(
    sizes: list[int], split_size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = EntryLogBuilder(SIZE)
    for number, size in enumerate(sizes):
        log.message(queue_id=number % 2, body=bytes(size))
    root = log.write(tmp_path_factory.mktemp("store"), len(sizes) - 1)
    reading = read(root, split_size)
    assert (reading.records, reading.begin, reading.end) == (len(sizes), 0, log.end_offset)
    assert reading.record_bytes == sum(placed.size for placed in log.records)
    runs = [
        (scan.staged.unit_runs.first_offsets.tolist(), scan.staged.unit_runs.counts.tolist()) for scan in reading.scans
    ]
    firsts = {offset for offsets, _ in runs for offset in offsets}
    assert firsts <= {placed.offset for placed in log.records}
    assert sum(sum(counts) for _, counts in runs) == len(sizes)
    assert reading.damaged == reading.stale == []


@pytest.mark.parametrize("split_size", [50, 1 << 30])
def test_only_what_is_committed_goes_into_queues(tmp_path: Path, split_size: int) -> None:
    log = a_log()
    root = log.write(tmp_path / "store", 41)
    store = opened(root)
    assert store.committed == log.records[41].end
    assert "not known to be committed" in store.notes[-1]
    made = rebuilt(root, tmp_path / "work", split_size=split_size)
    assert queue_offsets(made) == [placed.offset for placed in log.records[:42]]
    more = rebuilt(root, tmp_path / "more", split_size=split_size, until_offset=log.end_offset)
    assert queue_offsets(more) == [placed.offset for placed in log.records]


def test_a_table_is_read_up_to_what_is_committed(tmp_path: Path) -> None:
    """The segments before the last are proven by the tasks that read them: none of these lies after that end."""
    log = a_log()
    root = log.write(tmp_path / "store", 10)
    store = opened(root)
    assert store.committed is not None
    parts = datasource.plan_partitions(store, LogOptions(store=str(root), split_size=500))
    assert sum(part.records or 0 for part in parts) == 11
    assert max(part.split.stop for part in parts) == store.committed < SIZE


def test_a_stream_waits_for_what_is_not_committed(tmp_path: Path) -> None:
    log = a_log()
    root = log.write(tmp_path / "store", 10)
    reader = LogReader((), RowRules(DispatchRules(())), DecodeRules())
    stream = LogStreamReader(LogOptions(store=str(root)), reader)
    first = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    assert first["offset"] == log.records[10].end
    assert stream.latestOffset(first, stream.getDefaultReadLimit()) == first
    (root / "dledger-n0" / "checkpoint").write_text("committedIndex=59\n")
    assert stream.latestOffset(first, stream.getDefaultReadLimit())["offset"] == log.end_offset


def test_without_a_checkpoint_all_counts_and_the_report_says_so(tmp_path: Path) -> None:
    root = a_log().write(tmp_path / "store")
    assert opened(root).notes[-1:] == (
        "no checkpoint of the group was found: nothing shows how far its log is committed",
    )
    assert read(root).records == 60


@pytest.mark.parametrize("split_size", [1, 37, 500, 1 << 30])
def test_entries_of_an_older_term_are_no_messages(tmp_path: Path, split_size: int) -> None:
    log = a_log()
    cut = log.records[50]
    log.truncate(cut.offset - HEAD.size)
    log.term = 3
    log.message(cut.message, queue_offset=None, store_timestamp=None)
    assert log.end_offset == cut.end  # the old entry 51 lies just after
    root = log.write(tmp_path / "store", 50)
    reading = read(root, split_size)
    assert (reading.records, reading.end, reading.damaged) == (51, log.end_offset, [])
    store = opened(root)
    assert store.committed == log.end_offset
    task = ScanTask("", DecodeRules(), store.dispatch_rules(), with_entries=False)
    whole = scan_log(Runner(), store.segments, task, split_size=split_size)
    assert (whole.records, whole.end, whole.damaged) == (51, log.end_offset, [])
    assert [item.begin for item in whole.stale] == [log.end_offset]


@pytest.mark.parametrize(
    ("field", "split_size", "before_a_blank"),
    [
        (0, 64, False), (4, 1000, False), (8, 64, False), (24, 1000, False), (24, 64, False), (44, 1 << 30, False),
        (48, 64, False), (52, 1000, False), (76, 64, False), (138, 1000, False),
        (4, 200, True), (4, 1 << 30, True), (24, 200, True), (138, 200, True), (138, 1 << 30, True),
    ],
)  # fmt: skip
def test_one_damaged_entry_is_one_lost_message(
    tmp_path: Path, split_size: int, field: int, *, before_a_blank: bool
) -> None:
    log = a_log()
    root = log.write(tmp_path / "store", 59)
    lost = [placed for placed in log.records if placed.offset < SIZE][-1] if before_a_blank else log.records[30]
    damage(root, lost.offset - HEAD.size + field, b"\x7f\x7f\x7f\x7f" if before_a_blank else b"\x7f\x7f")
    with pytest.raises(DamagedLog) as refused:
        read(root, split_size)
    assert refused.value.offset == lost.offset - HEAD.size
    reading = read(root, split_size, "salvage")
    assert [(item.begin, item.end) for item in reading.damaged] == [(lost.offset - HEAD.size, lost.end)]
    assert (reading.records, reading.end) == (59, log.end_offset)
    assert (reading.losses.messages, reading.losses.at_least) == (1, 1)
    assert read(root, split_size, "stop").end == lost.offset - HEAD.size


@pytest.mark.parametrize("policy", ["stop", "salvage"])
@pytest.mark.parametrize(
    ("lost", "committed", "begin", "end"),
    [((10,), 10, 10, 11), ((0, 1), 1, 0, 2), ((58, 59), 59, 58, None), ((), 65, 60, None)],
    ids=["the last committed", "all that is committed", "the end of the log", "none that is there"],
)
def test_committed_entries_that_are_lost_at_the_end_are_damage(
    lost: tuple[int, ...], committed: int, begin: int, end: int | None, policy: DamagePolicy, tmp_path: Path
) -> None:
    """And nothing after them, that the group may not have agreed on, comes out in their place."""
    log = a_log()
    root = log.write(tmp_path / "store", committed)
    for placed in (log.records[number] for number in lost):
        damage(root, placed.offset - HEAD.size, bytes(HEAD.size + placed.size))
    entries = [*(placed.offset - HEAD.size for placed in log.records), log.end_offset]
    with pytest.raises(DamagedLog, match=f"entry {committed} is committed, but"):
        opened(root)
    options = LogOptions(store=str(root), on_damage=policy)
    store = opening.open_store(options)
    assert f"entry {committed} is committed" in store.notes[-1]
    reading = read_log(store, options, Runner())
    whole_end = max(log.segments) + SIZE
    assert [(item.begin, item.end) for item in reading.damaged] == [
        (entries[begin], whole_end if end is None else entries[end])
    ]
    assert reading.records == begin
    assert reading.losses.facts()["lost_messages_at_least"] == 1


@pytest.mark.parametrize("split_size", [300, 1 << 30])
def test_a_term_that_is_too_high_makes_nothing_stale_that_is_committed(tmp_path: Path, split_size: int) -> None:
    log = a_log()
    root = log.write(tmp_path / "store", 59)
    damage(root, log.records[30].offset - HEAD.size + 16, b"\x7f")
    assert read(root, split_size).records == 60


def test_a_member_that_began_in_the_middle_of_a_file_is_no_empty_log(tmp_path: Path) -> None:
    """Members begin with a whole file, also those that lagged behind their leader's first entry. Only one whose files
    are longer than its leader's begins so: it never catches up, and its next start takes nothing of such a file. The
    bytes before look like lost pages.
    """
    log = a_log(15)
    root = log.write(tmp_path / "store", 14)
    begin = log.records[3].offset - HEAD.size
    damage(root, 0, bytes(begin))
    assert len(log.segments) == 1
    with pytest.raises(DamagedLog):
        read(root)
    reading = read(root, on_damage="salvage")
    assert (reading.records, [(item.begin, item.end) for item in reading.damaged]) == (12, [(0, begin)])


def test_a_log_whose_first_head_is_damaged_is_still_one_of_entries(tmp_path: Path) -> None:
    log = a_log()
    root = log.write(tmp_path / "store", 59)
    damage(root, 0, b"\xff" * 48)
    assert read(root, on_damage="salvage").records == 59


def test_a_message_whose_body_alone_is_damaged_can_be_kept(tmp_path: Path) -> None:
    log = a_log()
    for number in (30, 59):
        root = log.write(tmp_path / str(number), 59)
        damage(root, log.records[number].offset + 90, b"?")
        store = opened(root, on_damage="salvage")
        task = ScanTask("", DecodeRules(), store.dispatch_rules(), with_entries=False)
        reading = scan_log(Runner(), store.segments, task, on_damage="salvage", keep_crc_failures=True)
        assert (reading.records, reading.damaged) == (60, [])
        assert ["BODY_CRC" in item.reason for item in reading.kept] == [True]
        assert [(item.begin, item.end) for item in reading.kept] == [
            (log.records[number].offset - HEAD.size, log.records[number].end)
        ]


def test_a_log_is_repaired_by_its_group(tmp_path: Path) -> None:
    root = a_log().write(tmp_path / "store", 59)
    more = ("--on-damage", "salvage", "--repair-log", tmp_path / "repaired")
    done = run_job("rebuild", "--store", root, "--output", tmp_path / "out", *more)
    assert (done.code, "--repair-log is not for the log of a DLedger group" in done.said) == (64, True)


# ---------------------------------------------------------------------------------------------------- other questions
def install(made: Path, root: Path) -> Path:
    for name in ("consumequeue", "index", "checkpoint"):
        (made / name).rename(root / name)
    return root


def test_a_rebuilt_store_verifies_and_answers(tmp_path: Path) -> None:
    log = a_log()
    root = log.write(tmp_path / "store", 59)
    sizes = {"maxHashSlotNum": 100, "maxIndexNum": 50}
    verified = verify_here(install(rebuilt(root, tmp_path / "work"), root), sizes)
    assert not verified.verdicts.counts
    assert verified.compared["consume_queue_units"] == 60

    given = tuple((name, str(value)) for name, value in sizes.items())
    wanted = log.records[37]
    for options in (
        KeyOptions(store=str(root), settings=given, topic="T", key="k37"),
        OffsetOptions(store=str(root), settings=given, topic="T", queue_id=1, offset=12),
        IdOptions(store=str(root), settings=given, message_id=f"C0A8000900002A9F{wanted.offset:016X}"),
    ):
        offline = OfflineStore(opening.open_store(options))
        (message,) = query._ANSWERS[options.kind](options, offline, None)["messages"]
        assert (message["commit_log_offset"], message["keys"]) == (wanted.offset, ["k37"])
    shown = list(
        inspection.records_from(opened(root), InspectOptions(store=str(root), from_offset=log.records[58].offset))
    )
    assert [row["keys"] for row in shown] == [["k58"], ["k59"]]


def test_a_killed_member_may_have_dispatched_more_than_its_checkpoint_says(tmp_path: Path) -> None:
    log = a_log()
    root = log.write(tmp_path / "store", 20)
    sizes = {"maxHashSlotNum": 100, "maxIndexNum": 50}
    install(rebuilt(root, tmp_path / "work", until_offset=log.records[40].end), root)
    (root / "abort").touch()
    for version, hazards in (("5.1", []), ("5.3", ["uncommitted_tail"])):
        verified = verify_here(root, sizes, broker_version=version)
        assert [hazard["hazard"] for hazard in verified.verdicts.hazards] == hazards
    assert not verified.verdicts.counts
    assert "the queues lag: 19 messages" in "\n".join(verified.verdicts.notes)


@pytest.mark.parametrize(("committed", "runs", "hazards"), [(58, False, 1), (58, True, 0), (59, False, 0)])
def test_a_tail_is_a_hazard_until_the_group_agrees_or_the_member_runs(
    committed: int, runs: bool, hazards: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = a_log().write(tmp_path / "store", committed)
    sizes = {"maxHashSlotNum": 100, "maxIndexNum": 50}
    install(rebuilt(root, tmp_path / "work", until_offset=a_log().end_offset), root)
    (root / "abort").touch()
    monkeypatch.setattr(verify, "is_live", lambda lock: runs)
    found = verify_here(root, sizes, broker_version="5.3").verdicts
    assert not found.counts
    assert [hazard["hazard"] for hazard in found.hazards] == ["uncommitted_tail"] * hazards


def test_a_member_that_lost_its_checkpoint_indexes_its_last_record_again(tmp_path: Path) -> None:
    """It dispatches its whole log, and IndexService#buildIndex skips smaller offsets than the last, not the last."""
    root = a_log().write(tmp_path / "store")
    sizes = {"maxHashSlotNum": planting.SLOTS, "maxIndexNum": 100}
    install(Path(rebuild_here(root, tmp_path, sizes).directory), root)
    (file,) = planting.index_files(root)
    planting.rewrite(file, lambda entries: entries.append(entries[-1]))
    verified = verify_here(root, sizes).verdicts
    assert (verified.counts, verified.hazards) == ({}, [])
    assert verified.notes == ["1 index entries are there twice, as after a crash"]


def published(root: Path, made: Path) -> Report:
    return publish.run(PublishOptions(store=str(root), rebuilt=str(made)), Reporter(quiet=True))


def test_a_rebuild_is_published_while_the_group_has_agreed_on_no_more(tmp_path: Path) -> None:
    log = a_log()
    root = log.write(tmp_path / "store", 41)
    made = rebuilt(root, tmp_path / "work")
    later = Path(shutil.copytree(made, tmp_path / "later"))
    report = published(root, made)
    assert (report["log_begin"], report["log_end"]) == (0, log.records[41].end)
    assert queue_offsets(root) == [placed.offset for placed in log.records[:42]]
    (root / "dledger-n0" / "checkpoint").write_text("committedIndex=44\n")
    with pytest.raises(Refused, match="the log has grown past its recorded end"):
        published(root, later)


def test_the_magic_of_a_head_that_is_cut_off(tmp_path: Path) -> None:
    """A log that ends within an entry's head: no message, and said to be damage."""
    log = a_log()
    root = log.write(tmp_path / "store")
    damage(root, log.end_offset, struct.pack(">iiq", 1, 200, 60))
    with pytest.raises(DamagedLog):
        read(root)
    assert read(root, on_damage="stop").end == log.end_offset


def test_a_group_whose_entries_lie_elsewhere_is_published_up_to_what_it_has_agreed_on(tmp_path: Path) -> None:
    """Its checkpoint stays in the store (storePathDLedgerCommitLog names the entries alone)."""
    log = a_log()
    root = log.write(tmp_path / "store", 41)
    elsewhere = tmp_path / "elsewhere"
    (root / "dledger-n0" / "data").rename(elsewhere)
    (root / "lock").touch()
    given = {"maxHashSlotNum": 100, "maxIndexNum": 50}
    (tmp_path / "work").mkdir()
    options = replace(
        options_for(root, tmp_path / "out", given),
        settings=(("storePathDLedgerCommitLog", str(elsewhere)), *((name, str(size)) for name, size in given.items())),
    )
    made = build_store.rebuild(options, opening.open_store(options), str(tmp_path / "work"), Runner())
    report = published(root, Path(made.directory))
    assert (report["log_end"], report["replaced"]) == (log.records[41].end, ["consumequeue", "index", "checkpoint"])
