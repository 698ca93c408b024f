"""Settings of a store, the tables of FORMAT.md, and rules of Java."""

from __future__ import annotations

import doctest
import importlib
import pickle
import pkgutil
import re
import struct
from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import java_rules
from support.rebuilding import rules_of_release

import storeformat
from storeformat import javacompat, message
from storeformat.arrays import LogExtent, cut_ranges, narrow, stable_order, sum_of_offsets
from storeformat.errors import DamagedLog, RecordDefect, StoreFormatError, WrongSettings
from storeformat.index import index_file
from storeformat.javacompat import (
    concat_hashes,
    decode_java_utf8,
    index_key_hashes,
    java_hash,
    java_hashes,
    java_hashes_and_lengths,
    java_split,
    parse_int,
    parse_long,
    parse_short,
)
from storeformat.kernels import ENTRY_HEAD
from storeformat.queues import batch_consume_queue, consume_queue, consume_queue_ext, rocksdb_queues
from storeformat.store import checkpoint, timer_files
from storeformat.store.broker_rules import (
    EFFECTS,
    VERSIONS,
    as_written,
    is_known,
    nearest_names,
    parse_properties,
    rules_of,
)
from storeformat.store.layout import file_name, is_file_name
from storeformat.store.settings import QUEUE_STORE_SETTINGS, Settings, read_settings
from storeformat.store.store import find_store


# ------------------------------------------------------------------------------------------------------- sizes of files
def test_settings_that_shape_files_have_types() -> None:
    given = {"mappedFileSizeCommitLog": "65536", "messageIndexEnable": "False", "storePathCommitLog": "/a"}
    shaping = Settings(given).checked().of_files()
    assert (shaping["mappedFileSizeCommitLog"], shaping["messageIndexEnable"], shaping["enableLmq"]) == (
        65_536,
        False,
        False,
    )
    assert shaping["storePathCommitLog"] == "/a"
    assert Settings({name: str(value) for name, value in shaping.items()}).of_files() == shaping


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("mappedFileSizeCommitLog", "0", "is out of range: found 0, expected 1 to 2147483647"),
        ("mappedFileSizeCommitLog", str(1 << 31), "is not an integer"),
        ("mappedFileSizeConsumeQueue", "0", "is out of range: found 0, expected 1 to 2147483647"),
        ("maxHashSlotNum", "-1", "is out of range: found -1, expected 1 to 2147483647"),
        ("maxHashSlotNum", str((1 << 31) - 1), "make no index file"),
        ("maxIndexNum", "1", "is out of range: found 1, expected 2 to 2147483647"),
        ("maxIndexNum", "1g", "is not an integer: found 1g, expected bytes or a count up to 2147483647, and no blank"),
        ("messageIndexEnable", "yes", "is not a boolean: found yes, expected true or false"),
        ("messageDelayLevel", "soon", "messageDelayLevel cannot be parsed"),
    ],
)
def test_a_value_that_no_broker_could_use_is_refused(name: str, value: str, said: str) -> None:
    with pytest.raises(WrongSettings, match=said):
        Settings({name: value}).checked()


def test_the_least_that_a_broker_could_use() -> None:
    least = {"mappedFileSizeCommitLog": "1", "mappedFileSizeConsumeQueue": "1", "maxHashSlotNum": "1"}
    settings = Settings({"brokerName": "b", **least, "maxIndexNum": "2"}).checked()
    assert (settings.queue_file_size, settings.index_file_size) == (20, 84)
    assert Settings({"mappedFileSizeCommitLog": "2147483647"}).checked().number("mappedFileSizeCommitLog") == 2147483647


def test_a_queue_file_has_whole_units() -> None:
    assert Settings({"mappedFileSizeConsumeQueue": "1001"}).queue_file_size == 1020
    assert Settings().queue_file_size == 6_000_000
    assert Settings().index_file_size == 40 + 5_000_000 * 4 + 20_000_000 * 20


def test_sizes_of_the_files_count_where_none_is_given() -> None:
    shown = Settings({"maxIndexNum": "5"}).showing(maxIndexNum=7, maxHashSlotNum=3)
    assert (shown.number("maxIndexNum"), shown.number("maxHashSlotNum")) == (5, 3)


