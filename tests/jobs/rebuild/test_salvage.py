"""``--on-damage salvage`` on stores of real brokers: what is rebuilt, what is filled, and what the report says."""

from __future__ import annotations

import json
import random
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from support import golden
from support.golden import GoldenStore
from support.golden_differences import queue_differences
from support.here import tasks_here
from support.rebuilding import rebuild_here, rebuilt_files, rules_of_release
from support.store_builder import LogBuilder, overwrite_log

from jobs.cli import command_line
from jobs.contract.options import LogOptions, TopicFilter
from jobs.log import opening
from jobs.log.log_scan import LogReading, scan_log
from jobs.rebuild import rebuild
from jobs.rebuild.build_store import Built
from jobs.rebuild.rebuild import repair_log
from jobs.spark.runner import Runner
from storeformat.queues import consume_queue as cq
from udfs.log.scan import ScanTask

pytestmark = pytest.mark.golden

SEGMENT = 65_536
(STORE,) = golden.stores("base-clean-5.3.3")


def damaged_copy(store: GoldenStore, root: Path, *changes: tuple[int, bytes]) -> Path:
    """A copy of a store's log with bytes changed at log offsets."""
    shutil.copytree(golden.unpack(store) / "commitlog", root / "commitlog")
    for offset, data in changes:
        overwrite_log(root / "commitlog", offset, data)
    return root


def units(directory: Path, queue: str) -> list[int]:
    content = b"".join(path.read_bytes() for path in sorted((directory / "consumequeue" / queue).iterdir()))
    parsed = cq.parse_units(content)
    return [int(offset) for offset in parsed["phy_offset"][: cq.written_units(parsed)]]


def salvage(tmp_path: Path, *changes: tuple[int, bytes], **options: Any) -> Built:
    root = damaged_copy(STORE, tmp_path / "store", *changes)
    return rebuild_here(root, tmp_path / "work", STORE.settings, on_damage="salvage", **options)


def test_lost_messages_are_counted_and_their_places_filled(tmp_path: Path) -> None:
    built = salvage(tmp_path, (10_000, random.Random(1).randbytes(400)), (30_005, b"\xff"))
    facts = built.reading.facts()
    assert [(item["begin"], item["end"]) for item in facts["damaged_ranges"]] == [(9_213, 11_214), (29_701, 30_302)]
    assert (facts["lost_messages"], facts["lost_messages_at_least"]) == (3, 3)
    lost = {(row["topic"], row["queue_id"], row["first_queue_offset"], row["messages"]) for row in facts["losses"]}
    assert lost == {("A", 0, 5, 1), ("stock-level_2", 0, 1, 1), ("user_events", 0, 5, 1)}
    for topic, queue_id, number, _ in lost:
        queue = f"{topic}/{queue_id}"
        ours, theirs = units(Path(built.directory), queue), units(golden.unpack(STORE), queue)
        assert ours[number] == theirs[number + 1], "a copy of the next unit stands for the lost message"
        assert [*ours[:number], *ours[number + 1 :]] == [*theirs[:number], *theirs[number + 1 :]]
    differences = queue_differences(golden.unpack(STORE), Path(built.directory), STORE)
    assert len(differences) == len(lost)


@pytest.mark.parametrize("store", golden.sampled(), ids=str)
def test_salvage_of_a_sound_store_makes_the_same_files(store: GoldenStore, tmp_path: Path) -> None:
    """Light queues have gaps there that a broker left: it counts on for a record that it dispatches to none of them."""
    root, release = golden.unpack(store), rules_of_release(store.version)
    made = [
        rebuild_here(root, tmp_path / policy, store.settings, on_damage=policy, broker_version=release).directory
        for policy in ("fail", "salvage")
    ]
    assert rebuilt_files(made[0]) == rebuilt_files(made[1])


def test_a_lost_last_message_of_a_queue_counts_as_one_at_least(tmp_path: Path) -> None:
    offset, size = list(golden.chain(golden.unpack(STORE), STORE).items())[-1]
    built = salvage(tmp_path, (offset + 90, b"\xfe\xfe"))
    facts = built.reading.facts()
    assert [(item["begin"], item["end"]) for item in facts["damaged_ranges"]] == [(offset, offset + size)]
    assert (facts["lost_messages"], facts["lost_messages_at_least"]) == (0, 1)
    assert facts["log_end"] == offset
    assert built.reading.unwritten_bytes == 3 * SEGMENT - offset - size
    assert repair_log(built.reading, str(tmp_path / "repaired")) == [], "a broker ends the log there as well"


