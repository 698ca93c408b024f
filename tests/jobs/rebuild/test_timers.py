"""Timer state made of a log: random histories against a model of the broker's recovery; and the way to the store."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import pytest
from support.drilling import Done, run_job
from support.publishing import snapshot
from support.reading import read_segments
from support.store_builder import LogBuilder
from support.store_to_start import QUEUE_FILE, StoreToStart, finished, healthy_store
from support.timer_model import TimerStart

from jobs.rebuild.timers import TimerSettings, TimersPlan, plan_timers, timer_settings
from storeformat.errors import Refused, WrongSettings
from storeformat.record.decode import DISPATCH_PROPERTIES, DecodeRules
from storeformat.store.settings import Settings
from udfs.log.timers import TIMER_PROPERTIES

RULES = DecodeRules(properties=tuple(dict.fromkeys((*DISPATCH_PROPERTIES, *TIMER_PROPERTIES))))
NOW = 1_700_000_500_000
TIMER = "rmq_sys_wheel_timer"
SMALL = TimerSettings(file_size=52 * 7 + 30, roll_window_slots=600)
SIZES = ("--set", "maxHashSlotNum=100", "--set", "maxIndexNum=60", "--set", f"mappedFileSizeConsumeQueue={QUEUE_FILE}")


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
                   *SIZES, *size, *more)  # fmt: skip


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