@pytest.mark.parametrize(
    ("names", "are_some"),
    [
        (("0" * 20, "09223372036854775807"), True),
        (("0" * 19, "0" * 21, "0" * 19 + "a", "٠" * 20, "09223372036854775808"), False),
    ],
)
def test_a_file_is_named_by_its_offset(names: tuple[str, ...], are_some: bool) -> None:
    assert {is_file_name(name) for name in names} == {are_some}
    assert file_name(1 << 30) == "00000000001073741824"


# ---------------------------------------------------------------------------------------------------------- broker conf
def test_the_command_line_wins(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_bytes(b"a = 1 \nmaxIndexNum = 2\nname = \xff\\u00fc\\t\n")
    assert read_settings(str(conf), (("maxIndexNum", "3"), ("maxHashSlotNum", "4"))) == Settings(
        {"a": "1 ", "maxIndexNum": "3", "maxHashSlotNum": "4", "name": "ÿü\t"}, path=str(conf)
    )
    assert read_settings(None, ()) == Settings({}, from_file=False)
    assert Settings().from_file


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (rb"brokerName = C:\users", "needs four hexadecimal digits"),
        (b"storePathRootDir=/data\0\0\n", "is torn: a value holds a byte of zero"),
    ],
)
def test_what_java_does_not_read_and_what_is_torn(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_bytes(content)
    with pytest.raises(WrongSettings, match=said):
        read_settings(str(tmp_path / "broker.conf"))


def test_values_are_those_that_a_broker_takes() -> None:
    """As MixAll#properties2Object of 5.3.3 and 5.5.0 set them, called for these texts."""
    assert [Settings({"maxIndexNum": text}).number("maxIndexNum") for text in ("+7", "7 ", "0x7")] == [
        7,
        *[20_000_000] * 2,
    ]
    settings = Settings({"yes": "TRUE", "blank": "true ", "no": "yes", "t": " x ", "enableCompaction": "no"})
    flags = {
        name: settings.flag(name) for name in ("yes", "blank", "no", "absent", "enableCompaction", "timerWheelEnable")
    }
    assert [name for name, value in flags.items() if value] == ["yes", "timerWheelEnable"]
    assert (settings.text("t"), settings.text("absent"), settings.text("deleteWhen")) == ("x", "", "04")
    sizes = Settings({"maxIndexNum": "many", "brokerName": "many", "deleteWhen": "04 "})
    assert list(sizes.not_taken()) == [("maxIndexNum", "many")]
    assert Settings({"p": " /a, /b,,/a "}).paths("p") == ["/a", " /b"]


def test_a_value_that_shapes_files_and_is_not_taken() -> None:
    with pytest.raises(WrongSettings, match=r"maxIndexNum is not an integer: found 7 , .* \(b.conf\)"):
        Settings({"maxIndexNum": "7 "}, path="b.conf").checked()
    conf = Settings({"fileReservedTime": "2147483648", "deleteWhen": "04"})
    assert (conf.number("fileReservedTime"), list(conf.not_taken())) == (72, [("fileReservedTime", "2147483648")])


# -------------------------------------------------------------------------------------------------------- setting names
def test_every_setting_that_counts_here_is_a_brokers() -> None:
    shaping = set(Settings().of_files()) | set(QUEUE_STORE_SETTINGS)
    assert {EFFECTS[name] for name in shaping} <= {"files", "kept"}
    assert {"flushDiskType", "brokerClusterName", "listenPort", "namesrvAddr"} <= set(EFFECTS)
    assert set(EFFECTS.values()) == {"files", "kept", "delivered", ""}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("maxIndexNumm", ["maxIndexNum"]),
        ("MAXINDEXNUM", ["maxIndexNum"]),
        ("mappedFileSizeCommitlog", ["mappedFileSizeCommitLog"]),
        ("qqqqqqqq", []),
    ],
)
def test_a_name_that_was_mistyped(name: str, meant: list[str]) -> None:
    assert nearest_names(name)[:1] == meant
    with pytest.raises(WrongSettings, match="no such setting: found"):
        read_settings(None, ((name, "1"),))


def test_releases_that_lack_a_setting() -> None:
    for name, lacking in (
        ("timerWheelEnable", ("4.6", "4.8", "4.9")),
        ("forceVerifyPropCRC", ("4.6", "4.8", "4.9", "5.0", "5.1")),
        ("useSeparateStorePathForRocksdbCQ", ("4.6", "4.8", "4.9", "5.0", "5.1", "5.3")),
        ("maxIndexNum", ()),
        ("brokerId", ()),
        ("of.no.table", ()),
    ):
        assert tuple(version for version in VERSIONS if not is_known(name, version)) == lacking


