"""How a database of RocksDB queues is judged, rule by rule and without a database."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jobs.verify import judge_rocksdb
from jobs.verify.differences import Verdicts, Verification
from jobs.verify.judge_rocksdb import (
    RocksDbCompared,
    _batches,
    _judge_checkpoint,
    _judge_ends,
    _judge_units,
)
from storeformat.queues.rocksdb_check import FirstDifference, PairsComparison
from storeformat.queues.rocksdb_pairs import VALUE
from storeformat.queues.topic_filter import TopicFilter
from storeformat.store.rocksdb_queues import StoredEnds
from udfs.files.rocksdb_pairs import ComparedPart, QueueEnds, QueuePart, UnitSlice

NAME = "consumequeue"
QUEUE = (b"T", 3)
BEGIN, END = 100, 1000
LAST = (900, 9)
"""Commit-log offset and queue offset, as a database has them."""
EXPECTED = QueueEnds("T", 3, first=(5, 200), last=(9, 900))


def verification(begin: int = BEGIN, *, cut: bool = False, lost: tuple[tuple[int, int], ...] = ()) -> Verification:
    damaged = [SimpleNamespace(begin=first, end=after) for first, after in lost]
    reading: Any = SimpleNamespace(begin=begin, end=END, damaged=damaged, scans=[], foreign_records=[])
    nothing: Any = None
    return Verification(nothing, reading, nothing, Verdicts(), cut)


class Units:
    """A database with units: commit-log offset by queue offset."""

    def __init__(self, **offsets: int) -> None:
        self.offsets = {int(name.removeprefix("at_")): offset for name, offset in offsets.items()}

    def unit(self, queue: tuple[bytes, int], queue_offset: int) -> Any:
        assert queue == QUEUE
        if queue_offset not in self.offsets:
            return None
        unit = np.zeros(1, VALUE)
        unit["phy_offset"] = self.offsets[queue_offset]
        return unit


def ends_said(
    stored: StoredEnds | None, units: Units | None = None, dispatched: int | None = None, begin: int = BEGIN
) -> list[tuple[Any, Any]]:
    """What is said of the ends of a queue that the log has: expected and found."""
    run = verification(begin)
    given = {} if stored is None else {QUEUE: stored}
    database: Any = units or Units()
    _judge_ends(run, NAME, {QUEUE: EXPECTED}, given, database, dispatched=dispatched, topics=())
    for row in run.verdicts.differences:
        assert (row["artefact"], row["file"], row["topic"], row["queue_id"]) == (NAME, NAME, "T", 3)
        assert row["cause"] == "wrong_end"
    return [(row["expected"], row["found"]) for row in run.verdicts.differences]


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        (StoredEnds(LAST), []),
        (StoredEnds(LAST, (200, 5)), []),
        (None, [([900, 9], None)]),
        (StoredEnds((900, 8)), [([900, 9], [900, 8])]),
        (StoredEnds((901, 9)), [([900, 9], [901, 9])]),
        # The first: a broker corrects one that is before the log, or too low.
        (StoredEnds(LAST, (99, 6)), []),
        (StoredEnds(LAST, (100, 6)), [([200, 5], [100, 6])]),
        (StoredEnds(LAST, (300, 6)), [([200, 5], [300, 6])]),
        (StoredEnds(LAST, (300, 5)), []),
        (StoredEnds(LAST, (150, 4)), []),
        (StoredEnds(None, (300, 6)), [([900, 9], None), ([200, 5], [300, 6])]),
    ],
)
def test_the_ends_of_a_queue_of_the_log(stored: StoredEnds | None, said: list[Any]) -> None:
    assert ends_said(stored) == said


@pytest.mark.parametrize(
    ("stored", "units", "dispatched", "lags"),
    [
        (None, Units(), 900, True),
        (None, Units(), 901, False),  # the last record was dispatched
        (None, Units(), 0, True),
        (None, Units(), None, False),
        (StoredEnds((700, 8)), Units(at_8=700), 900, True),
        (StoredEnds((700, 8)), Units(at_8=700), 901, False),
        (StoredEnds((700, 8)), Units(at_8=701), 900, False),
        (StoredEnds((700, 8)), Units(at_7=700), 900, False),
    ],
)
def test_a_queue_may_end_early_where_the_rest_was_not_dispatched(
    stored: StoredEnds | None, units: Units, dispatched: int | None, *, lags: bool
) -> None:
    assert (ends_said(stored, units, dispatched) == []) is lags


@pytest.mark.parametrize(
    ("stored", "begin", "wrong"),
    [
        (StoredEnds((100, 0)), BEGIN, True),
        (StoredEnds((99, 0)), BEGIN, False),
        (StoredEnds((999, 7)), BEGIN, True),
        (StoredEnds((1000, 7)), BEGIN, False),
        (StoredEnds((500, -1)), BEGIN, False),
        (StoredEnds(None, (500, 7)), BEGIN, False),
        (StoredEnds((0, 0)), 0, False),  # no record
        (StoredEnds((1, 0)), 0, True),
        (StoredEnds((299, 7)), BEGIN, True),
        (StoredEnds((300, 7)), BEGIN, False),  # damaged up to 400
        (StoredEnds((399, 7)), BEGIN, False),
        (StoredEnds((400, 7)), BEGIN, True),
    ],
)
def test_the_end_of_a_queue_that_the_log_does_not_have(stored: StoredEnds, begin: int, *, wrong: bool) -> None:
    nothing: Any = None
    for topics, judged in (((), True), ((TopicFilter("Gone"),), True), ((TopicFilter("Other"),), False)):
        run = verification(begin, lost=((300, 400),))
        # The first is no fault, and does not keep the others from being looked at.
        there = {QUEUE: StoredEnds(LAST), (b"Silent", 0): StoredEnds(), (b"Gone", 2): stored}
        _judge_ends(run, NAME, {QUEUE: EXPECTED}, there, nothing, dispatched=None, topics=topics)
        assert bool(run.verdicts.differences) is (wrong and judged)
        for row in run.verdicts.differences:
            assert (row["file"], row["topic"], row["queue_id"]) == (NAME, "Gone", 2)
            assert (row["expected"], row["found"]) == (None, list(stored.last or ()))


@pytest.mark.parametrize(
    ("dispatched", "units", "unclean", "cut", "said"),
    [
        (None, 5, False, False, ("wrong_end", "how far the log is dispatched", None)),
        (None, 5, True, False, None),
        (None, 0, False, False, None),
        (END, 5, False, False, None),
        (END + 1, 5, False, False, ("checkpoint_ahead", END, END + 1)),
        (END + 1, 5, True, False, ("checkpoint_ahead", END, END + 1)),
        (END + 1, 5, False, True, None),
        (0, 5, False, False, None),
    ],
)
def test_the_checkpoint(dispatched: int | None, units: int, *, unclean: bool, cut: bool, said: Any) -> None:
    run = verification(cut=cut)
    _judge_checkpoint(run, NAME, dispatched, units, unclean=unclean)
    found = [(row["cause"], row["expected"], row["found"]) for row in run.verdicts.differences]
    assert found == ([] if said is None else [said])
    assert {(row["artefact"], row["file"]) for row in run.verdicts.differences} <= {(NAME, NAME)}


def test_queues_of_the_log_are_compared_and_then_those_of_the_database_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_rocksdb, "_QUEUES_A_TASK", 2)
    slices = [UnitSlice("T", 3, 5, "u", "t", 0, 2), UnitSlice("U", 0, 0, "u", "t", 2, 1)]
    ends = {QUEUE: StoredEnds(LAST), (b"X", 1): StoredEnds((700, 4))}
    there = [(b"A", 0), QUEUE, (b"U", 0), (b"X", 1), (b"Y", 2)]
    assert list(_batches(slices, there, ends)) == [
        [QueuePart(b"T", 3, 0, None, (slices[0],), 9), QueuePart(b"U", 0, 0, None, (slices[1],), -1)],
        [QueuePart(b"A", 0, 0, None, (), -1), QueuePart(b"X", 1, 0, None, (), 4)],
        [QueuePart(b"Y", 2, 0, None, (), -1)],
    ]


def compared(queue: tuple[bytes, int], **found: Any) -> ComparedPart:
    return ComparedPart(*queue, PairsComparison(**found), 0)


def test_of_each_queue_the_first_difference_is_shown_and_all_are_counted() -> None:
    run = verification()
    first = FirstDifference("missing_unit", 7, (700, 90, 0, 1), None)
    later = FirstDifference("wrong_size", 9, (900, 90, 0, 1), (900, 91, 0, 1))
    other = (b"\xff", 0)
    lagging = _judge_units(
        run,
        NAME,
        [
            compared(QUEUE, counts=Counter(missing_unit=2), first=first, before_log=1, lagging=4),
            compared(QUEUE, counts=Counter(missing_unit=1, wrong_size=3), first=later, beyond=2),
            compared(other, counts=Counter(wrong_size=5), first=later, before_log=10, beyond=20, lagging=40),
            compared((b"Fine", 0)),
        ],
    )
    assert run.verdicts.counts == {"missing_unit": 3, "wrong_size": 8}
    shown = [(row["topic"], row["queue_id"], row["cause"], row["position"], row["expected"], row["found"])
             for row in run.verdicts.differences]  # fmt: skip
    assert shown == [
        ("T", 3, "missing_unit", 7, [700, 90, 0, 1], None),
        ("\\xff", 0, "wrong_size", 9, [900, 90, 0, 1], [900, 91, 0, 1]),
    ]
    assert {(row["artefact"], row["file"]) for row in run.verdicts.differences} == {(NAME, NAME)}
    before, beyond = run.verdicts.notes
    assert (before.partition(" ")[0], beyond.partition(" ")[0]) == ("11", "22")
    assert "log's start" in before
    assert "ends of their queues" in beyond
    assert lagging == 44


def test_where_nothing_differs_nothing_is_said() -> None:
    run = verification()
    assert _judge_units(run, NAME, [compared(QUEUE, compared=9)]) == 0
    assert run.verdicts == Verdicts()


@pytest.mark.parametrize("has_units", [True, False])
@pytest.mark.parametrize("has_directory", [True, False])
def test_without_a_database(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, has_units: bool, has_directory: bool
) -> None:
    """Where there is a directory, and the log has no units, a broker has not begun yet."""
    if has_directory:
        (tmp_path / "apart").mkdir()
    store: Any = SimpleNamespace(root=str(tmp_path), queues_in=SimpleNamespace(database="apart"))
    slices = [UnitSlice("T", queue, at, "", "", 0, 4) for queue, at in ((3, 0), (3, 4), (2, 0))] if has_units else []
    monkeypatch.setattr(judge_rocksdb, "plan_database", lambda reading: SimpleNamespace(slices=slices))
    run = verification()
    run = Verification(store, run.reading, run.runner, run.verdicts)
    found = judge_rocksdb.judge_rocksdb(run, (TopicFilter("T", 3),), unclean=False)
    units = 8 if has_units else 0
    assert found == RocksDbCompared({"queues": 1 if has_units else 0, "consume_queue_units": units}, -1)
    missing = has_units or not has_directory
    assert run.verdicts.counts == ({"missing_file": 1} if missing else {}) | ({"missing_unit": 8} if has_units else {})
    shown = [(row["artefact"], row["file"], row["expected"]) for row in run.verdicts.differences]
    assert shown == ([("apart", "apart", "a RocksDB database")] if missing else [])
