"""The runbook: every command of README's section "A broker is down" and of jobs/RUNBOOK.md is run, in its order, on a
store that has the symptom, after a clean stop and after a crash.

The commands run as they stand there, with the variables that are set in front of the first one: paths, topic, key and
offset of the examples are those of a golden store, ``./spark-submit.sh`` is this Python; those of one heading have
Spark. A comment ``# exit N`` or ``# exit N; after a crash M`` is the expected exit code. A heading without a symptom
fails, and so does a symptom without its heading.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import golden
from support.drilling import overwrite, wipe
from support.here import tasks_here
from support.reading import read
from support.rebuilding import rebuild_here, verify_here
from support.store_builder import Message, encode_record
from support.store_to_start import as_fastjson, configure

from jobs.cli import command_line
from storeformat.record.dispatch import TIMER_TOPIC

ROOT = Path(__file__).resolve().parents[2]
ENTRY = "./spark-submit.sh "
WITH_SPARK = "The broker does not start"
_TIMEOUT = 900
LATER_MS = 1_800_000_000_000
"""After all that golden stores hold."""


@dataclass(frozen=True)
class Case:
    """A store with a symptom, its settings, and what replaces the examples' own words."""

    root: Path
    words: Mapping[str, str]
    settings: Mapping[str, Any]

    def is_healed(self, **more: Any) -> bool:
        """Whether ``verify`` finds nothing any more."""
        return not verify_here(self.root, self.settings, **more).verdicts.counts


def commands(text: str, level: str) -> dict[str, list[str]]:
    """Heading of a level to commands; in front of all headings is what sets the variables."""
    found: dict[str, list[str]] = {}
    heading, inside = "", False
    for line in text.splitlines():
        if line.startswith(level):
            heading = line.removeprefix(level)
        elif line.startswith("```"):
            inside = line == "```sh"
        elif inside and line.strip():
            found.setdefault(heading, []).append(line)
    return found


# ------------------------------------------------------------------------------------------------------------- symptoms
def queue_ends_in_an_empty_file(root: Path) -> None:
    """What keeps a broker of 5.0 or later from starting (apache/rocketmq#9728)."""
    last = sorted(path for path in (root / "consumequeue").rglob("0*") if path.is_file())[-1]
    size = last.stat().st_size
    last.with_name(f"{int(last.name) + size:020d}").write_bytes(bytes(size))


