"""The real broker's store as judge: drives the published ``DefaultMessageStore`` of one release, a batch in one JVM.

Maven fetches the jars and ``javac`` compiles the driver of ``tests/realstore/`` against them, once; both are kept under
``tests/realstore/target/<release>/``. Differences from a broker: but where told, delayed messages are not delivered and
no file expires; index files are spaced out in time (two of one millisecond would get one name).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

RELEASES = ("4.9.8", "5.1.4", "5.3.3", "5.5.0")
"""The releases every comparison runs against; 4.6.0 to 4.9.8 and 5.1.4 to 5.5.0 work."""

FEATURES: Mapping[str, Sequence[str]] = {
    "4.6.0": (), "4.6.1": (), "4.7.0": (), "4.7.1": (), "4.8.0": (), "4.9.0": (), "4.9.1": (),
    "4.9.4": ("lmq", "cq_ext"),
    "4.9.8": ("lmq", "cq_ext"),
    "5.1.4": ("lmq", "cq_ext", "batch_cq", "long_topics"),
    "5.3.3": ("lmq", "cq_ext", "batch_cq", "long_topics", "property_crc"),
    "5.5.0": ("lmq", "cq_ext", "batch_cq", "long_topics", "property_crc"),
}  # fmt: skip
"""The kinds of queues and records that a release can write beside the plain ones."""

QUEUES = ("consumequeue", "batchconsumequeue", "consumequeue_ext")
Settings = Mapping[str, Any]

_HOME = Path(__file__).resolve().parent.parent / "realstore"
_DERIVED = ("consumequeue", "batchconsumequeue", "consumequeue_ext", "index", "rocksdbstore", "config")
JAVA_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    # 4.x unmaps its files through the buffers' private cleaner
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    # a disk that is nearly full is no reason to refuse a message or to delete a file
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.99",
    "-Duser.timezone=UTC",
)
_WITH_ITS_OWN_LIMITS = tuple(option for option in JAVA_OPTIONS if "diskSpace" not in option)
_TIMEOUT = 1800
_STALLED_MS = 20_000
_BENCH_OPTIONS = ("-Xms1g", "-Xmx2g", *JAVA_OPTIONS[2:])


class RealStoreUnavailable(RuntimeError):
    """Java 17 or Maven is missing, or the build of the driver failed."""


class RealStoreFailed(RuntimeError):
    """The store, or its driver, ended in an error; the message holds the end of its output."""


@dataclass(frozen=True)
class Queue:
    """One consume queue as its store knows it: ``[min_offset, max_offset)`` in units."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int


@dataclass(frozen=True)
class Store:
    """A store and what the real one said of it; of ``counts`` ``prepared`` and ``rolled_back`` are never queued."""

    root: Path
    release: str
    settings: Settings
    loaded: bool
    min_offset: int
    end_offset: int
    loaded_end_offset: int
    queues: tuple[Queue, ...]
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Opened:
    """State, answers (as of golden stores, with ``notFoundAt`` where a queue ends early) and puts; ends are before
    puts.
    """

    store: Store
    answers: Mapping[str, Any]
    puts: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Pulled:
    """What consumers get: (next offset, commit-log offset) by queue; None where it does not start, for ``failure``."""

    queues: Mapping[tuple[str, int], Sequence[tuple[int, int]]] | None
    puts: Sequence[Mapping[str, Any]]
    failure: str = ""


@dataclass(frozen=True)
class Group:
    """A DLedger group of ``overwritten``: stores ``n0`` to ``n2``, the old leader's before it came back, ``killed`` and
    ``stopped``, its last committed entry then, and the member that lost its checkpoint.
    """

    root: Path
    old_leader: str
    committed_index: int
    forgetful: str


@dataclass(frozen=True)
class Timing:
    """A bench run: ``seconds`` of the work itself, ``process_seconds`` of the JVM from start to end."""

    store: Store
    messages: int
    seconds: float
    process_seconds: float


