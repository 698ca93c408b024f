"""A rebuild: its model, its report, faults and lost tasks."""

from __future__ import annotations

import os
import shutil
import stat
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support import broker_model, golden
from support.broker_settings import BrokerSettings
from support.java_rules import hash_code
from support.killing import Ended, Killer
from support.publishing import Snapshot, snapshot
from support.reading import queue_offsets, rebuilt
from support.rebuilding import rebuild_here, rules_of_release
from support.refusals import error_of
from support.store_builder import LogBuilder, Message
from support.strategies import BATCH_TOPIC, LogShape, broker_settings, logs, split_sizes
from support.system_calls import Fault

from jobs.contract.options import RebuildOptions
from jobs.contract.report import Reporter
from jobs.rebuild import build_store, rebuild
from jobs.rebuild.build_store import Workplace, staging_beside
from jobs.spark.runner import Runner
from storeformat.errors import DamagedLog, Refused, TotalsDisagree, UsageError, WriteFailed
from storeformat.queues.consume_queue import pack_units
from storeformat.queues.topic_filter import TopicFilter
from storeformat.storage.durable import Content
from udfs.files.build import SCHEMA, BuildFiles, Totals, file_row

# -------------------------------------------------------------------------------------------------------------- rebuild
TOPIC = (TopicFilter("T"),)


@pytest.fixture
def options(tmp_path: Path) -> RebuildOptions:
    log = LogBuilder(4096)
    for _ in range(5):
        log.message(topic="T", queue_id=3)
    return RebuildOptions(store=str(log.write(tmp_path / "s")), output=str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"topics_json": True, "topics": TOPIC}, "--topics-json needs the consume queues of all topics"),
        ({"topics_json": True, "only": ("index",)}, "--topics-json needs the consume queues of all topics"),
        ({"consumer_offsets_at": 0}, "--consumer-offsets-at needs consumer-offsets in --only"),
        ({"queue_store": "file", "only": ("index",)}, "--queue-store is for consume queues, which --only leaves out"),
        (
            {"queue_store": "rocksdb", "topics": TOPIC},
            "--topic selects queues in files: a RocksDB database holds those of all topics",
        ),
        (
            {"queue_store": "rocksdb", "output": "s3://b/out"},
            "RocksDB queues need an --output on a file system: no database can be made in a bucket",
        ),
        ({"output": "s3://b"}, "s3://b: name a directory in the bucket"),
        (
            {"repair_log": "/elsewhere"},
            "--repair-log needs --on-damage salvage or a --replica: it makes a log that a broker can read past damage",
        ),
        *(
            (
                {"repair_log": place, "on_damage": "salvage"},
                "--repair-log and --output must be two directories, neither inside the other",
            )
            for place in ("OUT", "OUT/log", "OUT/..")
        ),
    ],
)
def test_options_that_do_not_go_together(options: RebuildOptions, changes: dict[str, Any], said: str) -> None:
    if "repair_log" in changes:
        changes = {**changes, "repair_log": changes["repair_log"].replace("OUT", options.output)}
    asked = replace(options, **changes)
    assert error_of(lambda: rebuild.run(asked, Reporter(quiet=True))) == (UsageError, said, None)


@pytest.mark.parametrize("inside", ["new", "commitlog/new"])
def test_an_output_inside_of_the_store(options: RebuildOptions, inside: str) -> None:
    output = f"{options.store}/{inside}"
    said = f"the output must not lie inside the store ({output})"
    advice = "rebuild beside it, then publish"
    assert error_of(lambda: rebuild.run(replace(options, output=output), Reporter(quiet=True))) == (
        Refused, said, advice,
    )  # fmt: skip
    log = {"on_damage": "salvage", "repair_log": output}
    assert error_of(lambda: rebuild.run(replace(options, **log), Reporter(quiet=True))) == (  # type: ignore[arg-type]
        Refused, said, advice,
    )  # fmt: skip


def rows(*given: tuple[str, int]) -> pa.Table:
    files = [file_row(path, Content(count, count - 1, bytes(32)), Totals(count, 5)) for path, count in given]
    return pa.Table.from_pylist(files, SCHEMA)


