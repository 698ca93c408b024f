"""A store of RocksDB queues against its log: a rebuilt database is as it should be, and every fault in it is named."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support import golden
from support.rebuilding import verify_here

from jobs.verify.differences import Verification
from jobs.verify.judge_queues import _judge_checkpoint, _judge_ends, _judge_units
from storeformat.queues import rocksdb_queues
from storeformat.queues.queue_check import Finding, UnitComparison
from storeformat.queues.rocksdb_queues import VALUE, StoredEnds
from storeformat.queues.topic_filter import TopicFilter
from udfs.files.rocksdb_pairs import ComparedPart, QueueEnds

pytest.importorskip("rocksdict")
from support.rocksdb_stores import ChangedDatabase, empty, with_database

pytestmark = pytest.mark.golden

(STORE,) = golden.stores("base-clean-5.5.0")
SETTINGS = {**STORE.settings, "storeType": "defaultRocksDB"}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_database(STORE.name, tmp_path_factory.mktemp("healthy"))[0]


@pytest.fixture
def root(healthy: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(healthy, tmp_path / "store"))


def test_a_rebuilt_database_is_as_it_should_be(root: Path) -> None:
    verified = verify_here(root, SETTINGS)
    assert verified.verdicts.counts == {}
    assert verified.compared["consume_queue_units"] > 100
    assert verified.compared["queues"] == STORE.entry["counts"]["queues"]
    (root / "abort").touch()
    assert verify_here(root, SETTINGS).verdicts.counts == {}


@pytest.mark.parametrize(("most", "hazards"), [(1, ["lag_beyond_recovery"]), (1000, [])])
def test_an_empty_database_of_a_killed_broker_lags_as_files_do(root: Path, most: int, hazards: list[str]) -> None:
    settings = {**SETTINGS, "commitLogRecoverMaxNum": most}
    empty(root / "consumequeue")
    units = verify_here(root, settings).verdicts.counts["missing_unit"]
    (root / "abort").touch()
    verdicts = verify_here(root, settings).verdicts
    assert verdicts.counts == {}
    assert [row["hazard"] for row in verdicts.hazards] == hazards
    assert f"the queues lag: {units} messages from offset 0 on" in " ".join(verdicts.notes)


def lose(database: ChangedDatabase) -> None:
    _, _, pairs = database.queue()
    database.units.delete(pairs[2][0])


def point_elsewhere(database: ChangedDatabase) -> None:
    _, _, pairs = database.queue()
    database.units[pairs[2][0]] = pairs[1][1]


def change_time(database: ChangedDatabase) -> None:
    _, _, pairs = database.queue()
    database.units[pairs[2][0]] = pairs[2][1][:-1] + b"\1"


def add(database: ChangedDatabase) -> None:
    topic, queue_id, pairs = database.queue()
    database.ends[rocksdb_queues.end_key(topic, queue_id, "max")] = rocksdb_queues.ENDS.pack(0, 1 << 40)
    database.units[rocksdb_queues.unit_key(topic, queue_id, 1 << 40)] = pairs[0][1]


def add_queue(database: ChangedDatabase) -> None:
    _, _, pairs = database.queue()
    database.units[rocksdb_queues.unit_key(b"Unknown", 0, 0)] = pairs[0][1]
    database.ends[rocksdb_queues.end_key(b"Unknown", 0, "max")] = rocksdb_queues.ENDS.pack(0, 0)


def shorten(database: ChangedDatabase) -> None:
    topic, queue_id, pairs = database.queue()
    last, _ = pairs[-2]
    database.ends[rocksdb_queues.end_key(topic, queue_id, "max")] = pairs[-2][1][:8] + last[-8:]


def hide_the_first(database: ChangedDatabase) -> None:
    topic, queue_id, pairs = database.queue()
    second, value = pairs[1]
    database.ends[rocksdb_queues.end_key(topic, queue_id, "min")] = value[:8] + second[-8:]


def forget_the_end(database: ChangedDatabase) -> None:
    topic, queue_id, _ = database.queue()
    database.ends.delete(rocksdb_queues.end_key(topic, queue_id, "max"))


def be_ahead(database: ChangedDatabase) -> None:
    database.ends[rocksdb_queues.CHECKPOINT_KEY] = rocksdb_queues.OFFSET.pack(1 << 50)


def forget_the_checkpoint(database: ChangedDatabase) -> None:
    database.ends.delete(rocksdb_queues.CHECKPOINT_KEY)


@pytest.mark.parametrize(
    ("spoil", "counts"),
    [
        (lose, {"missing_unit": 1}),
        (point_elsewhere, {"wrong_unit": 1}),
        (change_time, {"wrong_unit": 1}),
        (add, {"extra_unit": 1, "wrong_end": 1}),
        (add_queue, {"extra_unit": 1}),
        (shorten, {"wrong_end": 1}),
        (hide_the_first, {"wrong_end": 1}),
        (forget_the_end, {"wrong_end": 1}),
        (be_ahead, {"checkpoint_ahead": 1}),
        (forget_the_checkpoint, {"wrong_end": 1}),
    ],
)
@pytest.mark.parametrize("unclean", [False, True])
def test_faults_are_named(
    root: Path, spoil: Callable[[ChangedDatabase], None], counts: dict[str, int], unclean: bool
) -> None:
    with ChangedDatabase(root) as database:
        spoil(database)
    if unclean:
        (root / "abort").touch()
    found = verify_here(root, SETTINGS).verdicts
    if unclean and spoil in (forget_the_checkpoint, be_ahead):
        # everything is dispatched again; the ends are cut back to the log
        assert found.counts == {}
    else:
        assert found.counts == counts
        assert {row["artefact"] for row in found.differences} == {"consumequeue"}


def test_what_was_not_flushed_is_no_difference_after_a_crash(root: Path) -> None:
    with ChangedDatabase(root) as database:
        topic, queue_id, pairs = database.queue()
        key, value = pairs[-1]
        database.units.delete(key)
        last, before = pairs[-2]
        database.ends[rocksdb_queues.end_key(topic, queue_id, "max")] = before[:8] + last[-8:]
        database.ends[rocksdb_queues.CHECKPOINT_KEY] = value[:8]
    assert verify_here(root, SETTINGS).verdicts.counts == {"missing_unit": 1, "wrong_end": 1}
    (root / "abort").touch()
    found = verify_here(root, SETTINGS).verdicts
    assert found.counts == {}
    assert any("the queues lag: 1 messages" in note for note in found.notes)


def test_one_topic_is_judged_alone(root: Path) -> None:
    with ChangedDatabase(root) as database:
        topic, queue_id, _ = database.queue()
        lose(database)
        other = next(
            end[:2]
            for end in map(rocksdb_queues.parse_end, database.ends.keys())
            if end and end[0] not in (topic, rocksdb_queues.CHECKPOINT_TOPIC)
        )
    own = verify_here(root, SETTINGS, topics=(TopicFilter(topic.decode(), queue_id),))
    assert own.verdicts.counts == {"missing_unit": 1}
    assert verify_here(root, SETTINGS, topics=(TopicFilter(other[0].decode(), other[1]),)).verdicts.counts == {}


def test_a_database_that_is_gone_is_one_missing_file(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    counts = verify_here(root, SETTINGS).verdicts.counts
    assert counts["missing_file"] == 1
    assert counts["missing_unit"] > 100


# ------------------------------------------------------------------------- the ends of queues, without a database
NAME = "consumequeue"
QUEUE = (b"T", 3)
BEGIN, END = 100, 1000
LAST = (900, 9)
"""Commit-log offset and queue offset, as a database has them."""
EXPECTED = QueueEnds("T", 3, first=(5, 200), last=(9, 900))


def verification(begin: int = BEGIN, *, lost: tuple[tuple[int, int], ...] = (), **more: Any) -> Verification:
    damaged = [SimpleNamespace(begin=first, end=after) for first, after in lost]
    reading: Any = SimpleNamespace(begin=begin, end=END, damaged=damaged, scans=[], foreign_records=[])
    nothing: Any = None
    return Verification(nothing, reading, nothing, **more)


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
    _judge_ends(run, NAME, {QUEUE: EXPECTED}, given, database, dispatched)
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
        run = verification(begin, lost=((300, 400),), topics=topics)
        # The first is no fault, and does not keep the others from being looked at.
        there = {QUEUE: StoredEnds(LAST), (b"Silent", 0): StoredEnds(), (b"Gone", 2): stored}
        _judge_ends(run, NAME, {QUEUE: EXPECTED}, there, nothing, None)
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
    run = verification(cut=cut, unclean=unclean)
    _judge_checkpoint(run, NAME, dispatched, units)
    found = [(row["cause"], row["expected"], row["found"]) for row in run.verdicts.differences]
    assert found == ([] if said is None else [said])
    assert {(row["artefact"], row["file"]) for row in run.verdicts.differences} <= {(NAME, NAME)}


def compared(queue: tuple[bytes, int], *differences: Finding, **counts: int) -> ComparedPart:
    return ComparedPart(*queue, UnitComparison(differences, counts=Counter(counts)))


def test_of_each_queue_and_cause_the_first_difference_is_shown_and_all_are_counted() -> None:
    run = verification()
    other = (b"\xff", 0)
    lagging = _judge_units(
        run,
        NAME,
        [
            compared(QUEUE, Finding("missing_unit", 2, 7, {"size": 90}), before_log=1, lagging=4),
            compared(QUEUE, Finding("missing_unit", 1, 8), Finding("wrong_unit", 3, 9, 1, 2), beyond=2),
            compared(other, Finding("wrong_unit", 5, 9, 1, 2), before_log=10, beyond=20, lagging=40),
            compared((b"Fine", 0)),
        ],
    )
    assert run.verdicts.counts == {"missing_unit": 3, "wrong_unit": 8}
    shown = [(row["topic"], row["queue_id"], row["cause"], row["position"], row["expected"], row["found"])
             for row in run.verdicts.differences]  # fmt: skip
    assert shown == [
        ("T", 3, "missing_unit", 7, {"size": 90}, None),
        ("T", 3, "wrong_unit", 9, 1, 2),
        ("\\xff", 0, "wrong_unit", 9, 1, 2),
    ]
    assert {(row["artefact"], row["file"]) for row in run.verdicts.differences} == {(NAME, NAME)}
    before, beyond = run.verdicts.notes
    assert (before.partition(" ")[0], beyond.partition(" ")[0]) == ("11", "22")
    assert "log's start" in before
    assert "ends of their queues" in beyond
    assert lagging == 44
