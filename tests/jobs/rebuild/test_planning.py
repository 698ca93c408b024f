"""From the summaries of scans to files: which there are, and of what each consists."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jobs.log.queue_runs import all_runs
from jobs.rebuild import planning
from storeformat.log.chain import ChainReport
from storeformat.log.framing import ChainEnd
from storeformat.log.segments import Segment, Split
from storeformat.store.layout import StoreLayout
from udfs.log.batch_queues import BatchRuns, StagedBatches
from udfs.log.scan import Dispatched, SplitScan
from udfs.log.staged_files import Staged
from udfs.log.staged_runs import Runs, StagedUnits

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
