"""How many tasks a shuffle gets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jobs.report import data_size
from jobs.spark.options import CONF
from storeformat.javaproperties import parse_properties


@pytest.mark.parametrize(
    ("size", "partitions"),
    [(0, 1), (1, 1), (16 << 20, 1), ((16 << 20) + 1, 2), (160 << 20, 10), (1 << 50, 2000)],
)
def test_partitions_follow_the_size_of_the_table(size: int, partitions: int) -> None:
    assert data_size.shuffle_partitions(size) == partitions


@pytest.mark.parametrize(
    ("given", "size", "found"),
    [("8", 5, 1), (None, 5, 1), ("200", 5, None), ("8", (1 << 63) - 1, None)],
)
def test_what_a_user_set_stays(given: str | None, size: int, found: int | None) -> None:
    said: dict[str, Any] = {}
    started = {} if given is None else {data_size.SHUFFLE_PARTITIONS: given}
    context = SimpleNamespace(getConf=lambda: started)
    session: Any = SimpleNamespace(sparkContext=context, conf=SimpleNamespace(set=said.__setitem__))
    data_size.fit_session(session, size)
    assert said == ({} if found is None else {data_size.SHUFFLE_PARTITIONS: found})


def test_the_default_is_that_of_the_configuration() -> None:
    settings = parse_properties((CONF / "spark-defaults.conf").read_text())
    assert settings[data_size.SHUFFLE_PARTITIONS] == data_size.OUR_DEFAULT
    assert int(settings["spark.sql.sources.parallelPartitionDiscovery.parallelism"]) <= 32  # tasks of every VACUUM
