"""Frozen answers: what each job says of real stores after seeded accidents, compared with what it said before.

A change that says "nothing changed" is judged here. Each line is one run in this process, without Spark: accident, job,
exit code, status; rules (``!``: unsafe), counts, and digests of what was written. No sentence, time or path is in it.

    .ci/answers                  all of them; prints the lines that differ
    .ci/answers --sample N       N of the accidents, drawn by --seed
    .ci/answers --write          says that the answers of today are right
    .ci/answers base-clean lmq   stores whose names contain one of these words
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import hashlib
import io
import json
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from answers.accidents import ACCIDENTS, INDEX, LOG, QUEUES, STATE, Store
from support import golden
from support.here import tasks_here
from support.patching import stand_in
from support.store_to_start import as_fastjson

from jobs.cli import command_line
from jobs.rebuild import build_store

HERE = Path(__file__).resolve().parent
FROZEN, CASES = HERE / "frozen", HERE / "cases"
NOW = 1_800_000_000
"""For the timers of a rebuild, whose wheel depends on the time, in seconds."""
AGED = {"tiered_store_unread": 120}
"""Hours since the segments of a store were written; those of all others are new."""
RUNS_AFTER_AN_ACCIDENT = 2
"""Drawn for each store and accident from the jobs that its kind concerns: all of them take an hour."""

MOST_MEMORY = 8 << 30
"""Of addresses, which Java reserves generously."""

REPORTS = "reports"
REPORTED = ("base-clean-4.9.8", "base-larger-5.3.3", "embedded-5.5.0")
"""Stores whose tables are reported on, in one Spark session."""

_SCANS = ("inspect", "verify", "rebuild", "rebuild-stop", "rebuild-salvage", "rebuild-replica", "rebuild-repair")
_STARTS = ("preflight-4.9.8", "preflight-5.3.3", "preflight-5.5.0")
_QUEUE_QUERIES = ("query-offset", "query-time", "query-list", "query-waiting", "query-lag")
_CONFIG = ("rebuild-config", "rebuild-timers", "rebuild-rocksdb")
_INDEX_QUERIES = ("query-key", "query-id")
_LOADS = ("load", "load-salvage")
JOBS_AFTER = {
    LOG: (*_SCANS, *_STARTS, *_LOADS, *_CONFIG, "query-list", "query-scan"),
    QUEUES: ("verify", *_STARTS, *_QUEUE_QUERIES, "rebuild", "rebuild-salvage", "inspect", *_CONFIG),
    INDEX: ("verify", *_STARTS, *_INDEX_QUERIES, "rebuild"),
    STATE: ("verify", *_STARTS, "rebuild", *_CONFIG, "query-lag", "query-waiting"),
}
ALL_JOBS = (*_SCANS, *_STARTS, *_QUEUE_QUERIES, *_CONFIG, *_INDEX_QUERIES, "query-scan", *_LOADS)


@dataclass(frozen=True)
class Origin:
    """A store as it was made: a golden one, or a case."""

    name: str
    release: str | None = None

    def unpack(self, directory: Path) -> Path:
        """The directory with ``store`` and ``broker.conf``; all of its files are of now, for retention judges that."""
        if self.release is None:
            with tarfile.open(CASES / f"{self.name}.tar.gz") as archive:
                archive.extraction_filter = getattr(tarfile, "data_filter", None)
                archive.extractall(directory)
            conf = (directory / "broker.conf").read_text(encoding="utf-8")
        else:
            (store,) = golden.stores(self.name)
            golden.unpack(store, directory).rename(directory / "store")
            conf = "".join(f"{name}={str(value).lower() if value in (True, False) else value}\n"
                           for name, value in store.settings.items())  # fmt: skip
            configure(directory / "store", store.entry.get("batch_topics", ()))
        conf = conf.replace("@STORE@", "@DIR@/store").replace("@TIER@", "@DIR@/tier")
        (directory / "broker.conf").write_text(conf, encoding="utf-8")
        for path in directory.rglob("*"):
            then = time.time() - 3600 * (AGED.get(self.name, 0) if path.parent.name == "commitlog" else 0)
            os.utime(path, (then, then))
        return directory


def configure(root: Path, batch_topics: Iterable[str]) -> None:
    """Writes the ``config/`` of a broker to a golden store, which has none: one group has read half of each queue."""
    (root / "config").mkdir(exist_ok=True)
    queues: dict[str, dict[int, int]] = {}
    for path in sorted(root.glob("*consumequeue/*/*")):
        first = min(path.iterdir())
        data = first.read_bytes() if path.parent.parent.name == "consumequeue" else b""
        units = sum(any(data[at + 8 : at + 12]) for at in range(0, len(data), 20))
        queues.setdefault(path.parent.name, {})[int(path.name)] = int(first.name) // 20 + units // 2
    topics = {
        name: {"topicName": name, "readQueueNums": len(ids), "writeQueueNums": len(ids), "perm": 6}
        | ({"attributes": {"queue.type": "BatchCQ"}} if name in batch_topics else {})
        for name, ids in queues.items()
    }
    levels = {queue_id + 1: at for queue_id, at in queues.get("SCHEDULE_TOPIC_XXXX", {}).items()}
    for name, document in (
        ("topics.json", {"topicConfigTable": topics}),
        ("consumerOffset.json", {"offsetTable": {f"{name}@readers": ids for name, ids in queues.items()}}),
        ("subscriptionGroup.json", {"subscriptionGroupTable": {"readers": {"groupName": "readers"}}}),
        ("delayOffset.json", {"offsetTable": levels}),
    ):
        (root / "config" / name).write_text(as_fastjson(document), encoding="utf-8")


def origins() -> list[Origin]:
    cases = (Origin(path.name.removesuffix(".tar.gz")) for path in CASES.glob("*.tar.gz"))
    return sorted([*cases, *(Origin(store.name, store.version) for store in golden.stores())], key=lambda one: one.name)


# ------------------------------------------------------------------------------------------------------------- one run
@dataclass(frozen=True)
class Trial:
    """A store after an accident, and where its runs write."""

    origin: Origin
    sound: Path
    directory: Path
    settings: tuple[str, ...]

    @property
    def root(self) -> Path:
        return self.directory / "store"

    def words(self, job: str, out: Path) -> list[str] | None:
        """The command line of a job; None if the store has nothing that it could ask for."""
        named = [word for setting in self.settings for word in ("--set", setting)]
        store = ["--store", str(self.root), "--broker-conf", str(self.directory / "broker.conf"), *named]
        release = [] if self.origin.release is None else ["--broker-version", self.origin.release]
        what, _, how = job.partition("-")
        if what == "inspect":
            return ["inspect", *store]
        if what == "preflight":
            return ["preflight", *store, "--broker-version", how]
        store += release
        if what == "verify":
            return ["verify", *store]
        if what == "load":
            damage = ["--on-damage", "salvage"] if how else []
            return ["load", *store, "--table", str(out), "--cluster", "c", "--broker", "b", *damage]
        if job == "rebuild-timers" and not (self.sound / "store" / "timerlog").is_dir():
            return None
        if what == "rebuild":
            salvage = ["--on-damage", "salvage"]
            more = {
                "": [],
                "stop": ["--on-damage", "stop"],
                "salvage": salvage,
                "replica": [*salvage, "--replica", str(self.sound / "store")],
                "repair": [*salvage, "--repair-log", str(out.with_name("repaired"))],
                "config": [*salvage, "--only", "consumequeue,consumer-offsets", "--topics-json"],
                "timers": [*salvage, "--only", "timers"],
                "rocksdb": [*salvage, "--only", "consumequeue", "--queue-store", "rocksdb"],
            }[how]
            return ["rebuild", *store, "--output", str(out), *more]
        return self._query(how, store)

    def _query(self, kind: str, store: list[str]) -> list[str] | None:
        """About a message that the seed draws from the sound log."""
        if kind == "lag":
            return ["query", "lag", *store]
        sound = Store(self.sound / "store", random.Random(self.origin.name))
        if not sound.records:
            return None
        record = sound.draw.choice([one for one in sound.records if one.properties.get("KEYS")] or sound.records)
        topic, queue = ["--topic", record.text("topic")], ["--queue", str(record.number("queue_id"))]
        key = (record.properties.get("KEYS", "").split() or [record.properties.get("UNIQ_KEY", "none")])[0]
        return ["query", *{
            "key": ["key", *topic, "--key", key],
            "scan": ["key", *topic, "--key", key, "--scan"],
            "id": ["id", record.message_id],
            "offset": ["offset", *topic, *queue, "--offset", str(record.number("queue_offset"))],
            "time": ["time", *topic, *queue, "--time", str(record.number("store_timestamp"))],
            "list": ["list", *topic],
            "waiting": ["list", *topic, "--waiting"],
        }[kind], *store]  # fmt: skip

    def run(self, job: str, out: Path) -> str | None:
        """The answer of a job, as a line."""
        words = self.words(job, out)
        if words is None:
            return None
        code, report = run(words)
        parts = [
            f"{code}",
            str(report.get("status", "-")),
            *facts(report),
            *written(out),
            *written(out.with_name("repaired")),
        ]
        return " ".join([job, *parts])


def run(words: list[str]) -> tuple[int, Mapping[str, Any]]:
    """The exit code and the report of a command line."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        code = command_line.main([*words, "--json"])
    return code, json.loads(said.getvalue())


