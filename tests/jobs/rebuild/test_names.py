"""Names as they occur: every script, every prefix, the longest topics, the highest queue ids, hosts of both kinds.

A drawn log rarely holds all of them; here each is in one log, rebuilt and compared with the model, and asked for.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.broker_model import dispatch
from support.broker_settings import BrokerSettings
from support.rebuilding import rebuild_here
from support.store_builder import BORN_HOST_V6, STORE_HOST_V6, LogBuilder, Message

from jobs.contract.options import QueryOptions
from jobs.contract.reporter import Reporter
from jobs.query import query

LONGEST = "%RETRY%" + "g" * 248
TOPICS = ("订单", "😀-events", "%RETRY%group", "%DLQ%group", "ns%orders", "a|b", "T+x", "Ünïcode", "k" * 127, LONGEST)
TAGS = ("标签😀", "a||b", "polygenelubricants", None)
KEYS = ("订单-1 🚀", "a#b T#T#x", "plain")
QUEUE_IDS = (0, 65_535)
V6 = "2001:db8::1"
SIZES = {"mappedFileSizeConsumeQueue": 200, "maxHashSlotNum": 50, "maxIndexNum": 40}


def hosts(number: int) -> dict[str, object]:
    flags = (0, BORN_HOST_V6, STORE_HOST_V6, BORN_HOST_V6 | STORE_HOST_V6)[number % 4]
    return {
        "sys_flag": flags,
        "born_host": (V6 if flags & BORN_HOST_V6 else "10.1.2.3", 4321),
        "store_host": (V6 if flags & STORE_HOST_V6 else "10.1.2.4", 10911),
    }


@pytest.fixture(scope="module")
def log() -> LogBuilder:
    log = LogBuilder(segment_size=16_384)
    for number in range(240):
        topic = TOPICS[number % len(TOPICS)]
        message = Message(
            topic,
            QUEUE_IDS[number // len(TOPICS) % 2],
            tags=TAGS[number % 4],
            keys=KEYS[number % 3],
            uniq_key=f"U{number}",
        )
        log.message(message, **hosts(number // 3))
    return log


def queue_files(made: Path) -> dict[str, bytes]:
    return {path.relative_to(made).as_posix(): path.read_bytes() for path in made.glob("consumequeue/*/*/*")}


@pytest.mark.parametrize("split_size", [777, 1 << 30])
def test_every_name_is_rebuilt(log: LogBuilder, split_size: int, tmp_path: Path) -> None:
    log.write(tmp_path / "store")
    built = rebuild_here(tmp_path / "store", tmp_path, SIZES, broker_version="5.5", split_size=split_size)
    made = Path(built.directory)
    found = queue_files(made)
    settings = BrokerSettings.of("5.5.0", {"mappedFileSizeCommitLog": log.segment_size, **SIZES})
    model = dispatch(log.segments, settings)
    assert found == model.files
    assert {name.split("/")[1] for name in found} == set(TOPICS)
    assert {int(name.split("/")[2]) for name in found} == set(QUEUE_IDS)
    assert [path.read_bytes() for path in sorted((made / "index").iterdir())] == model.index_files


def test_topics_that_java_reads_alike_share_their_queues(tmp_path: Path) -> None:
    """Damaged bytes of a name become U+FFFD each, so that two broken names can be one to a broker."""
    log = LogBuilder(segment_size=4096)
    for number in range(30):
        topic = (b"T\xff", b"T\xfe", b"T", "T\ufffd")[number % 4]
        log.message(Message(topic, queue_offset=number, keys="k"))
    log.write(tmp_path / "store")
    built = rebuild_here(tmp_path / "store", tmp_path, SIZES, broker_version="5.5", split_size=500)
    made = Path(built.directory)
    model = dispatch(log.segments, BrokerSettings.of("5.5.0", {"mappedFileSizeCommitLog": 4096, **SIZES}))
    assert {name.split("/")[1] for name in model.files} == {"T", "T\ufffd"}
    assert queue_files(made) == model.files
    assert [path.read_bytes() for path in sorted((made / "index").iterdir())] == model.index_files


@pytest.mark.thorough
def test_every_name_can_be_asked_for(log: LogBuilder, tmp_path: Path) -> None:
    log.write(tmp_path / "log")
    built = rebuild_here(tmp_path / "log", tmp_path / "work", SIZES, broker_version="5.5")
    root = Path(built.directory)
    (tmp_path / "log" / "commitlog").rename(root / "commitlog")
    settings = tuple((name, str(value)) for name, value in SIZES.items())
    for placed in log.records[::23]:
        message = placed.message
        assert isinstance(message.topic, str)
        common = {"store": str(root), "settings": settings, "topic": message.topic, "broker_version": "5.5"}
        place = {"queue_id": message.queue_id, "offset": message.queue_offset}
        (row,) = query.run(QueryOptions(kind="offset", **common, **place), Reporter(quiet=True))["messages"]
        assert row["commit_log_offset"] == placed.offset
        assert (row["topic"], row["tags"], row["keys"]) == (
            message.topic,
            message.tags,
            (message.keys or "").split(" "),
        )
        assert row["born_host"].strip("[]").startswith(message.born_host[0][:8])
        for key in row["keys"]:
            keyed = query.run(QueryOptions(kind="key", key=key, **common), Reporter(quiet=True))["messages"]
            assert placed.offset in [found["commit_log_offset"] for found in keyed]


def test_directories_do_not_cost_much_each(tmp_path: Path) -> None:
    """100 topics with 8 queues each: 800 directories with a file each."""
    log = LogBuilder(segment_size=1 << 20)
    for number in range(1_600):
        log.message(Message(f"topic-{number % 100}", number // 100 % 8, tags="t"))
    log.write(tmp_path / "store")
    built = rebuild_here(tmp_path / "store", tmp_path, SIZES, broker_version="5.3", only=("consumequeue",))
    assert built.queues is not None
    assert (built.queues.queues, len(built.rows)) == (800, 800)
    assert sum(row.count for row in built.rows) == 1_600
