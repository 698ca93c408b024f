"""The real broker's store as judge: drives the published ``DefaultMessageStore`` of one Apache RocketMQ release.

Maven fetches the release's jars and ``javac`` compiles the driver of ``tests/realstore/`` against them, once; both are
kept under ``tests/realstore/target/<release>/``. Every call is one JVM that works on a batch of stores side by side.

| command         | what the store does                                                                     |
|-----------------|-----------------------------------------------------------------------------------------|
| `write`         | random stores: everything in them but the index file names follows from the seed        |
| `recover`       | loads and starts, and so rebuilds what is missing as its own recovery sees fit          |
| `open`          | loads, starts, answers every offset, key and time, takes one more message per queue     |
| `load`          | loads, and so recovers, but does not start: a member before it meets its group          |
| `clean`         | loads, starts, and deletes what expires by the settings told                            |
| `deliver`       | loads, starts to deliver delayed messages, and puts one (4.x)                           |
| `fill`          | loads, starts, and takes messages until the disk is full                                |
| `overwritten`   | three members of a DLedger group; the first leader has a tail that the others replace   |
| `load_timers`   | loads and starts, and its timer loads and recovers beside it (5.x)                      |
| `rocksdb_pairs` | (the database of its consume queues is read, no store opened)                           |
| `bench_write`   | a large log of uniform messages (log only: the derived files are removed)               |
| `bench_recover` | recovers such a log, with the seconds that took                                         |

Differences from a broker: but where told, delayed messages are not delivered and no file expires; index files are
spaced out in time
(two created in one millisecond would get one name). A store is never opened in place by the commands that derive:
``wiped_copy`` makes what a broker finds after a crash and a lost disk.
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
    """One store directory and what the real store said of it, offsets absolute; ``counts`` is filled by ``write``.

    ``counts``: ``messages`` (records in the log), of these ``prepared`` and ``rolled_back`` (never queued);
    ``inner_batched`` (messages in the records of batch topics).
    """

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
    """What a store said after ``open``: its state, the answers (shaped like those of the golden stores), its puts.

    ``answers["queues"]`` also holds ``commitLogOffsets``, ``queueOffsets`` and ``sizes`` of every message served, and
    ``notFoundAt`` with ``status`` where a queue could not be read to its end. ``puts`` has ``topic, queueId,
    queueOffset, commitLogOffset, served``. ``store.end_offset`` is the end of the log before the puts.
    """

    store: Store
    answers: Mapping[str, Any]
    puts: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Pulled:
    """What consumers get of a store: (next offset, commit-log offset) of each message by topic and queue id; None where
    it does not load or start, with the reason in ``failure``. ``puts`` as those of ``Opened``.
    """

    queues: Mapping[tuple[str, int], Sequence[tuple[int, int]]] | None
    puts: Sequence[Mapping[str, Any]]
    failure: str = ""


@dataclass(frozen=True)
class Group:
    """A DLedger group of ``overwritten``: its members' stores ``n0``, ``n1`` and ``n2``, and the old leader's before it
    came back, ``killed`` and ``stopped``, with the last entry that was committed then. ``forgetful`` is one of those
    that stayed, the one that lost its checkpoint where it was asked for that.
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
        """Returns ``count`` random stores, ``directory/0000`` and so on, shut down cleanly.

        ``features``: those of every store, or a function of its number: what ``FEATURES`` has, and for all releases
        ``dledger`` (the log of a group with one member), ``mixed_log`` (the same, after what the broker wrote before),
        ``multi_path`` (a log in ``commitlog-a`` and ``commitlog-b``), ``read_only_path`` (one in ``-a``, ``-b`` and
        ``-c``, of which ``-a`` became read-only), ``unsteady_clock`` (it is set back now and then), ``odd_names``
        (topics beyond ASCII, queue ids up to 65,535) and ``many_queues`` (as many of these ids as there are messages).
        ``settings`` win over those drawn from the
        seed. ``messages`` sets the number of steps (a step puts one to six messages). ``halt`` ends the process without
        shutdown, everything dispatched.
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
        """Returns the stores after the real store has loaded, recovered, dispatched and shut them down.

        ``settings`` are added to those of each store's ``store.json``. From 5.4.0 on recovery is told to go back to
        the first segment (``commitLogRecoverMaxNum``), which a broker does not do by itself.
        """
        jobs: list[dict[str, Any]] = [{"root": str(root), "settings": self._recovery(root, settings)} for root in roots]
        recovered = zip(self._run("recover", jobs), jobs, strict=True)
        return [self._store(entry, job["settings"]) for entry, job in recovered]

    def open(
        self,
        roots: Sequence[Path],
        settings: Settings | None = None,
        *,
        put: bool = False,
        ask: bool = True,
        known: Sequence[Mapping[str, Sequence[int]]] = (),
    ) -> list[Opened]:
        """Returns what a broker with these stores would say; with its default recovery settings, unlike ``recover``.

        ``put`` then puts one message more into every queue (light queues apart) and reports the offset it got.
        ``known`` are the queues of each store, ids by topic: one that keeps them in RocksDB does not list them.
        """
        jobs: list[dict[str, Any]] = [
            {"root": str(root), "settings": {**_described_settings(root), **(settings or {})}, "put": put, "ask": ask}
            for root in roots
        ]
        for job, queues in zip(jobs, known, strict=False):
            job["known"] = {topic: list(ids) for topic, ids in queues.items()}
        return [
            Opened(self._store(entry, job["settings"]), entry.get("answers", {}), entry.get("put", []))
            for entry, job in zip(self._run("open", jobs), jobs, strict=True)
        ]

    def pull(self, roots: Sequence[Path]) -> list[Pulled]:
        """Returns what consumers get of each store after a start, and the puts after that; damaged stores may fail."""
        jobs = [
            {"root": str(root), "settings": _described_settings(root), "pull": True, "put": True, "may_fail": True}
            for root in roots
        ]
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
        """Returns the stores after the real store has loaded and so recovered them, with its default settings.

        What it did is in the files then; nothing was started, so that a member of a group has not met the others.
        """
        jobs = [
            {"root": str(root), "settings": {**_described_settings(root), **(settings or {})}} for root in roots
        ]  # fmt: skip
        return [
            self._store(entry, job["settings"]) for entry, job in zip(self._run("load", jobs), jobs, strict=True)
        ]  # fmt: skip

    def clean(self, roots: Sequence[Path], settings: Sequence[Settings]) -> list[Store]:
        """Returns the stores after a broker with these settings would have deleted what expires at this hour."""
        jobs = [
            {"root": str(root), "settings": {**_described_settings(root), **more}}
            for root, more in zip(roots, settings, strict=True)
        ]
        entries = self._run("clean", jobs, _WITH_ITS_OWN_LIMITS)
        return [self._store(entry, job["settings"]) for entry, job in zip(entries, jobs, strict=True)]

    def delivers(self, roots: Sequence[Path], wait_ms: int = 4_000) -> list[bool]:
        """Returns whether each store delivers a message of delay level 1, a second, that is put now (4.x)."""
        jobs = [
            {"root": str(root), "settings": _described_settings(root), "wait_ms": wait_ms} for root in roots
        ]  # fmt: skip
        return [bool(entry["delivered"]) for entry in self._run("deliver", jobs)]

    def fill(self, root: Path, count: int) -> int:
        """Returns how many messages of a kilobyte a store has taken."""
        (entry,) = self._run("fill", [{"root": str(root), "settings": _described_settings(root), "count": count}])
        return int(entry["taken"])

    def loads_as(self, root: Path, user: int) -> bool:
        """Returns whether the store loads for the process of another user (needs root)."""
        job = {"root": str(root), "settings": _described_settings(root)}
        prefix = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")
        try:
            (entry,) = self._run("load", [job], prefix=prefix)
        except RealStoreFailed:
            return False
        return bool(entry["loaded"])

    def overwritten(self, directory: Path, groups: Sequence[Mapping[str, Any]], settings: Settings) -> list[Group]:
        """Returns groups of three, ``directory/0000`` and so on, whose first leader wrote a tail that nobody else has
        and came back when the others had put entries of another term in its place.

        Each of ``groups`` says ``seed``, ``messages`` (steps until the leader is cut off), ``tail``, ``others`` (steps
        meanwhile), and whether the old leader comes back ``from_killed`` or from its clean shutdown. With ``forgets``
        one of the others starts again without its group's checkpoint.
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
        """Returns from which message of its queue on the timer of each store would go on after its recovery, None where
        it does not load. Nothing is delivered; what recovery made of wheel, log and ``timercheck`` is on disk.
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
        """Returns the time the store needs to rebuild everything in ``target`` from the ``commitlog/`` of ``log``.

        The log is used where it lies, and not changed; ``seconds`` runs from load to all dispatched.
        """
        target.mkdir(parents=True)
        (target / "abort").touch()
        settings = {
            **self._recovery(log, settings),
            "messageIndexEnable": True,
            "storePathCommitLog": str(log / "commitlog"),
        }
        return self._timed("bench_recover", {"root": str(target), "settings": settings})

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
        log = entry["log"]
        return Store(
            root=Path(entry["root"]),
            release=self.release,
            settings=settings,
            loaded=entry["loaded"],
            min_offset=log["min_offset"],
            end_offset=log["end_offset"],
            loaded_end_offset=log["loaded_end_offset"],
            queues=tuple(
                Queue(queue["topic"], queue["queueId"], queue["minOffset"], queue["maxOffset"])
                for queue in entry["queues"]
            ),
            counts=entry.get("counts", {}),
        )


def _has_queues_in_rocksdb(job: Mapping[str, Any]) -> bool:
    """Then it must have a process of its own, as a broker's store has: all stores of a JVM write the end of their log
    with one buffer as the key (RocksDBConsumeQueueOffsetTable#appendMaxPhyOffset), and two at a time can leave a pair
    with an empty key.
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
    """Returns ``target``, a copy of the log and ``store.json`` alone, marked as crashed (``abort``).

    Paths of the log in ``store.json`` are those of the copy.
    """
    target.mkdir(parents=True)
    for log in (*source.glob("commitlog*"), *source.glob("dledger-*")):
        shutil.copytree(log, target / log.name)
    if (source / "store.json").exists():
        described = (source / "store.json").read_text(encoding="utf-8")
        (target / "store.json").write_text(described.replace(f"{source}/", f"{target}/"), encoding="utf-8")
    (target / "abort").touch()
    return target


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


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))
