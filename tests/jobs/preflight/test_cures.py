"""Each cure that ``preflight`` shows, followed to the letter on a store that was damaged so: the reason is gone."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.drilling import run_job
from support.store_builder import LogBuilder
from support.store_to_start import SEGMENT, StoreToStart, finished, healthy_store

from jobs.contract.commands import quoted
from jobs.contract.report import is_printable, printable
from jobs.preflight.reason import ROWS, Reason
from storeformat.javaproperties import as_written

Damage = Callable[[StoreToStart], object]


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0xFF
    path.write_bytes(content)


def second_path(store: StoreToStart) -> None:
    other = store.root.parent / "second"
    other.mkdir()
    (other / store.segment(0).name).write_bytes(bytes(SEGMENT))
    store.conf["storePathCommitLog"] = f"{store.root}/commitlog,{other}"


def torn_with_its_backup(store: StoreToStart) -> None:
    for name in ("topics.json", "topics.json.bak"):
        store.config(name).write_text("{")


def of_release(version: str, damage: Damage) -> Damage:
    def damaged(store: StoreToStart) -> None:
        store.version = version
        damage(store)

    return damaged


def delayed(levels: dict[int, int], **conf: str) -> Damage:
    def damaged(store: StoreToStart) -> None:
        rest = store.root.parent / "with delays"
        log = LogBuilder(SEGMENT)
        for seconds in (0, 5, 95):
            real = {"DELAY": "3", "REAL_TOPIC": "Orders", "REAL_QID": "0"}
            log.message(topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties=real,
                        store_timestamp=1_700_000_000_000 + seconds * 1000)  # fmt: skip
        made = finished(rest, log)
        made.write_config("delayOffset.json", {"offsetTable": {3: 2}})
        shutil.copytree(rest, store.root.parent / "spare", dirs_exist_ok=True)
        made.write_config("delayOffset.json", {"offsetTable": levels})
        shutil.rmtree(store.root)
        rest.rename(store.root)
        store.conf.update(conf)

    return damaged


def directory_at(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir(parents=True)


def swapped(store: StoreToStart) -> None:
    one, other = store.segment(0), store.segment(1)
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def broken_database(path: Path) -> None:
    """As a power failure leaves it."""
    path.mkdir()
    (path / "CURRENT").touch()
    (path / "MANIFEST-000005").write_bytes(b"x")


def older_queues(store: StoreToStart) -> None:
    """The log has lost its first segment, and the queues are those of a backup from before."""
    store.segment(0).unlink()
    for path in (store.root / "consumequeue").glob("*/*/0*"):
        path.write_bytes(path.read_bytes()[:60].ljust(400, b"\0"))
    for path in (store.root / "index").iterdir():
        path.unlink()
    store.commit({})


def ext_file(store: StoreToStart) -> None:
    path = store.root / "consumequeue_ext" / "Orders" / "0" / f"{0:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(400))
    store.conf["enableConsumeQueueExt"] = "true"


def batch_type(store: StoreToStart) -> None:
    entry = {"readQueueNums": 2, "writeQueueNums": 2, "attributes": {"queue.type": "BatchCQ"}}
    store.write_config("topics.json", {"topicConfigTable": {"Orders": entry, "Stock": {}}})


def with_timers(damage: Damage) -> Damage:
    def damaged(store: StoreToStart) -> None:
        rest = store.root.parent / "with timers"
        log = LogBuilder(SEGMENT)
        due = {"TIMER_OUT_MS": "4102444800000", "REAL_TOPIC": "Orders", "REAL_QID": "0"}
        for _ in range(5):
            log.message(topic="rmq_sys_wheel_timer", queue_id=0, properties=due)
        made = finished(rest, log)
        with (made.root / "timerwheel").open("wb") as wheel:
            wheel.truncate(38_707_200)
        (made.root / "timerlog").mkdir()
        with (made.root / "timerlog" / f"{0:020d}").open("wb") as file:
            file.truncate(100 << 20)
        made.config("timercheck").write_bytes(struct.pack(">4q", 1, 260, 5, 5).ljust(4096, b"\0"))
        shutil.rmtree(store.root)
        rest.rename(store.root)
        damage(store)

    return damaged


DAMAGES: dict[str, tuple[str, Damage]] = {
    "a stray file": ("stray_file", lambda store: (store.root / "commitlog" / "it's $(notes)").touch()),
    "a directory": ("stray_file", of_release("4.9", lambda store: (store.root / "commitlog" / "old").mkdir())),
    "a directory for a checkpoint": ("stray_file", lambda store: directory_at(store.root / "checkpoint")),
    "a directory for an index file": ("stray_file", lambda store: directory_at(store.root / "index" / "2026")),
    "no last segment": ("units_beyond_log", lambda store: store.segment(-1).unlink()),
    "no topic": ("config_lost", lambda store: store.config("topics.json").write_text("{}")),
    "a size": ("segment_size", lambda store: store.conf.update(mappedFileSizeCommitLog="8192")),
    "a cut segment": ("segment_size", lambda store: os.truncate(store.segment(0), 4000)),
    "an empty segment": (
        "segment_size", of_release("4.9", lambda store: (store.root / "commitlog" / f"{4 * SEGMENT:020d}").touch()),
    ),
    "twice": ("segment_twice", second_path),
    "segments swapped": ("segment_misplaced", swapped),
    "a database": ("database_not_opened", lambda store: broken_database(store.root / "kvStore")),
    "a type of queues": ("queue_type", batch_type),
    "a gap": ("segment_missing", lambda store: store.segment(1).unlink()),
    "a blank": ("setting_not_taken", lambda store: store.conf.update(fileReservedTime="48 ")),
    "no DUP_INFO": ("log_cut", lambda store: store.conf.update(duplicationEnable="true")),
    "no property CRC": ("log_cut", lambda store: store.conf.update(forceVerifyPropCRC="true")),
    "another store": ("store_path", lambda store: store.conf.update(storePathRootDir="/nowhere")),
    "a relative root": ("store_path", lambda store: store.conf.update(storePathRootDir=os.path.relpath(store.root))),
    "no path": ("store_path", lambda store: store.conf.update(storePathCommitLog="/nowhere")),
    "no group": ("store_path", lambda store: store.conf.update(enableDLegerCommitLog="true")),
    "no config": ("config_absent", lambda store: shutil.rmtree(store.root / "config")),
    "no topics": ("config_lost", lambda store: store.config("topics.json").unlink()),
    "no offsets": ("config_lost", lambda store: store.config("consumerOffset.json").unlink()),
    "torn": ("config_torn", torn_with_its_backup),
    "fewer queues": (
        "queues_not_read",
        lambda store: store.write_config(
            "topics.json", {"topicConfigTable": {name: {"readQueueNums": 1} for name in ("Orders", "Stock")}}
        ),
    ),
    "topics unknown": (
        "topics_not_configured",
        lambda store: store.write_config("topics.json", {"topicConfigTable": {"Orders": {"readQueueNums": 2}}}),
    ),
    "no log": ("log_missing", lambda store: [path.unlink() for path in (store.root / "commitlog").iterdir()]),
    "no queue": (
        "messages_not_served", of_release("5.1", lambda store: shutil.rmtree(store.queue_directory("Orders", 0))),
    ),
    "a hole": (
        "wrong_units", lambda store: flip(store.queue_directory("Orders", 0) / f"{0:020d}", 3 * 20 + 7),
    ),
    "queues older than the log": ("messages_moved", of_release("4.9", older_queues)),
    "a checkpoint ahead": (
        "recovered_beyond_log",
        of_release("5.5", lambda store: (
            store.conf.update(enableAcceleratedRecovery="true"),
            (store.root / "checkpoint").write_bytes(struct.pack(">6q", 0, 0, 0, 0, 0, 1 << 40).ljust(4096, b"\0")),
        )),
    ),
    "damage": ("log_damaged", lambda store: flip(store.segment(1), store.log.records[30].offset - SEGMENT + 5)),
    "a stray queue file": ("queue_files", lambda store: (store.queue_directory("Orders", 0) / "0").touch()),
    "a queue size": ("queue_files", lambda store: store.conf.update(mappedFileSizeConsumeQueue="800")),
    "a long queue file": (
        "queue_files", lambda store: os.truncate(store.queue_directory("Orders", 0) / f"{0:020d}", QUEUE_CUT),
    ),
    "an empty queue file": (
        "queue_files", of_release("5.1", lambda store: (store.queue_directory("Orders", 0) / f"{400:020d}").touch()),
    ),
    "an empty table": ("no_offsets", lambda store: store.write_config("consumerOffset.json", {"offsetTable": {}})),
    "ahead": (
        "committed_beyond_queue",
        lambda store: store.write_config("consumerOffset.json", {"offsetTable": {"Orders@readers": {0: 99, 1: 9}}}),
    ),
    "a level unknown": ("delay_offset_behind", delayed({})),
    "a level ahead": ("delay_offset_ahead", delayed({3: 3})),
    "a level beyond": ("delay_offset_beyond_queue", of_release("4.8", delayed({3: 0, 4: 8}))),
    "too few levels": ("delay_level_absent", delayed({3: 2}, messageDelayLevel="1s 5s")),
    "levels": ("delay_level_absent", delayed({3: 0}, messageDelayLevel="1s 5")),
    "old": (
        "messages_deleted",
        lambda store: (store.age(100, 1), store.commit({"Orders@readers": {0: 1}})),
    ),
    "index": ("index_size", lambda store: store.conf.update(maxIndexNum="61")),
    "a queue's other files": ("mapped_file", ext_file),
    "a wheel": ("timer_wheel_size", with_timers(lambda store: os.truncate(store.root / "timerwheel", 100))),
    "a timer log": ("timer_log_size", with_timers(lambda store: store.conf.update(mappedFileSizeTimerLog="1000"))),
    "no wheel, no log": (
        "timer_state_lost",
        with_timers(lambda store: ((store.root / "timerwheel").unlink(), shutil.rmtree(store.root / "timerlog"))),
    ),
    "timers beyond": (
        "timer_beyond_log",
        with_timers(
            lambda store: store.config("timercheck").write_bytes(struct.pack(">4q", 1, 260, 9, 9).ljust(4096, b"\0"))
        ),
    ),
}  # fmt: skip
QUEUE_CUT = 399
NOT_FOLLOWED = {
    "store_in_use", "free_space", "files_not_writable",  # nothing in the store
    "config_backup", "config_from_json", "committed_before_queue", "torn_tail", "queues_made_again",  # nothing to do
    "index_deleted",  # publish --after-crash
    "log_begins_late",  # its segments are gone
    "queues_fewer_than_configured", "rocksdb_not_judged", "replica_shorter",  # notes that send to another job
    "not_judged", "queue_offsets_twice",  # nothing to do, or nothing known
    "store_type", "database_not_read",  # of RocksDB: tests/drill and tests/realstore
    "epoch_file", "replica_longer", "replica_differs", "replica_begins_earlier",  # another copy of the group
}  # fmt: skip
"""Rules without a cure that this machine can follow."""


def follow(store: StoreToStart, cure: str, spare: Path) -> None:
    """Does what the first alternative of a cure says; ``spare`` is a sound copy of the store."""
    first = re.split(r"; or |, or ", cure)[0]
    if found := re.match(r"(?:by hand.*: )?((?:mv|rm) .*?)(?:$|: |; |, if )", cure):
        subprocess.run(["sh", "-c", found[1]], check=True)
        if "rebuild makes" in cure:
            rebuilt(store, "rebuild")
    elif found := re.match(r"set both as they were", cure):
        store.conf["maxIndexNum"] = "60"
    elif settings := re.findall(r"(?:write|set|and) (\w+)=(\S*?)(?= |,|$)", first):
        store.conf.update(settings)
    elif found := re.match(r"set (\w+) right", cure):
        store.conf = {**store.conf, found[1]: SOUND.get(found[1], "")}
    elif found := re.match(r"give messageDelayLevel (\d+) levels", cure):
        store.conf["messageDelayLevel"] = " ".join(["1s", "5s", "10s", "30s"][: int(found[1])])
    elif edits := re.match(r'in (\S+), (?:"(\S+)", )?set (\S+) to (\S+)', cure):
        path = Path(edits[1])
        text = path.read_text()
        begin = text.index(edits[2]) if edits[2] else 0
        assert edits[3] in text[begin:]
        path.write_text(text[:begin] + text[begin:].replace(edits[3], edits[4], 1))
    elif ("put" in first or "fetch" in first) and "repaired segments" not in first:
        for name in ("config", "commitlog"):
            shutil.copytree(spare / name, store.root / name, dirs_exist_ok=True)
    elif "touch" in cure:
        subprocess.run(["sh", "-c", cure.partition(": ")[2]], check=True)
    else:
        rebuilt(store, cure)


SOUND = {
    "mappedFileSizeCommitLog": str(SEGMENT),
    "mappedFileSizeTimerLog": str(100 << 20),
    "messageDelayLevel": "1s 5s 10s",
}


def rebuilt(store: StoreToStart, cure: str) -> None:
    """Follows "rebuild ... and publish"."""
    found = re.search(r"rebuild((?: --[\w-]+(?: (?!adds|raises|makes)[a-z][\w-]*)?)*)", cure)
    assert found is not None, cure
    words, repaired = found[1].split(), store.root.parent / "repaired"
    output = store.root.parent / "rebuilt"
    settings = [word for name, value in store.conf.items() for word in ("--set", f"{name}={value}")]
    if "--repair-log" in words:
        words += [str(repaired)]
    version = ["--broker-version", store.version]
    run_job("rebuild", "--store", store.root, "--output", output, *version, *settings, *words)
    if repaired.is_dir():
        shutil.copytree(repaired, store.root / "commitlog", dirs_exist_ok=True)
    else:
        done = run_job("publish", "--store", store.root, "--from", output)
        assert done.code == 0, done.report


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_cure_cures(damage: str, tmp_path: Path) -> None:
    rule, broken = DAMAGES[damage]
    store, spare = healthy_store(tmp_path / "store", 80), tmp_path / "spare"
    shutil.copytree(store.root, spare)
    broken(store)
    reasons = store.reasons(rule)
    assert reasons, [(reason.rule, reason.what) for reason in store.answer().reasons]
    before = unsafe(store)
    for reason in reasons:
        follow(store, reason.cure, spare)
    assert store.reasons(rule) == []
    assert len(unsafe(store)) < len(before) or not any(reason.unsafe for reason in reasons)


NAMES = {"quotes": 'it\'s; $(touch x) `id` "q" & -rf', "hidden": "two\nlines \x1b[2J \u202egnp"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_name_in_a_cure_is_one_word(damage: str, name: str, tmp_path: Path) -> None:
    """Nothing of the name of a directory or a group is outside of a quoted word, or in a command that hides it."""
    store = healthy_store(tmp_path / NAMES[name], 80)
    shutil.copytree(store.root, tmp_path / "spare")
    DAMAGES[damage][1](store)
    if store.config("consumerOffset.json").exists():
        store.commit({f"Orders@{NAMES[name]}": {0: 10_000}})
    paths = [
        str(path) for path in (store.root, *store.root.rglob("*"), store.root / "commitlog", store.root / "config")
    ]
    paths += [f"{directory}/{file}" for directory in paths for file in ("..", "delayOffset.json", "topics.json.bak")]
    words = [
        json.dumps(f"Orders@{NAMES[name]}", ensure_ascii=False),
        *(shlex.quote(f"storePathRootDir={path}") for path in paths),
    ]
    words += [form(path) for path in paths for form in (quoted, as_written)]
    for reason in store.answer().reasons:
        rest = reason.cure
        for word in sorted(words, key=len, reverse=True):
            rest = rest.replace(word, "")
        assert "by hand, for a name has" in rest or not any(part in rest for part in ("touch x", "gnp")), reason.cure
        assert is_printable(printable(reason.cure))


def unsafe(store: StoreToStart) -> list[Reason]:
    return [reason for reason in store.answer().reasons if reason.unsafe]


def test_all_rules_are_followed() -> None:
    rules = {case.partition(".")[0] for case in ROWS.sections()}
    assert rules - {rule for rule, _ in DAMAGES.values()} == NOT_FOLLOWED
