"""``query list``, and messages that wait under a topic of the broker's own and are found under theirs."""

from __future__ import annotations

import base64
import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import golden
from support.golden import GoldenStore
from support.planting import flip
from support.rebuilding import SETTINGS, rebuild_here, rules_of_release
from support.store_builder import COMMIT, LogBuilder, Placed

from jobs.contract.options import KeyOptions, ListOptions, LogOptions
from jobs.log.opening import open_store
from jobs.query import offline_store, query
from jobs.query.offline_store import OfflineStore, recovered_units
from jobs.query.query import export, split_waiting
from jobs.spark.runner import Runner
from storeformat.errors import MissingInput, Refused, UsageError
from storeformat.queues import batch_consume_queue
from storeformat.queues import consume_queue as cq
from udfs.table.find_messages import Wanted


def listed(root: Path, settings: tuple[tuple[str, str], ...] = (), **more: Any) -> dict[str, Any]:
    question = {"topic": "T", "max_messages": 10**6, **more}
    options = ListOptions(store=str(root), settings=settings, **question)
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
    log = LogBuilder(4096)
    mine = []
    for number in range(60):
        log.message(topic="Other", body=bytes(number % 7))
        mine.append(
            log.message(topic="T", queue_id=number % 3 // 2, body=b"%d" % number, store_timestamp=1000 + number)
        )
    return log, mine


@pytest.mark.golden
@pytest.mark.parametrize("store", golden.stores(lambda store: store.is_plain)[::8], ids=str)
def test_a_real_store_lists_what_its_log_has(store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline_store, "_BYTES_AT_A_TIME", 30_000)
    root = golden.unpack(store)
    settings = tuple((name, str(store.settings[name])) for name in SETTINGS if name in store.settings)
    options = KeyOptions(
        store=str(root), settings=settings, topic="", key="", max_messages=10**6,
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
    assert offsets(listed(root, max_messages=5)) == [one.offset for one in by_queue[:5]]
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


def test_a_unit_of_a_damaged_message_is_counted(tmp_path: Path, placed: tuple[LogBuilder, list[Placed]]) -> None:
    log, mine = placed
    root = with_queues(log, tmp_path)
    for one, at in ((mine[5], 8), (mine[7], 1)):  # the CRC of one, the length of another
        flip(root / "commitlog" / f"{one.offset // 4096 * 4096:020d}", one.offset % 4096 + at)
    answer = listed(root)
    assert answer["lost_units"] == 2
    assert sorted(offsets(answer)) == [one.offset for one in mine if one not in (mine[5], mine[7])]


def test_messages_that_wait(tmp_path: Path) -> None:
    log = LogBuilder()
    real = {"REAL_TOPIC": "T", "REAL_QID": "3"}
    half = [log.message(topic="RMQ_SYS_TRANS_HALF_TOPIC", properties=real) for _ in range(2)][1:]
    op = {"topic": "RMQ_SYS_TRANS_OP_HALF_TOPIC", "tags": "d"}
    log.message(**op, body=b"x,,0,", store_timestamp=1000)  # not of the time that is asked for
    log.message(
        **op, body=zlib.compress(b"1,"), sys_flag=1, store_timestamp=1 << 40
    )  # no broker's, and it could grow to gigabytes
    ended = log.message(topic="RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", properties=real)
    end = {"TRANS_OFFSET": str(ended.offset)}
    log.message(topic="RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", body=b"\0", properties=end)
    delayed = log.message(topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties={**real, "DELAY": "3"}, body=b"later")
    log.message(topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties={**real, "REAL_TOPIC": "U", "DELAY": "3"})
    dead = log.message(topic="%DLQ%g", properties={"RETRY_TOPIC": "T"})
    root = with_queues(log, tmp_path)
    answer = listed(root, waiting=True, begin=2000)
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


def test_bodies_that_grow_are_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "AT_ONCE", 100)
    bodies = [zlib.compress(b"x" * 90)] * 5
    table = pa.table({"body": pa.array(bodies, pa.binary()), "sys_flag": [1] * 5, "a": range(5)})
    parts = list(query._with_plain_bodies(table))
    assert [part["a"].to_pylist() for part in parts] == [[0, 1], [2, 3], [4]]
    assert {body for part in parts for body in part["body"].to_pylist()} == {b"x" * 90}


def test_a_body_that_its_producer_compressed_is_uncompressed_once(tmp_path: Path) -> None:
    log, sent = LogBuilder(), zlib.compress(b"order")
    log.message(topic="T", body=zlib.compress(sent), sys_flag=1)
    (row,) = listed(with_queues(log, tmp_path), bodies=True)["messages"]
    assert row["body"] == sent.decode("utf-8", "backslashreplace")


# ------------------------------------------------- --export: rows in a file, bodies as their producers had them
BODIES = [b"text", zlib.compress(b"compressed"), b"\xff\x00"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    log = LogBuilder()
    for number, body in enumerate(BODIES):
        log.message(topic="T", body=body, sys_flag=number == 1, keys=f"k{number}", properties={"a": "\u00e4"})
    log.message(topic="bare")
    return with_queues(log, tmp_path)


def exported(root: Path, name: str, **more: Any) -> dict[str, Any]:
    options = ListOptions(store=str(root), export=str(root.parent / name), **{"topic": "T", **more})
    return query.by_list(options, OfflineStore(open_store(options)), None)


def test_json_lines(root: Path) -> None:
    answer = exported(root, "out.jsonl", bodies=True)
    rows = [json.loads(line) for line in (root.parent / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert (answer["found"], [row["keys"] for row in rows]) == (3, [["k0"], ["k1"], ["k2"]])
    assert [row.get("body") for row in rows] == ["text", "compressed", None]
    assert base64.b64decode(rows[2]["body_base64"]) == BODIES[2]
    assert rows[0]["properties"]["a"] == "\u00e4"
    exported(root, "bare.jsonl", topic="bare")  # an object, too: tools take the type of a column from all rows
    assert json.loads((root.parent / "bare.jsonl").read_text(encoding="utf-8"))["properties"] == {}


def test_parquet(root: Path) -> None:
    assert exported(root, "out.parquet", bodies=True, max_messages=2)["found"] == 2
    table = pq.read_table(root.parent / "out.parquet")
    assert table["body"].to_pylist() == [b"text", b"compressed"]
    assert "body" not in pq.read_table(root.parent / "out.parquet", columns=["topic", "keys"]).column_names


def test_nothing_to_write(root: Path) -> None:
    for name in ("none.jsonl", "none.parquet"):
        assert exported(root, name, begin=2**60)["found"] == 0
        assert (root.parent / name).exists()
    assert pq.read_table(root.parent / "none.parquet").num_rows == 0


def test_targets(root: Path) -> None:
    with pytest.raises(UsageError, match="--export takes a file that ends in"):
        exported(root, "out.csv")
    (root.parent / "out.jsonl").touch()
    with pytest.raises(Refused, match="the file of --export exists"):
        exported(root, "out.jsonl")


def test_tables_one_after_the_other(tmp_path: Path) -> None:
    """A row count of all, zstd, and text that is not UTF-8."""
    tables = [
        pa.table({"a": [1, 2], "store_timestamp": pa.nulls(2)}),
        pa.table({"a": [3], "store_timestamp": pa.nulls(1)}),
    ]
    assert export(str(tmp_path / "f.parquet"), tables) == 3
    written = pq.ParquetFile(tmp_path / "f.parquet")
    assert written.read()["a"].to_pylist() == [1, 2, 3]
    assert written.metadata.row_group(0).column(0).compression == "ZSTD"
    odd = [pa.table({"a": ["\u4e2d"], "store_timestamp": pa.nulls(1)}), tables[1]]
    assert export(str(tmp_path / "f.jsonl"), odd) == 2
    assert (tmp_path / "f.jsonl").read_text(encoding="utf-8") == (
        '{"store_timestamp_ms": null, "a": "\u4e2d", "store_timestamp": null}\n'
        '{"store_timestamp_ms": null, "a": 3, "store_timestamp": null}\n'
    )


# ------------------------------------------------------------------------------------------------ found under its topic
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
