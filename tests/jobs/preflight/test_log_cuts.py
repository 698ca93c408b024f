"""Settings that a broker does not take as they are meant, and sound records that it does not take."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.store_builder import LogBuilder
from support.store_to_start import SEGMENT, TOPICS, StoreToStart, finished

from jobs.preflight.reason import Reason

CUT, NOT_TAKEN = "log_cut", "setting_not_taken"


@pytest.mark.parametrize(
    ("setting", "trait", "since"),
    [("forceVerifyPropCRC", "property CRC", "5.3"), ("duplicationEnable", "DUP_INFO", "5.0")],
)
def test_a_setting_that_wants_more_of_records(store: StoreToStart, setting: str, trait: str, since: str) -> None:
    """From the release on that asks for it, and not where the setting is off."""
    before = {"5.3": "5.1", "5.0": "4.9"}[since]
    store.conf[setting] = "true"
    for version, expected in ((before, 0), (since, 1), ("5.5", 1)):
        store.version = version
        reasons = store.reasons(CUT)
        assert len(reasons) == expected
    assert reasons[0].unsafe
    assert f"has no {trait}, and the broker cuts the log at the first such record" in reasons[0].what
    assert reasons[0].cure == f"set {setting}=false in broker.conf"
    store.conf[setting] = "false"
    assert store.reasons(CUT) == []


def test_a_recovery_that_checks_no_crc(store: StoreToStart) -> None:
    store.conf |= {"forceVerifyPropCRC": "true", "checkCRCOnRecover": "false"}
    assert store.reasons(CUT) == []


@pytest.mark.parametrize(("version", "cut"), [("4.9", True), ("5.0", True), ("5.1", False), ("5.3", False)])
def test_a_release_that_knows_no_long_topics(tmp_path: Path, version: str, cut: bool) -> None:
    log = LogBuilder(SEGMENT)
    log.message(topic=TOPICS[0])
    first = log.message(topic="T" * 128).offset
    reasons = finished(tmp_path / "store", log, version).reasons(CUT)
    expected = f"this release: the record at offset {first} has a topic length of two bytes"
    assert [reason.what.split(",")[0] for reason in reasons] == [expected] * cut


def test_settings_with_a_blank(store: StoreToStart) -> None:
    """Sizes make it unsafe, the cure makes it safe; a setting that touches no file is a note."""
    store.conf |= {"maxIndexNum": "5000 ", "flushDiskType": "SYNC_FLUSH ", "traceOn": "true "}
    assert store.reasons(NOT_TAKEN) == [
        Reason(
            NOT_TAKEN,
            "the broker does not take maxIndexNum='5000 ', and says nothing: its default stands",
            "5000 ",
            "5000",
            "write maxIndexNum=5000, without a blank at its end, in broker.conf",
        ),
        Reason(
            NOT_TAKEN,
            "the broker does not take traceOn='true ', and says nothing: it is false",
            "true ",
            "true",
            "write traceOn=true, without a blank at its end, in broker.conf",
            unsafe=False,
        ),
    ]
    store.conf |= {"maxIndexNum": "5000", "traceOn": "true"}
    assert store.reasons(NOT_TAKEN) == []


@pytest.mark.parametrize(
    ("name", "text", "unsafe", "what"),
    [
        ("maxIndexNum", "20000000 ", False, "does not take maxIndexNum='20000000 '"),
        ("\xef\xbb\xbfmaxIndexNum", "60", True, "does not know its first setting, maxIndexNum"),
        ("\xef\xbb\xbflistenPort", "60", False, "does not know its first setting, listenPort"),
        ("deleteWhen", "04;x", False, "deletes nothing, however full the disk is"),
        ("fileReservedTime", "72 ", False, "does not take fileReservedTime='72 '"),
        ("mappedFileSizeCommitLog", "64K", True, "does not take mappedFileSizeCommitLog='64K'"),
        ("brokerRole", "SLAVE", True, "a slave needs a brokerId above 0, and has 0"),
    ],
)
def test_what_is_not_taken(store: StoreToStart, name: str, text: str, unsafe: bool, what: str) -> None:
    store.conf[name] = text
    reason = store.only_reason(NOT_TAKEN)
    assert (reason.unsafe, what in reason.what, text in reason.cure) == (unsafe, True, False)


@pytest.mark.parametrize(
    ("hours", "version", "taken"), [("04;", "5.3", True), ("04 ", "5.3", True), ("04 ", "4.9", False)]
)
def test_hours_as_java_splits_them(store: StoreToStart, hours: str, version: str, taken: bool) -> None:
    store.conf["deleteWhen"], store.version = hours, version
    assert (store.reasons(NOT_TAKEN) == []) == taken


def test_a_path_with_a_blank_before_5_2(store: StoreToStart) -> None:
    store.conf["storePathRootDir"] = f"{store.root} "
    assert store.reasons(NOT_TAKEN) == []
    store.version = "5.1"
    assert store.only_reason(NOT_TAKEN).unsafe


@pytest.mark.parametrize(
    ("name", "text", "version", "unsafe"),
    [
        ("brokerRole", "slave", "5.3", [True]), ("brokerRole", "SLAVE ", "5.1", [True]),
        ("brokerRole", "SLAVE ", "5.3", []), ("brokerRole", "SYNC_MASTER", "4.9", []),
        ("flushDiskType", "sync", "5.3", [False]),
    ],
)  # fmt: skip
def test_a_role_that_is_not_taken_makes_a_master(
    store: StoreToStart, name: str, text: str, version: str, unsafe: list[bool]
) -> None:
    store.conf |= {name: text, "brokerId": "1"}
    store.version = version
    assert [reason.unsafe for reason in store.reasons("setting_not_taken")] == unsafe
