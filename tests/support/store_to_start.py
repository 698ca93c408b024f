"""A small store as a broker leaves it when it stops cleanly, of ``store_builder`` and ``broker_model``; and what is
said of it. ``config/`` is written here as fastjson writes it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.broker_model import dispatch
from support.broker_settings import BrokerSettings
from support.store_builder import LogBuilder

from jobs.preflight.preflight import judge
from jobs.preflight.stopped_store import Answer, Reason, StoppedStore, read_stopped_store
from storeformat.store.settings import Settings

SEGMENT = 4096
QUEUE_FILE = 400
TOPICS = ("Orders", "Stock")
QUEUES = 2
GROUP = "readers"


@dataclass
class StoreToStart:
    """A store below ``root``. ``conf`` is its broker.conf, ``version`` the release that will be started."""

    root: Path
    log: LogBuilder
    conf: dict[str, str] = field(default_factory=dict)
    version: str = "5.3"

    def stopped(self) -> StoppedStore:
        return read_stopped_store(str(self.root), Settings(self.conf), self.version)

    def answer(self) -> Answer:
        return judge(self.stopped())

    def reasons(self, rule: str) -> list[Reason]:
        """What one rule says."""
        return [reason for reason in self.answer().reasons if reason.rule == rule]

    def only_reason(self, rule: str) -> Reason:
        (reason,) = self.reasons(rule)
        return reason

    # ------------------------------------------------------------------------------------------------- configuration
    def config(self, name: str) -> Path:
        return self.root / "config" / name

    def write_config(self, name: str, document: Any) -> Path:
        path = self.config(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(as_fastjson(document), encoding="utf-8")
        return path

    def commit(self, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Writes consumerOffset.json; keys are ``topic@group``. Without any there are no groups, either."""
        if not offsets:
            self.write_config("subscriptionGroup.json", {"subscriptionGroupTable": {}})
        self.write_config("consumerOffset.json", {"offsetTable": offsets})

    def queue_directory(self, topic: str, queue_id: int) -> Path:
        return self.root / "consumequeue" / topic / str(queue_id)

    def segment(self, number: int) -> Path:
        return sorted((self.root / "commitlog").glob("0*"))[number]

    def age(self, hours: float, segments: int) -> None:
        """Makes the first segments so old."""
        for number in range(segments):
            then = time.time() - hours * 3600
            os.utime(self.segment(number), (then, then))


def as_fastjson(document: Any) -> str:
    """JSON with bare integer keys and tabs, as fastjson's pretty form."""
    if isinstance(document, Mapping):
        pairs = (
            (str(key) if isinstance(key, int) else json.dumps(key, ensure_ascii=False)) + ":" + as_fastjson(value)
            for key, value in document.items()
        )
        return "{\n\t" + ",\n\t".join(pairs) + "\n}"
    return json.dumps(document, ensure_ascii=False)


def configure(root: Path, queues_in: Path | None = None) -> None:
    """Writes what a broker writes within seconds of its start: topics of its queues, groups with retry topics."""
    config, queues_in = root / "config", queues_in or root
    config.mkdir(exist_ok=True)
    levels = {int(path.name) + 1: 0 for path in (queues_in / "consumequeue" / "SCHEDULE_TOPIC_XXXX").glob("*")}
    names = {path.name for kind in ("consumequeue", "batchconsumequeue") for path in (queues_in / kind).glob("*")}
    topics: dict[str, dict[str, object]] = {
        name: {"readQueueNums": 1 << 30, "writeQueueNums": 0} for name in sorted(names)
    }
    for path in (queues_in / "batchconsumequeue").glob("*"):
        topics[path.name]["attributes"] = {"queue.type": "BatchCQ"}
    retried = {f"Any@{name.removeprefix('%RETRY%')}": {0: 0} for name in sorted(names) if name.startswith("%RETRY%")}
    for name, document in (
        ("topics.json", {"topicConfigTable": topics}),
        ("consumerOffset.json", {"offsetTable": retried}),
        ("lmqConsumerOffset.json", {"offsetTable": retried, "lmqOffsetTable": {}}),  # of one with light queues
        ("subscriptionGroup.json", {"subscriptionGroupTable": {}}),
        ("delayOffset.json", {"offsetTable": levels}),
    ):
        (config / name).write_text(as_fastjson(document), encoding="utf-8")


def healthy_store(
    root: Path, messages: int = 40, *, version: str = "5.3", dispatched: int | None = None
) -> StoreToStart:
    """Messages in two queues of two topics, all but the last four read; ``dispatched`` are in the queues."""
    log = LogBuilder(SEGMENT)
    for number in range(messages):
        log.message(topic=TOPICS[number % 2], queue_id=number // 2 % QUEUES, body=bytes(60), keys=f"k{number}")
    return finished(root, log, version, dispatched)


def finished(root: Path, log: LogBuilder, version: str = "5.3", dispatched: int | None = None) -> StoreToStart:
    """The store around a log: queues of what is dispatched, configuration, broker.conf."""
    root.mkdir(parents=True, exist_ok=True)
    log.write(root)
    rest = log.records[len(log.records) if dispatched is None else dispatched :]
    settings = BrokerSettings(mapped_file_size_commit_log=SEGMENT, mapped_file_size_consume_queue=QUEUE_FILE)
    dispatch(log.segments, settings, until=rest[0].offset if rest else log.end_offset).write(root)
    (root / "lock").write_bytes(b"lock")
    conf = {"mappedFileSizeCommitLog": SEGMENT, "mappedFileSizeConsumeQueue": QUEUE_FILE, "fileReservedTime": 72}
    conf |= {"maxHashSlotNum": settings.max_hash_slot_num, "maxIndexNum": settings.max_index_num}
    store = StoreToStart(root, log, {name: str(value) for name, value in conf.items()}, version)
    entry = {"perm": 6, "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "topicName": ""}
    store.write_config("topics.json", {"topicConfigTable": {topic: {**entry, "topicName": topic} for topic in TOPICS}})
    store.write_config("subscriptionGroup.json", {"subscriptionGroupTable": {GROUP: {"groupName": GROUP}}})
    store.write_config("delayOffset.json", {"offsetTable": {}})
    ends: dict[str, dict[int, int]] = {}
    for (topic, queue_id), end in log.queue_offsets.items():
        ends.setdefault(f"{topic}@{GROUP}", {})[queue_id] = max(end - 1, 0)
    store.commit(ends)
    return store


@contextmanager
def lock_held(store: Path) -> Iterator[None]:
    """As a broker holds it that runs on the store."""
    program = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    )
    line = [sys.executable, "-c", program, str(store / "lock")]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield
        holder.communicate("\n")