def test_a_record_with_a_bad_body_is_kept_on_request(tmp_path: Path) -> None:
    built = salvage(tmp_path, (30_005, b"\xff"), keep_crc_failures=True)
    assert built.reading.damaged == []
    assert [(item.begin, item.end) for item in built.reading.kept] == [(29_701, 30_302)]
    assert "BODY_CRC" in built.reading.facts()["kept_records"][0]["reason"]
    named = json.loads((Path(built.directory) / "manifest.json").read_text())["damaged_ranges"]
    assert [(item["begin"], item["end"]) for item in named] == [(29_701, 30_302)], "a broker cuts its log there"
    assert queue_differences(golden.unpack(STORE), Path(built.directory), STORE) == []


def test_a_queue_alone_is_salvaged_as_in_the_whole(tmp_path: Path) -> None:
    changes = ((10_000, random.Random(1).randbytes(400)), (30_005, b"\xff"))
    whole = salvage(tmp_path / "whole", *changes)
    part = salvage(tmp_path / "part", *changes, topics=(TopicFilter("A"),), only=("consumequeue",))
    ours = part.rows.to_pylist()
    assert ours == [row for row in whole.rows.to_pylist() if row["path"].startswith("consumequeue/A/")]
    assert len(ours) > 1


def test_a_repaired_log_is_whole_and_gives_the_same_survivors(tmp_path: Path) -> None:
    built = salvage(tmp_path, (10_000, random.Random(1).randbytes(400)), (30_005, b"\xff"), (SEGMENT - 40, bytes(40)))
    names = repair_log(built.reading, str(tmp_path / "repaired"))
    assert names == [f"{0:020d}"]
    for name in names:
        shutil.copy(tmp_path / "repaired" / name, tmp_path / "store" / "commitlog" / name)
    again = rebuild_here(tmp_path / "store", tmp_path / "again", STORE.settings)
    assert again.reading.damaged == []
    assert again.reading.end == STORE.end_offset
    assert again.rows.to_pylist() == built.rows.to_pylist()
    assert again.reading.losses.messages == built.reading.losses.messages
    assert again.reading.records == built.reading.records + 2