def test_files_that_do_not_hold_what_the_log_has() -> None:
    made = rows(("a", 1), ("b", 2))
    build_store.check_rows("index", made, [("a", 1), ("b", 2)])
    for wanted, path, found, expected in (
        ([("a", 1)], "b", 2, None),
        ([("a", 1), ("b", 3)], "b", 2, ("b", 3)),
        ([("a", 1), ("x", 2)], "b", 2, ("x", 2)),
        ([("a", 1), ("b", 2), ("c", 3)], "c", None, ("c", 3)),
    ):
        with pytest.raises(TotalsDisagree) as caught:
            build_store.check_rows("index", made, wanted)
        assert (caught.value.what, caught.value.path, caught.value.found, caught.value.expected) == (
            "the index files do not match the log", path, found, expected,
        )  # fmt: skip
    expected_files = [("a", 1), ("b", 2)]
    build_store.check_rows("index", made, expected_files, 10)
    said = "the offsets in the index files do not add up: found 10, expected 8"
    assert error_of(lambda: build_store.check_rows("index", made, expected_files, 8)) == (TotalsDisagree, said, None)


def test_what_this_process_sees_is_what_tasks_wrote(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12")
    (tmp_path / ".claim-1").touch()
    build_store.check_all_there(str(tmp_path), rows(("a", 2)))
    advice = "every machine of the cluster must see the output, and nothing else may write to it"
    what = "output file differs from what the task wrote"
    for made, path, found, expected in (
        (rows(("a", 3)), "a", "2", "3"),
        (rows(("a", 2), ("b", 5)), "b", "no file", "5"),
        (rows(), "a", "2", "no file"),
    ):
        said = f"{what}: found {found}, expected {expected} ({tmp_path}/{path})"
        assert error_of(
            lambda made=made: build_store.check_all_there(str(tmp_path), made)  # type: ignore[misc]
        ) == (WriteFailed, said, advice)


@pytest.mark.parametrize("units", [[0, 1, 2, 3, 5], [3, 4, 5], []])
def test_a_queue_that_has_old_messages_before_new_ones_was_not_deleted(tmp_path: Path, units: list[int]) -> None:
    """Message 3 has queue offset 0 again; to a broker that lost its counter message 4 is in the queue already."""
    log = LogBuilder(4096)
    placed = [log.message(topic="T", queue_offset=number).offset for number in (0, 1, 2, 0, 1, 4)]
    file = log.write(tmp_path / "s") / "consumequeue/T/0" / f"{0:020d}"
    file.parent.mkdir(parents=True)
    size = [1] * len(units)
    file.write_bytes(pack_units([placed[one] for one in units], size, size).tobytes() + bytes(20))
    assert queue_offsets(rebuilt(tmp_path / "s", tmp_path / "work")) == [placed[one] for one in units or [3, 4, 5]]


# ---------------------------------------------------------------------------------------------------------------- model
# Drawn logs, rebuilt for any split size, against the sequential model of the broker; with each kernels those that
# consist of boundaries.
SHAPE = LogShape(odd_blanks=False, light_queues=True, inner_batches=True)


@st.composite
def cases(draw: st.DrawFn) -> tuple[LogBuilder, BrokerSettings, int]:
    log = draw(logs(SHAPE))
    rules = replace(
        draw(broker_settings(log)),
        enable_consume_queue_ext=draw(st.booleans()),
        mapped_file_size_consume_queue_ext=draw(st.sampled_from([24, 45, 100, 1000])),
    )
    return log, rules, draw(split_sizes(log.segment_size))


def files_below(root: Path, part: str) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in (root / part).rglob("*") if path.is_file()}