def test_what_is_judged_depends_on_the_release(tmp_path: Path) -> None:
    conf = Settings({"enableControllerMode": "true", "maxIndexNum": "7"})
    assert find_store(str(tmp_path), conf, "4.9.8").settings.given == {"maxIndexNum": "7"}
    assert find_store(str(tmp_path), conf).settings == find_store(str(tmp_path), conf, "5.1").settings == conf


def test_a_setting_without_effect_changes_nothing() -> None:
    assert not EFFECTS["flushDiskType"]
    names = ("maxIndexNum", "checkCRCOnRecover", "timerWheelEnable", "maxRecoveryCommitlogFiles")
    assert [EFFECTS[name] for name in names] == ["files", "kept", "delivered", ""]


# --------------------------------------------------------------------------------------------------------- broker rules
_ROOT = Path(storeformat.__file__).parents[1]
PROGRAM = "".join(path.read_text() for part in ("jobs", "storeformat") for path in (_ROOT / part).rglob("*.py"))
_4_9 = {"corrects_delay_offsets", "reads_several_paths"}
_5_0 = _4_9 | {
    "may_read_long_topics", "wants_dup_info", "deletes_at_once", "trusts_clean_stop",
    "reads_batches_and_timers",
}  # fmt: skip
_5_1 = _5_0 | {"reads_long_topics", "passes_over_directories"}
_5_3 = _5_1 | {
    "deletes_empty_file", "wants_property_crc", "trims_settings", "knows_rocksdb", "dispatch_uncommitted",
    "starts_at_furthest_queue", "takes_offsets_file",
}  # fmt: skip

_5_5 = _5_3 | {
    "dispatches_after_queues", "bounded_recovery", "index_tags", "checkpoint_queue_offset", "restores_databases",
}  # fmt: skip


@pytest.mark.parametrize(
    ("release", "flags"),
    [
        ("4.7.0", {"split_parser", "count_every_put"}),
        ("4.9.0", {"split_parser"}),
        ("4.9.8", _4_9),
        ("5.0.0", _5_0 | {"leaves_gaps"}),
        ("5.1.0", _5_0 | {"leaves_gaps"}),
        ("5.1.4", _5_1),
        ("5.3.3", _5_3),
        ("5.5.0", _5_5),
    ],
)  # fmt: skip
def test_flags_of_a_release(release: str, flags: set[str]) -> None:
    rules = rules_of(rules_of_release(release))
    assert {name for name, value in vars(rules).items() if value is True} == flags
    assert [name for name in flags if f"rules.{name}" not in PROGRAM] == []  # each is asked


_SINCE_5_3_2 = {"starts_at_furthest_queue", "takes_offsets_file", "dispatches_after_queues"}
_WITHIN = _SINCE_5_3_2 | {
    "corrects_delay_offsets", "may_read_long_topics", "reads_long_topics", "passes_over_directories",
    "deletes_empty_file", "leaves_gaps",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "version", "exact"),
    [
        ("4.5.2", "4.6", set()), ("4.7.0", "4.6", set()), ("4.7.1", "4.8", set()), ("4.9.1", "4.9", set()),
        ("V4_9_8", "4.9", {"corrects_delay_offsets"}),
        ("rocketmq-all-5.0.0", "5.0", {"corrects_delay_offsets", "leaves_gaps"}),
        ("5.1.0", "5.0", {"corrects_delay_offsets", "may_read_long_topics", "reads_long_topics",
                          "passes_over_directories"}),
        ("5.2", "5.3", None), ("5.4", "5.5", None), ("5.5.1-SNAPSHOT", "5.5", _WITHIN - {"leaves_gaps"}),
        ("release-5.3.1", "5.3", _WITHIN - {*_SINCE_5_3_2, "leaves_gaps"}),
        ("5.6.0", "5.5", _WITHIN - {"leaves_gaps"}),
    ],
)  # fmt: skip
def test_a_release_as_people_write_it(text: str, version: str, exact: set[str] | None) -> None:
    rules = rules_of(text)
    assert rules.version == version
    if exact is None:
        assert rules == rules_of(version)
    else:
        assert {name for name in _WITHIN if getattr(rules, name)} == exact