@pytest.mark.parametrize("chunk", [rebuild._CHUNK, 5000])
def test_a_repair_touches_nothing_but_the_damage(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a segment that does not begin at 0: two records destroyed, one kept with the CRC of the body that it has."""
    chain = golden.chain(golden.unpack(STORE), STORE)
    records = [(offset, size) for offset, size in chain.items() if SEGMENT <= offset < 2 * SEGMENT]
    (begin, size), (middle, _), (kept, _) = records[5], records[6], records[20]
    changes = ((begin, b"\xa5" * size), (middle, b"\xa5" * 60), (kept + 90, b"\xff\xfe"))
    built = salvage(tmp_path, *changes, keep_crc_failures=True)
    assert [(item.begin, item.end) for item in built.reading.damaged] == [(begin, records[7][0])]
    assert [item.begin for item in built.reading.kept] == [kept]
    name = f"{SEGMENT:020d}"
    monkeypatch.setattr(rebuild, "_CHUNK", chunk)
    assert repair_log(built.reading, str(tmp_path / "repaired")) == [name]
    before = (tmp_path / "store" / "commitlog" / name).read_bytes()
    after = (tmp_path / "repaired" / name).read_bytes()
    low, high, crc = begin - SEGMENT, records[7][0] - SEGMENT, kept - SEGMENT + 8
    assert (after[:low], after[high:crc], after[crc + 4 :]) == (before[:low], before[high:crc], before[crc + 4 :])
    (length,) = struct.unpack_from(">i", after, kept - SEGMENT + 84)
    body = after[kept - SEGMENT + 88 :][:length]
    assert struct.unpack_from(">I", after, crc) == (zlib.crc32(body) & 0x7FFFFFFF,)
    filler_size, _, _, _, _, queue_offset, offset = struct.unpack_from(">iIIiiqq", after, low)
    assert (filler_size, queue_offset, offset) == (high - low, 0, begin)
    times = [struct.unpack_from(">q", after, at - SEGMENT + 56)[0] for at in (records[4][0], begin, records[7][0])]
    assert times == sorted(times)


def read(root: Path, split_size: int = SEGMENT) -> LogReading:
    segments = opening.find_segments([str(root / "commitlog")], SEGMENT)
    task = ScanTask("", *rules_of(root), with_entries=False)
    return scan_log(Runner(), segments, task, split_size=split_size, on_damage="salvage")


def rules_of(root: Path) -> tuple[Any, Any]:
    store = opening.open_store(LogOptions(store=str(root)))
    return store.decode_rules(), store.dispatch_rules()


@pytest.mark.parametrize(
    "store",
    [
        store if store in golden.newest_of_each_scenario() else pytest.param(store, marks=pytest.mark.slow)
        for store in golden.stores("embedded")
    ],
    ids=str,
)
def test_copies_in_the_bodies_of_real_stores_never_come_out(store: GoldenStore, tmp_path: Path) -> None:
    """Each message that holds copies loses its head, half of it or a piece of its body, one after the other."""
    draw = random.Random(3)
    truth = golden.chain(golden.unpack(store), store)
    for number, item in enumerate(store.entry["embedded"]):
        at, first_copy = item["record"], item["copies"][0]
        begin, end = draw.choice(
            [(at, at + 88), (at, at + 44), (at + 20, at + 120), (at, first_copy), (at + 84, at + 88)]
        )
        root = damaged_copy(store, tmp_path / str(number), (begin, draw.randbytes(end - begin)))
        reading = read(root)
        came_out = set()
        for scan in reading.scans:
            position = scan.report.start or 0
            while position < scan.report.end:
                came_out.add(position)
                position += truth[position]
        shutil.rmtree(root)
        assert came_out == truth.keys() - {at}, f"{at}: {begin} to {end}"


def test_the_command_says_what_was_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = damaged_copy(STORE, tmp_path / "store", (10_000, random.Random(1).randbytes(400)))
    sizes = ["--set", "maxHashSlotNum=100", "--set", "maxIndexNum=60", "--set", "mappedFileSizeConsumeQueue=1000"]
    places = ["--store", str(store), "--output", str(tmp_path / "output"), "--repair-log", str(tmp_path / "log")]
    with tasks_here():
        code = command_line.main(["rebuild", *places, *sizes, "--on-damage", "salvage", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert code == 1
    assert report["status"] == "damaged"
    assert report["lost_messages"] == 2
    assert report["repaired_segments"] == [f"{0:020d}"]
    assert (tmp_path / "log" / f"{0:020d}").stat().st_size == SEGMENT
    assert (tmp_path / "output" / "manifest.json").exists()


# ------------------------------------------------------------------------ repaired copies of segments, in small logs
SMALL = 4096
NOON = 1_700_000_000_000


def a_log(segments: int = 1) -> LogBuilder:
    """Records of one queue, 10 ms apart."""
    log = LogBuilder(SMALL)
    for number in range(5 * segments):
        if number and number % 5 == 0:
            log.blank()
        log.message(body=b"body of a message %d" % number, store_timestamp=NOON + 10 * number)
    return log


def repaired(root: Path, log: LogBuilder, *changes: tuple[int, bytes], keep: bool = False) -> dict[int, bytes]:
    """The repaired segments of a salvaged log that has other bytes at some offsets."""
    log.write(root)
    for offset, data in changes:
        overwrite_log(root / "commitlog", offset, data)
    (root / "work").mkdir()
    sizes = {"maxHashSlotNum": 100, "maxIndexNum": 50}
    reading = rebuild_here(root, root / "work", sizes, on_damage="salvage", keep_crc_failures=keep).reading
    names = repair_log(reading, str(root / "repaired"))
    return {int(name): (root / "repaired" / name).read_bytes() for name in names}


@pytest.mark.parametrize(("lost", "before"), [(2, 1), (4, 3), (0, 1)])
def test_a_filler_has_the_time_of_the_record_before_it(lost: int, before: int, tmp_path: Path) -> None:
    """At the start of the log it is that of the record after it: times in a log do not run backwards."""
    log = a_log(2)
    placed = log.records[lost]
    data = repaired(tmp_path, log, (placed.offset, b"\xa5" * placed.size))[0]
    assert struct.unpack_from(">q", data, placed.offset + 56) == (NOON + 10 * before,)


def test_a_filler_takes_no_damaged_time(tmp_path: Path) -> None:
    log = a_log()
    lost = log.records[2]
    future = log.records[1].offset + 56, struct.pack(">q", 1 << 50)
    data = repaired(tmp_path, log, (lost.offset, b"\xa5" * lost.size), future)[0]
    (time,) = struct.unpack_from(">q", data, lost.offset + 56)
    assert NOON <= time <= NOON + 30


def test_a_damaged_blank_becomes_what_it_was(tmp_path: Path) -> None:
    log = a_log(2)
    blank = log.records[4].end
    assert repaired(tmp_path, log, (blank + 4, b"\0")) == {0: log.segments[0]}


def test_the_first_record_of_a_segment_is_kept_with_the_crc_of_its_body(tmp_path: Path) -> None:
    log = a_log(2)
    first = log.records[5]
    data = repaired(tmp_path, log, (first.offset + 8, b"\xff\xff\xff\xff"), keep=True)
    assert data == {SMALL: log.segments[SMALL]}
