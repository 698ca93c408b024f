"""Plans of a rebuild: places, sizes, names."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import golden
from support.broker_model import dispatch
from support.broker_settings import BrokerSettings
from support.rebuilding import rebuild_here
from support.store_builder import BORN_HOST_V6, STORE_HOST_V6, LogBuilder, Message

from jobs.contract.options import QueryOptions
from jobs.contract.reporter import Reporter
from jobs.log.queue_runs import all_runs
from jobs.query import query
from jobs.rebuild import planning, staging
from jobs.rebuild.planning import refuse_if_too_large, size_note
from storeformat.errors import MissingInput, Refused, WriteFailed
from storeformat.log.chain import ChainReport
from storeformat.log.framing import ChainEnd
from storeformat.log.segments import Segment, Split
from storeformat.storage import files, local_status
from storeformat.store.layout import StoreLayout
from udfs.files.output_files import OutputDirectory
from udfs.log.batch_queues import BatchRuns, StagedBatches
from udfs.log.scan import Dispatched, SplitScan
from udfs.log.staged_files import Staged
from udfs.log.staged_runs import Runs, StagedUnits

# ------------------------------------------------------------------------------------------------------ planning
REPORT = ChainReport(Split(0, Segment("log", 0, 1000), 0, 1000, 1000, 0), 0, 1000, ChainEnd.STOP)
BEGIN = 1_700_000_000_000
"""10:13:20 on 14 November 2023 in UTC-12, which names of index files show."""


def name_of(millis: int) -> str:
    return f"202311141013{20_000 + millis:05d}"


# --------------------------------------------------------------------------------------------------------------- index
def scan_with(name: str, entries: int, *, last_record: int, last_entry: int = -1) -> SplitScan:
    dispatched = Dispatched(last_record, last_entry=last_entry)
    return SplitScan(REPORT, entries=Staged(entries, 1000 * entries, name), dispatched=dispatched)


def planned_index(*scans: SplitScan) -> tuple[planning.IndexPlan, list[tuple[list[tuple[str, int, int]], object]]]:
    """The plan with four entries a file, row r of scan ``sN`` at N seconds and r milliseconds; and the files' slices
    with what comes before each.
    """
    layout = replace(StoreLayout(), max_index_num=5)
    plan = planning.plan_index_files(scans, layout, lambda path, row: BEGIN + 1000 * int(path[1:]) + row)
    return plan, [(list(file.slices), file.previous) for file in plan.files]


def test_a_log_without_records_has_no_index() -> None:
    plan, files = planned_index()
    assert (files, plan.entries, plan.offset_sum, plan.end_timestamp) == ([], [], 0, 0)
    assert planned_index(scan_with("", 0, last_record=-1))[1] == []


def test_a_broker_without_an_index_makes_no_file() -> None:
    layout = replace(StoreLayout(), message_index_enable=False)
    plan = planning.plan_index_files([scan_with("", 0, last_record=900)], layout, lambda path, row: 0)
    assert (plan.files, plan.entries, plan.end_timestamp) == ([], [], 0)


def test_records_without_a_key_leave_one_empty_file() -> None:
    """IndexService#buildIndex makes the file before it looks for keys."""
    plan, files = planned_index(scan_with("", 0, last_record=0), scan_with("", 0, last_record=900))
    assert files == [([], None)]
    assert (plan.entries, plan.end_timestamp) == ([0], 0)


@pytest.mark.parametrize(("last_record", "empty"), [(700, []), (701, [([], ("s1", 3))])])
def test_an_empty_file_follows_a_full_one_where_a_record_follows(last_record: int, empty: list[object]) -> None:
    plan, files = planned_index(scan_with("s1", 4, last_record=last_record, last_entry=700))
    assert files == [([("s1", 0, 4)], None), *empty]
    assert [file.path for file in plan.files] == [
        f"index/{name_of(1000)}",
        *[f"index/{name_of(1003)}" for _ in empty],  # it begins when the one before ended
    ]
    assert plan.entries == [4, *(0 for _ in empty)]
    assert (plan.end_timestamp, plan.offset_sum) == (BEGIN + 1003, 4000)


def test_a_file_that_is_not_full_takes_what_follows() -> None:
    assert planned_index(scan_with("s1", 3, last_record=900, last_entry=700))[1] == [([("s1", 0, 3)], None)]