COUNTS = {
    "log_end": "end", "messages": "messages", "lost_messages": "lost", "lost_messages_at_least": "least",
    "unwritten_bytes": "unwritten", "queues": "queues", "consume_queue_units": "units",
    "batch_consume_queue_units": "batch_units", "index_entries": "entries", "rows": "rows", "found": "found",
    "queue_offset": "queue_offset",
}  # fmt: skip
RANGES = {"damaged_ranges": "damaged", "stale_ranges": "stale", "healed_ranges": "healed", "absent_ranges": "absent"}
"""Facts of a report, and how a line names them."""


def facts(report: Mapping[str, Any]) -> Iterator[str]:
    """What a report says in rules, numbers and ranges."""
    reasons = report.get("reasons") or ()
    if reasons:
        yield "rules=" + ",".join(sorted({reason["rule"] + "!" * bool(reason["unsafe"]) for reason in reasons}))
    for fact, name in COUNTS.items():
        value = report.get(fact)
        if isinstance(value, list):  # of messages
            offsets = [[one.get("commit_log_offset"), one.get("topic")] for one in value]
            yield f"{name}={len(offsets)}:{digest(offsets)}"
        elif value:
            yield f"{name}={value}"
    for fact, name in RANGES.items():
        if ranges := report.get(fact):
            yield f"{name}={len(ranges)}:{sum(one['end'] - one['begin'] for one in ranges)}"
    if counts := report.get("counts"):
        yield "differences=" + ",".join(f"{cause}:{count}" for cause, count in sorted(counts.items()) if count)
    for name in ("segments", "topics", "groups"):
        if parts := report.get(name):
            numbers = [[value for value in one.values() if isinstance(value, int)] for one in parts]
            yield f"{name}={len(parts)}:{digest(numbers)}"


