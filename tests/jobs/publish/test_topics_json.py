"""``rebuild --topics-json``: topics whose configuration is lost get one, and publish carries it into the store."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support import golden
from support.drilling import run_job
from support.publishing import quiet
from support.rebuilding import options_for, rebuild_here
from support.store_builder import LogBuilder

from jobs.contract.options import PublishOptions, RestoreOptions, TopicFilter
from jobs.publish import publish, restore
from jobs.rebuild import rebuild
from storeformat.errors import UsageError

STORE = "batch-cq-5.3.3"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (source,) = golden.stores(STORE)
    root = Path(shutil.copytree(golden.unpack(source), tmp_path / "store"))
    shutil.rmtree(root / "config", ignore_errors=True)
    return root


def table(root: Path) -> dict[str, Any]:
    found = json.loads((root / "config" / "topics.json").read_text(encoding="utf-8"))
    return dict(found["topicConfigTable"])


def made_and_published(root: Path, work: Path) -> Path:
    (source,) = golden.stores(STORE)
    built = rebuild_here(root, work, source.settings, topics_json=True)
    publish.run(PublishOptions(store=str(root), rebuilt=built.directory, after_crash=True), quiet())
    return root


def test_lost_topics_are_published_and_taken_back(store: Path, tmp_path: Path) -> None:
    directories = {
        kind: {path.name: max(int(queue.name) for queue in path.iterdir()) + 1 for path in (store / kind).iterdir()}
        for kind in ("consumequeue", "batchconsumequeue")
    }
    topics = table(made_and_published(store, tmp_path / "work"))
    expected = {**directories["consumequeue"], **directories["batchconsumequeue"]}
    made_by_broker = {"SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"}
    assert {name: entry["readQueueNums"] for name, entry in topics.items()} == {
        name: queues for name, queues in expected.items() if name not in made_by_broker
    }
    batch = {name for name, entry in topics.items() if entry["attributes"] == {"queue.type": "BatchCQ"}}
    assert batch == set(directories["batchconsumequeue"])
    assert {entry["writeQueueNums"] - entry["readQueueNums"] for entry in topics.values()} == {0}
    restore.run(RestoreOptions(store=str(store)), quiet())
    assert not (store / "config").exists()


def test_what_the_store_still_has_stays_and_comes_back(store: Path, tmp_path: Path) -> None:
    (name, *_) = sorted(path.name for path in (store / "batchconsumequeue").iterdir())
    entry = {"attributes": {"queue.type": "BatchCQ"}, "perm": 4, "readQueueNums": 99, "writeQueueNums": 99}
    before = json.dumps({"topicConfigTable": {name: entry}})
    (store / "config").mkdir()
    (store / "config" / "topics.json").write_text(before, encoding="utf-8")
    (store / "config" / "consumerOffset.json").write_text("{}", encoding="utf-8")
    topics = table(made_and_published(store, tmp_path / "work"))
    assert topics[name] == entry
    assert len(topics) > 3
    assert (store / "config" / "consumerOffset.json").read_text(encoding="utf-8") == "{}"
    restore.run(RestoreOptions(store=str(store)), quiet())
    assert (store / "config" / "topics.json").read_text(encoding="utf-8") == before


def test_topics_that_have_waiting_messages_only(tmp_path: Path) -> None:
    log = LogBuilder()
    for holding, topic, queue_id in (
        ("SCHEDULE_TOPIC_XXXX", "Delayed", "5"), ("SCHEDULE_TOPIC_XXXX", "%RETRY%g", "0"),
        ("rmq_sys_wheel_timer", "Timed", "0"), ("rmq_sys_wheel_timer", "Timed", "2"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "Sold", "1"), ("rmq_sys_wheel_timer", "Odd", "-1"),
        ("rmq_sys_wheel_timer", "Huge", "99999999"), ("Ordinary", "Elsewhere", "7"),
    ):  # fmt: skip
        log.message(topic=holding, properties={"REAL_TOPIC": topic, "REAL_QID": queue_id})
    root = log.write(tmp_path / "store")
    built = rebuild_here(root, tmp_path / "work", {}, only=("consumequeue",), topics_json=True)
    topics = {name: entry["readQueueNums"] for name, entry in table(Path(built.directory)).items()}
    assert topics == {"Delayed": 6, "%RETRY%g": 1, "Timed": 3, "Sold": 2, "Ordinary": 1}


def test_one_bit_of_a_queue_id_makes_no_queues(tmp_path: Path) -> None:
    log = LogBuilder()
    for topic, queue_id in (("T", 3), ("T", 3 ^ 1 << 30), ("Sparse", 1023), ("Gone", 1 << 28)):
        log.message(topic=topic, queue_id=queue_id)
    root = log.write(tmp_path / "store")
    done = run_job("rebuild", "--store", root, "--output", tmp_path / "out", "--topics-json")
    assert {name: entry["readQueueNums"] for name, entry in table(tmp_path / "out").items()} == {"T": 4, "Sparse": 1024}
    assert any("leaves out 2 queue ids" in note and "Gone:268435456" in note for note in done.report["notes"])


@pytest.mark.parametrize("more", [{"topics": (TopicFilter("T"),)}, {"only": ("index",)}])
def test_all_queues_must_be_known(more: dict[str, Any], store: Path, tmp_path: Path) -> None:
    (source,) = golden.stores(STORE)
    with pytest.raises(UsageError, match="topics-json"):
        rebuild.run(options_for(store, tmp_path / "out", source.settings, topics_json=True, **more), quiet())