def test_entries_go_on_from_scan_to_scan() -> None:
    plan, files = planned_index(
        scan_with("s1", 3, last_record=100, last_entry=100),
        scan_with("", 0, last_record=-1),
        scan_with("s3", 9, last_record=500, last_entry=500),
        scan_with("s4", 1, last_record=900, last_entry=900),
    )
    assert files == [
        ([("s1", 0, 3), ("s3", 0, 1)], None),
        ([("s3", 1, 4)], ("s3", 0)),
        ([("s3", 5, 4)], ("s3", 4)),
        ([("s4", 0, 1)], ("s3", 8)),
    ]
    assert plan.entries == [4, 4, 4, 1]
    assert [file.path for file in plan.files] == [f"index/{name_of(millis)}" for millis in (1000, 3001, 3005, 4000)]
    assert (plan.end_timestamp, plan.offset_sum) == (BEGIN + 4000, 13_000)


# -------------------------------------------------------------------------------------------------------- batch queues
def batch_scan(name: str, *rows: tuple[int, int, int, int, int], topics: tuple[bytes, ...] = (b"A", b"B")) -> SplitScan:
    """Rows are topic code, queue id, begin, count, and whether the run begins the queue anew."""
    columns = np.array(rows, np.int64).reshape(-1, 5).T
    runs = BatchRuns(*columns, messages=columns[3])
    return SplitScan(REPORT, topics=topics, batches=StagedBatches(offset_sum=7, path=name, runs=runs))


def planned_batches(*scans: SplitScan) -> planning.BatchQueuesPlan:
    return planning.plan_batch_queue_files(scans, replace(StoreLayout(), mapper_file_size_batch_consume_queue=3 * 46))


def test_units_of_batch_queues_lie_one_after_the_other() -> None:
    plan = planned_batches(
        batch_scan("s1", (0, 0, 0, 2, 1), (1, 5, 2, 4, 0)),
        batch_scan("s2", (1, 0, 0, 5, 0), topics=(b"B", b"A")),
    )
    assert [(file.path, list(file.slices)) for file in plan.files] == [
        ("batchconsumequeue/A/0/00000000000000000000", [("s1", 0, 2), ("s2", 0, 1)]),
        ("batchconsumequeue/A/0/00000000000000000138", [("s2", 1, 3)]),
        ("batchconsumequeue/A/0/00000000000000000276", [("s2", 4, 1)]),
        ("batchconsumequeue/B/5/00000000000000000000", [("s1", 2, 3)]),
        ("batchconsumequeue/B/5/00000000000000000138", [("s1", 5, 1)]),
    ]
    assert (plan.queues, plan.units, plan.complete, plan.offset_sum) == (2, 11, True, 14)


def test_of_a_batch_queue_that_began_anew_the_last_life_is_kept() -> None:
    plan = planned_batches(
        batch_scan("s1", (0, 0, 0, 3, 1), (0, 0, 3, 1, 0), (0, 0, 4, 2, 1)),
        batch_scan("s2", (0, 0, 0, 1, 0)),
    )
    (file,) = plan.files
    assert list(file.slices) == [("s1", 4, 2), ("s2", 0, 1)]
    assert (plan.queues, plan.units, plan.complete) == (1, 3, False)


# -------------------------------------------------------------------------------------------------------------- queues
Row = tuple[int, int, int, int, int]
"""Topic code, queue id, first queue offset, count, begin in the units file."""


def queue_scan(
    name: str, *rows: Row, light: tuple[bool, ...] = (), topics: tuple[bytes, ...] = (b"A", b"B")
) -> SplitScan:
    table = np.array(rows, np.int64).reshape(-1, 5).T
    topic_codes, queue_ids, firsts, counts, begins = table
    runs = Runs(
        topic_codes=topic_codes.astype(np.int32),
        queue_ids=queue_ids.astype(np.int32),
        first_queue_offsets=firsts,
        counts=counts,
        begins=begins,
        first_offsets=begins,
        last_offsets=begins,
        light=np.array(light or (False,) * len(rows)),
    )
    units = StagedUnits(offset_sum=9, path=name, packed_runs=runs.pack(), times_path=f"{name}.times")
    return SplitScan(REPORT, topics=topics, units=units)


def planned(scans: list[SplitScan], layout: StoreLayout, **marks: Any) -> planning.QueuesPlan:
    return planning.plan_queue_files(replace(all_runs(scans), **marks), scans, layout)


LAYOUT = replace(StoreLayout(), mapped_file_size_consume_queue=80)
"""Four units a file."""