@pytest.mark.parametrize("text", ["", "5", "6.0.0", "3.2.6", "5.x", "4.7", "latest", "5.3.3.1"])
def test_what_is_no_release(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no release of|give all three numbers"):
        rules_of(text)


@pytest.mark.parametrize(
    ("topic", "excluded_in"),
    [
        ("Orders", set()),
        ("%RETRY%group", {"5.1", "5.3", "5.5"}),
        ("SCHEDULE_TOPIC_XXXX", {"5.1", "5.3", "5.5"}),
        ("rmq_sys_wheel_timer", {"5.1", "5.3", "5.5"}),
        ("rmq_sys_other", {"5.3", "5.5"}),
    ],
)
def test_topics_without_light_queues(topic: str, excluded_in: set[str]) -> None:
    """``ConsumeQueue#checkMultiDispatchQueue`` names the timer's topic in 5.1.2, and all ``rmq_sys_`` from 5.2.0 on."""
    found = {
        version
        for version in VERSIONS
        for rules in [rules_of(version)]
        if topic in rules.no_light_topics or topic.startswith(rules.no_light_prefixes)
    }
    assert found == excluded_in


# -------------------------------------------------------------------------------------------------------- format tables
DOCUMENT = Path(storeformat.__file__).with_name("FORMAT.md").read_text()
Field = tuple[int, str, str]


def documented(name: str) -> list[Field]:
    """The rows of the table after a comment with this name: offset, type and field."""
    _, _, rest = DOCUMENT.partition(f"<!-- fields: {name} -->\n")
    rows = [line.strip("| ").split("|") for line in rest.split("\n\n")[0].splitlines()[2:]]
    return [(int(row[0]), row[1].strip(), row[2].strip()) for row in rows]


def of_dtype(kind: np.dtype[np.void]) -> list[Field]:
    found = []
    for name in kind.names or ():
        of, offset = kind.fields[name][:2] if kind.fields else (kind, 0)
        assert of.kind == "V" or of.byteorder == ">", name
        text = f"bytes {of.itemsize}" if of.kind == "V" else f"{of.kind}{8 * of.itemsize}"
        found.append((int(offset), text, name))
    return found


def of_struct(layout: struct.Struct, names: list[str]) -> list[Field]:
    found, offset = [], 0
    assert layout.format[0] == ">"
    for (count, code), name in zip(re.findall(r"(\d*)([ixq])", expanded(layout.format)), names, strict=True):
        size = {"i": 4, "q": 8, "x": 1}[code] * int(count or 1)
        found.append((offset, f"bytes {size}" if code == "x" else f"i{8 * size}", name))
        offset += size
    return found


def expanded(layout: str) -> str:
    """``>6q`` as ``>qqqqqq``; bytes that are skipped stay together."""
    return re.sub(r"(\d+)([iq])", lambda found: found[2] * int(found[1]), layout)


TIMERCHECK = "last_read_time_ms last_timer_log_flush_pos last_timer_queue_offset master_timer_queue_offset data_version"
LAYOUTS = {
    "record head": of_dtype(message.head_dtype(message.HOST_V4, message.HOST_V4)),
    "dledger entry": of_struct(
        ENTRY_HEAD, ["magic", "size", "index", "term", "pos", "channel, chainCrc, bodyCrc", "body_length", "total_size"]
    ),
    "consume-queue unit": of_dtype(consume_queue.UNIT),
    "batch unit": of_dtype(batch_consume_queue.UNIT),
    "extended unit": of_dtype(consume_queue_ext.UNIT_HEAD),
    "rocksdb value": of_dtype(rocksdb_queues.VALUE),
    "index header": of_dtype(index_file.HEADER),
    "index entry": of_dtype(index_file.ENTRY),
    "checkpoint": of_struct(checkpoint.FIELDS, [field.name for field in fields(checkpoint.StoreCheckpoint)]),
    "timercheck": of_struct(timer_files.CHECK, TIMERCHECK.split()),
    "timer unit": of_dtype(timer_files.UNITS.dtype),
}


def test_every_table_of_fields_is_compared() -> None:
    assert re.findall(r"<!-- fields: (.*) -->", DOCUMENT) == list(LAYOUTS)


@pytest.mark.parametrize("name", LAYOUTS)
def test_documented_fields_are_those_of_the_code(name: str) -> None:
    assert documented(name) == LAYOUTS[name]


def test_every_module_that_is_named_exists() -> None:
    root = Path(storeformat.__file__).parent
    linked = re.findall(r"\]\(([^)]+)\)", DOCUMENT)
    assert len(set(linked)) > 10
    assert [path for path in sorted(set(linked)) if not (root / path).is_file()] == []


# ------------------------------------------------------------------------------------------------------------- doctests
WITH_EXAMPLES = (
    "index.index_file.key_hash", "javacompat.java_hash", "javacompat.parse_int", "store.broker_rules.parse_properties",
    "queues.consume_queue.pack_units", "queues.consume_queue.parse_units", "record.bodies.uncompressed",
    "record.decode.decode", "record.message_ids.parse_offset_message_id",
)  # fmt: skip


def test_examples_give_what_they_say() -> None:
    found = set()
    for info in pkgutil.walk_packages(storeformat.__path__, "storeformat."):
        if "numba" in info.name or info.name.endswith("machine_words"):
            continue  # may be missing, and have none
        for example in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(info.name)):
            if example.examples:
                assert doctest.DocTestRunner().run(example).failed == 0, example.name
                found.add(example.name)
    assert found >= {f"storeformat.{name}" for name in WITH_EXAMPLES}


