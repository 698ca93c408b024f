"""The whole answer to each question, of a store with few messages: once from queues and index, once from the log."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from support.here import tasks_here
from support.planting import flip
from support.rebuilding import rebuild_here
from support.store_builder import ROLLBACK, LogBuilder, Message, Placed

from jobs.contract.options import QUESTIONS, LagOptions
from jobs.contract.report import Reporter
from jobs.log.opening import open_store
from jobs.query import query
from jobs.query.offline_store import OfflineStore, plain_row
from storeformat.errors import MissingInput, NotAStore, UsageError

SIZES = {"maxHashSlotNum": 10, "maxIndexNum": 20, "mappedFileSizeConsumeQueue": 200}
FIRST, OTHER_KEY, SECOND, OTHER_TOPIC, LAST = range(5)


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Placed]]:
    """Three messages of queue 1 of T with key Aa; one of queue 0 with BB, whose hash is that of Aa; one of U."""
    log = LogBuilder()
    records = [
        log.message(topic="T", queue_id=1, keys="Aa", store_timestamp=1000, body=b"one"),
        log.message(topic="T", queue_id=0, keys="BB", store_timestamp=2000),
        log.message(topic="T", queue_id=1, keys="Aa", store_timestamp=2000, uniq_key="u2"),
        log.message(topic="U", queue_id=1, keys="Aa", store_timestamp=2500),
        log.message(topic="T", queue_id=1, keys="x Aa", store_timestamp=3000),
    ]
    tmp_path = tmp_path_factory.mktemp("answers")
    root = log.write(tmp_path / "store")
    built = Path(rebuild_here(root, tmp_path / "work", SIZES).directory)
    for name in ("index", "consumequeue"):
        (built / name).rename(root / name)
    (root / "config").mkdir()
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": {"T@g": {"0": 1, "1": 1}}}))
    return root, records


@pytest.fixture(autouse=True)
def _no_spark() -> Iterator[None]:
    with tasks_here():
        yield


def ask(root: Path, kind: Any, **question: Any) -> dict[str, Any]:
    """The report, with offsets in place of messages."""
    settings = tuple((name, str(size)) for name, size in SIZES.items())
    report = query.run(QUESTIONS[kind](store=str(root), settings=settings, **question), Reporter(quiet=True))
    answer = dict(report)
    assert (answer.pop("job"), answer.pop("kind"), answer.pop("store")) == ("query", kind, str(root))
    assert (answer.pop("status"), report.exit_code) == (("ok", 0) if answer["found"] else ("nothing_found", 1))
    assert (answer.pop("verdict") == "nothing found") == (not answer["found"])
    for name in ("seconds", "figures"):
        answer.pop(name)
    if "messages" in answer:
        answer["messages"] = [row["commit_log_offset"] for row in answer["messages"]]
    if not answer["notes"]:
        answer.pop("notes")
    return answer


LACKS = "the index does not have it; --scan reads the log itself, verify compares both"
NO_PLACE = "the queue has no message there; --scan reads the log itself"


@pytest.mark.parametrize(
    ("question", "found", "indexed", "scanned"),
    [
        ({"key": "Aa"}, [FIRST, SECOND, LAST], [FIRST, OTHER_KEY, SECOND, LAST], None),
        ({"key": "BB"}, [OTHER_KEY], [FIRST, OTHER_KEY, SECOND, LAST], None),
        ({"key": "Aa", "max_messages": 1}, [LAST], [LAST], [FIRST]),
        ({"key": "Aa", "begin": 2000}, [SECOND, LAST], [OTHER_KEY, SECOND, LAST], None),
        ({"key": "Aa", "end": 2000}, [FIRST, SECOND], [FIRST, OTHER_KEY, SECOND], None),
        ({"key": "Aa", "begin": 2001, "end": 2999}, [], [], None),
        ({"key": "u2"}, [SECOND], [SECOND], None),
        ({"key": "nobody"}, [], [], None),
    ],
)
def test_keys(
    placed: tuple[Path, list[Placed]],
    question: dict[str, Any],
    found: list[int],
    indexed: list[int],
    scanned: list[int] | None,
) -> None:
    root, records = placed
    answer = ask(root, "key", topic="T", **question)
    assert answer.pop("notes", []) == ([] if found else [LACKS])
    assert answer == {
        "found": len(found),
        "messages": [records[number].offset for number in found],
        "commit_log_offsets": [records[number].offset for number in indexed],
        "other_keys_of_the_same_hash": len(indexed) - len(found),
    }
    in_log = found if scanned is None else scanned
    assert ask(root, "key", topic="T", scan=True, **question) == {
        "found": len(in_log), "messages": [records[number].offset for number in in_log],
    }  # fmt: skip
    if len(question) == 1:
        assert ask(root, "id", topic="T", message_id=question["key"]) == ask(root, "key", topic="T", **question)


def test_ids(placed: tuple[Path, list[Placed]]) -> None:
    root, records = placed
    at = f"{records[SECOND].offset:016X}"
    found = {"found": 1, "messages": [records[SECOND].offset]}
    assert ask(root, "id", message_id=f"C0A8000900002A9F{at}") == found
    note = "no message has this offsetMsgId; the msgId that clients show is a UNIQ_KEY: name its --topic, too"
    for absent in (f"C0A8000800002A9F{at}", f"C0A8000900002A9F{1 << 40:016X}"):
        assert ask(root, "id", message_id=absent) == {"found": 0, "messages": [], "notes": [note]}
    with pytest.raises(UsageError, match="this is not an offsetMsgId: found 12"):
        ask(root, "id", message_id="12")


@pytest.mark.parametrize("scan", [False, True])
def test_places(placed: tuple[Path, list[Placed]], scan: bool) -> None:
    root, records = placed
    for queue_id, number, record in ((1, 0, FIRST), (1, 1, SECOND), (1, 2, LAST), (0, 0, OTHER_KEY)):
        answer = ask(root, "offset", topic="T", queue_id=queue_id, offset=number, scan=scan)
        assert answer == {"found": 1, "messages": [records[record].offset]}
    for number in (3, 4):
        answer = ask(root, "offset", topic="T", queue_id=1, offset=number, scan=scan)
        assert answer == {"found": 0, "messages": [], **({} if scan else {"notes": [NO_PLACE]})}


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize(
    ("boundary", "time", "found", "place"),
    [
        ("lower", 0, 1, 0), ("lower", 1000, 1, 0), ("lower", 1001, 1, 1), ("lower", 2000, 1, 1), ("lower", 2001, 1, 2),
        ("lower", 3000, 1, 2), ("lower", 3001, 0, 3), ("upper", 3001, 1, 2), ("upper", 3000, 1, 2),
        ("upper", 2999, 1, 1), ("upper", 2000, 1, 1), ("upper", 1999, 1, 0), ("upper", 1000, 1, 0),
        ("upper", 999, 0, 0),
    ],
)  # fmt: skip
def test_times(placed: tuple[Path, list[Placed]], boundary: Any, time: int, found: int, place: int, scan: bool) -> None:
    side = {"lower": "at or after", "upper": "at or before"}[boundary]
    assert ask(placed[0], "time", topic="T", queue_id=1, time=time, boundary=boundary, scan=scan) == {
        "found": found, "queue_offset": place, "min_offset": 0, "max_offset": 3,
        **({} if found else {"notes": [f"the queue has no message {side} this time"]}),
    }  # fmt: skip


def test_a_queue_that_the_log_does_not_have_is_empty(placed: tuple[Path, list[Placed]]) -> None:
    assert ask(placed[0], "time", topic="T", queue_id=7, time=5, scan=True) == {
        "found": 0, "queue_offset": 0, "min_offset": 0, "max_offset": 0,
        "notes": ["the queue has no message at or after this time"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "question"),
    [
        ("key", {"topic": "T", "key": "Aa", "max_messages": 64}),
        ("key", {"topic": "T", "key": "Aa", "scan": True}),
        ("id", {"message_id": f"C0A8000900002A9F{0:016X}"}),
        ("offset", {"topic": "T", "queue_id": 1, "offset": 0}),
        ("offset", {"topic": "T", "queue_id": 1, "offset": 0, "scan": True}),
        ("list", {"topic": "T", "queue_id": 1}),
    ],
)
def test_bodies_are_there_where_they_are_asked_for(
    placed: tuple[Path, list[Placed]], kind: Any, question: dict[str, Any]
) -> None:
    settings = tuple((name, str(size)) for name, size in SIZES.items())
    for bodies, body in ((False, None), (True, "one")):
        options = QUESTIONS[kind](store=str(placed[0]), settings=settings, bodies=bodies, **question)
        message = query.run(options, Reporter(quiet=True))["messages"][0]
        assert (message.get("body"), "body" in message) == (body, bodies)


def test_lists(placed: tuple[Path, list[Placed]]) -> None:
    root, records = placed
    offsets = [records[number].offset for number in (OTHER_KEY, FIRST, SECOND, LAST)]
    assert ask(root, "list", topic="T") == {"found": 4, "messages": offsets}
    assert ask(root, "list", topic="T", max_messages=2) == {"found": 2, "messages": offsets[:2]}
    assert ask(root, "list", topic="T", group="g", not_consumed=True) == {"found": 2, "messages": offsets[2:]}
    for most, count in ((None, 4), (3, 3)):
        file = root.parent / f"{count}.jsonl"
        exported = ask(root, "list", topic="T", max_messages=most, export=str(file))
        assert exported == {"found": count, "exported": str(file)}
        assert len(file.read_text().splitlines()) == count
    assert ask(root, "list", topic="T", begin=9000) == {
        "found": 0, "messages": [], "notes": ["--waiting lists messages that wait to be delivered to the topic"],
    }  # fmt: skip


def test_units_that_lead_nowhere_are_noted(placed: tuple[Path, list[Placed]], tmp_path: Path) -> None:
    root, records = Path(shutil.copytree(placed[0], tmp_path / "store")), placed[1]
    assert ask(root, "list", topic="T", until_offset=records[LAST].offset) == {
        "found": 3, "messages": [records[number].offset for number in (OTHER_KEY, FIRST, SECOND)],
        "units_beyond_log": 1,
        "notes": ["some units point beyond the end of the log, and are not listed: verify says which"],
    }  # fmt: skip
    log = next((root / "commitlog").iterdir())
    flip(log, 8)  # a checksum
    assert ask(root, "list", topic="T", queue_id=1) == {
        "found": 2, "messages": [records[SECOND].offset, records[LAST].offset], "lost_units": 1,
        "notes": ["some units lead to no sound message: verify says which"],
    }  # fmt: skip


def test_lag(placed: tuple[Path, list[Placed]]) -> None:
    assert ask(placed[0], "lag")["found"] == 2
    assert ask(placed[0], "lag", group="nobody") == {
        "found": 0, "groups": [], "queues": [], "notes": ["no offset is committed for this group"],
    }  # fmt: skip


@pytest.mark.parametrize(
    "question", [{"group": "g"}, {"not_consumed": True}, {"group": "g", "not_consumed": True, "waiting": True}]
)
def test_a_group_is_for_its_own_messages(placed: tuple[Path, list[Placed]], question: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="--group and --not-consumed go together, and not with --waiting"):
        ask(placed[0], "list", topic="T", **question)


def test_queues_that_a_broker_would_not_answer_from(placed: tuple[Path, list[Placed]], tmp_path: Path) -> None:
    root = Path(shutil.copytree(placed[0], tmp_path / "store"))
    settings = tuple((name, str(size)) for name, size in SIZES.items())
    store = OfflineStore(open_store(LagOptions(store=str(root), settings=settings)))
    path = root / "consumequeue" / "T" / "1" / f"{0:020d}"
    path.write_bytes(path.read_bytes() + b"\0")
    (path.parent / f"{200:020d}").touch()  # a broker was making it when it died
    with pytest.raises(NotAStore, match="a queue file has the wrong length"):
        list(store.units("T", 1))
    with pytest.raises(MissingInput, match="the store has no such consume queue"):
        list(store.units("T", 9))


@pytest.mark.parametrize(
    ("boundary", "time", "found", "place"),
    [
        ("lower", 1000, 1, 0), ("lower", 1001, 1, 3), ("lower", 3000, 1, 5), ("lower", 3001, 0, 6),
        ("upper", 999, 0, 0), ("upper", 1999, 1, 0), ("upper", 2000, 1, 3), ("upper", 9000, 1, 5),
    ],
)  # fmt: skip
def test_times_of_batches(tmp_path: Path, boundary: Any, time: int, found: int, place: int) -> None:
    """A batch has one time; the search leads to its first message."""
    log = LogBuilder()
    for count, stored in ((3, 1000), (2, 2000), (1, 3000)):
        log.inner_batch(Message(topic="B", store_timestamp=stored), count)
    root = log.write(tmp_path / "store")
    built = Path(rebuild_here(root, tmp_path / "work", {"batch_topics": ("B",)}, only=("consumequeue",)).directory)
    (built / "batchconsumequeue").rename(root / "batchconsumequeue")
    answer = ask(root, "time", topic="B", queue_id=0, time=time, boundary=boundary, batch_topics=("B",))
    answer.pop("notes", None)
    assert answer == {"found": found, "queue_offset": place, "min_offset": 0, "max_offset": 6}


@pytest.mark.parametrize(
    ("make", "of_queue", "of_index"),
    [
        (os.mkfifo, "this is not a regular file", "this is not a regular file"),
        (lambda path: path.symlink_to("nowhere"), "there is no such file", "cannot be read: No such file or directory"),
        (
            lambda path: path.symlink_to(path.name), "there is no such file",
            "cannot be read: Too many levels of symbolic links",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("part", "question"),
    [("consumequeue/T/1", {"kind": "list", "topic": "T"}), ("index", {"kind": "key", "topic": "T", "key": "Aa"})],
)
def test_what_is_no_file_in_the_place_of_one_is_not_passed_over(
    part: str, question: dict[str, Any], make: Callable[[Path], None], of_queue: str, of_index: str,
    placed: tuple[Path, list[Placed]], tmp_path: Path,
) -> None:  # fmt: skip
    root = shutil.copytree(placed[0], tmp_path / "store")
    first = min((root / part).iterdir())
    first.unlink()
    make(first)
    with pytest.raises(MissingInput) as said:
        ask(root, **question)
    assert (said.value.what, said.value.path) == (of_index if part == "index" else of_queue, str(first))


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (os.mkfifo, "this is not a directory"), (Path.touch, "this is not a directory"),
        (lambda path: path.symlink_to("nowhere"), "the store has no such consume queue"),
        (Path.mkdir, "the store has no such consume queue"),
    ],
)  # fmt: skip
def test_a_queue_that_is_no_directory_with_files_is_not_passed_over(
    make: Callable[[Path], None], what: str, placed: tuple[Path, list[Placed]], tmp_path: Path
) -> None:
    root = shutil.copytree(placed[0], tmp_path / "store")
    (root / "consumequeue/T/1").rename(tmp_path / "queue")
    make(root / "consumequeue/T/1")
    with pytest.raises(MissingInput, match=what):
        ask(root, "list", topic="T")


def test_a_queue_that_is_gone_is_said(placed: tuple[Path, list[Placed]], tmp_path: Path) -> None:
    root = shutil.copytree(placed[0], tmp_path / "store")
    assert "notes" not in ask(root, "list", topic="T")
    (root / "consumequeue/T/0").rename(tmp_path / "queue")
    (note,) = ask(root, "list", topic="T")["notes"]
    assert note.startswith("1 queues before 1 are not there")


def test_what_is_no_index_file_is_passed_over(placed: tuple[Path, list[Placed]], tmp_path: Path) -> None:
    root = Path(shutil.copytree(placed[0], tmp_path / "store"))
    there = ask(root, "key", topic="T", key="Aa")
    (root / "index" / "20240101000000000.tmp").write_bytes(b"draft")
    (root / "index" / "20240101000000000").mkdir()
    assert ask(root, "key", topic="T", key="Aa") == there


# --------------------------------------------------------------------------------------------------- what takes no room
def scanned(root: Path, kind: Any, **question: Any) -> Any:
    return ask(root, kind, topic="T", scan=True, **question)["messages"]


def test_messages_before_the_time_take_no_room(tmp_path: Path) -> None:
    log = LogBuilder()
    placed = [log.message(topic="T", keys="k") for _ in range(100)]
    root = log.write(tmp_path)
    times = [one.message.store_timestamp for one in placed]
    offsets = [one.offset for one in placed]
    assert scanned(root, "key", key="k") == offsets[:64]
    assert scanned(root, "key", key="k", begin=times[70]) == offsets[70:]
    assert scanned(root, "key", key="k", begin=times[70], end=times[71]) == offsets[70:72]
    assert scanned(root, "key", key="k", end=times[1], max_messages=1) == offsets[:1]
    assert scanned(root, "key", key="other") == []


def test_messages_that_are_not_wanted_take_no_room(tmp_path: Path) -> None:
    log = LogBuilder()
    for _ in range(70):
        log.message(topic="T", sys_flag=ROLLBACK)
        log.message(topic="Other", keys="k")
    placed = log.message(topic="T", keys="k")
    root = log.write(tmp_path)
    assert scanned(root, "offset", queue_id=0, offset=0) == scanned(root, "key", key="k") == [placed.offset]


# ------------------------------------------------------------------------------------------------ as a person sees them
@pytest.mark.parametrize(
    ("stored", "flag", "shown"),
    [
        (b"order 4711", 0x0, "order 4711"),
        (zlib.compress(b"order 4711"), 0x1, "order 4711"),
        (b"no zlib", 0x1, "no zlib"),
        (None, 0x1, None),
    ],
)
def test_a_body_is_shown_as_the_producer_had_it(stored: bytes | None, flag: int, shown: str | None) -> None:
    assert plain_row({"store_timestamp": None, "sys_flag": flag, "body": stored})["body"] == shown


def test_a_row_as_json_holds_it() -> None:
    moment = datetime(2024, 5, 30, 7, 0, 0, 1499, timezone.utc)
    assert plain_row({
        "store_timestamp": moment, "store_date": moment.date(), "keys": ["a"], "none": [], "number": 7,
        "properties": [("a", "1"), ("b", "2")], "raw": b"a\xff",
    }) == {
        "store_timestamp_ms": 1717052400001, "store_timestamp": "2024-05-30T07:00:00.001+00:00",
        "store_date": "2024-05-30", "keys": ["a"], "none": [], "number": 7, "properties": {"a": "1", "b": "2"},
        "raw": "a\\xff",
    }  # fmt: skip