def queues_are_gone(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def nothing(root: Path) -> None:
    """The store as its broker left it."""


def index_is_empty(root: Path) -> None:
    """Headers and entries are there, the slots are not: no chain begins anywhere."""
    for path in (root / "index").iterdir():
        content = bytearray(path.read_bytes())
        content[40:440] = bytes(400)
        path.write_bytes(content)


def log_is_damaged(root: Path) -> None:
    overwrite(root, 300_000, 300_700)
    wipe(root)


def unit_points_elsewhere(root: Path) -> None:
    path = queue_directory(root) / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[20:28] = content[0:8]
    path.write_bytes(content)


def a_segment_is_missing(root: Path) -> None:
    sorted((root / "commitlog").iterdir())[2].unlink()
    wipe(root)


def two_damaged_copies(root: Path) -> None:
    replica_beside_it(root)
    overwrite(root.parent / "replica", 400_000, 400_700)
    sorted((root / "commitlog").iterdir())[2].unlink()
    log_is_damaged(root)


def replica_beside_it(root: Path) -> None:
    shutil.copytree(root, root.parent / "replica")


def last_record_is_torn(root: Path) -> None:
    reading = read(root)
    last = max(scan.dispatched.last for scan in reading.scans)
    config_of(root, 0)
    overwrite(root, last + 60, reading.end, b"\0")
    wipe(root)


def a_queue_id_is_damaged(root: Path) -> None:
    runs = read(root, split_size=100_000).queue_runs.runs
    inner = int(runs.first_offsets[(runs.counts > 2) & (runs.first_queue_offsets > 0)][0])
    overwrite(root, inner + 12, inner + 14, b"\x01")
    wipe(root)


def config_of(root: Path, offset: int) -> Path:
    """config/ with the topics of the queues, and a group that stands at an offset in each; the log is of today."""
    for path in (root / "commitlog").iterdir():
        path.touch()
    config = root / "config"
    config.mkdir(exist_ok=True)
    queues = [(path.parent.name, int(path.name)) for path in sorted((root / "consumequeue").glob("*/*"))]
    entries = {topic: {"readQueueNums": 32, "writeQueueNums": 32} for topic, _ in queues}
    table: dict[str, dict[int, int]] = {}
    for topic, queue_id in queues:
        table.setdefault(f"{topic}@readers", {})[queue_id] = offset
    levels = {queue_id + 1: 0 for topic, queue_id in queues if topic == "SCHEDULE_TOPIC_XXXX"}
    documents = {
        "topics.json": {"topicConfigTable": entries},
        "consumerOffset.json": {"offsetTable": table},
        "subscriptionGroup.json": {"subscriptionGroupTable": {"readers": {}}},
        "delayOffset.json": {"offsetTable": levels},
    }
    for name, document in documents.items():
        (config / name).write_text(as_fastjson(document), encoding="utf-8")
    return config


def the_replica_is_shorter(root: Path) -> None:
    config_of(root, 0)
    replica_beside_it(root)
    sorted((root.parent / "replica" / "commitlog").iterdir())[-1].unlink()


def topics_are_torn(root: Path) -> None:
    (config_of(root, 0) / "topics.json").write_text('{"topicConfigTable":{')


def wheel_and_timer_log_are_lost(root: Path) -> None:
    """Three messages wait; of the timer state timercheck alone is left."""
    (store,) = golden.stores("base-clean-5.3.3")
    end = store.end_offset
    for number in range(3):
        waits = {"TIMER_OUT_MS": "1900000000000", "UNIQ_KEY": f"timer-{number}", "REAL_TOPIC": "Sold", "REAL_QID": "0"}
        message = Message(topic=TIMER_TOPIC, queue_offset=number, properties=waits, store_timestamp=LATER_MS)
        record = encode_record(message, end)
        overwrite(root, end, end + len(record), record)
        end += len(record)
    built = Path(rebuild_here(root, root.parent / "derived", store.settings).directory)
    wipe(root)
    for name in ("consumequeue", "index", "checkpoint"):
        (built / name).rename(root / name)
    (config_of(root, 0) / "timercheck").write_bytes(struct.pack(">4q", 0, 0, 3, 3).ljust(4096, b"\0"))


def offsets_are_torn(root: Path) -> None:
    """The backup is sound, and a little older."""
    path = config_of(root, 1) / "consumerOffset.json"
    path.rename(path.with_name(path.name + ".bak"))
    path.write_text('{"offsetTable":{')


def the_store_was_down_for_a_week(root: Path) -> None:
    config_of(root, 0)
    then = time.time() - 7 * 24 * 3600
    for path in (root / "commitlog").iterdir():
        os.utime(path, (then, then))


def queues_in_rocksdb_are_gone(root: Path) -> None:
    wipe(root)
    with (root.parent / "broker.conf").open("a", encoding="utf-8") as conf:
        conf.write("storeType=defaultRocksDB\n")


def broker_conf_names_another(root: Path) -> None:
    with (root.parent / "broker.conf").open("a", encoding="utf-8") as conf:
        conf.write("storePathRootDir=/elsewhere\n")


def the_last_segment_is_gone(root: Path) -> None:
    config_of(root, 0)
    sorted((root / "commitlog").iterdir())[-1].unlink()


SYMPTOMS: dict[str, tuple[str, Callable[[Path], None], bool]] = {
    # heading: the store, what is done to it, whether verify must be run in the end, for the commands do not
    "A broker is down": ("base-clean-5.1.4", queues_are_gone, True),
    "A plain crash": ("base-killed-5.3.3", nothing, True),
    "The store was moved": ("base-clean-5.3.3", broker_conf_names_another, False),
    "The tail of the log is lost": ("base-larger-5.3.3", the_last_segment_is_gone, True),
    "What is wrong?": ("base-clean-5.3.3", nothing, False),
    "The broker does not start": ("base-killed-5.3.3", queue_ends_in_an_empty_file, False),
    "Consumers read nothing": ("base-clean-5.1.4", queues_are_gone, True),
    "A key is not found": ("base-clean-5.3.3", index_is_empty, True),
    "The disk is damaged": ("base-larger-5.3.3", log_is_damaged, False),
    "A segment is missing or short": ("base-larger-5.3.3", a_segment_is_missing, False),
    "A copy of the damaged log": ("base-larger-5.3.3", two_damaged_copies, False),
    "The last record is torn": ("base-killed-5.3.3", last_record_is_torn, False),
    "A record lies in the wrong queue": ("base-larger-5.3.3", a_queue_id_is_damaged, False),
    "One queue is broken": ("base-clean-5.3.3", unit_points_elsewhere, True),
    "A replica to compare": ("base-clean-5.3.3", replica_beside_it, False),
    "After an upgrade to 5.4 or later": ("base-killed-5.5.0", wipe, True),
    "The master's disk is gone": ("base-clean-5.3.3", the_replica_is_shorter, False),
    "config/ is lost": ("base-clean-5.3.3", topics_are_torn, False),
    "Committed offsets are lost": ("base-clean-5.3.3", offsets_are_torn, False),
    "Timer state is lost": ("base-clean-5.3.3", wheel_and_timer_log_are_lost, False),
    "Old segments would expire": ("base-clean-5.3.3", the_store_was_down_for_a_week, False),
    "Queues in RocksDB": ("base-killed-5.5.0", queues_in_rocksdb_are_gone, False),
    "Another storeType": ("base-clean-5.5.0", nothing, False),
    "The way back": ("base-killed-5.3.3", queue_ends_in_an_empty_file, False),
}


def queue_directory(root: Path) -> Path:
    """The queue of the examples: that with the most bytes in its first file's units."""
    files = sorted((root / "consumequeue").glob(f"*/*/{0:020d}"))
    return max(files, key=lambda path: len(path.read_bytes().rstrip(b"\0"))).parent


def prepare(heading: str, work: Path) -> Case:
    name, spoil, _ = SYMPTOMS[heading]
    root = golden.unpack(name, work)
    configure(root)
    (store,) = golden.stores(name)
    conf = work / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in store.entry["settings"].items()), encoding="utf-8")
    queue = queue_directory(root)
    key = next(item for item in store.entry["answers"]["queries"] if len(item["commitLogOffsets"]) == 1)
    words = {
        "/data/rocketmq/store": str(root),
        "/etc/rocketmq/broker.conf": str(conf),
        "/data/rebuilt": str(work / "rebuilt"),
        "/data/replica/store": str(work / "replica"),
        "/data/salvage.json": str(work / "salvage.json"),
        "/data/repaired-commitlog": str(work / "repaired-commitlog"),
        "/data/repaired": str(work / "repaired"),
        "TopicTest:3": f"{queue.parent.name}:{queue.name}",
        "--topic TopicTest --key order-4711": f"--topic '{key['topic']}' --key '{key['key']}'",
    }
    spoil(root)
    return Case(root, words, store.settings)