# -------------------------------------------------------------------------------------------------------- arrays
def test_numbers_that_do_not_fit_32_bits_are_refused() -> None:
    fits = np.array([-(1 << 31), (1 << 31) - 1])
    assert narrow(fits).dtype == np.int32
    assert narrow(fits).tolist() == fits.tolist()
    for number in (-(1 << 31) - 1, 1 << 31):
        with pytest.raises(OverflowError, match=r"^a number does not fit 32 bits$"):
            narrow(np.array([number]))


@pytest.mark.parametrize("count", [1 << 16, (1 << 16) + 1])
def test_rows_of_one_group_stay_in_their_order(count: int) -> None:
    groups = np.array([5, count - 1, 5, 0, count - 1])
    assert stable_order(groups, count).tolist() == [3, 0, 2, 1, 4]


def test_offsets_are_summed_modulo_64_bits() -> None:
    assert sum_of_offsets(np.array([(1 << 63) - 1, 1, 7])) == (1 << 63) + 7
    assert sum_of_offsets(np.array([-1])) == (1 << 64) - 1
    assert sum_of_offsets(np.zeros(0, np.int64)) == 0


def test_an_offset_is_lost_from_the_begin_of_a_damaged_range_to_before_its_end() -> None:
    log = LogExtent(0, 1000, ((100, 200), (300, 301)))
    assert log.lost(np.array([99, 100, 199, 200, 300, 301])).tolist() == [False, True, True, False, True, False]
    assert not LogExtent(0, 1000).lost(np.array([100])).any()


