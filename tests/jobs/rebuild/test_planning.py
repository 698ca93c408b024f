"""The plan of a rebuild, and timers."""

from __future__ import annotations

import random
import struct
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import golden
from support.broker_model import dispatch
from support.broker_settings import BrokerSettings
from support.drilling import Done, run_job
from support.hostile import small_disk
from support.publishing import snapshot
from support.reading import read_segments
from support.rebuilding import rebuild_here
from support.store_builder import BORN_HOST_V6, STORE_HOST_V6, LogBuilder, Message
from support.store_to_start import QUEUE_FILE, StoreToStart, finished, healthy_store
from support.timer_model import TimerStart

from jobs.contract.options import KeyOptions, OffsetOptions
from jobs.contract.report import Reporter
from jobs.log.log_scan import all_runs
from jobs.query import query
from jobs.rebuild import build_store, planning
from jobs.rebuild.planning import size_note
from jobs.rebuild.timers import TimerSettings, TimersPlan, plan_timers, timer_settings
from storeformat.arrays import table_of
from storeformat.errors import MissingInput, Refused, WriteFailed, WrongSettings
from storeformat.log.chain import ChainReport
from storeformat.log.segments import ChainEnd, Segment, Split
from storeformat.record.decode import DISPATCH_PROPERTIES, DecodeRules
from storeformat.storage import files
from storeformat.store.settings import Settings
from udfs.log.batch_queues import BATCH_RUN
from udfs.log.scan import SplitScan, StagedRuns
from udfs.log.staged_files import Staged
from udfs.log.staged_runs import RUN
from udfs.log.timers import TIMER_PROPERTIES

# ------------------------------------------------------------------------------------------------------------- planning
REPORT = ChainReport(Split(0, Segment("log", 0, 1000), 0, 1000, 1000, 0), 0, 1000, ChainEnd.STOP)


def batch_scan(name: str, *rows: tuple[int, int, int, int, int]) -> SplitScan:
    """Rows are topic code, queue id, begin, count, and whether the run begins the queue anew."""
    columns = np.array(rows, np.int64).reshape(-1, 5).T
    names = ["topic_codes", "queue_ids", "begins", "counts", "births"]
    runs = table_of(BATCH_RUN, **dict(zip(names, columns, strict=True)))
    return SplitScan(REPORT, staged=StagedRuns((b"A",), batches=Staged(path=name, runs=runs.tobytes())))


def test_of_a_batch_queue_that_began_anew_the_last_life_is_kept() -> None:
    scans = [batch_scan("s1", (0, 0, 0, 3, 1), (0, 0, 3, 1, 0), (0, 0, 4, 2, 1)), batch_scan("s2", (0, 0, 0, 1, 0))]
    plan = planning.plan_batch_queue_files(scans, Settings(observed={"mapperFileSizeBatchConsumeQueue": 3 * 46}))
    (file,) = plan.files
    assert list(file.slices) == [("s1", 4, 2), ("s2", 0, 1)]
    assert (plan.queues, plan.units, plan.offset_sum) == (1, 3, None)


def test_fillers_are_units_and_no_whole_queue() -> None:
    """Of a message at 0 and one at 3, between which two are lost."""
    column = np.array([0, 1])
    runs = table_of(
        RUN, first_queue_offsets=[0, 3], counts=[1, 1], begins=column, first_offsets=column, last_offsets=column
    )
    scan = SplitScan(REPORT, staged=StagedRuns((b"A",), units=Staged(path="s", runs=runs.tobytes())))
    layout = Settings(observed={"mappedFileSizeConsumeQueue": 80})
    plan = planning.plan_queue_files(replace(all_runs([scan]), after_loss=column == 1), [scan], layout)
    (file,) = plan.files
    assert list(file.slices) == [("s", 0, 1), ("s", 1, 2), ("s", 1, 1)]
    assert file.slices.table["filler"].tolist() == [False, True, False]
    assert (plan.units, plan.offset_sum) == (4, None)


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
    assert left <= built.facts["disk_bytes"] <= 2 * left + (1 << 20)