def digest(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value, sort_keys=True, default=str).encode()
    return hashlib.sha256(data).hexdigest()[:10]


def written(out: Path) -> Iterator[str]:
    """Digests of what a job wrote, one for each artefact: of files with their names, of pairs, or of rows."""
    if (out / "_delta_log").is_dir():
        import deltalake

        rows = deltalake.DeltaTable(str(out)).to_pyarrow_table().sort_by("commit_log_offset")
        yield f"table={digest([rows.column_names, rows.to_pylist()])}"
        return
    for part in sorted(out.iterdir()) if out.is_dir() else ():
        if part.name == "manifest.json":
            continue  # it names its own place
        if (part / "CURRENT").exists():
            yield f"{part.name}={digest(pairs_of(part))}"
            continue
        files = sorted(path for path in [part, *part.rglob("*")] if path.is_file())
        contents = [[str(path.relative_to(out)), hashlib.sha256(path.read_bytes()).hexdigest()] for path in files]
        yield f"{part.name}={len(files)}:{digest(contents)}"


def pairs_of(directory: Path) -> list[list[str]]:
    """All pairs of a database of RocksDB; its files name the moment when they were made."""
    import rocksdict

    options = rocksdict.Options(raw_mode=True)
    families = dict.fromkeys(rocksdict.Rdict.list_cf(str(directory), options), options)
    database = rocksdict.Rdict(str(directory), options, families, rocksdict.AccessType.read_only())
    pairs = [
        [family, key.hex(), value.hex()]
        for family in sorted(families)
        for key, value in database.get_column_family(family).items()
    ]
    database.close()
    return pairs


# ------------------------------------------------------------------------------------------------------------ all runs
def jobs_after(origin: Origin, name: str) -> tuple[str, ...]:
    if name == "none":
        return ALL_JOBS
    jobs = JOBS_AFTER[ACCIDENTS[name][0]]
    return tuple(random.Random(f"{origin.name} {name}").sample(jobs, RUNS_AFTER_AN_ACCIDENT))


def answers_of(origin: Origin, names: Iterable[str]) -> list[str]:
    lines = []
    with tempfile.TemporaryDirectory(prefix="answers-") as scratch, tasks_here(), pytest.MonkeyPatch.context() as patch:
        stand_in(patch, build_store, "time", time=lambda: NOW)
        sound = origin.unpack(Path(scratch, "sound"))
        before = checksum(sound)
        for name in names:
            directory = Path(scratch, "trial")
            shutil.copytree(sound, directory, copy_function=os.link, symlinks=True)
            conf = directory / "broker.conf"
            text = conf.read_text(encoding="utf-8").replace("@DIR@", str(directory))
            conf.unlink()
            conf.write_text(text, encoding="utf-8")
            settings = ACCIDENTS[name][1](Store(directory / "store", random.Random(f"{origin.name} {name}")))
            if settings is not None:
                trial = Trial(origin, sound, directory, settings)
                for job in jobs_after(origin, name):
                    out = Path(scratch, "out")
                    line = trial.run(job, out / "made")
                    lines += [] if line is None else [f"{name} {line}"]
                    shutil.rmtree(out, ignore_errors=True)
            shutil.rmtree(directory)
        assert checksum(sound) == before, f"{origin.name}: a job or an accident has changed the store"
    return sorted(lines)