@dataclass(frozen=True)
class RealStore:
    """The store of one release, e.g. ``RealStore("5.3.3")``; built on first use."""

    release: str

    def write(
        self,
        directory: Path,
        count: int = 25,
        seed: int = 0,
        *,
        features: Iterable[str] | Callable[[int], Iterable[str]] = (),
        settings: Settings | None = None,
        messages: int = 0,
        halt: bool = False,
    ) -> list[Store]:
        """Returns ``count`` random stores, shut down cleanly, or with ``halt`` killed when everything was dispatched.

        ``features`` (of all, or of a number): ``FEATURES``, and for each release ``dledger``, ``mixed_log`` (the same
        after a plain log), ``multi_path``, ``read_only_path`` (of three paths the first became so), ``unsteady_clock``,
        ``odd_names`` (topics beyond ASCII, queue ids up to 65,535), ``many_queues``. ``messages`` are steps of 1 to 6
        puts.
        """
        jobs = [
            {
                "root": str(directory / f"{number:04d}"),
                "seed": seed + number,
                "features": list(features(number) if callable(features) else features),
                "settings": dict(settings or {}),
                "messages": messages,
                "halt": halt,
            }
            for number in range(count)
        ]
        stores = [self._store(entry, entry["settings"]) for entry in self._run("write", jobs)]
        for store in stores:
            write_description(store)
        return stores

    def recover(self, roots: Sequence[Path], settings: Settings | None = None) -> list[Store]:
        """Returns the stores after load, recovery from the first segment on, dispatch and shutdown."""
        return self._stores(
            "recover", [{"root": str(root), "settings": self._recovery(root, settings)} for root in roots]
        )

    def open(
        self,
        roots: Sequence[Path],
        settings: Settings | None = None,
        *,
        put: bool = False,
        ask: bool = True,
        known: Sequence[Mapping[str, Sequence[int]]] = (),
    ) -> list[Opened]:
        """Returns what brokers would say of stores, and of a message put to each queue; RocksDB's queues must be
        ``known``.
        """
        jobs = [_job(root, settings, put=put, ask=ask) for root in roots]
        for job, queues in zip(jobs, known, strict=False):
            job["known"] = {topic: list(ids) for topic, ids in queues.items()}
        return [
            Opened(self._store(entry, job["settings"]), entry.get("answers", {}), entry.get("put", []))
            for entry, job in zip(self._run("open", jobs), jobs, strict=True)
        ]

    def pull(self, roots: Sequence[Path]) -> list[Pulled]:
        """Returns what consumers get of each store after a start, and the puts after that; damaged stores may fail."""
        jobs = [_job(root, pull=True, put=True, may_fail=True) for root in roots]
        entries = self._run("open", jobs, (*JAVA_OPTIONS, f"-Drealstore.dispatchTimeoutMs={_STALLED_MS}"))
        return [
            Pulled(
                {
                    (queue["topic"], queue["queueId"]): [(following, offset) for following, offset in queue["records"]]
                    for queue in entry["pulled"]
                }
                if "pulled" in entry
                else None,
                entry.get("put", []),
                entry.get("failure", "does not load"),
            )
            for entry in entries
        ]

    def load(self, roots: Sequence[Path], settings: Settings | None = None) -> list[Store]:
        """Returns the stores after the real store has loaded and so recovered them; it is not started."""
        return self._stores("load", [_job(root, settings) for root in roots])

    def clean(self, roots: Sequence[Path], settings: Sequence[Settings]) -> list[Store]:
        """Returns the stores after a broker with these settings would have deleted what expires at this hour."""
        jobs = [_job(root, more) for root, more in zip(roots, settings, strict=True)]
        return self._stores("clean", jobs, _WITH_ITS_OWN_LIMITS)

    def delivers(self, roots: Sequence[Path], wait_ms: int = 4_000) -> list[bool]:
        """Returns whether each store delivers a message of delay level 1, a second, that is put now (4.x)."""
        return [
            bool(entry["delivered"]) for entry in self._run("deliver", [_job(root, wait_ms=wait_ms) for root in roots])
        ]

    def fill(self, root: Path, count: int) -> int:
        """Returns how many messages of a kilobyte a store has taken."""
        (entry,) = self._run("fill", [_job(root, count=count)])
        return int(entry["taken"])

    def loads_as(self, root: Path, user: int) -> bool:
        """Returns whether the store loads for the process of another user (needs root)."""
        prefix = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")
        try:
            (entry,) = self._run("load", [_job(root)], prefix=prefix)
        except RealStoreFailed:
            return False
        return bool(entry["loaded"])

    def overwritten(self, directory: Path, groups: Sequence[Mapping[str, Any]], settings: Settings) -> list[Group]:
        """Returns groups whose first leader wrote a ``tail`` that nobody else has, and came back (``from_killed``, or
        from its shutdown) when the others had put entries in its place; with ``forgets`` one of those starts without
        checkpoint.
        """
        jobs = [
            {"root": str(directory / f"{number:04d}"), "settings": dict(settings), **group}
            for number, group in enumerate(groups)
        ]
        return [
            Group(Path(job["root"]), entry["old_leader"], entry["committed_index"], entry["forgetful"])
            for entry, job in zip(self._run("overwritten", jobs), jobs, strict=True)
        ]

    def load_timers(self, roots: Sequence[Path], settings: Settings) -> list[int | None]:
        """Returns from which message of its queue each timer would go on after its recovery, None where it does not
        load.
        """
        entries = self._run("load_timers", [{"root": str(root), "settings": dict(settings)} for root in roots])
        return [entry["queue_offset"] if entry["loaded"] else None for entry in entries]

    def rocksdb_pairs(self, roots: Sequence[Path]) -> list[dict[str, dict[bytes, bytes]]]:
        """Returns the pairs in the consume-queue database of each store (``storeType`` defaultRocksDB), by family."""
        entries = self._run("rocksdb_pairs", [{"root": str(root), "settings": {}} for root in roots])
        return [
            {family: {b64decode(key): b64decode(value) for key, value in rows} for family, rows in entry.items()}
            for entry in entries
        ]

    def bench_write(
        self,
        root: Path,
        size: int,
        *,
        message_bytes: int = 1000,
        topics: int = 10,
        queues: int = 8,
        settings: Settings | None = None,
    ) -> Timing:
        """Returns a store of at least ``size`` log bytes, its derived files removed; three index entries a message."""
        sizes = dict(settings or {})
        job = {"root": str(root), "settings": {"messageIndexEnable": False, **sizes}, "bytes": size}
        timing = self._timed("bench_write", {**job, "message_bytes": message_bytes, "topics": topics, "queues": queues})
        for name in _DERIVED:
            shutil.rmtree(root / name, ignore_errors=True)
        for name in ("checkpoint", "lock", "abort.bak"):
            (root / name).unlink(missing_ok=True)
        write_description(replace(timing.store, settings=sizes, counts={"messages": timing.messages}))
        return timing

    def bench_recover(self, log: Path, target: Path, settings: Settings | None = None) -> Timing:
        """Returns the time to rebuild everything in ``target`` from a log where it lies, until all is dispatched."""
        target.mkdir(parents=True)
        (target / "abort").touch()
        more = {"messageIndexEnable": True, "storePathCommitLog": str(log / "commitlog")}
        return self._timed("bench_recover", {"root": str(target), "settings": self._recovery(log, settings) | more})

    def _recovery(self, root: Path, settings: Settings | None) -> dict[str, Any]:
        whole_log = {"commitLogRecoverMaxNum": 1_000_000} if _number(self.release) >= (5, 4) else {}
        return {**_described_settings(root), **whole_log, **(settings or {})}

    def _timed(self, command: str, job: dict[str, Any]) -> Timing:
        began = time.monotonic()
        (entry,) = self._run(command, [job], _BENCH_OPTIONS)
        process_seconds = time.monotonic() - began
        store = self._store(entry, job["settings"])
        messages = entry.get("messages", sum(queue.max_offset for queue in store.queues))
        return Timing(store, messages, entry["seconds"], process_seconds)

    def _run(
        self,
        command: str,
        stores: Sequence[Mapping[str, Any]],
        options: Sequence[str] = JAVA_OPTIONS,
        *,
        prefix: Sequence[str] = (),
    ) -> list[dict[str, Any]]:
        if len(stores) > 1 and any(map(_has_queues_in_rocksdb, stores)):
            with ThreadPoolExecutor() as processes:
                entries = processes.map(lambda store: self._run(command, [store], options), stores)
                return [entry for (entry,) in entries]
        class_path = build(self.release)
        with tempfile.TemporaryDirectory(prefix="real-store-") as scratch:
            job, result = Path(scratch, "job.json"), Path(scratch, "result.json")
            job.write_text(json.dumps({"command": command, "stores": list(stores)}), encoding="utf-8")
            # Logs and a default store path hang on the home directory; one that is killed leaves RocksDB's library.
            Path(scratch).chmod(0o777)  # it may be another user's process
            driver = [*prefix, "java", *options, f"-Duser.home={scratch}", f"-Djava.io.tmpdir={scratch}", "-cp"]
            driver += [class_path, "realstore.StoreDriver", str(job), str(result)]
            # In no other locale Java can name a directory after every topic.
            ran = subprocess.run(
                driver, check=False, capture_output=True, text=True, cwd=scratch, timeout=_TIMEOUT,
                env={**os.environ, "LC_ALL": "C.UTF-8"},
            )  # fmt: skip
            if not result.exists():
                raise RealStoreFailed(f"{command} with {self.release}: {(ran.stdout + ran.stderr)[-4000:]}")
            return list(json.loads(result.read_text(encoding="utf-8"))["stores"])

    def _store(self, entry: Mapping[str, Any], settings: Settings) -> Store:
        ends = (entry["log"][name] for name in ("min_offset", "end_offset", "loaded_end_offset"))
        names = ("topic", "queueId", "minOffset", "maxOffset")
        queues = tuple(Queue(*(queue[name] for name in names)) for queue in entry["queues"])
        return Store(
            Path(entry["root"]), self.release, settings, entry["loaded"], *ends, queues, entry.get("counts", {})
        )

    def _stores(self, command: str, jobs: list[dict[str, Any]], options: Sequence[str] = JAVA_OPTIONS) -> list[Store]:
        entries = self._run(command, jobs, options)
        return [self._store(entry, job["settings"]) for entry, job in zip(entries, jobs, strict=True)]