@pytest.mark.golden
def test_an_output_that_does_not_fit_is_refused_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store,) = golden.stores("base-clean-5.3.3")
    root = golden.unpack(store)
    size = rebuild_here(root, tmp_path / "dry", store.settings, dry_run=True).facts["disk_bytes"]
    monkeypatch.setattr(files, "free_space", lambda path: size - 1)
    with pytest.raises(Refused, match="does not fit") as caught:
        rebuild_here(root, tmp_path / "small", store.settings)
    assert caught.value.exit_code == 2
    assert "of log" in str(caught.value)
    assert not list((tmp_path / "small").rglob("consumequeue"))
    rebuild_here(root, tmp_path / "ignored", store.settings, ignore_free_space=True)
    for free in (size, None):
        monkeypatch.setattr(files, "free_space", lambda path, free=free: free)
        rebuild_here(root, tmp_path / f"fits {free}", store.settings)


@pytest.mark.parametrize(
    ("planned", "log", "noted"),
    [(600_000_000, 9_300, True), (1 << 20, 100, False), (5, 10, False), (2 << 20, 2 << 20, False)],
)
def test_an_output_larger_than_its_log_is_noted(planned: int, log: int, noted: bool) -> None:
    note = size_note(planned, log)
    assert (note or "").startswith("the output takes 600.0 MB, more than the 9.3 kB of log") == noted
    assert bool(note) == noted


def test_ten_kilobytes_of_log_cannot_fill_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred queues that begin with the last place of a file: each gets fillers in all of it."""
    log = LogBuilder(segment_size=1 << 16)
    for number in range(100):
        log.message(Message(f"T{number}", 0), queue_offset=299_999)
    log.write(tmp_path / "store")
    monkeypatch.setattr(files, "free_space", lambda path: 500_000_000)
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
        (row,) = query.run(OffsetOptions(**common, **place), Reporter(quiet=True))["messages"]
        assert row["commit_log_offset"] == placed.offset
        assert (row["topic"], row["tags"], row["keys"]) == (
            message.topic,
            message.tags,
            (message.keys or "").split(" "),
        )
        assert row["born_host"].strip("[]").startswith(message.born_host[0][:8])
        for key in row["keys"]:
            keyed = query.run(KeyOptions(key=key, **common), Reporter(quiet=True))["messages"]
            assert placed.offset in [found["commit_log_offset"] for found in keyed]


# ------------------------------------------------------------------------------------------------------- staging


@pytest.mark.parametrize("context", [build_store.claimed, build_store.staging_beside])
def test_what_failed_first_is_told(context: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that refuses a read often refuses the removal that follows."""

    def refused(path: str) -> None:
        raise WriteFailed("cannot be removed", path=path)

    monkeypatch.setattr(files, "remove_tree", refused)
    with pytest.raises(MissingInput, match="HTTP 416"), context(str(tmp_path / "out")):
        raise MissingInput("HTTP 416")
    with pytest.raises(WriteFailed, match="cannot be removed"), build_store.staging_beside(str(tmp_path / "other")):
        pass


def test_nothing_is_left_of_a_staging_directory_and_its_parents(tmp_path: Path) -> None:
    with build_store.staging_beside(str(tmp_path / "new" / "parents" / "out")) as made:
        Path(made, "file").touch()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(KeyboardInterrupt), build_store.staging_beside(str(tmp_path / "new" / "out")):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("other", ["notes.txt", ".claim-0"])
def test_an_output_that_another_rebuild_fills(tmp_path: Path, other: str) -> None:
    (tmp_path / other).touch()
    with pytest.raises(Refused) as caught, build_store.claimed(str(tmp_path)):
        raise AssertionError
    assert str(caught.value) == (f"the output directory is not empty: found {other}, expected nothing ({tmp_path})")
    assert caught.value.advice == (
        ".claim-0 belongs to a rebuild that is running or was killed: if none is running, remove the directory"
        if other == ".claim-0" else None
    )  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == [other]


