"""Ends of queues and offsets by time as real brokers answered them, and what recovery keeps of a queue."""

from __future__ import annotations

import numpy as np
import pytest
from support import golden
from support.rebuilding import SETTINGS, rules_of_release

from jobs.contract.options import LogOptions
from jobs.log.opening import open_store
from jobs.query.offline_store import OfflineStore, recovered_units
from storeformat.queues import batch_consume_queue
from storeformat.queues import consume_queue as cq

# Where the running broker's begin is an older one than the first message that is there: a queue that was empty while
# the head of the log was deleted.
BEFORE_A_START = {"retention-4.9.8": {("TopicOrder", 1): (0, 5)}}
ANSWERED = golden.stores(lambda store: "answers" in store.entry)


@pytest.mark.golden
@pytest.mark.parametrize("store", ANSWERED, ids=str)
def test_ends_and_times_are_those_the_real_broker_answered(store: golden.GoldenStore) -> None:
    settings = tuple((name, str(store.settings[name])) for name in SETTINGS if name in store.settings)
    version = rules_of_release(store.version)
    root = str(golden.unpack(store))
    offline = OfflineStore(open_store(LogOptions(store=root, settings=settings, broker_version=version)))
    differing = {}
    for queue in store.entry["answers"]["queues"]:
        place = queue["topic"], queue["queueId"]
        with offline.view(*place) as view:
            begin, end = view.begin, view.end
        assert end == queue["maxOffset"], queue
        if begin != queue["minOffset"]:
            differing[place] = (queue["minOffset"], begin)
            continue
        times = store.entry["answers"].get("times", [])
        found = [offline.offset_by_time(*place, time)["queue_offset"] for time in times]
        assert found == queue.get("offsetByTime", []), queue
    assert differing == BEFORE_A_START.get(store.name, {})


def files_of(count: int, *holes: int) -> list[tuple[int, bytes]]:
    """Files of five units of ten bytes, with holes."""
    units = cq.parse_units(cq.pack_units(np.arange(count) * 10, [10] * count, [0] * count).tobytes()).copy()
    units[list(holes)] = 0
    return [(at * cq.UNIT_SIZE, units[at : at + 5].tobytes()) for at in range(0, count, 5)]


def recovered(files: list[tuple[int, bytes]]) -> list[int]:
    """Queue offsets; those without a message are negative."""
    units = np.concatenate(list(recovered_units(files, len(files), batch=False)))
    return np.where(units["size"] > 0, units["queue_offset"], -units["queue_offset"]).tolist()


def test_recovery_looks_at_the_last_three_files_only() -> None:
    assert recovered(files_of(20, 1)) == [0, -1, *range(2, 20)]
    assert recovered(files_of(15, 1)) == [0]
    assert recovered(files_of(20, 7)) == list(range(7))
    assert recovered([*files_of(5), (5 * cq.UNIT_SIZE, bytes(100))]) == list(range(5)), "a file that nobody wrote"


def test_pre_blanks_are_no_messages() -> None:
    blanks = cq.PRE_BLANK * 5
    assert recovered([(0, blanks), (100, files_of(5)[0][1])]) == [0, -1, -2, -3, -4, *range(5, 10)]


def test_a_unit_of_a_batch_stands_for_its_messages() -> None:
    stored = np.zeros(4, batch_consume_queue.UNIT)
    stored["size"], stored["msg_base_offset"], stored["batch_size"] = 100, [7, 10, 12, 0], [3, 2, 4, 0]
    (units,) = recovered_units([(0, stored.tobytes())], 1, batch=True)
    assert (units["queue_offset"].tolist(), units["messages"].tolist()) == ([7, 10, 12], [3, 2, 4])