@settings(max_examples=settings.default.max_examples, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_files_are_those_of_the_model(case: tuple[LogBuilder, BrokerSettings, int]) -> None:
    log, rules, split_size = case
    # Releases before 5.0 know no batch queues.
    assume(rules.version >= (5,) or all(placed.message.topic != BATCH_TOPIC for placed in log.records))
    assert_as_the_model(log, rules, split_size)


def assert_as_the_model(log: LogBuilder, rules: BrokerSettings, split_size: int) -> None:
    if not log.segments:
        return
    model = broker_model.dispatch(log.segments, rules)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        log.write(root / "store")
        sizes = {
            "mappedFileSizeConsumeQueue": rules.mapped_file_size_consume_queue,
            "maxHashSlotNum": rules.max_hash_slot_num,
            "maxIndexNum": rules.max_index_num,
            "mapperFileSizeBatchConsumeQueue": rules.mapper_file_size_batch_consume_queue,
            "enableConsumeQueueExt": str(rules.enable_consume_queue_ext).lower(),
            "mappedFileSizeConsumeQueueExt": rules.mapped_file_size_consume_queue_ext,
            "enableLmq": str(rules.enable_lmq).lower(),
            "enableMultiDispatch": str(rules.enable_multi_dispatch).lower(),
        }
        version = rules_of_release(".".join(map(str, rules.version)))
        topics = tuple(sorted(rules.batch_topics)) if rules.version >= (5,) else ()
        try:
            built = rebuild_here(
                root / "store", root / "work", sizes, broker_version=version, split_size=split_size, batch_topics=topics
            )
        except DamagedLog as refusal:
            # Old records after the true end that are not older (the clock was set back) may as well be survivors:
            # refusing is right, and only there.
            if log.stale_records and refusal.offset == log.end_offset:
                return
            # Light queues of the drawn log are counted as such. Read without enableLmq, by the queues of their
            # messages, they have gaps, and a foreign record before a gap may be the message that is missing.
            light = [one.message for one in log.records if "INNER_MULTI_DISPATCH" in str(one.message.properties)]
            if not rules.enable_lmq and "FOREIGN_OFFSET" in str(refusal) and any(one.queue_id for one in light):
                return
            raise
        made = Path(built.directory)
        # No broker starts with a nested queue.
        expected = {name: data for name, data in model.files.items() if name.count("/") == 3}
        for part in ("consumequeue", "consumequeue_ext", "batchconsumequeue"):
            modelled = {name: data for name, data in expected.items() if name.split("/")[0] == part}
            assert files_below(made, part) == modelled
        index = [data for _, data in sorted(files_below(made, "index").items())]
        if built.reading.foreign_records and len(index) == len(model.index_files) + 1:
            # A foreign record is dispatched by its old offset and skipped, but a full last file has its successor
            # by then. The model steps over foreign records altogether.
            assert int.from_bytes(index.pop()[36:40], "big") == 1
        assert index == model.index_files
    assert built.reading.records == len(log.records)
    stale = {placed.offset for placed in log.stale_records}
    assert not stale & {placed.offset for placed in log.records}


def test_a_light_queue_with_a_gap_and_a_foreign_record_before_it_is_refused(tmp_path: Path) -> None:
    log = LogBuilder(2048)
    log.multi_dispatched(Message(topic="A"), ["%LMQ%a"])
    log.foreign_record(log.records[0])
    log.multi_dispatched(Message(topic="A", queue_id=1), ["%LMQ%a"])
    log.write(tmp_path / "store")
    settings = {"enableMultiDispatch": "true", "mappedFileSizeCommitLog": 2048}
    store, rules = tmp_path / "store", {"broker_version": rules_of_release("4.9.8")}
    assert rebuild_here(store, tmp_path / "a", {**settings, "enableLmq": "true"}, **rules).reading.records == 2
    with pytest.raises(DamagedLog, match="FOREIGN_OFFSET") as caught:
        rebuild_here(store, tmp_path / "b", {**settings, "enableLmq": "false"}, **rules)
    assert caught.value.advice == "--on-damage salvage fills the place of the message"


@pytest.mark.parametrize("split_size", [200, 65536])
def test_producers_that_raced_for_a_light_queue(tmp_path: Path, split_size: int) -> None:
    """Two of them got offset 0, as with 5.1.4 (apache/rocketmq#7511): the broker has all four messages in its queue."""
    log = LogBuilder(65536)
    for number, offset in enumerate((0, 0, 2, 3)):
        light = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": str(offset)}
        log.message(topic="A", queue_id=number % 2, properties=light)
    log.write(tmp_path / "store")
    settings = {"enableMultiDispatch": "true", "enableLmq": "true", "mappedFileSizeCommitLog": 65536}
    rules = {"broker_version": rules_of_release("5.1.4"), "split_size": split_size}
    built = rebuild_here(tmp_path / "store", tmp_path / "built", settings, **rules)
    found = files_below(Path(built.directory), "consumequeue")
    units = found[f"consumequeue/%LMQ%a/0/{0:020d}"]
    assert units[:80] == b"".join(struct.pack(">qiq", one.offset, one.size, 0) for one in log.records)
    assert not any(units[80:])


# ----------------------------------------------------------------------------------------------------------- boundaries
def key_with_hash(prefix: str, wanted: int) -> str:
    """A key for which Java's hash of ``prefix`` and the key is ``wanted``: seven letters, as digits of base 31."""
    rest = (wanted - hash_code(prefix) * 31**7 - sum(33 * 31**place for place in range(7))) % (1 << 32)
    return "".join(chr(33 + rest // 31**place % 31) for place in reversed(range(7)))


HASHES = (0, 1, -1, -(1 << 31), (1 << 31) - 1, 6, 7, 8, -7)
KEYS = tuple(key_with_hash("A#", wanted) for wanted in HASHES)
STEPS = (0, 0, 0, 1, -1, 999, 1000, 1001, -1000, 0x7FFFFFFF * 1000, 0x80000000 * 1000, -(1 << 40))


@st.composite
def boundaries(draw: st.DrawFn) -> tuple[LogBuilder, BrokerSettings, int]:
    """Hashes, times, ends of segments, of queue and of index files, of splits: all just at an edge, or one beside."""
    log = LogBuilder(draw(st.sampled_from([1024, 2048])))
    time = 1_700_000_000_000
    for _ in range(draw(st.integers(1, 24))):
        time = max(time + draw(st.sampled_from(STEPS)), 1)
        fields = {"topic": "A", "queue_id": draw(st.integers(0, 1)), "store_timestamp": time}
        fields["keys"] = draw(st.sampled_from([None, "", *KEYS, f"{KEYS[3]} {KEYS[0]}"]))
        if draw(st.integers(0, 4)):
            log.message(**fields)
        else:  # 8 bytes hold a BLANK, and are the least that a record leaves
            log.fill(draw(st.sampled_from([8, 9, 98, 99, 100])), Message(**fields))
    if draw(st.booleans()) and 8 <= log.remaining < log.segment_size:
        log.blank()
    if draw(st.booleans()):
        log.preallocate()
    units = len([placed for placed in log.records if placed.message.queue_id == 0])
    rules = BrokerSettings(
        version=draw(st.sampled_from([(4, 6, 1), (4, 9, 8), (5, 3, 3), (5, 5, 0)])),
        mapped_file_size_commit_log=log.segment_size,
        mapped_file_size_consume_queue=20 * max(units + draw(st.sampled_from([-1, 0, 1])), 1),
        max_hash_slot_num=draw(st.sampled_from([1, 7])),
        max_index_num=max(len(log.records) + draw(st.integers(0, 3)), 2),
    )
    edges = [edge for placed in log.records for edge in (placed.offset, placed.end)]
    return log, rules, max(draw(st.sampled_from(edges)) + draw(st.sampled_from([-1, 0, 1])), 16)


def test_keys_have_the_hashes_that_are_wanted() -> None:
    assert [hash_code(f"A#{key}") for key in KEYS] == list(HASHES)


@pytest.mark.usefixtures("each_kernels")
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(boundaries())
def test_boundaries_are_those_of_the_model(case: tuple[LogBuilder, BrokerSettings, int]) -> None:
    assert_as_the_model(*case)


# --------------------------------------------------------------------------------------------------------------- faults
EVERY = pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.slow)])
"""A fault before each 29th change of the disk, in the slow run before each."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two segments, three queues."""
    log = LogBuilder(4096)
    for number in range(60):
        log.message(topic=f"T{number % 2}", queue_id=number % 3, keys=f"k{number}")
    return log.write(tmp_path_factory.mktemp("faults") / "store")