def test_a_claim_is_gone_afterwards(tmp_path: Path) -> None:
    with build_store.claimed(str(tmp_path / "a")):
        (claim,) = (tmp_path / "a").iterdir()
        assert (claim.name[:7], len(claim.name), claim.read_bytes()) == (".claim-", 39, b"")
        (tmp_path / "a" / "made").touch()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["made"]
    with pytest.raises(KeyboardInterrupt), build_store.claimed(str(tmp_path / "b")):
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
    monkeypatch.setattr(build_store.files, "make_private_directory", made.append)
    monkeypatch.setattr(files, "remove_tree", made.append)
    monkeypatch.setattr(build_store.files, "missing_parents", lambda path: [])
    monkeypatch.setattr(build_store.session, "on_one_machine", lambda: one_machine)
    with build_store.staging_for(output) as found:
        pass
    begin = begin.replace("TEMPORARY", tempfile.gettempdir())
    assert made == [found, found]
    assert found.startswith(begin)
    assert found.endswith(".staging")
    assert len(found) == len(begin) + 12 + len(".staging")


# ----------------------------------------------------------------------------------------------------- full disk
def test_one_line_and_nothing_left(tmp_path: Path) -> None:
    (store,) = golden.stores("base-larger-5.3.3")
    with small_disk(tmp_path / "disk", "64k") as disk:
        with pytest.raises(WriteFailed, match="No space left on device") as failure:
            rebuild_here(golden.unpack(store), disk / "work", store.settings, ignore_free_space=True)
        assert failure.value.exit_code == 74
        assert failure.value.advice is not None
        assert "space" in failure.value.advice
        files.remove_tree(str(disk / "work"))
        assert list(disk.iterdir()) == []


# --------------------------------------------------------------------------------------------------------------- timers
RULES = DecodeRules(properties=tuple(dict.fromkeys((*DISPATCH_PROPERTIES, *TIMER_PROPERTIES))))
NOW = 1_700_000_500_000
TIMER = "rmq_sys_wheel_timer"
SMALL = TimerSettings(file_size=52 * 7 + 30, roll_window_slots=600)
SIZE_OPTIONS = [word for size in ("maxHashSlotNum=100", "maxIndexNum=60", f"mappedFileSizeConsumeQueue={QUEUE_FILE}")
                for word in ("--set", size)]  # fmt: skip


def properties(key: str, due: int, **more: str) -> dict[str, str]:
    return {"UNIQ_KEY": key, "TIMER_OUT_MS": str(due), "REAL_TOPIC": "Sold", "REAL_QID": "0", **more}


def planned(log: LogBuilder, settings: TimerSettings = SMALL, split_size: int = 1 << 30) -> TimersPlan:
    return plan_timers(read_segments(log.segments, split_size, decode_rules=RULES), settings, NOW)


def start(plan: TimersPlan) -> TimerStart:
    content = {path: data.ljust(size, b"\0") for path, data, size in plan.files()}
    logs = {int(path.rpartition("/")[2]): data for path, data in content.items() if path.startswith("timerlog/")}
    broker = TimerStart(logs, content["config/timercheck"], plan.settings.file_size)
    broker.recover()
    return broker


