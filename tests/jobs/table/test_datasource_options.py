"""What the options of ``format("rocketmq-commitlog")`` mean, without a session."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from jobs.contract.options import LogOptions
from jobs.table.datasource import CommitLogSource
from storeformat.errors import UsageError


def log_options(**given: Any) -> LogOptions:
    return CommitLogSource(given)._log_options()


def test_the_least_that_is_needed() -> None:
    assert log_options(path="/s") == LogOptions(store="/s")
    with pytest.raises(UsageError, match="no store is named"):
        log_options()


@pytest.mark.parametrize(
    "spelled", [str, str.upper, lambda name: name.replace("_", ""), lambda name: name.replace("_", "-")]
)
def test_each_option_of_a_log(spelled: Any) -> None:
    given = {
        "path": "/s", "commitlog": "/a,/b", "broker_conf": "b.conf", "settings": "maxIndexNum=7, maxHashSlotNum=9",
        "broker_version": "4.9", "on_damage": "salvage", "until_offset": "0", "split_size": "4096",
        "keep_crc_failures": "true",
    }  # fmt: skip
    found = CommitLogSource({spelled(name): value for name, value in given.items()})._log_options()
    assert found == LogOptions(
        store="/s", commitlog=("/a", "/b"), broker_conf="b.conf",
        settings=(("maxIndexNum", "7"), ("maxHashSlotNum", "9")), broker_version="4.9", on_damage="salvage",
        until_offset=0, split_size=4096, keep_crc_failures=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    "given",
    [
        {"brokerVersion": "4.7"}, {"onDamage": "ignore"}, {"untilOffset": "-1"}, {"splitSize": "0"}, {"settings": "x"},
        {"nothing": "1"}, {"records": "all"}, {"keepCrcFailures": "perhaps"},
    ],
)  # fmt: skip
def test_values_that_mean_nothing(given: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        log_options(path="/s", **given)


def test_a_choice_may_be_written_in_any_case() -> None:
    assert log_options(path="/s", onDamage="STOP").on_damage == "stop"
