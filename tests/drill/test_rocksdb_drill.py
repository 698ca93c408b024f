"""A broker with RocksDB queues loses their database; and a broker changes its storeType and keeps its messages.

One story a release. The broker writes, is killed, its queues are removed: rebuild and publish make the database anew,
and it serves every message, goes on writing and starts again. Then its storeType changes to files, and back.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.drilling import ASK, TOPICS, Answers, Done, differences, missing, places, run_job, wipe
from support.real_broker import RELEASES, BrokerSite

pytest.importorskip("rocksdict")
pytestmark = pytest.mark.broker

ROCKSDB, FILES = {"storeType": "defaultRocksDB"}, {"storeType": "default"}
COUNTS = {"normal": 400, "large": 3, "tagged": 60, "batch": 8}
MORE = {"normal": 40, "tagged": 20, "batch": 4}


@pytest.fixture(params=RELEASES)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerSite]:
    with BrokerSite(request.param, tmp_path / "site", settings=ROCKSDB) as running:
        yield running


def job(site: BrokerSite, name: str, store: Path, *more: object) -> Done:
    return run_job(name, "--store", store, "--broker-conf", site.broker_conf(store), *more)


def round_of(site: BrokerSite, number: str, counts: dict[str, int]) -> tuple[list[dict[str, Any]], Answers]:
    create = TOPICS if number == "one" else []
    sent, answers = site.clients({"command": "send", "round": number, "create": create, "counts": counts}, ASK)
    return sent, answers


def replaced(
    site: BrokerSite, store: Path, output: Path, *more: object, after_crash: bool = False
) -> tuple[Done, Done]:
    rebuilt = job(site, "rebuild", store, "--output", output, *more)
    assert rebuilt.code == 0, rebuilt.said
    published = run_job("publish", "--store", store, "--from", output, *(["--after-crash"] if after_crash else []))
    assert published.code == 0, published.said
    return rebuilt, published


def test_queues_in_rocksdb_come_back_and_change_sides(site: BrokerSite) -> None:
    store, work = site.scratch / "store", site.scratch
    site.start(store)
    sent, before = round_of(site, "one", COUNTS)
    assert missing(before, sent) == []
    assert run_job("publish", "--store", store, "--from", work).code == 2
    site.kill()

    # the database is as far as it was flushed, and that is no difference
    assert job(site, "verify", store).code == 0
    wipe(store)
    gone = job(site, "verify", store)
    assert gone.code == 1
    assert {"consumequeue", "checkpoint"} <= {row["file"] for row in gone.report["differences"]}

    rebuilt, published = replaced(site, store, work / "rebuilt", after_crash=True)
    assert rebuilt.report["queue_store"] == "rocksdb"
    assert rebuilt.report["rocksdb_pairs"] > rebuilt.report["messages"]
    assert published.report["replaced"] == ["consumequeue", "index", "checkpoint"]
    assert job(site, "preflight", store).code == 0

    site.start(store)
    (after,) = site.clients(ASK)
    assert differences(before, after) == []
    more, grown = round_of(site, "two", MORE)
    assert missing(grown, [*sent, *more]) == []
    site.stop()
    assert job(site, "verify", store).report["counts"] == {}
    site.start(store)
    (again,) = site.clients(ASK)
    assert differences(grown, again) == []
    site.stop()

    # RocksDB to files: topics are made anew, too, since they were in RocksDB
    site.settings = FILES
    assert job(site, "preflight", store).code == 1
    rebuilt, _ = replaced(site, store, work / "files", "--queue-store", "file", "--topics-json")
    assert rebuilt.report["queue_store"] == "file"
    site.start(store)
    (in_files,) = site.clients(ASK)
    assert differences(again, in_files) == []
    third, grown = round_of(site, "three", MORE)
    assert missing(grown, [*sent, *more, *third]) == []
    assert len(places(grown, "Normal")) == len(set(places(grown, "Normal"))) == 400 + 2 * 40
    site.stop()
    assert job(site, "verify", store).report["counts"] == {}

    # and back, and the way back of that
    site.settings = ROCKSDB
    replaced(site, store, work / "rocksdb")
    site.start(store)
    (in_rocksdb,) = site.clients(ASK)
    assert differences(grown, in_rocksdb) == []
    site.stop()
    assert run_job("restore", "--store", store).code == 0
    site.settings = FILES
    site.start(store)
    (restored,) = site.clients(ASK)
    assert differences(grown, restored) == []
