"""Settings of a store: names as in broker.conf, values that a broker could use, names of files."""

from __future__ import annotations

import pytest

from storeformat.errors import WrongSettings
from storeformat.store.layout import StoreLayout, apply_settings, broker_name, file_name, is_file_name


def test_settings_go_by_the_names_of_broker_conf() -> None:
    given = {"mappedFileSizeCommitLog": "65536", "messageIndexEnable": "False", "enableDLegerCommitLog": "true"}
    layout = apply_settings(StoreLayout(), given)
    assert layout.mapped_file_size_commit_log == 65_536
    assert (layout.message_index_enable, layout.enable_d_leger_commit_log) == (False, True)
    assert layout.settings()["mappedFileSizeCommitLog"] == 65_536
    assert apply_settings(layout, {name: str(value) for name, value in layout.settings().items()}) == layout
    assert broker_name("store_path_d_ledger_commit_log") == "storePathDLedgerCommitLog"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mappedFileSizeCommitLog", "0"),
        ("mappedFileSizeCommitLog", str(1 << 31)),
        ("mappedFileSizeCommitLog", "1g"),
        ("maxIndexNum", "1"),
        ("messageIndexEnable", "yes"),
        ("messageDelayLevel", "soon"),
        ("maxHashSlotNum", str((1 << 31) - 1)),
    ],
)
def test_a_value_that_no_broker_could_use_is_refused(name: str, value: str) -> None:
    with pytest.raises(WrongSettings):
        apply_settings(StoreLayout(), {name: value})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("mappedFileSizeCommitLog", "0", ("mappedFileSizeCommitLog is out of range", 0, "1 to 2147483647")),
        ("mappedFileSizeConsumeQueue", "0", ("mappedFileSizeConsumeQueue is out of range", 0, "1 to 2147483647")),
        (
            "mappedFileSizeConsumeQueue",
            "2147483648",
            ("mappedFileSizeConsumeQueue is out of range", 1 << 31, "1 to 2147483647"),
        ),
        ("maxHashSlotNum", "-1", ("maxHashSlotNum is out of range", -1, "1 to 2147483647")),
        ("maxIndexNum", "1", ("maxIndexNum is out of range", 1, "2 to 2147483647")),
        ("maxIndexNum", "2147483648", ("maxIndexNum is out of range", 2147483648, "2 to 2147483647")),
        ("maxIndexNum", "1g", ("maxIndexNum is not an integer", "1g", "bytes or a count, and no blank")),
        ("messageIndexEnable", "yes", ("messageIndexEnable is not a boolean", "yes", "true or false")),
    ],
)
def test_a_refusal_says_what_was_found_and_expected(name: str, value: str, said: tuple[object, ...]) -> None:
    with pytest.raises(WrongSettings) as refused:
        apply_settings(StoreLayout(), {name: value})
    assert (refused.value.what, refused.value.found, refused.value.expected) == said


def test_the_least_that_a_broker_could_use() -> None:
    least = {"mappedFileSizeCommitLog": "1", "mappedFileSizeConsumeQueue": "1", "maxHashSlotNum": "1"}
    layout = apply_settings(StoreLayout(), {"brokerName": "b", **least, "maxIndexNum": "2"})
    assert (layout.consume_queue_file_size, layout.index_file_size) == (20, 84)
    most = apply_settings(StoreLayout(), {"mappedFileSizeCommitLog": "2147483647"})
    assert most.mapped_file_size_commit_log == 2147483647
    assert apply_settings(StoreLayout(), {"xyzzy": "5"}) == StoreLayout()


def test_a_queue_file_has_whole_units() -> None:
    layout = apply_settings(StoreLayout(), {"mappedFileSizeConsumeQueue": "1001"})
    assert layout.consume_queue_file_size == 1020
    assert StoreLayout().consume_queue_file_size == 6_000_000
    assert StoreLayout().index_file_size == 40 + 5_000_000 * 4 + 20_000_000 * 20


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("0" * 20, True),
        ("0" * 19, False),
        ("0" * 21, False),
        ("0" * 19 + "a", False),
        ("٠" * 20, False),
        ("09223372036854775807", True),
        ("09223372036854775808", False),
    ],
)
def test_a_file_is_named_by_its_offset(name: str, is_one: bool) -> None:
    assert is_file_name(name) == is_one
    assert file_name(1 << 30) == "00000000001073741824"
