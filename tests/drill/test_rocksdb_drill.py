"""A broker with RocksDB queues writes and is killed, and their database is lost: rebuild and publish make it anew, and
the broker serves every message, goes on writing and starts again. Its group begins at the time that it was set to; when
the database of offsets is lost, it starts over. Another broker changes to files, and its group goes on where it was.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.drilling import ASK, GROUP, TOPICS, Answers, Done, differences, missing, places, run_job, wipe
from support.real_broker import RELEASES, BrokerSite

pytest.importorskip("rocksdict")
pytestmark = pytest.mark.broker

ROCKSDB = {"storeType": "defaultRocksDB"}
COUNTS = {"normal": 400, "large": 3, "tagged": 60, "batch": 8}
MORE = {"normal": 40, "tagged": 20, "batch": 4}
READ, FROM_TIME = 15, 30
CREATED = ("Normal", "Tagged", "Batch")
ASK_ALL = {"command": "ask", "topics": CREATED}
EVERYTHING = "consumequeue,index,checkpoint,consumer-offsets"


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
    site: BrokerSite, store: Path, output: Path, *more: object, after_crash: bool = False, lacks: Sequence[str] = ()
) -> tuple[Done, Done]:
    rebuilt = job(site, "rebuild", store, "--output", output, *more)
    assert rebuilt.code == 0, rebuilt.said
    published = run_job("publish", "--store", store, "--from", output, *(["--after-crash"] if after_crash else []))
    assert [reason["rule"] for reason in published.report["reasons"] if reason["unsafe"]] == list(lacks)
    assert published.code == bool(lacks)
    return rebuilt, published


def test_queues_in_rocksdb_come_back(site: BrokerSite) -> None:
    store, work = site.scratch / "store", site.scratch
    site.start(store)
    sent, before = round_of(site, "one", COUNTS)
    site.clients({**GROUP, "messages": READ}, {"command": "pause", "ms": 1_000})
    assert missing(before, sent) == []
    assert run_job("publish", "--store", store, "--from", work).code == 2
    site.kill()

    # nothing of the database was flushed yet, which is no difference; but the start does not make it whole
    killed = job(site, "verify", store)
    assert (killed.report["counts"], killed.report["status"]) == ({}, "ok")
    reasons = job(site, "preflight", store).report["reasons"]
    assert [reason["rule"] for reason in reasons if reason["unsafe"]] == ["store_type"]
    wipe(store)
    gone = job(site, "verify", store)
    assert gone.code == 1
    assert {"consumequeue", "checkpoint"} <= {row["file"] for row in gone.report["differences"]}

    stored = {
        (int(name.rpartition(":")[2]), row["queueOffset"]): row["storeTimestamp"]
        for name, queue in before["queues"].items()
        for row in queue["messages"]
        if name.startswith("Normal:")
    }
    since = sorted(stored.values())[-FROM_TIME]
    rebuilt, published = replaced(
        site, store, work / "rebuilt", "--only", EVERYTHING, "--consumer-offsets-at", since, after_crash=True
    )
    assert rebuilt.report["queue_store"] == "rocksdb"
    assert published.report["replaced"] == ["consumequeue", "index", "checkpoint", "config/consumerOffset.json"]
    assert job(site, "preflight", store).code == 0

    site.start(store)
    after, group = site.clients(ASK, {**GROUP, "messages": 1, "to_the_end": True})
    assert differences(before, after) == []
    assert {(queue_id, offset) for queue_id, offset in group["took"]} == {
        place for place, time in stored.items() if time >= since
    }
    more, grown = round_of(site, "two", MORE)
    assert missing(grown, [*sent, *more]) == []
    site.stop()
    assert job(site, "verify", store).report["counts"] == {}
    (store / "config" / "consumerOffset.json").unlink()
    shutil.rmtree(store / "config" / "consumerOffsets")
    (reason,) = (reason for reason in job(site, "preflight", store).report["reasons"] if reason["unsafe"])
    assert (reason["rule"], "consumerOffsets" in reason["what"]) == ("config_lost", True)
    site.start(store)
    again, group = site.clients(ASK, {**GROUP, "messages": 1, "to_the_end": True})
    assert differences(grown, again) == []
    assert {(queue_id, offset) for queue_id, offset in group["took"]} == set(places(again, "Normal"))


def test_back_to_files(site: BrokerSite) -> None:
    """With what its databases hold: topics that have messages, and the offsets of its group."""
    store = site.scratch / "store"
    site.start(store)
    create = {"command": "send", "round": "one", "create": list(CREATED), "counts": MORE}
    _, group, before = site.clients(create, {**GROUP, "messages": READ}, ASK_ALL)
    site.stop()
    files = ("--queue-store", "file", "--only", EVERYTHING, "--topics-json")
    # the groups' own settings are in a database that brokers with files do not read
    rebuilt, _ = replaced(site, store, site.scratch / "files", *files, lacks=["config_lost"])
    assert {row["source"] for row in rebuilt.report["consumer_offsets"]} == {"database"}
    site.start(store, storeType="default")
    after, rest = site.clients(ASK_ALL, {**GROUP, "messages": 1, "to_the_end": True})
    assert differences(before, after) == []
    took, left = ({(queue_id, offset) for queue_id, offset in part["took"]} for part in (group, rest))
    assert left == set(places(before, "Normal")) - took
    assert len(left) == len(rest["took"])
    sent, grown = site.clients({"command": "send", "round": "two", "create": [], "counts": MORE}, ASK_ALL)
    assert missing(grown, sent) == []
    site.stop()
    assert job(site, "verify", store, "--set", "storeType=default").code == 0
    site.start(store, storeType="default")
    (again,) = site.clients(ASK_ALL)
    assert differences(grown, again) == []
