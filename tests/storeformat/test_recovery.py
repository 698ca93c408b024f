"""Checkpoint, recovery, and signs of a release."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from support import golden
from support.rebuilding import rules_of_release
from support.store_builder import LogBuilder

from storeformat.errors import NotAStore, WrongSettings
from storeformat.index.index_file import HEADER_SIZE
from storeformat.log.segments import Segment
from storeformat.store.broker_conf import BrokerConf
from storeformat.store.broker_rules import rules_of
from storeformat.store.checkpoint import PAGE_SIZE, StoreCheckpoint, for_rebuilt_store, is_plausible, parse_checkpoint
from storeformat.store.layout import StoreLayout
from storeformat.store.recovery import NEVER, Redispatch, looks_from, redispatch
from storeformat.store.store_signs import fit_to_store, release_signs

# ---------------------------------------------------------------------------------------------------- checkpoint
FULL = StoreCheckpoint(1, 2, 3, 4, 5, 6)


def test_page() -> None:
    page = FULL.to_bytes()
    assert len(page) == PAGE_SIZE == 4096
    assert page[:48].hex() == "".join(f"{value:016x}" for value in range(1, 7))
    assert not any(page[48:])
    assert parse_checkpoint(page) == FULL


def test_short_files_read_as_if_zeros_followed() -> None:
    assert parse_checkpoint(FULL.to_bytes()[:24]) == StoreCheckpoint(1, 2, 3)
    assert parse_checkpoint(FULL.to_bytes()[:12]) == StoreCheckpoint(1)
    with pytest.raises(NotAStore, match=r"the checkpoint is empty: found 0, expected 4096 bytes"):
        parse_checkpoint(b"")


@pytest.mark.parametrize(
    ("position", "byte", "plausible"),
    [
        *((position, byte, True) for position, byte in ((2, 0x07), (42, 0x01))),
        *((position, 0x80, False) for position in (0, 24)),
        *((position, byte, False) for position, byte in ((2, 0x08), (40, 0x01), (48, 0x01), (4095, 0x01))),
    ],
)
def test_what_no_broker_writes_is_not_plausible(position: int, byte: int, plausible: bool) -> None:
    page = bytearray(FULL.to_bytes())
    page[position] = byte
    assert is_plausible(page) == plausible


def test_fields_that_are_not_known_yet_are_plausible() -> None:
    assert is_plausible(StoreCheckpoint(master_flushed_offset=-1, confirm_phy_offset=-1).to_bytes())
    assert not is_plausible(b"")


@pytest.mark.parametrize(
    ("field", "least", "most"),
    [
        ("physic_msg_timestamp", 0, (1 << 43) - 1),
        ("index_msg_timestamp", 0, (1 << 43) - 1),
        ("confirm_phy_offset", -1, (1 << 50) - 1),
        ("logics_physical_offset", -1, (1 << 50) - 1),
    ],
)
def test_ends_of_what_is_plausible(field: str, least: int, most: int) -> None:
    """Times up to the year 2248, offsets up to 2^50; -1 where there is no offset yet."""
    values = (least - 1, least, most, most + 1)
    plausible = [is_plausible(StoreCheckpoint(**{field: value}).to_bytes()) for value in values]
    assert plausible == [False, True, True, False]


def test_checkpoint_beside_a_rebuilt_store() -> None:
    ends = {"last_store_timestamp": 70_000, "last_index_end_timestamp": 69_000, "last_queued_phy_offset": 4_321}
    assert for_rebuilt_store(**ends) == StoreCheckpoint(70_000, 70_000, 69_000, 0, 0, 4_321)


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
SIZE = 1024
T0 = 1_700_000_000_000


@pytest.fixture
def segments(tmp_path: Path) -> list[Segment]:
    """Fifteen segments; that of number n begins at T0 + 10,000 n."""
    log = LogBuilder(SIZE)
    for number in range(15):
        log.message(store_timestamp=T0 + 10_000 * number)
        if number < 14:
            log.blank()
    log.write(tmp_path)
    return [Segment(str(path), int(path.name), SIZE) for path in sorted((tmp_path / "commitlog").iterdir())]


@pytest.mark.parametrize(
    ("version", "expected"),
    [("4.6", Redispatch(7000)), ("4.9", Redispatch(7000)), ("5.0", Redispatch(NEVER)), ("5.1", Redispatch(NEVER)),
     ("5.3", Redispatch(NEVER)), ("5.5", Redispatch(7000, 7000))],
)  # fmt: skip
def test_after_a_clean_stop(segments: list[Segment], version: str, expected: Redispatch) -> None:
    page, settings = StoreCheckpoint(), BrokerConf()
    assert redispatch(segments, page, rules_of(version), settings, 7000, after_crash=False) == expected


@pytest.mark.parametrize(
    ("version", "number"), [("4.6", 12), ("4.9", 12), ("5.0", 12), ("5.1", 12), ("5.3", 7), ("5.5", 7)]
)
def test_where_a_start_after_a_clean_stop_begins_to_read(segments: list[Segment], version: str, number: int) -> None:
    """The furthest queue ends in segment 7 of 15."""
    read = looks_from(segments, rules_of(version), BrokerConf(), 7 * SIZE + 9, after_crash=False)
    assert read == number * SIZE


@pytest.mark.parametrize(
    ("version", "count", "furthest", "given", "number"),
    [
        ("5.1", 2, -1, {}, 0),
        ("5.1", 4, -1, {}, 1),
        ("5.3", 15, -1, {}, 0),
        ("5.3", 15, 7 * SIZE, {}, 7),
        ("5.3", 15, 7 * SIZE - 1, {}, 6),
        ("5.3", 15, 14 * SIZE, {}, 12),
        ("5.5", 15, 14 * SIZE, {}, 14),
        ("5.5", 15, 2 * SIZE, {}, 5),
        ("5.5", 15, 14 * SIZE, {"commitLogRecoverMaxNum": "0"}, 14),
        ("5.5", 15, 2 * SIZE, {"commitLogRecoverMaxNum": "0"}, 5),
        ("5.5", 15, 2 * SIZE, {"commitLogRecoverMaxNum": "1"}, 14),
        ("5.5", 15, 14 * SIZE, {"storeType": "DefaultRocksDB"}, 0),
        *(
            ("5.5", 15, 14 * SIZE, {name: "true"}, 5)
            for name in ("messageIndexSafe", "transRocksDBEnable", "indexRocksDBEnable", "timerRocksDBEnable")
        ),
    ],
)
def test_where_a_start_begins_to_read(
    segments: list[Segment], version: str, count: int, furthest: int, given: dict[str, str], number: int
) -> None:
    settings, rules = BrokerConf(given), rules_of(version)
    assert looks_from(segments[:count], rules, settings, furthest, after_crash=False) == number * SIZE
    assert looks_from(segments[1:], rules, settings, furthest, after_crash=True) == SIZE


def test_without_segments_nothing_is_read() -> None:
    rules = rules_of("5.5")
    assert looks_from([], rules, BrokerConf(), -1, after_crash=False) == 0
    assert redispatch([], StoreCheckpoint(), rules, BrokerConf(), -1, after_crash=True) == Redispatch(NEVER)


@pytest.mark.parametrize("version", ["4.9", "5.5"])
def test_queues_that_end_before_the_log(segments: list[Segment], version: str) -> None:
    again = redispatch(segments[7:9], StoreCheckpoint(), rules_of(version), BrokerConf(), 100, after_crash=False)
    assert again == Redispatch(7 * SIZE, 100 if version == "5.5" else -1)


def test_ten_segments_at_most(segments: list[Segment]) -> None:
    rules, page = rules_of("5.5"), StoreCheckpoint()
    assert redispatch(segments, page, rules, BrokerConf(), -1, after_crash=False) == Redispatch(5 * SIZE)
    more = BrokerConf({"commitLogRecoverMaxNum": "12"})
    assert redispatch(segments, page, rules, more, -1, after_crash=True) == Redispatch(3 * SIZE)


def test_recheck_from_queues(segments: list[Segment]) -> None:
    settings = BrokerConf({"recheckReputOffsetFromCq": "true"})
    again = redispatch(segments, StoreCheckpoint(), rules_of("5.1"), settings, 7000, after_crash=False)
    assert again == Redispatch(7000)


@pytest.mark.parametrize(
    ("version", "page", "segment"),
    [
        ("5.3", StoreCheckpoint(), 0),
        ("5.3", StoreCheckpoint(T0 + 43_000, T0 + 60_000), 4),
        ("5.3", StoreCheckpoint(T0 + 42_999, T0 + 60_000), 3),
        ("5.3", StoreCheckpoint(T0 + 60_000, T0 + 43_000), 4),
        ("5.3", StoreCheckpoint(T0 + 12_999, T0 + 12_999), 0),
        ("5.3", StoreCheckpoint(T0 + 13_000, T0 + 13_000), 1),
        ("5.5", StoreCheckpoint(), 5),
        ("5.5", StoreCheckpoint(T0 + 93_000, T0 + 60_000), 6),
        ("5.5", StoreCheckpoint(0, T0 + 79_999), 7),
        ("5.5", StoreCheckpoint(T0 + 93_000, T0 + 93_000, logics_physical_offset=6 * SIZE - 1), 5),
        ("5.5", StoreCheckpoint(0, 0, logics_physical_offset=1), 5),
        ("5.5", StoreCheckpoint(0, 0, logics_physical_offset=6 * SIZE), 6),
        ("5.5", StoreCheckpoint(0, T0 + 80_000), 8),
        ("5.5", StoreCheckpoint(0, T0 + 80_000, logics_physical_offset=6 * SIZE + 3), 6),
        ("5.5", StoreCheckpoint(0, T0 + 80_000, logics_physical_offset=9_999_999), 14),
    ],
)
def test_after_a_crash(segments: list[Segment], version: str, page: StoreCheckpoint, segment: int) -> None:
    found = redispatch(segments, page, rules_of(version), BrokerConf(), 7000, after_crash=True)
    assert found == Redispatch(segment * SIZE)


def test_the_index_may_hold_it_back(segments: list[Segment]) -> None:
    page = StoreCheckpoint(T0 + 90_000, T0 + 90_000, T0 + 20_000)
    settings = BrokerConf({"messageIndexSafe": "true"})
    assert redispatch(segments, page, rules_of("5.3"), settings, 7000, after_crash=True) == Redispatch(2 * SIZE)


def test_segments_of_zeros_are_passed_over(segments: list[Segment]) -> None:
    page = StoreCheckpoint(T0 + 99_000, T0 + 99_000)
    assert redispatch(segments, page, rules_of("5.3"), BrokerConf(), 7000, after_crash=True) == Redispatch(9 * SIZE)
    Path(segments[9].path).write_bytes(bytes(SIZE))
    assert redispatch(segments, page, rules_of("5.3"), BrokerConf(), 7000, after_crash=True) == Redispatch(8 * SIZE)


# --------------------------------------------------------------------------------------------------- store signs
CONSUME_QUEUE = "mappedFileSizeConsumeQueue"


def put(root: Path, path: str, content: bytes) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(content)


def queue_files(root: Path, *sizes: int) -> None:
    for number, size in enumerate(sizes):
        put(root, f"consumequeue/T/0/{number * 1000:020d}", bytes(size))


def test_most_queue_files_show_their_length(tmp_path: Path) -> None:
    queue_files(tmp_path, 1000, 1000, 900, 999)
    layout, notes = fit_to_store(str(tmp_path), StoreLayout(), (), needs_index_sizes=True)
    assert (layout.consume_queue_file_size, notes) == (1000, ["consumequeue files have 1000 bytes, as the store's own"])


def test_a_given_length_that_they_contradict(tmp_path: Path) -> None:
    queue_files(tmp_path, 1000)
    with pytest.raises(WrongSettings, match="makes files of 6000000 bytes, the store's own have 1000") as refused:
        fit_to_store(str(tmp_path), StoreLayout(), (CONSUME_QUEUE,), needs_index_sizes=True)
    assert refused.value.path == str(tmp_path / "consumequeue")
    fits = StoreLayout(mapped_file_size_consume_queue=981)  # rounded up to whole units
    assert fit_to_store(str(tmp_path), fits, (CONSUME_QUEUE,), needs_index_sizes=True) == (fits, [])


def test_each_kind_of_queue_shows_its_own_length(tmp_path: Path) -> None:
    """Ext files hold units of many lengths, and are looked at where a broker writes them."""
    put(tmp_path, "batchconsumequeue/T/0/" + "0" * 20, bytes(46 * 7))
    put(tmp_path, "consumequeue_ext/T/0/" + "0" * 20, bytes(777))
    plain, notes = fit_to_store(str(tmp_path), StoreLayout(), (), needs_index_sizes=True)
    assert plain == replace(StoreLayout(), mapper_file_size_batch_consume_queue=322)
    assert notes == ["batchconsumequeue files have 322 bytes, as the store's own"]
    given = StoreLayout(enable_consume_queue_ext=True)
    extended, notes = fit_to_store(str(tmp_path), given, (), needs_index_sizes=True)
    assert (extended.mapper_file_size_batch_consume_queue, extended.mapped_file_size_consume_queue_ext) == (322, 777)
    assert notes[1:] == ["consumequeue_ext files have 777 bytes, as the store's own"]
    with pytest.raises(WrongSettings, match="mapperFileSizeBatchConsumeQueue makes files of 13800000 bytes"):
        fit_to_store(str(tmp_path), given, ("mapperFileSizeBatchConsumeQueue",), needs_index_sizes=True)


@pytest.mark.parametrize("sizes", [(), (0, 0), (999,)])
def test_files_that_show_nothing(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    queue_files(tmp_path, *sizes)
    given = StoreLayout()
    assert fit_to_store(str(tmp_path), given, (CONSUME_QUEUE,), needs_index_sizes=True) == (given, [])


def test_index_files_of_another_length(tmp_path: Path) -> None:
    put(tmp_path, "index/20210712070947052", bytes(HEADER_SIZE + 777))
    given = StoreLayout()
    assert fit_to_store(str(tmp_path), given, (), needs_index_sizes=False) == (given, [])
    put(tmp_path, "index/20210712070947053", bytes(HEADER_SIZE + 111))
    put(tmp_path, "index/notes", bytes(HEADER_SIZE + 5))
    put(tmp_path, "index/20210712070947054", bytes(HEADER_SIZE))  # no longer than a header: it shows nothing
    with pytest.raises(
        WrongSettings, match="make files of 420000040 bytes, the store's own have 151 and 817"
    ) as refused:
        fit_to_store(str(tmp_path), given, (), needs_index_sizes=True)
    assert refused.value.path == str(tmp_path / "index")
    without = StoreLayout(message_index_enable=False)
    assert fit_to_store(str(tmp_path), without, (), needs_index_sizes=True) == (without, [])
    own = StoreLayout(max_hash_slot_num=1, max_index_num=2)
    put(tmp_path, "index/20210712070947055", bytes(HEADER_SIZE + 44))
    assert fit_to_store(str(tmp_path), own, (), needs_index_sizes=True) == (own, [])


def test_a_full_index_file_shows_its_numbers(tmp_path: Path) -> None:
    """One of 1 slot and 2 places, of which the first is never used; unless they are given."""
    header = struct.pack(">4q2i", 1_700_000_000_000, 1_700_000_000_000, 100, 100, 1, 2)
    content = header + struct.pack(">i", 1) + bytes(20) + struct.pack(">iqii", 5, 100, 0, 0)
    put(tmp_path, "index/20210712070947051", bytes(HEADER_SIZE + 777))
    put(tmp_path, "index/20210712070947052", content)
    layout, notes = fit_to_store(str(tmp_path), StoreLayout(), (), needs_index_sizes=True)
    assert layout == StoreLayout(max_hash_slot_num=1, max_index_num=2)
    assert notes == ["index files have 1 slots and 2 entries, as the store's own"]
    for given in ("maxHashSlotNum", "maxIndexNum"):
        with pytest.raises(WrongSettings, match="maxHashSlotNum and maxIndexNum make files"):
            fit_to_store(str(tmp_path), StoreLayout(), (given,), needs_index_sizes=True)
        assert fit_to_store(str(tmp_path), StoreLayout(), (given,), needs_index_sizes=False) == (StoreLayout(), [])


def put_index(
    root: Path, layout: StoreLayout, slots_in_use: int, entries: int, name: str = "20210712070947052"
) -> None:
    header = struct.pack(">4q2i", 1_700_000_000_000, 1_700_000_000_001, 0, 99, slots_in_use, entries + 1)
    put(root, f"index/{name}", header.ljust(layout.index_file_size, b"\0"))


@pytest.mark.parametrize(
    ("counted", "counts_every_put"),
    [
        *(((number,), True) for number in (90, 91)),
        *(((number,), None) for number in (0, 92, 3, 4)),
        *(((90, 90, 60), True), ((90, 60, 60), False), ((90, 60), None), ((90, 3), True), ((60, 95), False)),
    ],
)
def test_most_index_headers_decide(tmp_path: Path, counted: tuple[int, ...], counts_every_put: bool | None) -> None:
    """90 keys in 100 slots take some 60 of them: a header that says 90 counts keys. Few keys tell nothing."""
    layout = StoreLayout(max_hash_slot_num=100, max_index_num=200)
    for number, slots_in_use in enumerate(counted):
        put_index(tmp_path, layout, slots_in_use, slots_in_use if slots_in_use < 5 else 90, f"2021071207094705{number}")
    assert release_signs(str(tmp_path), layout).counts_every_put == counts_every_put


def test_signs_of_a_release(tmp_path: Path) -> None:
    bare = release_signs(str(tmp_path), StoreLayout())
    assert (bare.has_rocksdb_store, bare.checkpoint_tail, bare.counts_every_put) == (False, (), None)
    times = 1_700_000_000_000, 1_700_000_000_000, 1_700_000_000_000
    put(tmp_path, "checkpoint", struct.pack(">6q", *times, 4096, 7, 8).ljust(4096, b"\0"))
    (tmp_path / "rocksdbstore").mkdir()
    shown = release_signs(str(tmp_path), StoreLayout())
    assert (shown.has_rocksdb_store, shown.checkpoint_tail[0]) == (True, 4096)
