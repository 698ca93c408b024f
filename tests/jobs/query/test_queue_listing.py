"""``query list``: the messages of a topic in the order of its queues, from real stores and from planted ones."""

from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support import golden
from support.golden import GoldenStore
from support.rebuilding import SETTINGS, rebuild_here, rules_of_release
from support.store_builder import LogBuilder, Placed

from jobs.contract.options import QueryOptions
from jobs.log.opening import open_store
from jobs.query import offline_store, query, queue_listing
from jobs.query.offline_store import OfflineStore
from jobs.query.queue_listing import Listing
from jobs.spark.runner import Runner
from storeformat.errors import MissingInput, UsageError
from storeformat.log.segments import Segment
from udfs.table.find_messages import Wanted


def listed(root: Path, settings: tuple[tuple[str, str], ...] = (), **more: Any) -> dict[str, Any]:
    options = QueryOptions(store=str(root), settings=settings, kind="list", **{"topic": "T", "most": 10**6, **more})
    return query.by_list(options, OfflineStore(open_store(options)), None)


def offsets(answer: dict[str, Any]) -> list[int]:
    return [row["commit_log_offset"] for row in answer["messages"]]


def with_queues(log: LogBuilder, tmp_path: Path, **settings: int) -> Path:
    root = log.write(tmp_path / "store")
    built = Path(rebuild_here(root, tmp_path / "work", settings, only=("consumequeue",)).directory)
    (built / "consumequeue").rename(root / "consumequeue")
    return root