@given(ranges=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), max_size=8), every=st.integers(1, 12))
def test_ranges_are_cut_at_every_multiple(ranges: list[tuple[int, int]], every: int) -> None:
    expected = []
    for row, (begin, length) in enumerate(ranges):
        places = range(begin, begin + length)
        for number in sorted({place // every for place in places}):
            inside = [place for place in places if place // every == number]
            expected.append((row, number, inside[0], inside[-1] + 1))
    begins = np.array([begin for begin, _ in ranges], np.int64)
    ends = begins + np.array([length for _, length in ranges], np.int64)
    found = cut_ranges(begins, ends, every)
    assert list(zip(*(column.tolist() for column in found), strict=True)) == expected


# -------------------------------------------------------------------------------------------------------- errors
def test_an_error_says_what_where_and_both_sides() -> None:
    error = DamagedLog("no record", path="/log", offset=7, found=0, expected=1, advice="look")
    assert str(error) == "no record: found 0, expected 1 (/log, offset 7)"
    assert str(StoreFormatError("plain")) == "plain"
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), back.advice, back.exit_code) == (DamagedLog, str(error), "look", error.exit_code)


def test_a_defect_is_its_code_and_says_itself_in_words() -> None:
    assert [int(defect) for defect in RecordDefect] == list(range(len(RecordDefect)))
    assert len({defect.words for defect in RecordDefect}) == len(RecordDefect)
    assert f"{RecordDefect(6)}" == "a body does not match its CRC [BODY_CRC]"
    assert pickle.loads(pickle.dumps(RecordDefect.BODY_CRC)) is RecordDefect.BODY_CRC


# ---------------------------------------------------------------------------------------------- properties files
@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("a=1\r\nb = 2\r\n\r\n", {"a": "1", "b": "2"}),
        ("a=1\rb=2", {"a": "1", "b": "2"}),
        ("  a\t=\t1  \n# c=3\n  ! d=4\n#e=5\\\nf=6", {"a": "1  ", "f": "6"}),
        ("a:1\nb 2\nc : 3\nd\n=4", {"a": "1", "b": "2", "c": "3", "d": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("delays=1s \\\n   5s \\\r\n10s\nb=2\\", {"delays": "1s 5s 10s", "b": "2"}),
        ("path=/a\\ b\nc\\=d=e=f\ng=h\\\\\ni=j", {"path": "/a b", "c=d": "e=f", "g": "h\\", "i": "j"}),
        ("a=1 # no comment", {"a": "1 # no comment"}),
        ("a=\u2028\x0b1", {"a": "\u2028\x0b1"}),
    ],
)
def test_a_file_of_properties(text: str, pairs: dict[str, str]) -> None:
    assert parse_properties(text) == pairs


@given(st.text())
def test_a_value_is_read_as_it_was_written(text: str) -> None:
    assert parse_properties(f"name={as_written(text)}") == {"name": text}


# ---------------------------------------------------------------------------------------------------- javacompat


INDEX_HASHES = {  # stored in index entries by 5.5.0
    "TopicT#U0": 1902675303,
    "TopicT#k1": 1902674620,
    "TopicT#T#a||b": 678982862,
    "TopicT#T#a b": 1917762858,
    "TopicT#T#z": 1146606509,
}
TAGS_CODES = {  # stored in consume queues by 4.9.8
    "TagA": 2598919,
    "标签😀": 825518074,
    "😀": 1772899,
    "polygenelubricants": -(1 << 31),
    "": 0,
}


@pytest.mark.parametrize(("text", "expected"), TAGS_CODES.items())
def test_tag_hashes_that_real_brokers_stored(text: str, expected: int) -> None:
    assert java_hash(text) == java_hash(text.encode()) == java_rules.hash_code(text) == expected


def test_columns_of_broker_hashes() -> None:
    hashes = java_hashes(pa.array(TAGS_CODES))
    assert hashes.dtype == np.int32
    assert hashes.tolist() == list(TAGS_CODES.values())
    assert index_key_hashes(java_hashes(pa.array(INDEX_HASHES))).tolist() == list(INDEX_HASHES.values())


# What new String(bytes, UTF_8) gives on JDK 17.
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"plain", "plain"),
        ("标签😀".encode(), "标签😀"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0A", "\ufffdA"),
        (b"\xed\xb0\x80x", "\ufffdx"),
        (b"\xed\x9f\xbf", "\ud7ff"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"\xc3", "\ufffd"),
        (b"\xe4\xb8", "\ufffd"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"\xf0\x90\x80", "\ufffd"),
    ],
)
def test_malformed_utf8_as_the_jdk_replaces_it(data: bytes, expected: str) -> None:
    assert decode_java_utf8(data) == java_rules.new_string_utf8(data) == expected
    hashed = java_rules.hash_code(expected)
    assert java_hashes(pa.array([data, b"", data], pa.binary())).tolist() == [hashed, 0, hashed]


any_bytes = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.text(alphabet=st.characters(max_codepoint=127), max_size=60).map(str.encode),
    st.none(),
)