def words(store: Path, place: Path) -> Sequence[str]:
    sizes = ("mappedFileSizeConsumeQueue=400", "maxHashSlotNum=10", "maxIndexNum=40")
    settings = [word for size in sizes for word in ("--set", size)]
    output = str(place / "new" / "out")
    return ["rebuild", "--store", str(store), "--output", output, "--quiet", *settings]


@pytest.fixture(scope="module")
def whole(killer: Killer, store: Path, tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """What lies there after a rebuild that nothing disturbed, without its manifest, which has paths and times."""
    place = tmp_path_factory.mktemp("whole")
    ended = killer.command(words(store, place), Fault("EIO", 1 << 30, str(place)))
    assert (ended.exit_code, ended.trace) == (0, "")
    return without_manifest(place)


def without_manifest(place: Path) -> Snapshot:
    found = snapshot(place)
    found.pop("new/out/manifest.json", None)
    return found


def runs(killer: Killer, store: Path, place: Path, fault: str, step: int) -> Iterator[tuple[int, Ended]]:
    """What became of runs to which the fault came at another place each, until one is over before it."""
    for number in range(0, 2000, step):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        ended = killer.command(words(store, place), Fault(fault, number, str(place)))
        if not ended.came or (fault.startswith("SIG") and ended.exit_code == 0):  # it came when all was done
            assert (number > 30, ended.exit_code) == (True, 0)
            return
        yield number, ended


@EVERY
@pytest.mark.parametrize(("fault", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal(
    killer: Killer, store: Path, whole: Snapshot, tmp_path: Path, fault: str, code: int, step: int
) -> None:
    place, done = tmp_path / "place", 0
    for number, ended in runs(killer, store, place, fault, step):
        said = "interrupted; the output is all there or not at all\n"
        assert (number, ended.exit_code, ended.trace) == (number, code, said)
        found = without_manifest(place)
        assert (number, found) in [(number, {}), (number, whole)]
        done += found == whole
    assert done < 10


@EVERY
@pytest.mark.parametrize("fault", ["EIO", "ENOSPC"])
def test_a_change_that_fails(
    killer: Killer, store: Path, whole: Snapshot, tmp_path: Path, fault: str, step: int
) -> None:
    """A directory that is there already may as well not be made: then the rebuild goes on."""
    place = tmp_path / "place"
    for number, ended in runs(killer, store, place, fault, step):
        if ended.exit_code == 0:
            assert (number, ended.trace, without_manifest(place)) == (number, "", whole)
            continue
        assert (number, ended.exit_code, ended.trace[:7]) == (number, 74, "error: ")
        assert (number, snapshot(place)) == (number, {})


# ----------------------------------------------------------------------------------------------------------- lost tasks
STORES = ("base-clean-5.3.3", "batch-cq-5.3.3", "cq-ext-5.3.3")

Task = Callable[[Iterator[Any]], Iterable[Any]]


class Twice(Runner):
    """Every task runs twice, and the second one counts, as after the loss of a machine that had finished it."""

    def map(self, what: str, task: Task, items: Sequence[Any]) -> list[Any]:
        super().map(what, task, items)
        return super().map(what, task, items)


class KilledHalfway(Runner):
    """Every task that makes files is killed once while it writes, and runs again."""

    def map(self, what: str, task: Task, items: Sequence[Any]) -> list[Any]:
        if isinstance(task, BuildFiles):
            Path(task.output.drafts, f"left-by-{len(items)}").write_bytes(b"half")
        return super().map(what, task, items)


@pytest.mark.golden
@pytest.mark.parametrize("runner", [Twice(), KilledHalfway()], ids=lambda runner: type(runner).__name__)
@pytest.mark.parametrize("name", STORES)
def test_the_same_files(name: str, runner: Runner, tmp_path: Path) -> None:
    (store,) = golden.stores(name)
    root = golden.unpack(store)
    once = rebuild_here(root, tmp_path / "once", store.settings, split_size=20_000)
    again = rebuild_here(root, tmp_path / "again", store.settings, split_size=20_000, runner=runner)
    assert snapshot(Path(again.directory)) == snapshot(Path(once.directory))


def test_nobody_else_may_enter_a_staging_directory_and_the_output_is_as_usual(tmp_path: Path) -> None:
    with staging_beside(str(tmp_path / "deep" / "out")) as staging:
        assert stat.S_IMODE(Path(staging).stat().st_mode) == 0o700
        made = Path(Workplace.within(staging, None).made)
        assert [stat.S_IMODE(path.stat().st_mode) for path in (made, Path(staging).parent)] == [0o777 & ~umask()] * 2


def umask() -> int:
    os.umask(now := os.umask(0o077))
    return now


def test_a_machine_that_does_not_see_the_staging_directory(tmp_path: Path) -> None:
    class Elsewhere(Runner):
        def map(self, what: str, task: Task, items: Sequence[Any]) -> list[Any]:
            shutil.rmtree(tmp_path / "work" / "runs")
            return super().map(what, task, items)

    (store,) = golden.stores(STORES[0])
    with pytest.raises(WriteFailed, match="not every machine of the cluster sees this directory") as failure:
        rebuild_here(golden.unpack(store), tmp_path / "work", store.settings, runner=Elsewhere())
    assert failure.value.exit_code == 74
    assert not (tmp_path / "work" / "runs").exists(), "nobody makes it anew on a disk of its own"


def test_files_that_were_made_where_the_driver_does_not_see_them(tmp_path: Path) -> None:
    class Elsewhere(Runner):
        def map(self, what: str, task: Task, items: Sequence[Any]) -> list[Any]:
            rows = super().map(what, task, items)
            if isinstance(task, BuildFiles):
                Path(task.output.root, rows[-1]["path"][-1].as_py()).unlink()
            return rows

    (store,) = golden.stores(STORES[0])
    with pytest.raises(WriteFailed, match="found no file, expected 1000") as failure:
        rebuild_here(golden.unpack(store), tmp_path / "work", store.settings, runner=Elsewhere())
    assert failure.value.advice is not None
    assert "every machine" in failure.value.advice