def test_units_of_queues_lie_at_their_queue_offsets() -> None:
    plan = planned(
        [queue_scan("s1", (1, 3, 5, 2, 10), (0, 0, 0, 3, 0)), queue_scan("s2", (0, 3, 7, 2, 40), topics=(b"B",))],
        LAYOUT,
    )
    assert [(file.path, file.pre_blanks, list(file.slices)) for file in plan.files] == [
        ("consumequeue/A/0/00000000000000000000", 0, [("s1", 0, 3)]),
        ("consumequeue/B/3/00000000000000000080", 1, [("s1", 10, 2), ("s2", 40, 1)]),
        ("consumequeue/B/3/00000000000000000160", 0, [("s2", 41, 1)]),
    ]
    assert (plan.queues, plan.units, plan.complete, plan.offset_sum) == (2, 7, True, 18)
    assert (plan.notes, plan.created_anew, plan.ext_files) == ([], frozenset(), [])


def test_what_queues_leave_out_is_noted() -> None:
    plan = planned([queue_scan("s", (0, 5, 0, 3, 0), (1, 7, 0, 2, 3), (1, 7, 4, 1, 5), (0, 5, 0, 2, 6))], LAYOUT)
    assert (plan.queues, plan.units, plan.complete) == (2, 5, False)
    assert plan.created_anew == {("A", 5)}
    assert [(note.topic, note.queue_id, note.note.split(":")[0], note.messages) for note in plan.notes] == [
        ("A", 5, "the topic was deleted and created again", 3),
        ("B", 7, "queue offsets are missing before these messages", 1),
    ]
    assert vars(plan.notes[0]) == {"topic": "A", "queue_id": 5, "note": plan.notes[0].note, "messages": 3}
    dropped = planned([queue_scan("s", (0, 1, 3, 3, 0), (0, 1, 4, 1, 3))], LAYOUT)
    assert (dropped.units, dropped.complete, [note.messages for note in dropped.notes]) == (3, False, [1])


def test_fillers_are_units_and_no_whole_queue() -> None:
    after_loss = np.array([False, True])
    plan = planned([queue_scan("s", (0, 0, 0, 1, 0), (0, 0, 3, 1, 1))], LAYOUT, after_loss=after_loss)
    (file,) = plan.files
    assert list(file.slices) == [("s", 0, 1), ("s", 1, 2), ("s", 1, 1)]
    assert file.fillers.tolist() == [False, True, False]
    assert (plan.units, plan.complete) == (4, False)


def test_queue_ext_counts_what_each_queue_was_given() -> None:
    """Every record of the queue's last life has a unit there, also one that the queue drops; light ones have none."""
    layout = replace(LAYOUT, enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=64)  # three units
    rows: tuple[Row, ...] = (
        (0, 0, 0, 2, 0),
        (0, 0, 2, 1, 8),
        (1, 1, 5, 3, 2),
        (1, 1, 6, 1, 5),
        (1, 1, 8, 1, 6),
        (1, 1, 9, 1, 7),
    )
    plan = planned([queue_scan("s", *rows, light=(False, False, False, False, True, False))], layout)
    assert [(file.path, list(file.slices), file.closed) for file in plan.ext_files] == [
        ("consumequeue_ext/A/0/00000000000000000000", [("s", 0, 2), ("s", 8, 1)], False),
        ("consumequeue_ext/B/1/00000000000000000000", [("s", 2, 3)], True),
        ("consumequeue_ext/B/1/00000000000000000064", [("s", 5, 1), ("s", 7, 1)], False),
    ]
    assert [file.times_of for file in plan.ext_files] == [{"s": "s.times"}] * 3
    numbers = plan.files.ext_begins
    assert numbers is not None
    assert [file.path.split("/")[1:3] for file in plan.files] == [["A", "0"], ["B", "1"], ["B", "1"]]
    assert numbers.tolist() == [0, 2, 0, -1, 4]