def run(line: str, words: Mapping[str, str], *, with_spark: bool, crashed: bool) -> tuple[int, int]:
    """The exit code that a line has, and the one it should have."""
    command, _, comment = line.partition("#")
    for word, real in (*SETTINGS.items(), *words.items()):
        command = command.replace(word, real)
    assert not re.search(r"/data/|/etc/|TopicTest|order-4711|\$", command), f"an example without its place: {line}"
    expected = (re.search(r"after a crash (\d+)", comment) if crashed else None) or re.search(r"exit (\d+)", comment)
    if command.startswith(ENTRY) and not with_spark:
        with tasks_here():
            code = command_line.main(shlex.split(command[len(ENTRY) :]))
    else:
        if command.startswith(ENTRY):
            command = f"'{sys.executable}' -m jobs {command[len(ENTRY) :]}"
        code = subprocess.run(command, shell=True, cwd=ROOT, check=False, timeout=_TIMEOUT).returncode
    return code, int(expected[1]) if expected else 0


IN_README = "A broker is down"
_RUNBOOK = (ROOT / "jobs" / "RUNBOOK.md").read_text(encoding="utf-8")
COMMANDS = commands(_RUNBOOK, "## ")
COMMANDS[IN_README] = commands((ROOT / "README.md").read_text(encoding="utf-8"), "## ")[IN_README]
(_settings,) = COMMANDS.pop("")
SETTINGS = {f"${name}": value for name, _, value in (word.partition("=") for word in shlex.split(_settings))}
BEFORE = {"The way back": COMMANDS[WITH_SPARK][:2]}
"""What somebody did who then reads under a heading."""


