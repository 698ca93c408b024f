"""What drills with a real broker share: ``crash``, the command line, and how to compare.

``crash`` has messages of every kind sent, a part of them read by a group, and everything asked; on the live broker a
rebuild is made and a publish tried. Then it is killed, and what it had derived from its log is gone.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.here import tasks_here
from support.real_broker import BrokerSite

from jobs.cli import command_line

ROOT = Path(__file__).resolve().parents[2]
DERIVED = ("consumequeue", "index", "checkpoint")
_TIMEOUT = 900


TOPICS = ("Normal", "Tagged", "Delayed", "Transaction", "Batch")
ASKED = (*TOPICS, "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer")
COUNTS = {"normal": 400, "large": 3, "tagged": 60, "batch": 8, "delayed": 12, "timed": 3, "transaction": 12}
DELIVERED, BATCH_SIZE, COMMITTED = 6, 5, 4
GROUP = {"command": "consume", "group": "readers", "topic": "Normal"}
ASK = {"command": "ask", "topics": ASKED}

Answers = Mapping[str, Any]


@dataclass(frozen=True)
class Done:
    """How a command ended: ``report`` is what ``--json`` printed, ``said`` its standard error."""

    code: int
    report: dict[str, Any]
    said: str


@dataclass(frozen=True)
class Crashed:
    """A broker after kill -9, without what it had derived: what it had answered, and which files it had."""

    site: BrokerSite
    store: Path
    sent: Sequence[Mapping[str, Any]]
    group: Mapping[str, Any]
    answers: Answers
    queues: Mapping[str, str]
    index: Mapping[str, str]
    log: Mapping[str, str]
    live_rebuild: Done
    live_publish: Done
    live_verify: Done
    live_output: Path

    @property
    def scratch(self) -> Path:
        return self.site.scratch


def crash(site: BrokerSite) -> Crashed:
    """Returns the broker after the crash; a copy of its store lies in ``wiped``."""
    store = site.scratch / "store"
    site.start(store)
    first, rest = dict(list(COUNTS.items())[:2]), dict(list(COUNTS.items())[2:])
    sent, _, others, _, group, answers = site.clients(
        {"command": "send", "round": "one", "create": TOPICS, "counts": first},
        # recovery goes back to a segment that began three seconds before the checkpoint: not to the whole log, please
        {"command": "pause", "ms": 4_000},
        {"command": "send", "round": "one", "create": [], "counts": rest},
        {"command": "await", "topic": "Delayed", "messages": DELIVERED},
        {**GROUP, "messages": 150},
        ASK,
    )
    await_numbers(store, "consumerOffset.json", "Normal@readers", group["committed"])
    await_numbers(store, "delayOffset.json", "offsetTable", {"1": DELIVERED})
    live_output = site.scratch / "rebuilt-live"
    live_rebuild = run_job(
        "rebuild", "--store", store, "--output", live_output, "--broker-conf", site.broker_conf(store)
    )
    live_publish = run_job("publish", "--store", store, "--from", live_output, "--after-crash")
    live_verify = run_job("verify", "--store", store, "--broker-conf", site.broker_conf(store))
    files = files_of(store)
    site.kill()
    assert files_of(store) == files, "a broker at rest"
    wipe(store)
    copy_store(store, site.scratch / "wiped")
    return Crashed(
        site, store, [*sent, *others], group, answers, *files, live_rebuild, live_publish, live_verify, live_output
    )


def run_job(*arguments: object) -> Done:
    said, shown = io.StringIO(), io.StringIO()
    with tasks_here(), contextlib.redirect_stdout(shown), contextlib.redirect_stderr(said):
        code = command_line.main([*map(str, arguments), "--json"])
    return Done(code, json.loads(shown.getvalue()), said.getvalue())


def run_job_with_spark(*arguments: object) -> Done:
    """Runs the command line as a user does, in a process of its own."""
    line = [sys.executable, "-m", "jobs", *map(str, arguments), "--json"]
    ran = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_TIMEOUT)
    assert ran.stdout.strip(), f"{line} said nothing on stdout: {ran.stderr[-3000:]}"
    return Done(ran.returncode, json.loads(ran.stdout), ran.stderr)


def wipe(store: Path) -> None:
    for name in DERIVED:
        path = store / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def copy_store(source: Path, target: Path) -> Path:
    """Returns ``target``, a copy of a store at rest, with its holes."""
    subprocess.run(["cp", "-a", "--sparse=always", source, target], check=True)
    return target


def queue_files(store: Path) -> dict[str, str]:
    return _digests(store, "consumequeue")


def index_files(store: Path) -> dict[str, str]:
    return _digests(store, "index")


def log_files(store: Path) -> dict[str, str]:
    """Name to SHA-256 of every segment; a segment that is only allocated counts as none."""
    found = {}
    for path in sorted((store / "commitlog").iterdir()):
        data = path.read_bytes()
        if data.strip(b"\0"):
            found[path.name] = hashlib.sha256(data).hexdigest()
    return found


def overwrite(store: Path, begin: int, end: int, data: bytes = b"") -> None:
    """Overwrites ``[begin, end)`` of the log, inside one segment, with ``data`` over and over (default: noise)."""
    segment = max(path for path in (store / "commitlog").iterdir() if int(path.name) <= begin)
    size = end - begin
    with segment.open("r+b") as file:
        file.seek(begin - int(segment.name))
        file.write((data * (size // len(data) + 1))[:size] if data else hashlib.shake_256(b"noise").digest(size))
        file.flush()
        os.fsync(file.fileno())


def _digests(store: Path, part: str) -> dict[str, str]:
    return {
        path.relative_to(store).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((store / part).rglob("*"))
        if path.is_file()
    }


def files_of(store: Path) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    return queue_files(store), index_files(store), log_files(store)


def await_numbers(store: Path, name: str, table: str, numbers: Mapping[str, int]) -> None:
    """Waits until a table of a file of the broker's configuration has these numbers."""
    deadline = time.monotonic() + 200
    while not numbers.items() <= (found := numbers_in(store, name, table)).items():
        assert time.monotonic() < deadline, f"{name} is not persisted: {numbers}, found {found}"
        time.sleep(0.1)