@pytest.fixture
def placed() -> tuple[LogBuilder, list[Placed]]:
    """Two queues of T, and other topics, in several segments."""
    log = LogBuilder(4096)
    mine = []
    for number in range(60):
        log.message(topic="Other", body=bytes(number % 7))
        mine.append(
            log.message(topic="T", queue_id=number % 3 // 2, body=b"%d" % number, store_timestamp=1000 + number)
        )
    return log, mine


@pytest.mark.golden
@pytest.mark.parametrize("store", golden.stores(lambda store: store.is_plain)[::4], ids=str)
def test_a_real_store_lists_what_its_log_has(store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline_store, "_UNITS_AT_A_TIME", 7)
    root = golden.unpack(store)
    settings = tuple((name, str(store.settings[name])) for name in SETTINGS if name in store.settings)
    options = QueryOptions(
        store=str(root), settings=settings, kind="key", max_messages=10**6,
        broker_version=rules_of_release(store.version),
    )  # fmt: skip
    offline = OfflineStore(open_store(options))
    rows = query.find(options, offline, Runner(), Wanted())
    topics = sorted(path.name for path in (root / "consumequeue").iterdir())
    assert topics
    for topic in topics:
        own = [row for row in rows if row["topic"] == topic and row["dispatched"]]
        own.sort(key=lambda row: (row["queue_id"], row["commit_log_offset"]))
        found = listed(root, settings, topic=topic)["messages"]
        assert [row for row in own if row in found] == found
        assert len(found) == len(own) or store.name.startswith(("lag-killed", "recreate")), "a lag, an earlier life"


def test_in_the_order_of_the_queues(tmp_path: Path, placed: tuple[LogBuilder, list[Placed]]) -> None:
    log, mine = placed
    root = with_queues(log, tmp_path, mappedFileSizeConsumeQueue=200)
    by_queue = sorted(mine, key=lambda one: (one.message.queue_id, one.offset))
    assert offsets(listed(root)) == [one.offset for one in by_queue]
    assert offsets(listed(root, most=5)) == [one.offset for one in by_queue[:5]]
    second = [one for one in mine if one.message.queue_id == 1]
    assert offsets(listed(root, queue_id=1)) == [one.offset for one in second]
    some = [one.offset for one in second if 1010 <= (one.message.store_timestamp or 0) <= 1030]
    assert offsets(listed(root, queue_id=1, begin=1010, end=1030)) == some
    with pytest.raises(MissingInput, match="no consume queue"):
        listed(root, topic="Nobody")


def test_a_group_goes_on_where_it_committed(tmp_path: Path, placed: tuple[LogBuilder, list[Placed]]) -> None:
    log, mine = placed
    root = with_queues(log, tmp_path)
    (root / "config").mkdir()
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": {"T@g": {"0": 38, "1": 19}}}))
    queues = [[one.offset for one in mine if one.message.queue_id == queue_id] for queue_id in (0, 1)]
    assert offsets(listed(root, group="g", not_consumed=True)) == queues[0][38:] + queues[1][19:]
    assert offsets(listed(root, group="nobody", not_consumed=True)) == queues[0] + queues[1]
    with pytest.raises(UsageError, match="go together"):
        listed(root, group="g")


def test_a_unit_of_a_damaged_message_is_counted(tmp_path: Path, placed: tuple[LogBuilder, list[Placed]]) -> None:
    log, mine = placed
    root = with_queues(log, tmp_path)
    segment = root / "commitlog" / f"{mine[5].offset // 4096 * 4096:020d}"
    data = bytearray(segment.read_bytes())
    at = mine[5].offset % 4096
    data[at + 8] ^= 1  # its CRC
    data[mine[7].offset - mine[5].offset + at + 1] ^= 1  # the length of another
    segment.write_bytes(data)
    answer = listed(root)
    assert answer["lost_units"] == 2
    assert sorted(offsets(answer)) == [one.offset for one in mine if one not in (mine[5], mine[7])]


def test_messages_that_wait(tmp_path: Path) -> None:
    log = LogBuilder()
    real = {"REAL_TOPIC": "T", "REAL_QID": "3"}
    half = [log.message(topic="RMQ_SYS_TRANS_HALF_TOPIC", properties=real) for _ in range(2)][1:]
    log.message(topic="RMQ_SYS_TRANS_OP_HALF_TOPIC", tags="d", body=b"0,")
    ended = log.message(topic="RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", properties=real)
    end = {"TRANS_OFFSET": str(ended.offset)}
    log.message(topic="RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", body=b"\0", properties=end)
    delayed = log.message(topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties={**real, "DELAY": "3"}, body=b"later")
    log.message(topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties={**real, "REAL_TOPIC": "U", "DELAY": "3"})
    dead = log.message(topic="%DLQ%g", properties={"RETRY_TOPIC": "T"})
    root = with_queues(log, tmp_path)
    answer = listed(root, waiting=True)
    assert offsets(answer) == [delayed.offset, *(one.offset for one in half), dead.offset]
    texts = [row["waits_for"] for row in answer["messages"]]
    assert "delivery due" in texts[0]
    assert texts[1].endswith("to commit it or to roll it back")
    assert texts[2].startswith("dead letter in %DLQ%g:0 at 0")
    assert offsets(listed(root, waiting=True, queue_id=3)) == offsets(answer)[:2]
    assert "body" not in answer["messages"][0]
    assert [row["body"] for row in listed(root, waiting=True, bodies=True)["messages"]] == ["later", "", ""]


def test_messages_that_wait_no_longer(tmp_path: Path) -> None:
    """A committed half message, a delivered and a rolled one, and one that waits to be consumed again are left out,
    whenever their copies were stored; the group that has yet to consume another's copy is not forgotten.
    """
    log = LogBuilder()
    half, timer, delayed = "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"
    real = {"REAL_TOPIC": "T", "REAL_QID": "0"}
    retried = {"REAL_TOPIC": "%RETRY%g", "REAL_QID": "0", "RETRY_TOPIC": "T", "DELAY": "3"}
    for topic, key, properties in (
        (half, "committed", real), (timer, "rolled", real), (delayed, "delivered", {**real, "DELAY": "3"}),
        (delayed, "again", retried), (delayed, "of h", {**retried, "REAL_TOPIC": "%RETRY%h"}),
    ):  # fmt: skip
        log.message(topic=topic, uniq_key=key, properties=properties, store_timestamp=1000)
    late = {"store_timestamp": 9000}
    log.message(topic="T", uniq_key="committed", **late)
    rolled = log.message(topic=timer, uniq_key="rolled", properties=real, store_timestamp=2000)
    log.message(topic="T", uniq_key="delivered", **late)
    again = log.message(topic="%RETRY%g", uniq_key="again", properties={"RETRY_TOPIC": "T"}, store_timestamp=3000)
    log.message(topic="%RETRY%g", uniq_key="of h", **late)
    of_h = log.records[4]
    root = with_queues(log, tmp_path)
    answer = listed(root, waiting=True, end=5000)
    assert offsets(answer) == [of_h.offset, rolled.offset, again.offset]
    shutil.rmtree(root / "consumequeue" / "T")
    unseen = [*answer["notes"], *listed(root, waiting=True, end=5000)["notes"]]
    assert [note.partition(":")[0].split()[-1] for note in unseen] == ["%RETRY%h", "%RETRY%h", "T"]


@pytest.mark.parametrize(
    ("units", "windows"),
    [
        ([], []),
        ([(0, 100), (4196, 50)], [(0, [0, 1])]),
        ([(0, 100), (4197, 50)], [(0, [0]), (0, [1])]),
        ([(9_800, 100), (9_900, 100), (10_000, 50)], [(0, [0, 1]), (10_000, [2])]),
        ([(9_800, 100), (9_950, 51), (10_100, 50)], [(0, [0]), (10_000, [2])]),
        ([(19_950, 50), (20_000, 10), (30_000, 10)], [(10_000, [0])]),
        ([(9_950, 51)], []),
        ([(100, 10), (105, 200), (110, 10)], [(0, [0, 1, 2])]),
    ],
)
def test_records_that_are_near_are_read_at_once(
    units: list[tuple[int, int]], windows: list[tuple[int, list[int]]]
) -> None:
    offline: Any = SimpleNamespace(
        store=SimpleNamespace(segments=[Segment("a", 0, 10_000), Segment("b", 10_000, 10_000)])
    )
    listing = Listing(offline, QueryOptions(store="S", kind="list"))
    offsets, sizes = (np.array([unit[at] for unit in units], np.int64) for at in (0, 1))
    found = listing._windows(offsets, sizes)
    assert [(segment.base, numbers.tolist()) for segment, numbers in found] == windows


def test_what_half_messages_an_op_message_ends(tmp_path: Path) -> None:
    log = LogBuilder()
    log.message(topic="RMQ_SYS_TRANS_HALF_TOPIC", properties={"REAL_TOPIC": "T", "REAL_QID": "3"})
    ops = [
        log.message(topic="RMQ_SYS_TRANS_OP_HALF_TOPIC", queue_id=queue_id, tags="d", body=body, store_timestamp=time)
        for queue_id, body, time in ((0, b"0,12,", 1000), (0, b"x,,7", 2000), (1, b"", 3000), (1, b"0", 4000))
    ]
    log.message(topic="RMQ_SYS_TRANS_OP_HALF_TOPIC", tags="d", body=zlib.compress(b"5,"), sys_flag=1)  # no broker's
    root = with_queues(log, tmp_path)
    options = QueryOptions(store=str(root), kind="list", topic="T", begin=9000, end=9000)
    ended = Listing(OfflineStore(open_store(options)), options)._ended_half()
    first, second, _, last = (one.offset for one in ops)
    assert ended == {(0, 0): first, (0, 12): first, (0, 7): second, (1, 0): last}


def test_without_half_messages_op_messages_are_not_read(tmp_path: Path) -> None:
    log = LogBuilder()
    log.message(topic="RMQ_SYS_TRANS_OP_HALF_TOPIC", tags="d", body=b"0")
    options = QueryOptions(store=str(with_queues(log, tmp_path)), kind="list", topic="T")
    assert Listing(OfflineStore(open_store(options)), options)._ended_half() == {}


def test_bodies_are_plain_where_they_can_be() -> None:
    stored = [zlib.compress(b"one"), b"two", None, b"damaged", b""]
    table = pa.table({"body": pa.array(stored, pa.binary()), "a": range(5), "sys_flag": [1, 0, 1, 1, 0]})
    (plain,) = queue_listing._with_plain_bodies(table)
    assert plain.column_names == ["body", "a", "sys_flag"]
    assert plain["body"].to_pylist() == [b"one", b"two", None, b"damaged", b""]
    assert plain.schema.field("body").type == pa.binary()


def test_bodies_that_grow_are_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_listing, "AT_ONCE", 100)
    bodies = [zlib.compress(b"x" * 90)] * 5
    table = pa.table({"body": pa.array(bodies, pa.binary()), "sys_flag": [1] * 5, "a": range(5)})
    parts = list(queue_listing._with_plain_bodies(table))
    assert [part["a"].to_pylist() for part in parts] == [[0, 1], [2, 3], [4]]
    assert {body for part in parts for body in part["body"].to_pylist()} == {b"x" * 90}


def test_a_topic_without_queues_is_named(tmp_path: Path) -> None:
    log = LogBuilder()
    log.message(topic="T")
    with pytest.raises(MissingInput) as error:
        listed(with_queues(log, tmp_path), topic="Nobody")
    assert str(error.value) == "the store has no consume queue of this topic (Nobody)"
    assert error.value.advice == (
        "inspect lists the topics of the log; --waiting lists messages that were not delivered yet"
    )


def test_where_a_log_ends_or_is_to_end(tmp_path: Path) -> None:
    log = LogBuilder()
    placed = [log.message(topic="T") for _ in range(3)]
    root = with_queues(log, tmp_path)
    ends = {}
    for until in (None, placed[1].offset, placed[2].end + 5):
        options = QueryOptions(store=str(root), kind="list", topic="T", until_offset=until)
        ends[until] = Listing(OfflineStore(open_store(options)), options).log_end
    assert ends == {None: placed[2].end, placed[1].offset: placed[1].offset, placed[2].end + 5: placed[2].end}