@settings(max_examples=3 * settings.default.max_examples, deadline=None)
@given(st.lists(any_bytes, max_size=30), st.integers(0, 5), st.sampled_from([pa.binary(), pa.large_binary()]))
def test_columns_equal_the_model(values: list[bytes | None], skipped: int, arrow_type: pa.DataType) -> None:
    column = pa.array(values, arrow_type)[skipped:]
    hashes, lengths = java_hashes_and_lengths(column)
    texts = [decode_java_utf8(value or b"") for value in values[skipped:]]
    assert hashes.tolist() == [java_rules.hash_code(text) for text in texts]
    assert lengths.tolist() == [len(text.encode("utf-16-le", "surrogatepass")) // 2 for text in texts]
    assert java_hashes(column).tolist() == hashes.tolist()
    assert (hashes.dtype, lengths.dtype) == (np.int32, np.int32)


@pytest.mark.parametrize(
    "values", [("a€"[:1].encode() + b"\xe2", b"\x82\xacb"), (b"a\xc3", b"\xa9"), (b"a\xc3", b"\xa9", b"\xa9")]
)
def test_values_that_share_a_character_are_not_read_across_their_border(values: tuple[bytes, ...]) -> None:
    expected = [java_rules.hash_code(decode_java_utf8(value)) for value in values]
    assert java_hashes(pa.array(values, pa.binary())).tolist() == expected


@pytest.mark.parametrize("size", [3, 4, 5, 7, 8, 9, 40])
def test_values_as_long_as_a_block_and_longer(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(javacompat, "_BLOCK_UNITS", 4)
    values = [("abcdéfghi" * 5)[:length] for length in (size, 1, 0, size, size)]
    assert java_hashes(pa.array(values)).tolist() == [java_rules.hash_code(text) for text in values]


def test_texts_of_a_column_as_java_reads_them() -> None:
    assert javacompat.decode_java_texts(pa.array([b"a", None, "é".encode()])).to_pylist() == ["a", None, "é"]
    malformed = pa.array([b"a", None, b"\xff", b"\xed\xa0\x80b"])
    found = javacompat.decode_java_texts(malformed)
    assert (found.to_pylist(), found.type) == (["a", None, "\ufffd", "\ufffdb"], pa.string())


def test_only_text_columns_are_hashed() -> None:
    with pytest.raises(TypeError, match=r"^a binary or string array is needed, not int64$"):
        java_hashes(pa.array([1, 2]))
    assert java_hashes(pa.array([], pa.binary())).tolist() == []


@given(st.text(max_size=30), st.lists(st.text(max_size=30), max_size=5))
def test_hash_of_joined_text(head: str, tails: list[str]) -> None:
    column = pa.array([tail.encode("utf-8", "replace") for tail in tails], pa.binary())
    joined = concat_hashes(java_hash(head), *java_hashes_and_lengths(column))
    assert joined.tolist() == [java_rules.hash_code(head + decode_java_utf8(value.as_py())) for value in column]


def test_index_key_hash_of_the_smallest_int_is_zero() -> None:
    """Where ``Math.abs`` is negative, as the model of the broker has it."""
    found = index_key_hashes([-(1 << 31), 1 - (1 << 31), -1, 0, 5, (1 << 31) - 1])
    assert (found.tolist(), found.dtype) == ([0, (1 << 31) - 1, 1, 0, 5, (1 << 31) - 1], np.int32)
    assert [java_rules.math_abs(value) for value in (-1, 5, -(1 << 31))] == [1, 5, -(1 << 31)]
    assert java_rules.wrap_int(1 << 31) == -(1 << 31)


def model_parse(text: str, bits: int) -> int | None:
    try:
        return java_rules.parse_integer(text, bits)
    except java_rules.NumberFormatError:
        return None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("3", 3), ("+3", 3), ("-3", -3), ("-0", 0), ("007", 7), ("٣", 3), ("１２", 12), ("0" * 300 + "1", 1)),
        *((str(number), number) for number in ((1 << 31) - 1, -(1 << 31))),
        *((str(number), None) for number in (1 << 31, -(1 << 31) - 1, 10**300)),
        *((text, None) for text in ("", "+", "-", "+-3", " 3", "3 ", "1_000", "0x10", "3.0", "²", "𝟑")),
    ],
)
def test_integers_as_java_parses_them(text: str, expected: int | None) -> None:
    assert parse_int(text) == model_parse(text, 32) == expected


def test_ranges_of_short_and_long() -> None:
    for bits, parse in ((16, parse_short), (64, parse_long)):
        most = (1 << bits - 1) - 1
        for number, expected in ((most, most), (most + 1, None), (-most - 1, -most - 1), (-most - 2, None)):
            assert parse(str(number)) == model_parse(str(number), bits) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a,b", ["a", "b"]), ("a,b,,", ["a", "b"]), (",a,,b", ["", "a", "", "b"]), ("", [""]), (",,", []), ("a", ["a"])],
)
def test_split_drops_empty_parts_at_the_end_only(text: str, expected: list[str]) -> None:
    assert java_split(text, ",") == java_rules.split(text, ",") == expected


def test_blank_texts() -> None:
    """As the model of the broker has it, which follows ``Character#isWhitespace``."""
    for code in range(0x10000):
        assert javacompat.is_blank(chr(code)) == java_rules.is_blank(chr(code)), hex(code)
    for text, blank in (("", True), (" \t", True), ("\u00a0", False), (" a", False)):
        assert (javacompat.is_blank(text), java_rules.is_blank(text)) == (blank, blank)
    assert java_rules.is_blank(None)