def _has_queues_in_rocksdb(job: Mapping[str, Any]) -> bool:
    """Then it has a process of its own: all stores of a JVM write the end of their log with one buffer as the key
    (RocksDBConsumeQueueOffsetTable#appendMaxPhyOffset), and two at a time can leave a pair with an empty key.
    """
    settings = job["settings"]
    return settings.get("storeType") == "defaultRocksDB" or bool(settings.get("rocksdbCQDoubleWriteEnable"))


def write_description(store: Store) -> None:
    """Writes ``store.json`` into the store: release, settings, counts and log range, as in the golden manifest."""
    description = {
        "rocketmq": store.release,
        "settings": dict(store.settings),
        "counts": {**store.counts, "queues": len(store.queues)},
        "log": {"min_offset": store.min_offset, "end_offset": store.end_offset},
    }
    (store.root / "store.json").write_text(json.dumps(description, ensure_ascii=False, indent=1), encoding="utf-8")


def wiped_copy(source: Path, target: Path) -> Path:
    """Returns ``target``, a copy of the log and ``store.json`` alone, with paths of its own, as after a crash."""
    target.mkdir(parents=True)
    for log in (*source.glob("commitlog*"), *source.glob("dledger-*")):
        shutil.copytree(log, target / log.name)
    if (source / "store.json").exists():
        described = (source / "store.json").read_text(encoding="utf-8")
        (target / "store.json").write_text(described.replace(f"{source}/", f"{target}/"), encoding="utf-8")
    (target / "abort").touch()
    return target


