"""Checkpoint, recovery, the end of a log as its broker and a scan find it, and signs of a release."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from support import golden
from support.rebuilding import rules_of_release
from support.refusals import refusal
from support.store_builder import LogBuilder

from storeformat.errors import NotAStore, RecordDefect, WrongSettings
from storeformat.index.index_file import HEADER_SIZE
from storeformat.log import log_tail
from storeformat.log.log_end import check_log_end, growing_log_end
from storeformat.log.log_tail import LogTail, TailRows, read_tail
from storeformat.log.segments import Segment
from storeformat.record.decode import DecodeRules
from storeformat.storage.files import FileStatus
from storeformat.store.broker_rules import DEFAULT, rules_of
from storeformat.store.checkpoint import StoreCheckpoint, is_plausible, parse_checkpoint
from storeformat.store.queue_ends import QueueEnd, QueueFiles, replayed
from storeformat.store.recovery import NEVER, Redispatch, looks_from, redispatch
from storeformat.store.settings import Settings
from storeformat.store.store import counts_every_put, fit_to_store, guess_version

# ---------------------------------------------------------------------------------------------------- checkpoint
FULL = StoreCheckpoint(1, 2, 3, 4, 5, 6)


def test_short_files_read_as_if_zeros_followed() -> None:
    assert parse_checkpoint(FULL.to_bytes()[:24]) == StoreCheckpoint(1, 2, 3)
    assert parse_checkpoint(FULL.to_bytes()[:12]) == StoreCheckpoint(1)
    with pytest.raises(NotAStore, match=r"the checkpoint is empty: found 0, expected 4096 bytes"):
        parse_checkpoint(b"")


@pytest.mark.parametrize(
    ("field", "least", "most"),
    [
        *((f"{name}_msg_timestamp", 0, (1 << 43) - 1) for name in ("physic", "logics", "index")),
        ("master_flushed_offset", -1, (1 << 50) - 1),
        ("confirm_phy_offset", -1, (1 << 50) - 1),
        ("logics_physical_offset", -1, (1 << 50) - 1),
    ],
)
def test_what_is_plausible(field: str, least: int, most: int) -> None:
    """Times up to the year 2248, offsets up to 2^50; -1 where there is no offset yet; zeros after them."""
    pages = [StoreCheckpoint(**{field: value}).to_bytes() for value in (least - 1, least, most, most + 1)]
    assert [is_plausible(page) for page in pages] == [False, True, True, False]
    for position in (48, 4095):
        assert not is_plausible(pages[1][:position] + b"\1" + pages[1][position + 1 :])
    assert not is_plausible(b"")


@pytest.mark.golden
@pytest.mark.parametrize("store", golden.stores(), ids=str)
def test_checkpoints_of_real_brokers(store: golden.GoldenStore) -> None:
    content = (golden.unpack(store) / "checkpoint").read_bytes()
    checkpoint = parse_checkpoint(content)
    names = ("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp", "masterFlushedOffset", "confirmPhyOffset",
             "logicsPhysicalOffset")  # fmt: skip
    assert checkpoint == StoreCheckpoint(*(store.entry["checkpoint"][name] for name in names))
    if not rules_of(rules_of_release(store.version)).checkpoint_queue_offset:
        assert checkpoint.logics_physical_offset == 0
    assert checkpoint.to_bytes() == content
    assert is_plausible(content)


# ------------------------------------------------------------------------------------------------------ recovery
SEGMENT = 1024
T0 = 1_700_000_000_000


@pytest.fixture
def segments(tmp_path: Path) -> list[Segment]:
    """Fifteen segments; that of number n begins at T0 + 10,000 n."""
    log = LogBuilder(SEGMENT)
    for number in range(15):
        log.message(store_timestamp=T0 + 10_000 * number)
        if number < 14:
            log.blank()
    log.write(tmp_path)
    return [Segment(str(path), int(path.name), SEGMENT) for path in sorted((tmp_path / "commitlog").iterdir())]


@pytest.mark.parametrize(
    ("version", "furthest", "given", "expected"),
    [
        *((version, 7000, {}, Redispatch(7000)) for version in ("4.6", "4.9")),
        *((version, 7000, {}, Redispatch(NEVER)) for version in ("5.0", "5.1", "5.3")),
        ("5.1", 7000, {"recheckReputOffsetFromCq": "true"}, Redispatch(7000)),
        ("5.5", 7000, {}, Redispatch(7000, 7000)),
        ("5.5", -1, {}, Redispatch(5 * SEGMENT)),
    ],
)
def test_after_a_clean_stop(
    segments: list[Segment], version: str, furthest: int, given: dict[str, str], expected: Redispatch
) -> None:
    page, settings = StoreCheckpoint(), Settings(given)
    assert redispatch(segments, page, rules_of(version), settings, furthest, after_crash=False) == expected


@pytest.mark.parametrize(
    ("version", "count", "furthest", "given", "number"),
    [
        ("5.1", 2, -1, {}, 0),
        ("5.1", 4, -1, {}, 1),
        *((version, 15, 7 * SEGMENT + 9, {}, 12) for version in ("4.6", "4.9", "5.0", "5.1")),
        *((version, 15, 7 * SEGMENT + 9, {}, 7) for version in ("5.3", "5.5")),
        ("5.3", 15, -1, {}, 0),
        ("5.3", 15, 7 * SEGMENT, {}, 7),
        ("5.3", 15, 7 * SEGMENT - 1, {}, 6),
        ("5.3", 15, 14 * SEGMENT, {}, 12),
        ("5.5", 15, 14 * SEGMENT, {}, 14),
        ("5.5", 15, 2 * SEGMENT, {}, 5),
        ("5.5", 15, 14 * SEGMENT, {"commitLogRecoverMaxNum": "0"}, 14),
        ("5.5", 15, 2 * SEGMENT, {"commitLogRecoverMaxNum": "0"}, 5),
        ("5.5", 15, 2 * SEGMENT, {"commitLogRecoverMaxNum": "1"}, 14),
        ("5.5", 15, 14 * SEGMENT, {"storeType": "DefaultRocksDB"}, 0),
        *(
            ("5.5", 15, 14 * SEGMENT, {name: "true"}, 5)
            for name in ("messageIndexSafe", "transRocksDBEnable", "indexRocksDBEnable", "timerRocksDBEnable")
        ),
    ],
)
def test_where_a_start_begins_to_read(
    segments: list[Segment], version: str, count: int, furthest: int, given: dict[str, str], number: int
) -> None:
    settings, rules = Settings(given), rules_of(version)
    assert looks_from(segments[:count], rules, settings, furthest, after_crash=False) == number * SEGMENT
    assert looks_from(segments[1:], rules, settings, furthest, after_crash=True) == SEGMENT


def test_without_segments_nothing_is_read() -> None:
    rules = rules_of("5.5")
    assert looks_from([], rules, Settings(), -1, after_crash=False) == 0
    assert redispatch([], StoreCheckpoint(), rules, Settings(), -1, after_crash=True) == Redispatch(NEVER)


@pytest.mark.parametrize("version", ["4.9", "5.5"])
def test_queues_that_end_before_the_log(segments: list[Segment], version: str) -> None:
    again = redispatch(segments[7:9], StoreCheckpoint(), rules_of(version), Settings(), 100, after_crash=False)
    assert again == Redispatch(7 * SEGMENT, 100 if version == "5.5" else -1)


@pytest.mark.parametrize(
    ("version", "page", "given", "segment"),
    [
        ("5.3", StoreCheckpoint(), {}, 0),
        ("5.3", StoreCheckpoint(T0 + 43_000, T0 + 60_000), {}, 4),
        ("5.3", StoreCheckpoint(T0 + 42_999, T0 + 60_000), {}, 3),
        ("5.3", StoreCheckpoint(T0 + 60_000, T0 + 43_000), {}, 4),
        ("5.3", StoreCheckpoint(T0 + 12_999, T0 + 12_999), {}, 0),
        ("5.3", StoreCheckpoint(T0 + 13_000, T0 + 13_000), {}, 1),
        ("5.3", StoreCheckpoint(T0 + 90_000, T0 + 90_000, T0 + 20_000), {"messageIndexSafe": "true"}, 2),
        ("5.5", StoreCheckpoint(), {}, 5),
        ("5.5", StoreCheckpoint(), {"commitLogRecoverMaxNum": "12"}, 3),
        ("5.5", StoreCheckpoint(T0 + 93_000, T0 + 60_000), {}, 6),
        ("5.5", StoreCheckpoint(0, T0 + 79_999), {}, 7),
        ("5.5", StoreCheckpoint(T0 + 93_000, T0 + 93_000, logics_physical_offset=6 * SEGMENT - 1), {}, 5),
        ("5.5", StoreCheckpoint(0, 0, logics_physical_offset=1), {}, 5),
        ("5.5", StoreCheckpoint(0, 0, logics_physical_offset=6 * SEGMENT), {}, 6),
        ("5.5", StoreCheckpoint(0, T0 + 80_000), {}, 8),
        ("5.5", StoreCheckpoint(0, T0 + 80_000, logics_physical_offset=6 * SEGMENT + 3), {}, 6),
        ("5.5", StoreCheckpoint(0, T0 + 80_000, logics_physical_offset=9_999_999), {}, 14),
    ],
)
def test_after_a_crash(
    segments: list[Segment], version: str, page: StoreCheckpoint, given: dict[str, str], segment: int
) -> None:
    found = redispatch(segments, page, rules_of(version), Settings(given), 7000, after_crash=True)
    assert found == Redispatch(segment * SEGMENT)


def test_segments_of_zeros_are_passed_over(segments: list[Segment]) -> None:
    page = StoreCheckpoint(T0 + 99_000, T0 + 99_000)
    assert redispatch(segments, page, rules_of("5.3"), Settings(), 7000, after_crash=True) == Redispatch(9 * SEGMENT)
    Path(segments[9].path).write_bytes(bytes(SEGMENT))
    assert redispatch(segments, page, rules_of("5.3"), Settings(), 7000, after_crash=True) == Redispatch(8 * SEGMENT)


# --------------------------------------------------------------------------------------------------- store signs
def put(root: Path, path: str, content: bytes) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(content)


def queue_files(root: Path, *sizes: int) -> None:
    for number, size in enumerate(sizes):
        put(root, f"consumequeue/T/0/{number * 1000:020d}", bytes(size))


def test_most_queue_files_show_their_length(tmp_path: Path) -> None:
    queue_files(tmp_path, 1000, 1000, 900, 999)
    settings, notes = fit_to_store(str(tmp_path), Settings(), needs_index_sizes=True)
    assert (settings.queue_file_size, notes) == (1000, ["consumequeue files have 1000 bytes, as the store's own"])


def test_a_given_length_that_they_contradict(tmp_path: Path) -> None:
    queue_files(tmp_path, 1000)
    with pytest.raises(WrongSettings, match="makes files of 6000000 bytes, the store's own have 1000") as refused:
        fit_to_store(str(tmp_path), Settings({"mappedFileSizeConsumeQueue": "6000000"}), needs_index_sizes=True)
    assert refused.value.path == str(tmp_path / "consumequeue")
    fits = Settings({"mappedFileSizeConsumeQueue": "981"})  # rounded up to whole units
    assert fit_to_store(str(tmp_path), fits, needs_index_sizes=True) == (fits, [])


def test_each_kind_of_queue_shows_its_own_length(tmp_path: Path) -> None:
    """Ext files hold units of many lengths, and are looked at where a broker writes them."""
    put(tmp_path, "batchconsumequeue/T/0/" + "0" * 20, bytes(46 * 7))
    put(tmp_path, "consumequeue_ext/T/0/" + "0" * 20, bytes(777))
    plain, notes = fit_to_store(str(tmp_path), Settings(), needs_index_sizes=True)
    assert plain == Settings(observed={"mapperFileSizeBatchConsumeQueue": 322})
    assert notes == ["batchconsumequeue files have 322 bytes, as the store's own"]
    given = Settings({"enableConsumeQueueExt": "true"})
    extended, notes = fit_to_store(str(tmp_path), given, needs_index_sizes=True)
    assert extended.observed == {"mapperFileSizeBatchConsumeQueue": 322, "mappedFileSizeConsumeQueueExt": 777}
    assert notes[1:] == ["consumequeue_ext files have 777 bytes, as the store's own"]
    with pytest.raises(WrongSettings, match="mapperFileSizeBatchConsumeQueue makes files of 13800000 bytes"):
        fit_to_store(str(tmp_path), Settings({"mapperFileSizeBatchConsumeQueue": "13800000"}), needs_index_sizes=True)


@pytest.mark.parametrize("sizes", [(), (0, 0), (999,)])
def test_files_that_show_nothing(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    queue_files(tmp_path, *sizes)
    given = Settings()
    assert fit_to_store(str(tmp_path), given, needs_index_sizes=True) == (given, [])


def test_index_files_of_another_length(tmp_path: Path) -> None:
    put(tmp_path, "index/20210712070947052", bytes(HEADER_SIZE + 777))
    given = Settings()
    assert fit_to_store(str(tmp_path), given, needs_index_sizes=False) == (given, [])
    put(tmp_path, "index/20210712070947053", bytes(HEADER_SIZE + 111))
    put(tmp_path, "index/notes", bytes(HEADER_SIZE + 5))
    put(tmp_path, "index/20210712070947054", bytes(HEADER_SIZE))  # no longer than a header: it shows nothing
    with pytest.raises(
        WrongSettings, match="make files of 420000040 bytes, the store's own have 151 and 817"
    ) as refused:
        fit_to_store(str(tmp_path), given, needs_index_sizes=True)
    assert refused.value.path == str(tmp_path / "index")
    without = Settings({"messageIndexEnable": "false"})
    assert fit_to_store(str(tmp_path), without, needs_index_sizes=True) == (without, [])
    own = Settings({"maxHashSlotNum": "1", "maxIndexNum": "2"})
    put(tmp_path, "index/20210712070947055", bytes(HEADER_SIZE + 44))
    assert fit_to_store(str(tmp_path), own, needs_index_sizes=True) == (own, [])


def test_a_full_index_file_shows_its_numbers(tmp_path: Path) -> None:
    """One of 1 slot and 2 places, of which the first is never used; unless they are given."""
    header = struct.pack(">4q2i", 1_700_000_000_000, 1_700_000_000_000, 100, 100, 1, 2)
    content = header + struct.pack(">i", 1) + bytes(20) + struct.pack(">iqii", 5, 100, 0, 0)
    put(tmp_path, "index/20210712070947051", bytes(HEADER_SIZE + 777))
    put(tmp_path, "index/20210712070947052", content)
    settings, notes = fit_to_store(str(tmp_path), Settings(), needs_index_sizes=True)
    assert settings == Settings(observed={"maxHashSlotNum": 1, "maxIndexNum": 2})
    assert notes == ["index files have 1 slots and 2 entries, as the store's own"]
    for given in (Settings({"maxHashSlotNum": "5000000"}), Settings({"maxIndexNum": "20000000"})):
        with pytest.raises(WrongSettings, match="maxHashSlotNum and maxIndexNum make files"):
            fit_to_store(str(tmp_path), given, needs_index_sizes=True)
        assert fit_to_store(str(tmp_path), given, needs_index_sizes=False) == (given, [])


def put_index(root: Path, settings: Settings, slots_in_use: int, entries: int, name: str = "20210712070947052") -> None:
    header = struct.pack(">4q2i", 1_700_000_000_000, 1_700_000_000_001, 0, 99, slots_in_use, entries + 1)
    put(root, f"index/{name}", header.ljust(settings.index_file_size, b"\0"))


@pytest.mark.parametrize(
    ("counted", "expected"),
    [
        *(((number,), True) for number in (90, 91)),
        *(((number,), None) for number in (0, 92, 3, 4)),
        *(((90, 90, 60), True), ((90, 60, 60), False), ((90, 60), None), ((90, 3), True), ((60, 95), False)),
    ],
)
def test_most_index_headers_decide(tmp_path: Path, counted: tuple[int, ...], expected: bool | None) -> None:
    """90 keys in 100 slots take some 60 of them: a header that says 90 counts keys. Few keys tell nothing."""
    settings = Settings({"maxHashSlotNum": "100", "maxIndexNum": "200"})
    for number, slots_in_use in enumerate(counted):
        put_index(
            tmp_path, settings, slots_in_use, slots_in_use if slots_in_use < 5 else 90, f"2021071207094705{number}"
        )
    assert counts_every_put(str(tmp_path), settings) is expected


@pytest.mark.parametrize(
    ("offsets", "in_use", "folder", "version"),
    [
        ((), None, False, DEFAULT),
        ((), None, True, "5.5"),
        ((0, 0, 1), None, False, "5.5"),
        ((0, 1, 0), None, False, "5.3"),
        ((1, 0, 0), None, False, DEFAULT),
        ((0, 1, 0), 90, False, "4.6"),
        ((), 90, False, "4.6"),
        ((), 60, False, DEFAULT),
    ],
)
def test_what_a_store_shows_of_its_release(
    tmp_path: Path, offsets: tuple[int, ...], in_use: int | None, folder: bool, version: str
) -> None:
    settings = Settings({"maxHashSlotNum": "100", "maxIndexNum": "200"})
    if offsets:
        put(tmp_path, "checkpoint", struct.pack(">6q", *[1_700_000_000_000] * 3, *offsets).ljust(4096, b"\0"))
    if in_use is not None:
        put_index(tmp_path, settings, in_use, 90)
    if folder:
        (tmp_path / "rocksdbstore").mkdir()
    assert guess_version(str(tmp_path), settings)[0] == version


# ------------------------------------------------------------------------------------------------------- log end
SIZE = 4096


def written(log: LogBuilder, root: Path) -> list[Segment]:
    log.write(root)
    return [Segment(str(root / "commitlog" / f"{base:020d}"), base, SIZE) for base in log.segments]


def log_of(*messages: int) -> LogBuilder:
    """A log with so many messages in each segment, all but the last of which a BLANK closes."""
    log = LogBuilder(SIZE)
    for number, count in enumerate(messages):
        if number:
            log.blank()
        for _ in range(count):
            log.message(topic="T", body=b"body")
    return log


def test_the_end_of_the_last_record_is_the_end_of_the_log(tmp_path: Path) -> None:
    log = log_of(3, 2)
    check_log_end(written(log, tmp_path), log.end_offset, DecodeRules())


@pytest.mark.parametrize("messages", [(3, 2), (3, 0)])
def test_a_blank_after_the_end_is_growth(tmp_path: Path, messages: tuple[int, ...]) -> None:
    """A rebuild of the first segment alone is stale once a broker has closed that segment and begun another."""
    log = log_of(*messages)
    end = log.records[2].end
    with pytest.raises(NotAStore, match="has grown past its recorded end") as caught:
        check_log_end(written(log, tmp_path), end, DecodeRules())
    assert (caught.value.offset, Path(str(caught.value.path)).name) == (end, f"{0:020d}")


def test_a_record_after_the_end_is_growth_unless_a_group_has_not_agreed_on_it(tmp_path: Path) -> None:
    log = log_of(3)
    segments, end = written(log, tmp_path), log.records[1].end
    with pytest.raises(NotAStore, match="has grown past its recorded end"):
        check_log_end(segments, end, DecodeRules())
    check_log_end(segments, end, DecodeRules(), committed=end)
    with pytest.raises(NotAStore, match="has grown past its recorded end"):
        check_log_end(segments, end, DecodeRules(), committed=end + 1)


@pytest.mark.parametrize("step", [-1, 1])
def test_an_end_between_records_is_refused(tmp_path: Path, step: int) -> None:
    log = log_of(3)
    with pytest.raises(NotAStore, match=r"spans the recorded end|ends before its recorded end"):
        check_log_end(written(log, tmp_path), log.records[1].end + step, DecodeRules())


def test_an_end_outside_of_the_segments_is_refused(tmp_path: Path) -> None:
    log = log_of(3)
    (segment,) = written(log, tmp_path)
    moved = [Segment(segment.path, SIZE, SIZE)]
    for end in (SIZE - 1, 2 * SIZE + 1):
        with pytest.raises(NotAStore, match="does not reach its recorded end"):
            check_log_end(moved, end, DecodeRules())


def test_damage_ends_the_walk_unless_it_is_passed(tmp_path: Path) -> None:
    log = log_of(4)
    segments, lost = written(log, tmp_path), log.records[1]
    content = bytearray(Path(segments[0].path).read_bytes())
    content[lost.offset : lost.end] = b"\xff" * lost.size
    Path(segments[0].path).write_bytes(content)
    with pytest.raises(NotAStore, match="ends before its recorded end") as caught:
        check_log_end(segments, log.end_offset, DecodeRules())
    assert caught.value.offset == lost.offset
    check_log_end(segments, log.end_offset, DecodeRules(), past_damage=True)


@pytest.mark.parametrize("messages", [(0,), (2,), (2, 0), (2, 3), (2, 3, 0)])
def test_a_growing_log_ends_after_its_last_record(tmp_path: Path, messages: tuple[int, ...]) -> None:
    """The next segment may have been made, and not written to; a BLANK leads to it."""
    segments = written(log := log_of(*messages), tmp_path)
    if not segments:
        (tmp_path / "empty").write_bytes(bytes(SIZE))
        segments = [Segment(str(tmp_path / "empty"), 0, SIZE)]
    assert growing_log_end(segments, DecodeRules()) == log.end_offset


@pytest.mark.parametrize("rest", [b"\xff" * 20, b"\x00" * 7 + b"\x01"])
def test_what_lies_after_the_end_of_a_growing_log_does_not_matter(tmp_path: Path, rest: bytes) -> None:
    log = log_of(1, 2)
    segments, end = written(log, tmp_path), log.end_offset
    content = bytearray(Path(segments[-1].path).read_bytes())
    content[end - SIZE : end - SIZE + len(rest)] = rest
    Path(segments[-1].path).write_bytes(content)
    assert growing_log_end(segments, DecodeRules()) == end


def refused(segments: list[Segment], end: int) -> tuple[object, ...]:
    return tuple(refusal(NotAStore, lambda: check_log_end(segments, end, DecodeRules())).values())


def test_a_log_that_ends_with_its_last_segment(tmp_path: Path) -> None:
    first, second = written(log_of(3, 0), tmp_path)
    check_log_end([first], SIZE, DecodeRules())
    Path(first.path).write_bytes(b"\xff" * SIZE)
    assert refused([first, second], SIZE) == ("the log ends before its recorded end", first.path, 0)


# ------------------------------------------------------------------------------------------------------ log tail
TAIL_SIZE = 8192


@pytest.fixture
def log() -> LogBuilder:
    """Some forty records in two segments, each a second younger than the one before."""
    log = LogBuilder(TAIL_SIZE)
    for number in range(40):
        log.message(topic="T", queue_id=number % 2, body=bytes(150), store_timestamp=T0 + 1000 * number)
    assert len(log.segments) == 2
    return log


def tail_of(
    log: LogBuilder, tmp_path: Path, lost: dict[int, bytes], furthest_unit: int = -1, met_from: int = 0
) -> LogTail:
    """The tail of a log in which some records consist of another byte."""
    log.write(tmp_path)
    segments = []
    for base, content in log.segments.items():
        data = bytearray(content)
        for number, byte in lost.items():
            placed = log.records[number]
            if base <= placed.offset < base + TAIL_SIZE:
                data[placed.offset - base : placed.end - base] = byte * placed.size
        path = tmp_path / "commitlog" / f"{base:020d}"
        path.write_bytes(data)
        segments.append(Segment(str(path), base, TAIL_SIZE))
    return read_tail(segments, furthest_unit, DecodeRules(), met_from)


def test_a_whole_log(log: LogBuilder, tmp_path: Path) -> None:
    tail = tail_of(log, tmp_path, {})
    assert (tail.begin, tail.end, tail.damage.goes_on_at, tail.damage.passed) == (0, log.end_offset, None, ())
    assert tail.rows.offsets.tolist() == [placed.offset for placed in log.records]
    assert tail.rows.ends.tolist() == [placed.end for placed in log.records]
    assert tail.rows.last == {("T", 0): 38, ("T", 1): 39}
    assert (tail.damage.defect, tail.damage.is_torn) == (RecordDefect.UNWRITTEN, False)


@pytest.mark.parametrize(
    ("zeros", "furthest", "goes_on"),
    [(10_000, -1, True), (500, -1, True), (200, -1, False), (200, 12, True), (200, 11, False)],
)
def test_after_zeros_a_record_is_looked_for_a_little_way_and_as_far_as_queues_point(
    log: LogBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, zeros: int, furthest: int, goes_on: bool
) -> None:
    """One record is zeros: the next one begins some 250 bytes after it; ``furthest`` is a record that a queue has."""
    monkeypatch.setattr(log_tail, "_LAST_ZEROS", zeros)
    lost, following = log.records[10], log.records[11]
    assert 200 < following.offset - lost.offset < 500
    others = [number for number, placed in enumerate(log.records) if number >= 12 and placed.offset < TAIL_SIZE]
    end = log.records[furthest].offset if furthest >= 0 else -1
    tail = tail_of(log, tmp_path, dict.fromkeys([10, *others], b"\0"), end)
    assert (tail.end, tail.damage.defect) == (lost.offset, RecordDefect.UNWRITTEN)
    assert (tail.damage.goes_on_at == following.offset) is goes_on


def test_after_damage_the_first_record_that_is_not_older_is_where_it_goes_on(log: LogBuilder, tmp_path: Path) -> None:
    tail = tail_of(log, tmp_path / "one", {10: b"?"})
    assert (tail.end, tail.damage.goes_on_at, tail.damage.is_torn) == (
        log.records[10].offset,
        log.records[11].offset,
        False,
    )
    tail = tail_of(log, tmp_path / "other", {39: b"?"})
    assert (tail.end, tail.damage.goes_on_at, tail.damage.is_torn) == (log.records[-1].offset, None, True)


def test_damage_that_recovery_does_not_read_is_passed_over(log: LogBuilder, tmp_path: Path) -> None:
    tail = tail_of(log, tmp_path, {10: b"?"}, met_from=log.records[11].offset)
    assert (tail.damage.passed, tail.end, tail.damage.goes_on_at) == ((log.records[10].offset,), log.end_offset, None)
    assert len(tail.rows.offsets) == 39
    for met_from in (log.records[10].offset, log.records[11].offset - 1):
        tail = tail_of(log, tmp_path, {10: b"?"}, met_from=met_from)
        assert (tail.damage.passed, tail.end) == ((), log.records[10].offset)


@pytest.mark.parametrize(("most", "begin"), [(2 * TAIL_SIZE, 0), (2 * TAIL_SIZE - 1, TAIL_SIZE)])
def test_as_many_whole_segments_are_read_as_fit(
    log: LogBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, begin: int
) -> None:
    monkeypatch.setattr(log_tail, "READ_AT_MOST", most)
    assert tail_of(log, tmp_path, {}).begin == begin


@pytest.mark.parametrize("furthest", [-1, 0, 1, 25, 38, 39])
def test_of_a_long_segment_the_part_before_where_queues_end_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, furthest: int
) -> None:
    """From a record on that is certain to be one, a thousand bytes before; all of it where queues end before it."""
    monkeypatch.setattr(log_tail, "READ_AT_MOST", 1000)
    log = LogBuilder(1 << 16)
    for number in range(40):
        log.message(topic="T", queue_id=0, body=bytes(150), store_timestamp=T0 + 1000 * number)
    log.write(tmp_path)
    segments = [Segment(str(path), 0, 1 << 16) for path in (tmp_path / "commitlog").iterdir()]
    end = log.records[furthest].end if furthest >= 0 else -1
    expected = next((placed.offset for placed in log.records if placed.offset >= end - 1000 > 0), 0)
    assert read_tail(segments, end, DecodeRules()).begin == expected


def test_segments_that_are_not_written(tmp_path: Path) -> None:
    (tmp_path / "zeros").write_bytes(bytes(100))
    segments = [Segment(str(tmp_path / "zeros"), base, 100) for base in (0, 100)]
    assert (read_tail([], -1, DecodeRules()).end, read_tail(segments[1:], -1, DecodeRules()).end) == (0, 100)


def test_a_segment_may_begin_older_than_the_one_before(tmp_path: Path) -> None:
    """A clock stepped back: recovery reads on, whatever the queues have."""
    log = LogBuilder(TAIL_SIZE)
    for number, time in enumerate((T0, T0 + 1000, T0 + 999)):
        log.message(topic="T", queue_id=0, body=bytes(150), store_timestamp=time)
        if number == 1:
            log.blank()
    log.write(tmp_path)
    segments = [Segment(str(path), int(path.name), TAIL_SIZE) for path in sorted((tmp_path / "commitlog").iterdir())]
    tail = read_tail(segments, TAIL_SIZE, DecodeRules())
    assert (len(tail.rows.offsets), tail.end, tail.damage.goes_on_at) == (3, log.end_offset, None)


def test_what_a_light_queue_does_not_take_back_is_misplaced() -> None:
    """Its last unit is older than they are, and their places are taken."""
    places = np.arange(3)
    tail = LogTail(0, 300, TailRows(places * 100, places * 100 + 100, places, places * 0, (("%LMQ%a", 0),)))
    queue = QueueEnd("%LMQ%a", 0, QueueFiles([FileStatus("0" * 20, "", 400, 0, 0, 0, 0)]), end=3, end_offset=100)
    found = replayed(queue, ("%LMQ%a", 0), tail, np.ones(3, np.bool_), cut=True, batch=False)
    assert (found.end, found.misplaced.tolist()) == (3, [1, 2])