@pytest.mark.parametrize("seed", range(25))
def test_every_message_that_waits_is_delivered_once(seed: int) -> None:
    """Delivered, rolled, overdue, far away, read in splits of any size."""
    chance = random.Random(seed)
    log = LogBuilder(1 << 16)
    waiting: dict[int, int] = {}
    open_ones: list[tuple[int, str, int]] = []
    last = 0
    for number in range(chance.randrange(1, 60)):
        key, due = f"k{number}", NOW + chance.randrange(-400_000, 1_000_000)
        more: dict[str, str] = {}
        ends = bool(open_ones) and chance.random() < 0.4
        if ends:
            offset, key, due = open_ones.pop(chance.randrange(len(open_ones)))
            del waiting[offset]
            more = {"TIMER_DEQUEUE_MS": "1"}
        if ends and chance.random() < 0.7:
            log.message(topic="Sold", properties=properties(key, due, **more))
            if chance.random() < 0.3:
                log.message(topic="%RETRY%g", properties=properties(key, due, **more))
            continue
        placed = log.message(topic=TIMER, properties=properties(key, due, **more))
        waiting[placed.offset], last = due, placed.offset
        open_ones.append((placed.offset, key, due))
        if chance.random() < 0.3:
            log.message(topic="Other")
    plan = planned(log, split_size=chance.choice([300, 1 << 30]))
    broker = start(plan)
    found = broker.delivered(NOW + 2_000_000)
    assert sorted(offset for offset, _ in found) == sorted(waiting)
    assert broker.last_message == last  # so the timer queue is read on after it
    assert struct.unpack_from(">qq", broker.check, 16) == (log.queue_offsets[TIMER, 0],) * 2
    assert plan.waiting == len(waiting)
    rolled = {offset for offset, magic in found if magic & 2}
    assert rolled == {offset for offset, due in waiting.items() if due - NOW >= 600_000}
    in_time = {offset for offset, _ in broker.delivered(NOW + 1000)}
    assert {offset for offset, due in waiting.items() if due < NOW} <= in_time


@pytest.mark.parametrize(
    ("damaged", "wild", "end", "last"),
    [(2, 1 << 40, 4, 3), (3, 1 << 40, 4, 3), (2, 2**63 - 1, 3, 3), (3, 2**63 - 1, 3, 2), (3, -5, 3, 2), (3, 1, 3, 2)],
)
def test_a_damaged_queue_offset_or_queue_id_moves_no_end(damaged: int, wild: int, end: int, last: int) -> None:
    log = LogBuilder()
    placed = [
        log.message(topic=TIMER, properties=properties(f"k{number}", NOW + 5_000),
                    queue_offset=wild if number == damaged else number)
        for number in range(4)
    ]  # fmt: skip
    log.message(topic=TIMER, queue_id=1 << 20, properties=properties("other", NOW + 5_000))
    plan = planned(log)
    assert (plan.queue_end, plan.units[-1].offset) == (end, placed[last].offset)
    assert len(start(plan).delivered(NOW + 60_000)) == 5


def test_a_message_without_a_time_is_told() -> None:
    log = LogBuilder()
    log.message(topic=TIMER, properties=properties("a", NOW + 5_000))
    last = log.message(topic=TIMER, properties={**properties("b", NOW), "TIMER_OUT_MS": "18000x0"})
    plan = planned(log)
    assert (plan.waiting, plan.queue_end, start(plan).last_message) == (1, 2, last.offset)
    assert plan.notes() == ["1 messages of the timer queue have no time that can be read: they are never delivered"]


def test_of_two_that_are_alike_one_delivery_ends_one() -> None:
    log = LogBuilder()
    placed = [log.message(topic=TIMER, properties=properties("same", NOW + 5_000)) for _ in range(3)]
    log.message(topic="Sold", properties=properties("same", NOW + 5_000, TIMER_DEQUEUE_MS="1"))
    found = start(planned(log)).delivered(NOW + 60_000)
    assert [offset for offset, _ in found] == [one.offset for one in placed[1:]]


def test_a_recall_lies_in_the_slot_of_its_message() -> None:
    for due in (NOW - 5_000, NOW + 5_000, NOW + 700_000):
        log = LogBuilder()
        first = log.message(topic=TIMER, properties=properties("a", due))
        recall = log.message(topic=TIMER, properties=properties("b", due, TIMER_DEL_UNIQKEY="Sold+a"))
        broker = start(planned(log))
        found = broker.delivered(NOW + 2_000_000)
        assert [offset for offset, _ in found] == [first.offset, recall.offset]
        assert [bool(magic & 4) for _, magic in found] == [False, True]
        assert len({broker.unit(position)[2] for position in (0, 52)}) == 1