def checksum(directory: Path) -> str:
    return digest([[str(path), digest(path.read_bytes())] for path in sorted(directory.rglob("*")) if path.is_file()])


def reports() -> list[str]:
    """What ``report --checks`` says of tables, in one Spark session."""
    from jobs.spark import session

    lines = []
    with tempfile.TemporaryDirectory(prefix="answers-") as scratch:
        tables = {}
        for origin in origins():
            if origin.name in REPORTED:
                directory = origin.unpack(Path(scratch, origin.name))
                tables[origin.name] = table = Path(scratch, "tables", origin.name)
                with tasks_here():
                    run(["load", "--store", str(directory / "store"), "--broker-conf", str(directory / "broker.conf"),
                         "--table", str(table), "--cluster", "c", "--broker", "b"])  # fmt: skip
        with session.shared_spark("report"), session.spark_session(delta=True):
            for name, table in tables.items():
                for by in ("topic", "queue", "date"):
                    code, report = run(["report", "--table", str(table), "--by", by, "--checks"])
                    numbers = {key: value for key, value in report.items() if key not in ("table", "seconds", "notes")}
                    lines.append(f"{name} report-{by} {code} {report['status']} {digest(numbers)}")
    return sorted(lines)


def _bound_memory() -> None:
    """No answer takes the machine's memory: 70 instead."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))


def _work(item: tuple[str, tuple[str, ...]]) -> tuple[str, list[str]]:
    name, names = item
    if name == REPORTS:
        return name, reports()
    (origin,) = (one for one in origins() if one.name == name)
    return name, answers_of(origin, names)


def frozen(name: str, chosen: Iterable[str] = ()) -> list[str]:
    path = FROZEN / f"{name}.txt"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    wanted = frozenset(chosen)
    return [line for line in lines if not wanted or line.partition(" ")[0] in wanted]


def sample(count: int, seed: str) -> dict[str, tuple[str, ...]]:
    """Some accidents of some stores: a quarter as many stores, for each has to be unpacked."""
    draw = random.Random(seed)
    chosen = draw.sample(origins(), max(1, min(len(origins()), count // 4)))
    pairs = draw.sample([(one.name, name) for one in chosen for name in ACCIDENTS if name != "none"], count)
    return {store: tuple(name for other, name in pairs if other == store) for store, _ in sorted(pairs)}


def differences(work: Mapping[str, tuple[str, ...]], processes: int = 1) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yields each store whose answers are not the frozen ones, with both."""
    with contextlib.ExitStack() as stack:
        todo = sorted(work.items(), key=lambda item: item[0] != REPORTS)
        pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _bound_memory)
        for done in as_completed([stack.enter_context(pool).submit(_work, item) for item in todo]):
            name, lines = done.result()
            expected = frozen(name, work[name])
            if lines != expected:
                yield name, expected, lines


def main() -> int:
    parser = argparse.ArgumentParser(prog=".ci/answers", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("stores", nargs="*", help="only stores whose names contain one of these words")
    parser.add_argument("--sample", type=int, metavar="N", help="only N accidents")
    parser.add_argument("--seed", default="", help="draws the sample")
    parser.add_argument("--write", action="store_true", help="freeze the answers of today")
    given = parser.parse_args()
    names = [*(one.name for one in origins()), REPORTS]
    chosen = [name for name in names if not given.stores or any(word in name for word in given.stores)]
    every = {name: () if name == REPORTS else tuple(ACCIDENTS) for name in chosen}
    work = sample(given.sample, given.seed) if given.sample else every
    changed, begun = 0, time.time()
    for name, before, now in differences(work, processes=os.cpu_count() or 1):
        shown = [
            line for line in difflib.unified_diff(before, now, lineterm="", n=0) if line[:2] not in ("--", "++", "@@")
        ]
        changed += len(shown)
        print(f"== {name}", *shown, sep="\n", flush=True)  # noqa: T201
        if given.write and not given.sample:
            FROZEN.mkdir(exist_ok=True)
            (FROZEN / f"{name}.txt").write_text("".join(f"{line}\n" for line in now), encoding="utf-8")
    # As pytest ends, which .ci/release counts.
    total = sum(len(frozen(name, names)) for name, names in work.items())
    print(f"{total} passed, {changed} failed in {time.time() - begun:.1f}s")  # noqa: T201
    return int(changed > 0 and not given.write)


if __name__ == "__main__":
    sys.exit(main())
