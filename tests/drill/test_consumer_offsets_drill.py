"""A broker is killed, and its committed offsets are torn or lost: rebuild and publish make them anew, and every group
gets each message that it has not read. What it reads again is no more than the report says.

backup consumerOffset.json torn, its ``.bak`` as the broker had written it before the last messages were read time both
sound, and all groups set to the time of a message
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.drilling import Done, await_numbers, copy_store, run_job
from support.real_broker import SINCE_5, BrokerSite

from storeformat.store.config.consumer_offsets import DataVersion, consumer_offsets_json

pytestmark = pytest.mark.broker

SENT, FIRST, SECOND, MORE = 60, 24, 12, 8
PULL: Mapping[str, Any] = {"command": "consume", "group": "readers", "topic": "Normal"}
ASK: Mapping[str, Any] = {"command": "ask", "topics": ["Normal"]}
SEND_MORE: Mapping[str, Any] = {"command": "send", "round": "two", "create": [], "counts": {"normal": MORE}}
NAME = "consumerOffset.json"
READER = Path(__file__).with_name("LightOffsets.java")

Place = tuple[int, int]


@dataclass(frozen=True)
class Night:
    """After the crash: (queue id, offset) the group had committed, store times of all messages, damaged copies."""

    site: BrokerSite
    stored: Mapping[Place, int]
    read: set[Place]
    copies: Mapping[str, Path]


def places(took: list[list[int]]) -> list[Place]:
    return [(queue_id, offset) for queue_id, offset in took]


@pytest.fixture(scope="module", params=SINCE_5)
def night(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    scratch = tmp_path_factory.mktemp(f"offsets-{request.param}")
    with BrokerSite(request.param, scratch) as site:
        store = site.scratch / "store"
        site.start(store)
        _, first = site.clients(
            {"command": "send", "round": "one", "create": ["Normal"], "counts": {"normal": SENT}},
            {**PULL, "messages": FIRST},
        )
        await_numbers(store, NAME, "Normal@readers", first["committed"])
        backup = (store / "config" / NAME).read_bytes()
        second, _, answers = site.clients({**PULL, "messages": SECOND}, {"command": "pause", "ms": 3_000}, ASK)
        site.kill()
        stored = {
            (int(name.rpartition(":")[2]), row["queueOffset"]): row["storeTimestamp"]
            for name, queue in answers["queues"].items()
            for row in queue["messages"]
        }
        copies = {name: copy_store(store, site.scratch / name) for name in ("backup", "time")}
        torn = copies["backup"] / "config" / NAME
        torn.write_bytes(torn.read_bytes()[:40])
        torn.with_name(NAME + ".bak").write_bytes(backup)
        whole = copies["time"] / "config" / NAME
        if not whole.exists():  # the broker was killed while it replaced the file
            shutil.copy(whole.with_name(NAME + ".bak"), whole)
        yield Night(site, stored, set(places(first["took"]) + places(second["took"])), copies)


def published(night: Night, name: str, *more: object) -> Done:
    """The report of the rebuild whose offsets are in the store now."""
    store, output = night.copies[name], night.site.scratch / f"rebuilt-{name}"
    conf = ("--broker-conf", night.site.broker_conf(store))
    torn = run_job("verify", "--store", store, *conf)
    assert torn.code == 0, torn.said
    hazards = {row["hazard"] for row in torn.report["hazards"]}
    assert ("offsets_from_backup" in hazards) == (name == "backup"), torn.said  # a broker takes it without us
    done = run_job("rebuild", "--store", store, *conf, "--only", "consumer-offsets", "--output", output, *more)
    assert "asking" in done.report["groups_without_offsets"], done.said  # the broker knows it, and it never committed
    assert done.code == int(name != "time"), done.said
    put = run_job("publish", "--store", store, "--from", output, "--after-crash")
    assert (put.code, put.report["replaced"]) == (0, [f"config/{NAME}"]), put.said
    assert run_job("verify", "--store", store, *conf).code == 0
    return done


def rows(done: Done, group: str) -> dict[int, dict[str, Any]]:
    return {
        row["queue_id"]: row
        for row in done.report["consumer_offsets"]
        if (row["group"], row["topic"]) == (group, "Normal")
    }


def bound(done: Done, group: str) -> int:
    return sum(row["read_again_at_most"] for row in rows(done, group).values())


def test_from_the_backup_nobody_skips_a_message(night: Night) -> None:
    done = published(night, "backup")
    found = rows(done, "readers")
    assert {row["source"] for row in found.values()} <= {".bak", "begin of the queue"}
    assert "readers" not in done.report["groups_without_offsets"]
    night.site.start(night.copies["backup"])
    more, group = night.site.clients(SEND_MORE, {**PULL, "messages": 1, "to_the_end": True})
    night.site.kill()
    took = places(group["took"])
    new = {(row["queueId"], row["queueOffset"]) for row in more}
    assert set(took) >= (set(night.stored) - night.read) | new
    again = Counter(took).keys() & night.read
    assert 0 < len(again) <= bound(done, "readers")
    assert again == {place for place in night.read if place[1] >= found[place[0]]["offset"]}, found


def test_set_to_a_time_groups_begin_with_its_first_message(night: Night) -> None:
    time = sorted(night.stored.values())[SENT // 3]
    done = published(night, "time", "--consumer-offsets-at", time)
    night.site.start(night.copies["time"])
    (group,) = night.site.clients({**PULL, "messages": 1, "to_the_end": True})
    night.site.kill()
    assert set(places(group["took"])) == {place for place, stored in night.stored.items() if stored >= time}
    assert {row["source"] for row in rows(done, "readers").values()} == {"time"}


def test_with_light_groups_the_broker_reads_the_other_file(night: Night, tmp_path: Path) -> None:
    made = tmp_path / "lmqConsumerOffset.json"
    offsets = {("%LMQ%a", "%LMQ%one"): {0: 7}, ("Normal", "readers"): {0: 5, 3: 9}}
    made.write_bytes(consumer_offsets_json(offsets, DataVersion(), light_groups=True))
    said = night.site.run_java(str(READER), str(made))
    assert said.splitlines()[-1] == "{%LMQ%a@%LMQ%one=7} {Normal@readers={0=5, 3=9}}"