def numbers_in(store: Path, name: str, table: str) -> dict[str, int]:
    """Returns a table of a file of the broker's configuration. It writes integer keys without quotes."""
    path = store / "config" / name
    text = "".join(path.read_text(encoding="utf-8").split()) if path.exists() else ""
    _, _, rest = text.partition(f'"{table}":{{')
    pairs = re.findall(r'"?(\d+)"?:(\d+)', rest.partition("}")[0])
    return {key: int(number) for key, number in pairs}


def places(answers: Answers, topic: str) -> list[tuple[int, int]]:
    """(queue id, queue offset) of every message served of a topic."""
    return [
        (int(name.rpartition(":")[2]), row["queueOffset"])
        for name, queue in answers["queues"].items()
        if name.rpartition(":")[0] == topic
        for row in queue["messages"]
    ]


def unique_keys(answers: Answers, topics: Sequence[str]) -> list[str]:
    return [
        row["uniqKey"]
        for name, queue in answers["queues"].items()
        if name.rpartition(":")[0] in topics
        for row in queue["messages"]
    ]


def missing(answers: Answers, sent: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was sent and is not served: at its offset, by each of its keys, by unique key and by id."""
    served = {(name, row["queueOffset"]): row for name, queue in answers["queues"].items() for row in queue["messages"]}
    lacking = []
    for row in sent:
        if row["kind"] in ("delayed", "timed", "transaction"):
            # these wait elsewhere first; those that are through are known by their unique key
            if (
                row["fate"] in ("delivered", "COMMIT_MESSAGE")
                and f"{row['topic']}#{row['uniqKey']}" not in answers["uniqKeys"]
            ):
                lacking.append(f"unique key of {row['keys']}")
            continue
        found = served.get((f"{row['topic']}:{row['queueId']}", row["queueOffset"]))
        # up to 5.3.3 the members of a batch are stored with one unique key, that of the batch
        alike = row["kind"] == "batch" or (found or {}).get("uniqKey") == row["uniqKey"]
        if found is None or not alike or (found["keys"], found.get("tags")) != (row["keys"], row.get("tags") or None):
            lacking.append(f"{row['keys']} at {row['topic']}:{row['queueId']} {row['queueOffset']}: {found}")
            continue
        at = found["commitLogOffset"]
        keys = row["keys"].split(" ")
        lacking += [f"key {key}" for key in keys if at not in answers["keys"][f"{row['topic']}#{key}"]]
        if at not in answers["uniqKeys"][f"{row['topic']}#{found['uniqKey']}"]:
            lacking.append(f"unique key of {row['keys']}")
        if answers["ids"].get(row["offsetMsgId"]) != at:
            lacking.append(f"id of {row['keys']}")
    return lacking


def differences(before: Answers, after: Answers) -> list[str]:
    found = [f"log: {before['log']} != {after['log']}"] if before["log"] != after["log"] else []
    for part in ("queues", "keys", "uniqKeys", "ids"):
        for question in sorted({*before[part], *after[part]}):
            old, new = before[part].get(question), after[part].get(question)
            if old != new:
                found.append(f"{part} {question}: {json.dumps(old)[:400]} != {json.dumps(new)[:400]}")
    return found