# ------------------------------------------------------------------------------------------------- planning size
def taken(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


@pytest.mark.golden
@pytest.mark.parametrize(
    "name", ["base-clean-5.3.3", "cq-default-size-5.3.3", "cq-ext-5.3.3", "batch-cq-5.3.3", "retention-5.1.4"]
)
def test_the_plan_is_what_the_files_take(name: str, tmp_path: Path) -> None:
    (store,) = golden.stores(name)
    built = rebuild_here(golden.unpack(store), tmp_path, store.settings)
    made = Path(built.directory)
    left = taken(made) - sum((made / name).stat().st_blocks * 512 for name in ("manifest.json", "checkpoint"))
    if not left:
        pytest.skip("this file system does not say what files take")
    assert left <= built.planned_bytes <= 2 * left + (1 << 20)


@pytest.mark.golden
def test_an_output_that_does_not_fit_is_refused_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store,) = golden.stores("base-clean-5.3.3")
    root = golden.unpack(store)
    size = rebuild_here(root, tmp_path / "dry", store.settings, dry_run=True).planned_bytes
    monkeypatch.setattr(local_status, "free_space", lambda path: size - 1)
    with pytest.raises(Refused, match="does not fit") as caught:
        rebuild_here(root, tmp_path / "small", store.settings)
    assert caught.value.exit_code == 2
    assert "of log" in str(caught.value)
    assert not list((tmp_path / "small").rglob("consumequeue"))
    rebuild_here(root, tmp_path / "ignored", store.settings, ignore_free_space=True)
    monkeypatch.setattr(local_status, "free_space", lambda path: size)
    rebuild_here(root, tmp_path / "fits", store.settings)


@pytest.mark.parametrize(
    ("planned", "log", "noted"),
    [(600_000_000, 9_300, True), (1 << 20, 100, False), (5, 10, False), (2 << 20, 2 << 20, False)],
)
def test_an_output_larger_than_its_log_is_noted(planned: int, log: int, noted: bool) -> None:
    said = (
        "the output takes 600.0 MB, more than the 9.3 kB of log that it is made of: its queues begin at high offsets, "
        "or most of their messages are lost; units without a message fill the rest"
    )
    assert size_note(planned, log) == (said if noted else None)


@pytest.mark.parametrize(("free", "fits"), [(None, True), (5_000, True), (4_999, False)])
def test_what_is_free_is_enough(monkeypatch: pytest.MonkeyPatch, free: int | None, fits: bool) -> None:
    monkeypatch.setattr(local_status, "free_space", lambda path: free if path == "/out" else 0)
    if fits:
        refuse_if_too_large(5_000, "/out", 100)
        return
    with pytest.raises(Refused) as caught:
        refuse_if_too_large(5_000, "/out", 100)
    assert str(caught.value) == (
        "the output does not fit on its disk: found 5.0 kB free, expected 5.0 kB for 100 B of log (/out)"
    )
    assert caught.value.advice == (
        "name an --output with more room, rebuild fewer --topic, or go on with --ignore-free-space"
    )


