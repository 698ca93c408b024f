"""A message that waits under a topic of the broker's own is found under the topic to which it belongs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import golden
from support.rebuilding import SETTINGS, rebuild_here, rules_of_release
from support.store_builder import COMMIT, LogBuilder

from jobs.contract.options import KeyOptions, LogOptions
from jobs.log.opening import open_store
from jobs.query import query
from jobs.query.offline_store import OfflineStore, recovered_units
from jobs.query.query import split_waiting
from jobs.spark.runner import Runner
from storeformat.queues import batch_consume_queue
from storeformat.queues import consume_queue as cq

SMALL = {"maxHashSlotNum": 10, "maxIndexNum": 20}
REAL = {"REAL_TOPIC": "T", "REAL_QID": "3"}
STORED = 1_700_000_000_000
SCHEDULE, TIMER, HALF, OP = (
    "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
)  # fmt: skip


def answers(log: LogBuilder, tmp_path: Path, topic: str = "T") -> dict[str, dict[str, Any]]:
    """What each way of asking for key k of a topic answers."""
    root = log.write(tmp_path / "store")
    built = Path(rebuild_here(root, tmp_path / "work", SMALL).directory)
    for name in ("index", "consumequeue"):
        (built / name).rename(root / name)
    settings = tuple((name, str(value)) for name, value in SMALL.items())
    found = {}
    for way in ("index", "scan"):
        options = KeyOptions(store=str(root), settings=settings, topic=topic, key="k", scan=way == "scan")
        found[way] = query.by_key(options, OfflineStore(open_store(options)), Runner())
    return found


@pytest.mark.parametrize(
    ("topic", "properties", "says"),
    [
        (SCHEDULE, {**REAL, "DELAY": "5"},
         "delayed message of T:3: stored 2023-11-14T22:13:20.000+00:00, delivery due 2023-11-14T22:14:20.000+00:00"),
        (TIMER, {**REAL, "TIMER_OUT_MS": str(STORED + 1_800_000)},
         "timer message of T:3: stored 2023-11-14T22:13:20.000+00:00, delivery due 2023-11-14T22:43:20.000+00:00"),
        (HALF, {**REAL, "TRAN_MSG": "true"}, "half message of T:3: stored 2023-11-14T22:13:20.000+00:00"),
        ("%RETRY%g", {"RETRY_TOPIC": "T"},
         "to be consumed again, in %RETRY%g:0 at 0: stored 2023-11-14T22:13:20.000+00:00"),
        ("%DLQ%g", {"RETRY_TOPIC": "T"}, "dead letter in %DLQ%g:0 at 0: stored 2023-11-14T22:13:20.000+00:00"),
    ],
)  # fmt: skip
def test_a_message_that_waits(tmp_path: Path, topic: str, properties: dict[str, str], says: str) -> None:
    log = LogBuilder()
    log.message(topic="T", keys="another")
    log.message(topic=topic, keys="other", properties={**properties, "REAL_TOPIC": "U", "RETRY_TOPIC": "U"})
    placed = log.message(topic=topic, keys="k", properties=properties, store_timestamp=STORED)
    if topic.startswith("%"):
        says = says.replace("at 0", f"at {placed.message.queue_offset}")
    for way, answer in answers(log, tmp_path).items():
        assert (answer["found"], answer["messages"]) == (1, []), way
        (row,) = answer["waiting"]
        assert row["commit_log_offset"] == placed.offset
        assert row["waits_for"].startswith(says)


def test_nothing_waits_for_another_topic(tmp_path: Path) -> None:
    log = LogBuilder()
    log.message(topic=SCHEDULE, keys="k", properties={**REAL, "DELAY": "5"})
    for answer in answers(log, tmp_path, "U").values():
        assert answer["found"] == 0
        assert "waiting" not in answer


def test_a_message_that_was_delivered_says_where(tmp_path: Path) -> None:
    log = LogBuilder()
    log.message(topic=SCHEDULE, keys="k", uniq_key="id", properties={**REAL, "DELAY": "1"})
    delivered = log.message(topic="T", queue_id=3, keys="k", uniq_key="id", properties={**REAL, "DELAY": "1"})
    for answer in answers(log, tmp_path).values():
        (row,) = answer["waiting"]
        assert row["waits_for"].endswith(f"; delivered at offset {delivered.offset}")
        assert [found["commit_log_offset"] for found in answer["messages"]] == [delivered.offset]


def test_what_became_of_half_messages(tmp_path: Path) -> None:
    log = LogBuilder()
    half = [log.message(topic=HALF, keys="k", properties={**REAL, "TRAN_MSG": "true"}) for _ in range(3)]
    committed = log.message(
        topic="T", queue_id=3, keys="k", sys_flag=COMMIT, prepared_transaction_offset=half[0].offset
    )
    ended = log.message(topic=OP, tags="d", body=b"0,2,")
    found = answers(log, tmp_path)
    ends = [row["waits_for"].partition("+00:00")[2] for row in found["scan"]["waiting"]]
    assert ends == [
        f"; delivered at offset {committed.offset}",
        ", waits for its producer to commit it or to roll it back",
        f"; its producer rolled it back, or the broker gave it up, at offset {ended.offset}",
    ]
    ends = [row["waits_for"].partition("+00:00")[2] for row in found["index"]["waiting"]]
    assert [end[:16] for end in ends] == ["; delivered at o", ", waits for its ", ", waits for its "]
    assert "was rolled back: --scan says which" in ends[2]


def test_the_later_copy_is_the_next_record_of_the_same_message() -> None:
    def row(offset: int, topic: str = SCHEDULE, uniq_key: str | None = "u", **more: Any) -> dict[str, Any]:
        base = {"queue_id": 0, "queue_offset": 0, "tags_code": 5, "transaction_type": "none", "store_timestamp_ms": 0}
        properties = {"REAL_TOPIC": "T", "REAL_QID": "3", "DELAY": "5"}
        return {
            **base, "commit_log_offset": offset, "topic": topic, "uniq_key": uniq_key, "properties": properties,
            "prepared_transaction_offset": 0, **more,
        }  # fmt: skip

    def ends(*rows: dict[str, Any]) -> list[str]:
        _, waiting = split_waiting(rows, "T")
        return [one["waits_for"].partition("; ")[2] for one in waiting]

    again, delivered = "stored again under SCHEDULE_TOPIC_XXXX at offset 20", "delivered at offset 30"
    assert ends(row(10), row(20), row(30, "T")) == [again, delivered]
    assert ends(row(10), row(10, "T")) == [""], "not after itself"
    assert ends(row(10), row(30, "T", "another")) == [""]
    assert ends(row(10, uniq_key=None), row(30, "T", None)) == [""], "neither has one"
    commit = {"transaction_type": "commit", "prepared_transaction_offset": 10}
    assert ends(row(10), row(30, "T", "another", **commit)) == [delivered]
    assert ends(row(11), row(30, "T", "another", **commit)) == [""]
    assert ends(row(10), row(30, "T", "another", **{**commit, "transaction_type": "rollback"})) == [""]


# Ends of queues and offsets by time as real brokers answered them, and what recovery keeps of a queue
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
