from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from storeformat.errors import WrongSettings
from storeformat.store.broker_conf import BrokerConf, read_broker_conf
from storeformat.store.broker_rules import VERSIONS
from storeformat.store.layout import StoreLayout, apply_settings, broker_name
from storeformat.store.queue_places import QUEUE_STORE_SETTINGS
from storeformat.store.setting_names import EFFECTS, is_known, nearest_names
from storeformat.store.store import find_store


def test_every_setting_that_counts_here_is_a_brokers() -> None:
    shaping = {broker_name(field.name) for field in fields(StoreLayout)} | set(QUEUE_STORE_SETTINGS)
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
        read_broker_conf(None, ((name, "1"),))


def test_at_most_three_names_are_offered() -> None:
    known = [name for name in EFFECTS if name.startswith("tieredStoreGroupCommit")]
    assert len(known) > 3
    assert len(nearest_names("tieredStoreGroupCommi")) == 3


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
    conf = BrokerConf({"enableControllerMode": "true", "maxIndexNum": "7"})
    assert find_store(str(tmp_path), conf, "4.9.8").conf.given == {"maxIndexNum": "7"}
    assert find_store(str(tmp_path), conf).conf == find_store(str(tmp_path), conf, "5.1").conf == conf


def test_a_setting_without_effect_changes_nothing() -> None:
    assert apply_settings(StoreLayout(), {"flushDiskType": "SYNC_FLUSH"}) == StoreLayout()
    assert not EFFECTS["flushDiskType"]
    names = ("maxIndexNum", "checkCRCOnRecover", "timerWheelEnable", "maxRecoveryCommitlogFiles")
    assert [EFFECTS[name] for name in names] == ["files", "kept", "delivered", ""]
