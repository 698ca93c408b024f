"""Settings: names as in broker.conf, values that a broker could use, and what each release makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.rebuilding import rules_of_release

from storeformat.errors import WrongSettings
from storeformat.store.broker_rules import DEFAULT, VERSIONS, ReleaseSigns, guess_version, rules_of
from storeformat.store.layout import file_name, is_file_name
from storeformat.store.setting_names import EFFECTS, is_known, nearest_names
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


@pytest.mark.parametrize(
    ("signs", "version"),
    [
        (ReleaseSigns(), DEFAULT),
        (ReleaseSigns(has_rocksdb_store=True), "5.5"),
        (ReleaseSigns(checkpoint_tail=(0, 0, 1)), "5.5"),
        (ReleaseSigns(checkpoint_tail=(0, 1, 0)), "5.3"),
        (ReleaseSigns(checkpoint_tail=(1, 0, 0)), DEFAULT),
        (ReleaseSigns(checkpoint_tail=(1, 1)), "5.3"),
        (ReleaseSigns(checkpoint_tail=(1,)), DEFAULT),
        (ReleaseSigns(counts_every_put=True, checkpoint_tail=(0, 1, 0)), "4.6"),
        (ReleaseSigns(counts_every_put=True), "4.6"),
        (ReleaseSigns(counts_every_put=False), DEFAULT),
    ],
)
def test_what_a_store_shows(signs: ReleaseSigns, version: str) -> None:
    assert guess_version(signs)[0] == version