def test_where_all_was_delivered_nothing_comes_again() -> None:
    log = LogBuilder()
    last = log.message(topic=TIMER, properties=properties("a", NOW - 5_000))
    log.message(topic="Sold", properties=properties("a", NOW - 5_000, TIMER_DEQUEUE_MS="1"))
    broker = start(planned(log))
    assert broker.delivered(NOW + 2_000_000) == []
    assert (broker.last_message, broker.process_offset) == (last.offset, 52)


def test_messages_without_a_unique_key() -> None:
    log = LogBuilder()
    one = {name: value for name, value in properties("", NOW + 5_000).items() if name != "UNIQ_KEY"}
    log.message(topic=TIMER, properties=one, body=b"one")
    two = log.message(topic=TIMER, properties=one, body=b"two")
    log.message(topic="Sold", properties={**one, "TIMER_DEQUEUE_MS": "1"}, body=b"one")
    assert [offset for offset, _ in start(planned(log)).delivered(NOW + 60_000)] == [two.offset]


def test_timers_that_lie_elsewhere_are_refused() -> None:
    for told, taken in (("100", 100), ("0", 100), ("-1000", 100), ("499", 200), ("500", 500), ("2000000000", 1000)):
        assert timer_settings(Settings({"timerPrecisionMs": told})).precision_ms == taken
    assert timer_settings(Settings({"mappedFileSizeTimerLog": "68"})).file_size == 68
    for told in ("67", "52", "0", "-52"):
        with pytest.raises(WrongSettings, match="mappedFileSizeTimerLog"):
            timer_settings(Settings({"mappedFileSizeTimerLog": told}))
    for told, window in (("600", 600), ("1", 604_740), ("604800", 604_740)):
        assert timer_settings(Settings({"timerRollWindowSlot": told})).roll_window_slots == window
    for name in ("timerRocksDBEnable", "timerWheelSnapshotFlush"):
        with pytest.raises(Refused, match=name):
            timer_settings(Settings({name: "true"}))


@pytest.fixture
def store(tmp_path: Path) -> StoreToStart:
    log = LogBuilder(4096)
    for number in range(6):
        log.message(topic=TIMER, properties=properties(f"k{number}", NOW + 1_000 * number))
    return finished(tmp_path / "store", log)


def rebuild(store: StoreToStart, *more: Any) -> Done:
    size = ("--set", "mappedFileSizeTimerLog=8192")
    return run_job("rebuild", "--store", store.root, "--output", store.root.parent / "new", "--only", "timers",
                   *SIZE_OPTIONS, *size, *more)  # fmt: skip


def test_publish_and_the_way_back(store: StoreToStart) -> None:
    (store.root / "timerwheel").write_bytes(b"old")
    (store.root / "timerlog").mkdir()
    (store.root / "timerlog" / ("0" * 20)).write_bytes(b"old")
    before = snapshot(store.root)
    done = rebuild(store)
    assert done.code == 0, done.said
    assert (done.report["timers_waiting"], done.report["timers_overdue"], done.report["timer_queue_end"]) == (6, 6, 6)
    published = run_job("publish", "--store", store.root, "--from", store.root.parent / "new")
    assert published.code == 0, published.said
    assert published.report["replaced"] == ["timerlog", "config/timercheck"]
    assert not (store.root / "timerwheel").exists()
    assert (store.root / "timerlog" / ("0" * 20)).stat().st_size == 8192
    assert run_job("restore", "--store", store.root).report["status"] == "unsafe", "these timers are no broker's"
    assert snapshot(store.root) == before


def test_a_log_without_timers_makes_an_empty_state(tmp_path: Path) -> None:
    done = rebuild(healthy_store(tmp_path / "store"))
    assert (done.code, done.report["timers_waiting"]) == (0, 0)
    assert [path.name for path in (tmp_path / "new").rglob("timer*")] == ["timercheck"]
