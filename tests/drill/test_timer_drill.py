"""A broker is killed with timer messages pending, and its timer state is lost: rebuild and publish make it anew, and
each message that waits is delivered once; what was delivered does not come again.

Some messages are due before the crash, some after it, some in an hour. Copies of the store as it was after ``kill -9``:

    all      wheel, timer log and timercheck lost
    mixed    a wheel of another length, timercheck full of zeros, the timer log as it was
    kept     wheel and timer log lost, timercheck kept: not cured, nothing that waits is delivered
"""

from __future__ import annotations

import re
import shutil
import struct
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.drilling import copy_store, run_job
from support.real_broker import SINCE_5, BrokerSite

pytestmark = pytest.mark.broker  # some minutes: it waits until messages are due

SOON, LATER, FAR = 5, 6, 3
ASK = {"command": "ask", "topics": ["Delayed"]}


@dataclass(frozen=True)
class Night:
    """The broker after the crash: which keys were to come soon, and later, and the damaged stores."""

    site: BrokerSite
    soon: set[str]
    later: set[str]
    copies: dict[str, Path]


def served(answers: dict[str, Any]) -> Counter[str]:
    return Counter(row["keys"] for queue in answers["queues"].values() for row in queue["messages"])


def units_to_come(store: Path) -> int:
    """How many units the slots of the wheel have whose time is to come, each chain followed to its first."""
    log = b"".join(path.read_bytes() for path in sorted((store / "timerlog").iterdir()))
    count = 0
    for seconds, _, last, _, _ in struct.iter_unpack(">qqqii", (store / "timerwheel").read_bytes()):
        position = last if seconds > time.time() else -1
        while position != -1:
            count += 1
            (position,) = struct.unpack_from(">q", log, position + 4)
    return count


@pytest.fixture(scope="module", params=SINCE_5)
def night(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    scratch = tmp_path_factory.mktemp(f"timers-{request.param}")
    with BrokerSite(request.param, scratch, settings={"timerFlushIntervalMs": 1_000}) as site:
        store = site.scratch / "store"
        site.start(store)
        counts = {"soon": LATER, "brief": SOON, "timed": FAR}
        sent, _, answers = site.clients(
            {"command": "send", "round": "one", "create": ["Delayed"], "counts": counts},
            {"command": "await", "topic": "Delayed", "messages": SOON},
            ASK,
        )
        site.kill()
        keys = {kind: {row["keys"] for row in sent if row["kind"] == kind} for kind in counts}
        assert set(served(answers)) >= keys["brief"]
        copies = {name: copy_store(store, site.scratch / name) for name in ("all", "mixed", "kept")}
        for name in ("all", "kept"):
            (copies[name] / "timerwheel").unlink()
            shutil.rmtree(copies[name] / "timerlog")
        (copies["all"] / "config" / "timercheck").unlink()
        (copies["mixed"] / "timerwheel").write_bytes(b"short")
        (copies["mixed"] / "config" / "timercheck").write_bytes(bytes(4096))
        yield Night(site, keys["brief"], keys["soon"], copies)


@pytest.mark.parametrize("name", ["all", "mixed"])
def test_what_waits_is_delivered_once(night: Night, name: str) -> None:
    site, store, output = night.site, night.copies[name], night.site.scratch / f"rebuilt-{name}"
    conf = ("--broker-conf", site.broker_conf(store))
    done = run_job("rebuild", "--store", store, *conf, "--only", "timers", "--output", output)
    assert done.code == 0, done.said
    delivered = done.report["timers_delivered"]
    assert delivered >= SOON  # on a slow machine some of the later ones, too
    assert done.report["timers_waiting"] + delivered == SOON + LATER + FAR
    put = run_job("publish", "--store", store, "--from", output, "--after-crash", *conf)
    reasons = run_job("preflight", "--store", store, *conf).report["reasons"]
    unsafe = {one["rule"] for one in reasons if one["unsafe"]}
    assert put.code == bool(unsafe), put.said
    assert unsafe <= {"no_offsets"}, "what the group that asks committed, the broker may not have written yet"
    site.start(store)
    _, _, answers = site.clients(
        {"command": "await", "topic": "Delayed", "messages": SOON + LATER}, {"command": "pause", "ms": 8_000}, ASK
    )
    recovered = re.findall(r"Timer recover ok.*? currQueueOffset:(\d+)", site.store_log())
    assert int(recovered[-1]) == done.report["timer_queue_end"]
    assert served(answers) == Counter([*night.soon, *night.later])
    site.stop()
    assert units_to_come(store) == FAR
    site.start(store)
    _, again = site.clients({"command": "pause", "ms": 5_000}, ASK)
    site.kill()
    assert served(again) == served(answers)


def test_without_a_cure_what_waits_is_not_delivered(night: Night) -> None:
    """The tests before have taken their time: all but those of the next hour are due."""
    store, output = night.copies["kept"], night.site.scratch / "dry"
    conf = ("--store", store, "--broker-conf", night.site.broker_conf(store))
    told = run_job("rebuild", *conf, "--only", "timers", "--output", output, "--dry-run").report
    assert told["timers_overdue"] == SOON + LATER - told["timers_delivered"]
    assert run_job("preflight", *conf).code == 1
    night.site.start(store)
    _, answers = night.site.clients({"command": "pause", "ms": 8_000}, ASK)
    night.site.kill()
    assert sum(served(answers).values()) == told["timers_delivered"]