def put_derived(made: Path, root: Path) -> None:
    """Puts the queues, the index and the checkpoint of a rebuild, or of another store, into a store."""
    for part in (*QUEUES, "index"):
        if (made / part).exists():
            shutil.copytree(made / part, root / part)
    shutil.copy(made / "checkpoint", root)


def build(release: str) -> str:
    """Returns the class path of the driver for ``release``; fetches and compiles what is not there yet."""
    parts = ("src", f"src-{_number(release)[0]}")
    sources = sorted(path for part in parts for path in (_HOME / "store" / part).rglob("*.java"))
    return build_driver(release, _HOME / "pom.xml", sources, _HOME / "target" / release)


def build_driver(release: str, pom: Path, sources: Sequence[Path], target: Path) -> str:
    """Returns the class path of ``sources`` and the jars of ``pom``, kept in ``target``; built when one has changed."""
    stamp = hashlib.sha256(b"".join(path.read_bytes() for path in (pom, *sources))).hexdigest()
    class_path = f"{target / 'classes'}{os.pathsep}{target / 'jars'}{os.sep}*"
    with _locked(target.parent):
        marker = target / "built"
        if marker.exists() and marker.read_text() == stamp:
            return class_path
        for tool in ("java", "javac", "mvn"):
            if shutil.which(tool) is None:
                raise RealStoreUnavailable(f"the real store needs Java 17 and Maven, but there is no {tool}")
        for part in ("jars", "classes"):
            shutil.rmtree(target / part, ignore_errors=True)
        fetch: list[str | Path] = [
            "mvn", "-q", "-B", "-f", pom, f"-Drocketmq.version={release}", "-DincludeScope=runtime",
            f"-DoutputDirectory={target / 'jars'}", "dependency:copy-dependencies",
        ]  # fmt: skip
        _build_step(fetch)
        (target / "classes").mkdir()
        jars, classes = f"{target / 'jars'}/*", target / "classes"
        if sources:
            _build_step(["javac", "-nowarn", "-encoding", "UTF-8", "-d", classes, "-cp", jars, *sources])
        marker.write_text(stamp)
    return class_path


def _build_step(command: Sequence[str | Path]) -> None:
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    if ran.returncode != 0:
        raise RealStoreUnavailable(f"{command[0]} failed: {(ran.stdout + ran.stderr)[-4000:]}")


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Test processes that start together must not build on top of each other; Maven's repository takes one writer."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _described_settings(root: Path) -> dict[str, Any]:
    description = root / "store.json"
    return dict(json.loads(description.read_text(encoding="utf-8"))["settings"]) if description.exists() else {}


def _job(root: Path, settings: Settings | None = None, **more: Any) -> dict[str, Any]:
    return {"root": str(root), "settings": {**_described_settings(root), **(settings or {})}, **more}


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


def derived(root: Path, queues: Sequence[str] = QUEUES) -> dict[str, bytes]:
    """Queue files by path, index files by rank: their names are the wall clock's."""
    found = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for part in queues
        for path in (root / part).rglob("*")
        if path.is_file()
    }
    index = {f"index/{rank}": path.read_bytes() for rank, path in enumerate(sorted((root / "index").iterdir()))}
    return {**found, **index}


def differing(expected: dict[str, bytes], found: dict[str, bytes]) -> list[str]:
    """The names of files that are not the same on both sides, or are on one side alone."""
    return sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
