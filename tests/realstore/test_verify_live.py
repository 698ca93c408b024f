"""``verify`` beside a broker at work: it must neither complain nor disturb; nor after that broker was killed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.real_broker import RELEASES, SETTINGS, BrokerSite
from support.rebuilding import rules_of_release, verify_here

from jobs.verify.differences import Verification

pytestmark = pytest.mark.broker

TOPICS = ("Normal", "Tagged", "Delayed", "Transaction", "Batch")
COUNTS = {"normal": 1500, "large": 3, "tagged": 600, "batch": 60, "delayed": 12, "transaction": 12}


def verified(release: str, store: Path) -> Verification:
    found = verify_here(store, SETTINGS, broker_version=rules_of_release(release))
    assert found.verdicts.differences == []
    assert not found.verdicts.counts
    return found


@pytest.mark.parametrize("release", RELEASES)
def test_broker_at_work_killed_and_started_again(release: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with BrokerSite(release, tmp_path / "site") as site, ThreadPoolExecutor(1) as senders:
        site.start(store)
        site.clients({"command": "send", "round": "zero", "create": TOPICS, "counts": {"normal": 10}})
        work = senders.submit(site.clients, {"command": "send", "round": "one", "create": [], "counts": COUNTS})
        ends = []
        while not work.done():
            ends.append(verified(release, store).reading.end)
        work.result()
        assert len(set(ends)) > 3, "the log must have grown under the verification"
        at_work = verified(release, store)
        site.kill()
        killed = verified(release, store)
        assert killed.reading.end >= at_work.reading.end
        site.start(store)
        site.clients({"command": "send", "round": "two", "create": [], "counts": {"normal": 40}})
        site.stop()
        stopped = verified(release, store)
    assert stopped.reading.records > killed.reading.records
    assert stopped.verdicts.hazards == []
    assert not any("lag" in note for note in stopped.verdicts.notes)