def test_ten_kilobytes_of_log_cannot_fill_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred queues that begin with the last place of a file: each gets fillers in all of it."""
    log = LogBuilder(segment_size=1 << 16)
    for number in range(100):
        log.message(Message(f"T{number}", 0), queue_offset=299_999)
    log.write(tmp_path / "store")
    monkeypatch.setattr(local_status, "free_space", lambda path: 500_000_000)
    with pytest.raises(Refused, match=r"500\.0 MB free, expected 60[0-9].. MB for [0-9.]+ kB of log"):
        rebuild_here(tmp_path / "store", tmp_path / "work", {}, broker_version="5.5")


# --------------------------------------------------------------------------------------------------------- names
LONGEST = "%RETRY%" + "g" * 248
TOPICS = ("订单", "😀-events", "%RETRY%group", "%DLQ%group", "ns%orders", "a|b", "T+x", "Ünïcode", "k" * 127, LONGEST)
TAGS = ("标签😀", "a||b", "polygenelubricants", None)
KEYS = ("订单-1 🚀", "a#b T#T#x", "plain")
QUEUE_IDS = (0, 65_535)
V6 = "2001:db8::1"
SIZES = {"mappedFileSizeConsumeQueue": 200, "maxHashSlotNum": 50, "maxIndexNum": 40}


def hosts(number: int) -> dict[str, object]:
    flags = (0, BORN_HOST_V6, STORE_HOST_V6, BORN_HOST_V6 | STORE_HOST_V6)[number % 4]
    return {
        "sys_flag": flags,
        "born_host": (V6 if flags & BORN_HOST_V6 else "10.1.2.3", 4321),
        "store_host": (V6 if flags & STORE_HOST_V6 else "10.1.2.4", 10911),
    }


@pytest.fixture(scope="module")
def log() -> LogBuilder:
    log = LogBuilder(segment_size=16_384)
    for number in range(240):
        topic = TOPICS[number % len(TOPICS)]
        message = Message(
            topic,
            QUEUE_IDS[number // len(TOPICS) % 2],
            tags=TAGS[number % 4],
            keys=KEYS[number % 3],
            uniq_key=f"U{number}",
        )
        log.message(message, **hosts(number // 3))
    return log


def queue_files(made: Path) -> dict[str, bytes]:
    return {path.relative_to(made).as_posix(): path.read_bytes() for path in made.glob("consumequeue/*/*/*")}


@pytest.mark.parametrize("split_size", [777, 1 << 30])
def test_every_name_is_rebuilt(log: LogBuilder, split_size: int, tmp_path: Path) -> None:
    log.write(tmp_path / "store")
    built = rebuild_here(tmp_path / "store", tmp_path, SIZES, broker_version="5.5", split_size=split_size)
    made = Path(built.directory)
    found = queue_files(made)
    settings = BrokerSettings.of("5.5.0", {"mappedFileSizeCommitLog": log.segment_size, **SIZES})
    model = dispatch(log.segments, settings)
    assert found == model.files
    assert {name.split("/")[1] for name in found} == set(TOPICS)
    assert {int(name.split("/")[2]) for name in found} == set(QUEUE_IDS)
    assert [path.read_bytes() for path in sorted((made / "index").iterdir())] == model.index_files


def test_topics_that_java_reads_alike_share_their_queues(tmp_path: Path) -> None:
    """Damaged bytes of a name become U+FFFD each, so that two broken names can be one to a broker."""
    log = LogBuilder(segment_size=4096)
    for number in range(30):
        topic = (b"T\xff", b"T\xfe", b"T", "T\ufffd")[number % 4]
        log.message(Message(topic, queue_offset=number, keys="k"))
    log.write(tmp_path / "store")
    built = rebuild_here(tmp_path / "store", tmp_path, SIZES, broker_version="5.5", split_size=500)
    made = Path(built.directory)
    model = dispatch(log.segments, BrokerSettings.of("5.5.0", {"mappedFileSizeCommitLog": 4096, **SIZES}))
    assert {name.split("/")[1] for name in model.files} == {"T", "T\ufffd"}
    assert queue_files(made) == model.files
    assert [path.read_bytes() for path in sorted((made / "index").iterdir())] == model.index_files


@pytest.mark.thorough
def test_every_name_can_be_asked_for(log: LogBuilder, tmp_path: Path) -> None:
    log.write(tmp_path / "log")
    built = rebuild_here(tmp_path / "log", tmp_path / "work", SIZES, broker_version="5.5")
    root = Path(built.directory)
    (tmp_path / "log" / "commitlog").rename(root / "commitlog")
    settings = tuple((name, str(value)) for name, value in SIZES.items())
    for placed in log.records[::23]:
        message = placed.message
        assert isinstance(message.topic, str)
        common = {"store": str(root), "settings": settings, "topic": message.topic, "broker_version": "5.5"}
        place = {"queue_id": message.queue_id, "offset": message.queue_offset}
        (row,) = query.run(QueryOptions(kind="offset", **common, **place), Reporter(quiet=True))["messages"]
        assert row["commit_log_offset"] == placed.offset
        assert (row["topic"], row["tags"], row["keys"]) == (
            message.topic,
            message.tags,
            (message.keys or "").split(" "),
        )
        assert row["born_host"].strip("[]").startswith(message.born_host[0][:8])
        for key in row["keys"]:
            keyed = query.run(QueryOptions(kind="key", key=key, **common), Reporter(quiet=True))["messages"]
            assert placed.offset in [found["commit_log_offset"] for found in keyed]


def test_directories_do_not_cost_much_each(tmp_path: Path) -> None:
    """100 topics with 8 queues each: 800 directories with a file each."""
    log = LogBuilder(segment_size=1 << 20)
    for number in range(1_600):
        log.message(Message(f"topic-{number % 100}", number // 100 % 8, tags="t"))
    log.write(tmp_path / "store")
    built = rebuild_here(tmp_path / "store", tmp_path, SIZES, broker_version="5.3", only=("consumequeue",))
    assert built.queues is not None
    assert (built.queues.queues, len(built.rows)) == (800, 800)
    assert sum(row.count for row in built.rows) == 1_600


# ------------------------------------------------------------------------------------------------------- staging
@pytest.mark.parametrize("context", [staging.claimed, staging.staging_beside])
def test_what_failed_first_is_told(context: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that refuses a read often refuses the removal that follows."""

    def refused(path: str) -> None:
        raise WriteFailed("cannot be removed", path=path)

    monkeypatch.setattr(files, "remove_tree", refused)
    with pytest.raises(MissingInput, match="HTTP 416"), context(str(tmp_path / "out")):  # type: ignore[operator]
        raise MissingInput("HTTP 416")