def test_every_heading_has_its_symptom() -> None:
    assert sorted(COMMANDS) == sorted(SYMPTOMS)


def test_the_table_of_symptoms_leads_to_every_heading() -> None:
    links = re.findall(r"^\|[^|]+\| \[(.+)\]\(#(.+)\) \|$", _RUNBOOK, re.MULTILINE)
    for heading, anchor in links:
        assert anchor == re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
    assert {heading for heading, _ in links} | {IN_README} == set(SYMPTOMS)


@pytest.mark.slow
@pytest.mark.spark
def test_with_spark_the_commands_do_what_they_say(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    check(WITH_SPARK, tmp_path, capfd, with_spark=True, crashed=True)


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("heading", [heading for heading in SYMPTOMS if heading != WITH_SPARK])
def test_the_commands_do_what_they_say(
    heading: str, crashed: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    check(heading, tmp_path, capfd, with_spark=False, crashed=crashed)


def check(heading: str, work: Path, capfd: pytest.CaptureFixture[str], *, with_spark: bool, crashed: bool) -> None:
    case = prepare(heading, work)
    abort = case.root / "abort"
    abort.write_text("1", encoding="utf-8") if crashed else abort.unlink(missing_ok=True)
    before = log(case.root)
    for line in (*BEFORE.get(heading, ()), *COMMANDS[heading]):
        code, expected = run(line, case.words, with_spark=with_spark, crashed=crashed)
        assert code == expected, f"{line}\n{capfd.readouterr()}"
    assert log(case.root) == before, "nothing here changes the log"
    assert not SYMPTOMS[heading][2] or case.is_healed()
    if heading == "The disk is damaged":
        assert f"start the broker on {work / 'repaired-commitlog'}, with" in " ".join(capfd.readouterr().out.split())
        report = json.loads((work / "salvage.json").read_text(encoding="utf-8"))
        assert report["damaged_ranges"]
        assert report["lost_messages"] > 0
        assert report["repaired_segments"]
        assert (case.root / "consumequeue").is_dir()
        assert case.is_healed(commitlog=(str(work / "repaired-commitlog"),))
    if heading in ("A segment is missing or short", "A copy of the damaged log", "A record lies in the wrong queue"):
        assert case.is_healed(commitlog=(str(work / "repaired-commitlog"),))
    if heading == "The last record is torn":
        assert "what follows" not in capfd.readouterr().out
    if heading == "A copy of the damaged log":
        undamaged = golden.unpack(SYMPTOMS[heading][0], work / "undamaged") / "commitlog"
        for path in sorted((work / "repaired-commitlog").iterdir()):
            assert path.read_bytes() == (undamaged / path.name).read_bytes()
    if heading == "The way back":
        assert abort.exists() == crashed


def log(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "commitlog").iterdir())}
