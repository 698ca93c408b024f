"""Files of ``config/``, and storeType."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.store_to_start import TOPICS, StoreToStart, as_fastjson, finished, healthy_store

from jobs.preflight import configuration
from jobs.preflight.reason import Reason

LOSING = ("topics.json", "consumerOffset.json", "subscriptionGroup.json")


STARTS_OVER = "every group starts over: it reads messages again, or skips those it has not read"
WITHOUT = {
    "topics.json": ("no client finds its topics, their messages are not served", True),
    "consumerOffset.json": (STARTS_OVER, True),
    "subscriptionGroup.json": ("groups have to be created again; their retry limits and switches are lost", True),
    "delayOffset.json": ("every delayed message that is still in the log is delivered again", False),
    "consumerFilter.json": ("SQL92 filters are unknown until their consumers are back", False),
    "consumerOrderInfo.json": ("what ordered POP consumers hold is delivered again", True),
    "timermetrics": ("counts of waiting timer messages begin at 0", False),
}
"""What a broker does without a file, and whether that loses or repeats anything in a store without delayed messages."""
MAKES = {
    "topics.json": "; rebuild --topics-json makes one from the log",
    "consumerOffset.json": "; rebuild --only consumer-offsets makes one of what is left",
}


def lost(store: StoreToStart, name: str, found: str) -> Reason:
    without, unsafe = WITHOUT[name]
    return Reason(
        "config_lost",
        f"{name} is {found}: the broker starts without it; {without}",
        f"put a sound {name} into {store.root}/config: an older copy, or a replica's{MAKES.get(name, '')}",
        unsafe,
    )


@pytest.mark.parametrize("name", WITHOUT)
@pytest.mark.parametrize(("backup", "content"), [(None, "absent"), (b"", "empty")])
def test_a_torn_file_without_a_backup_is_lost(
    store: StoreToStart, name: str, backup: bytes | None, content: str
) -> None:
    path = store.config(name)
    path.write_text('{"x":')
    if backup is not None:
        path.with_name(name + ".bak").write_bytes(backup)
    why = store.stopped().configs[name].main.why
    assert why
    assert store.only_reason("config_lost") == lost(store, name, f"torn ({why}), and its .bak {content}")


@pytest.mark.parametrize("name", WITHOUT)
def test_a_file_of_no_length_without_a_backup_is_lost(store: StoreToStart, name: str) -> None:
    store.config(name).write_bytes(b"")
    assert store.only_reason("config_lost") == lost(store, name, "empty, and its .bak absent")


@pytest.mark.parametrize("name", WITHOUT)
def test_a_torn_file_with_a_torn_backup_ends_the_start(store: StoreToStart, name: str) -> None:
    path = store.config(name)
    path.write_bytes(b"")
    path.with_name(name + ".bak").write_text('{"x":')
    why = store.stopped().configs[name].backup.why
    assert why
    assert store.answer().reasons == (
        Reason(
            "config_torn",
            f"{name} is empty and its .bak torn: the broker does not start",
            f"put a sound copy in place, or move {path}.bak away: then {WITHOUT[name][0]}",
        ),
    )


@pytest.mark.parametrize(
    ("content", "state"), [(None, "absent"), (b"", "empty"), (b"\0" * 50, "torn"), (b'{"offsetTable":{', "torn")]
)
@pytest.mark.parametrize(("older", "said"), [(-9.0, ""), (0.999, ""), (1.0, ", 1 s older"), (61.5, ", 61 s older")])
def test_a_sound_backup_is_taken(
    store: StoreToStart, content: bytes | None, state: str, older: float, said: str
) -> None:
    path = store.config("consumerOffset.json")
    backup = path.rename(path.with_name(path.name + ".bak"))
    os.utime(backup, (1e9 - older, 1e9 - older))
    if content is not None:
        path.write_bytes(content)
        os.utime(path, (1e9, 1e9))
    assert store.answer().reasons == (
        Reason(
            "config_backup",
            f"consumerOffset.json is {state}: the broker takes its .bak" + (said if content is not None else ""),
            f"nothing, if {backup} is as new as what was lost",
            unsafe=False,
        ),
    )


def test_offsets_of_the_backup_are_judged_too(store: StoreToStart) -> None:
    path = store.config("consumerOffset.json")
    path.unlink()
    path.with_name(path.name + ".bak").write_text(as_fastjson({"offsetTable": {"Orders@readers": {0: 99}}}))
    assert store.only_reason("committed_beyond_queue").values["committed"] == 99


@pytest.mark.parametrize("name", LOSING)
def test_one_absent_file_beside_others_was_lost(store: StoreToStart, name: str) -> None:
    store.config(name).unlink()
    assert store.only_reason("config_lost") == lost(store, name, "absent, and its .bak absent")


@pytest.mark.parametrize("segments", [True, False])
def test_no_configuration_at_all(store: StoreToStart, segments: bool) -> None:
    shutil.rmtree(store.root / "config")
    if not segments:
        for kind in ("commitlog", "consumequeue"):
            shutil.rmtree(store.root / kind)
        (store.root / "commitlog").mkdir()
    said = Reason(
        "config_absent",
        f"{store.root}/config holds no topics, groups and offsets: the broker starts with none, so that no client "
        "finds its topics, and every group starts over",
        "put the broker's config/ in place, or a replica's; rebuild --topics-json makes topics.json",
    )
    assert store.answer().reasons == ((said,) if segments else ())


def test_without_messages_a_lost_file_is_a_note(store: StoreToStart) -> None:
    for kind in ("commitlog", "consumequeue"):
        shutil.rmtree(store.root / kind)
    (store.root / "commitlog").mkdir()
    store.config("topics.json").unlink()
    assert not store.only_reason("config_lost").unsafe


@pytest.mark.parametrize("content", [None, "{", '{"offsetTable":{2:0}}', '{"offsetTable":{3:0}}'])
def test_lost_delay_offsets_matter_where_something_was_due(tmp_path: Path, content: str | None) -> None:
    """Absent, torn, without the level: it is delivered again; with an offset it may not have been yet."""
    log = healthy_store(tmp_path / "first").log
    delayed = {"DELAY": "3", "REAL_TOPIC": "Orders", "REAL_QID": "0"}
    for later in (0, 5_000, 95_000):  # due after ten seconds: the last is not, when the log ends
        log.message(topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties=delayed, store_timestamp=log.clock + later)
    store = finished(tmp_path / "store", log)
    store.config("delayOffset.json").unlink()
    if content is not None:
        store.config("delayOffset.json").write_text(content)
    reason = store.only_reason("delay_offset_behind")
    lost = not content or "3" not in content
    assert (reason.values["levels"], reason.values["count"], reason.unsafe) == ([3], 2, lost)
    assert f"has {'no offset' if lost else 'an earlier offset, or none,'} of delay levels [3], and 2" in reason.what
    store.write_config("delayOffset.json", {"offsetTable": {3: 2}})
    assert store.answer().safe


def test_topics_with_queues_and_no_configuration(store: StoreToStart) -> None:
    store.write_config("topics.json", {"topicConfigTable": {"Orders": {"readQueueNums": 2, "writeQueueNums": 2}}})
    stopped = store.stopped()
    own = ("TBW102", "rmq_sys_x", "RMQ_SYS_X", "%LMQ%x")
    queues = {(topic, 0): queue for topic in (*own, "Stock", "Orders", "New") for queue in stopped.queues.values()}
    assert tuple(configuration.topics_not_configured(replace(stopped, queues=queues))) == (
        Reason(
            "topics_not_configured",
            "2 topics have queues and are not in topics.json: New, Stock; no client finds them",
            "rebuild --topics-json adds them; publish puts the file in place",
            unsafe=False,
        ),
    )
    store.config("topics.json").unlink()
    assert store.reasons("topics_not_configured") == store.reasons("queues_fewer_than_configured") == []


def test_topics_in_databases_are_judged_elsewhere(store: StoreToStart) -> None:
    entry = {"readQueueNums": 3, "writeQueueNums": 3}
    store.write_config("topics.json", {"topicConfigTable": {"Orders": entry}})
    store.conf["configManagerVersion"] = "v2"
    assert store.reasons("topics_not_configured") == store.reasons("queues_fewer_than_configured") == []


def test_queues_fewer_than_configured(store: StoreToStart) -> None:
    entry = {"readQueueNums": 3, "writeQueueNums": 3}
    store.write_config("topics.json", {"topicConfigTable": {"Orders": entry, "Stock": entry, "Unused": entry}})
    assert store.answer().reasons == (
        Reason(
            "queues_fewer_than_configured",
            "2 queues of topics with messages have no files: Orders:2, Stock:2; if they had messages, those are not "
            "served and the queues begin again at 0",
            "verify compares all queues with the log",
            unsafe=False,
        ),
    )
    for queues, said in ((1024, 1), (1025, 0), (2**31 - 1, 0)):  # more are no topic of a person, and no list of them
        entry = {"readQueueNums": 2, "writeQueueNums": queues}
        store.write_config("topics.json", {"topicConfigTable": {"Orders": entry, "Stock": {"writeQueueNums": 2}}})
        begun = time.monotonic()
        assert len(store.reasons("queues_fewer_than_configured")) == said
        assert time.monotonic() - begun < 2


# ------------------------------------------------------------------------------------------------------------ storeType
def database(store: StoreToStart, *parts: str) -> None:
    directory = store.root.joinpath(*parts)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "CURRENT").write_text("MANIFEST-000004\n")
    (directory / "000009.sst").write_bytes(b"x")


NOT_JUDGED = Reason(
    "rocksdb_not_judged",
    "queues, topics and offsets are in RocksDB: whether they fit the log is not judged here",
    "verify compares the queues with the log, query lag shows committed offsets beside them",
    unsafe=False,
)


@pytest.mark.parametrize(
    ("queues", "json", "databases", "named"),
    [
        (False, True, ("consumequeue",), "consume queues"),
        (False, True, ("consumequeue_rocksdb",), "consume queues"),
        (True, False, ("config/consumerOffsets", "config/topics"), "topics, consumerOffsets"),
        (False, True, ("consumequeue", "config/topics"), "consume queues, topics"),
        (True, True, ("consumequeue",), None),
        (True, True, ("config/topics",), None),
        (True, False, (), None),
        (False, True, (), None),
    ],
)
def test_databases_and_a_type_of_files(
    store: StoreToStart, queues: bool, json: bool, databases: tuple[str, ...], named: str | None
) -> None:
    """Either kind of queues is fine where the files are there, and so is a configuration where JSON is."""
    if not queues:
        shutil.rmtree(store.root / "consumequeue")
    if not json:
        shutil.rmtree(store.root / "config")
    for name in databases:
        database(store, name)
    reason = Reason(
        "store_type",
        f"{named} are in RocksDB, but storeType says files: the broker would see none of it, and make queues from the "
        "last ten segments at most (5.4.0 and later; 5.3.2 and 5.3.3 from all, before not at all)",
        "set storeType=defaultRocksDB in broker.conf; or, to change to files: rebuild and publish first",
    )
    assert store.reasons("store_type") == ([reason] if named else [])


@pytest.mark.parametrize(
    ("version", "segments", "unsafe"), [("5.5", 2, False), ("5.5", 10, False), ("5.5", 11, True), ("5.3", 2, True)]
)
@pytest.mark.parametrize("files_there", [True, False])
def test_a_type_of_databases_without_one(
    store: StoreToStart, version: str, segments: int, unsafe: bool, files_there: bool
) -> None:
    store.conf["storeType"] = "defaultRocksDB"
    store.version = version
    if not files_there:
        shutil.rmtree(store.root / "consumequeue")
    for number in range(len(list((store.root / "commitlog").iterdir())), segments):
        (store.root / "commitlog" / f"{number * 4096:020d}").write_bytes(bytes(4096))
    more = "; the 4 queues in files are not looked at" if files_there else ""
    made = f"them from offset {(segments - 10) * 4096 if segments > 10 else 0} on"
    made = made if version == "5.5" else "none (5.3.2 and 5.3.3: from all of the log)"
    assert store.only_reason("store_type") == Reason(
        "store_type",
        f"storeType is defaultRocksDB and the database of queues is empty, or not there: the broker makes {made}{more}",
        "rebuild --queue-store rocksdb, then publish; put the databases of config/ back, if they are lost",
        unsafe,
    )


@pytest.mark.parametrize(
    ("folder", "apart", "found", "expected"),
    [
        ("consumequeue", "false", None, None),
        ("consumequeue_rocksdb", "true", None, None),
        ("consumequeue", "true", "consumequeue/CURRENT", "useSeparateStorePathForRocksdbCQ=false"),
        ("consumequeue_rocksdb", "false", "consumequeue_rocksdb/", "useSeparateStorePathForRocksdbCQ=true"),
    ],
)
def test_the_path_of_the_database(
    store: StoreToStart, folder: str, apart: str, found: str | None, expected: str | None
) -> None:
    store.conf |= {"storeType": "defaultRocksDB", "useSeparateStorePathForRocksdbCQ": apart}
    store.version = "5.5"
    database(store, folder)
    database(store, "config", "topics")
    reason = Reason(
        "store_type",
        "queues are in the database at the other path: with these settings the broker does not start",
        f"set {expected} in broker.conf",
    )
    assert tuple(configuration.store_type(store.stopped())) == ((reason,) if found else (NOT_JUDGED,))


def test_a_release_before_rocksdb_sees_no_database(store: StoreToStart) -> None:
    """A rollback: the setting is unknown to it, and queues in files are not there."""
    store.conf["storeType"] = "defaultRocksDB"
    shutil.rmtree(store.root / "consumequeue")
    database(store, "consumequeue")
    store.version = "5.1.4"
    reason = store.only_reason("store_type")
    assert (reason.unsafe, "this release knows files alone" in reason.what) == (True, True)
    store.version = "5.2.0"
    assert store.reasons("store_type") == []


def test_a_store_without_messages_has_no_database_yet(store: StoreToStart) -> None:
    store.conf["storeType"] = "defaultRocksDB"
    for path in (store.root / "commitlog").iterdir():
        path.unlink()
    assert list(configuration.store_type(store.stopped())) == []


def test_an_older_topics_json_with_fewer_queues(store: StoreToStart) -> None:
    """Not where every group that reads the topic is at the end, as after a topic was made smaller."""
    entry = {"perm": 6, "readQueueNums": 1, "writeQueueNums": 1}
    store.write_config("topics.json", {"topicConfigTable": {topic: {**entry, "topicName": topic} for topic in TOPICS}})
    ends = {key: queue.end for key, queue in store.stopped().queues.items()}
    reason = store.only_reason("queues_not_read")
    count = sum(end for (_, queue_id), end in ends.items() if queue_id == 1)
    assert (reason.values["count"], reason.unsafe) == (2, True)
    assert reason.what.endswith(f"Orders:1, Stock:1; no client reads their {count} messages")
    store.commit({f"{topic}@readers": {0: 0, 1: ends[topic, 1]} for topic in TOPICS})
    assert store.reasons("queues_not_read") == []
    store.commit({f"{topic}@readers": {0: 0, 1: ends[topic, 1]} for topic in TOPICS} | {"Stock@late": {0: 3}})
    assert store.only_reason("queues_not_read").values["first"] == "Stock:1"