def test_a_staging_directory_that_cannot_be_removed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str) -> None:
        raise WriteFailed("cannot be removed", path=path)

    monkeypatch.setattr(files, "remove_tree", refused)
    with pytest.raises(WriteFailed, match="cannot be removed"), staging.staging_beside(str(tmp_path / "out")):
        pass


def test_nothing_is_left_of_a_staging_directory_and_its_parents(tmp_path: Path) -> None:
    with staging.staging_beside(str(tmp_path / "new" / "parents" / "out")) as made:
        Path(made, "file").touch()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(KeyboardInterrupt), staging.staging_beside(str(tmp_path / "new" / "out")):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_where_a_rebuild_works(tmp_path: Path) -> None:
    place = staging.Workplace.within(str(tmp_path), None)
    assert place == staging.Workplace(f"{tmp_path}/runs", f"{tmp_path}/drafts", f"{tmp_path}/made")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drafts", "made", "runs"]
    elsewhere = staging.Workplace.within(str(tmp_path / "s"), str(tmp_path / "out"))
    assert (elsewhere.made, (tmp_path / "out").is_dir()) == (str(tmp_path / "out"), True)
    assert elsewhere.output == OutputDirectory(elsewhere.made, elsewhere.drafts)


@pytest.mark.parametrize("other", ["notes.txt", ".claim-0"])
def test_an_output_that_another_rebuild_fills(tmp_path: Path, other: str) -> None:
    (tmp_path / other).touch()
    with pytest.raises(Refused) as caught, staging.claimed(str(tmp_path)):
        raise AssertionError
    assert str(caught.value) == (f"the output directory is not empty: found {other}, expected nothing ({tmp_path})")
    assert caught.value.advice == (
        ".claim-0 belongs to a rebuild that is running or was killed: if none is running, remove the directory"
        if other == ".claim-0" else None
    )  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == [other]


def test_a_claim_is_gone_afterwards(tmp_path: Path) -> None:
    with staging.claimed(str(tmp_path / "a")):
        (claim,) = (tmp_path / "a").iterdir()
        assert (claim.name[:7], len(claim.name), claim.read_bytes()) == (".claim-", 39, b"")
        (tmp_path / "a" / "made").touch()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["made"]
    with pytest.raises(KeyboardInterrupt), staging.claimed(str(tmp_path / "b")):
        raise KeyboardInterrupt
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("output", "one_machine", "begin"),
    [
        ("/x/out", True, "/x/.out."),
        ("/x/out", False, "/x/.out."),
        ("s3://b/x/out", False, "s3://b/x/.out."),
        ("s3://b/x/out", True, "TEMPORARY/.rocketmq-store-spark-rebuild."),
    ],
)
def test_where_what_lives_no_longer_than_a_job_lies(
    monkeypatch: pytest.MonkeyPatch, output: str, one_machine: bool, begin: str
) -> None:
    made: list[str] = []
    monkeypatch.setattr(staging.outputs, "make_private_directory", made.append)
    monkeypatch.setattr(files, "remove_tree", made.append)
    monkeypatch.setattr(staging.outputs, "missing_parents", lambda path: [])
    monkeypatch.setattr(staging.session, "on_one_machine", lambda: one_machine)
    with staging.staging_for(output) as found:
        pass
    begin = begin.replace("TEMPORARY", tempfile.gettempdir())
    assert made == [found, found]
    assert found.startswith(begin)
    assert found.endswith(".staging")
    assert len(found) == len(begin) + 12 + len(".staging")


# ----------------------------------------------------------------------------------------------------- full disk
@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_one_line_and_nothing_left(small_disk: Path) -> None:
    (store,) = golden.stores("base-larger-5.3.3")
    with pytest.raises(WriteFailed, match="No space left on device") as failure:
        rebuild_here(golden.unpack(store), small_disk / "work", store.settings, ignore_free_space=True)
    assert failure.value.exit_code == 74
    assert failure.value.advice is not None
    assert "space" in failure.value.advice
    files.remove_tree(str(small_disk / "work"))
    assert list(small_disk.iterdir()) == []
