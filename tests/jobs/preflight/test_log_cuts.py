"""Settings that a broker does not take as they are meant, and sound records that it does not take."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.store_builder import LogBuilder
from support.store_to_start import SEGMENT, TOPICS, StoreToStart, finished

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


@pytest.mark.parametrize(("name", "text"), [("maxIndexNum", "20000000 "), ("mappedFileSizeCommitLog", "64K")])
def test_a_number_that_is_not_taken_is_a_note(store: StoreToStart, name: str, text: str) -> None:
    """What its default makes of the store, the other rules judge."""
    store.conf[name] = text
    (reason,) = store.reasons(NOT_TAKEN)
    assert (reason.unsafe, reason.what) == (
        False, f"the broker does not take {name}='{text}', and says nothing: its default stands",
    )  # fmt: skip


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
