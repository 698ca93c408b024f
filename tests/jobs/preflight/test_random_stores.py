"""Random stores, healthy and damaged, against a model of the broker's start."""

from __future__ import annotations

import random
import shutil
import struct
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.broker_check import DispatchRequest
from support.broker_model import CQ_UNIT, walk
from support.broker_settings import BrokerSettings
from support.planting import flip
from support.store_builder import LogBuilder, overwrite_log
from support.store_to_start import QUEUE_FILE, SEGMENT, finished

# ---------------------------------------------------------------------------------------------------------- start model
# What a broker's start makes of a small store: a slow model of load, recovery and dispatch, one release at a time.
#
# It shares nothing with ``jobs.preflight`` and ``storeformat``: files are read here, records by ``broker_model``.
#
# =====================  ==========================================================================
# ``Start.loaded``       whether the broker comes up (MappedFileQueue#doLoad, ConfigManager#load)
# ``Start.served``       commit-log offsets in each queue after recovery and dispatch
# ``Start.ends``         the queue offset that the next message of each queue gets
# =====================  ==========================================================================
#
# From CommitLog#recoverNormally, #recoverAbnormally, ConsumeQueue#recover, #truncateDirtyLogicFiles and
# #putMessagePositionInfo, DefaultMessageStore#start of 4.9.8, 5.1.4, 5.3.3 and 5.5.0.
Release = tuple[int, ...]
Key = tuple[str, int]
_MOST_SEGMENTS = 10


@dataclass
class Start:
    loaded: bool = False
    served: dict[Key, set[int]] = field(default_factory=dict)
    ends: dict[Key, int] = field(default_factory=dict)


@dataclass
class _Queue:
    """A queue as a list of (commit-log offset, size) from queue offset ``first`` on."""

    first: int
    units: list[tuple[int, int]]

    @property
    def max_phy(self) -> int:
        return sum(self.units[-1]) if self.units else -1

    def put(self, request: DispatchRequest) -> None:
        if request.commit_log_offset + request.msg_size <= self.max_phy:
            return
        number = request.consume_queue_offset
        if not self.units:
            self.first = number
        elif number != 0 and number < self.first + len(self.units):
            return
        self.units.append((request.commit_log_offset, request.msg_size))


def start(root: Path, release: Release, settings: BrokerSettings) -> Start:
    """The broker of that release after its start on a store; the files stay as they are."""
    segments = _load_log(root, settings.mapped_file_size_commit_log, release)
    queues = _load_queues(root, settings.consume_queue_file_size)
    if segments is None or queues is None:
        return Start()
    if not segments:
        return Start(loaded=True)
    furthest = max((queue.max_phy for queue in queues.values()), default=-1)
    crashed = (root / "abort").exists()
    bases = sorted(segments)
    begin = _after_crash(root, segments, release) if crashed else _after_stop(bases, furthest, release)
    kept = {base: data for base, data in segments.items() if base >= begin}
    requests = list(walk(kept, settings, recovery=True, step_over_foreign=False))
    end = requests[-1].commit_log_offset + requests[-1].msg_size if requests else begin
    for queue in queues.values():
        queue.units = queue.units[: next((n for n, unit in enumerate(queue.units) if unit[0] >= end), None)]
    if crashed:
        again = requests
    elif release >= (5, 3, 2):
        again = [request for request in requests if request.commit_log_offset > furthest]
    elif release < (5,):
        again = list(walk(segments, settings, until=end))
        again = [request for request in again if request.commit_log_offset >= max(furthest, bases[0])]
    else:
        again = []
    for request in again:
        if request.transaction_type in (0, 8):
            queues.setdefault((request.topic, request.queue_id), _Queue(0, [])).put(request)
    found = Start(loaded=True)
    for key, queue in queues.items():
        found.served[key] = {offset for offset, _ in queue.units}
        found.ends[key] = queue.first + len(queue.units) if queue.units else 0
    return found


def _load_log(root: Path, size: int, release: Release) -> dict[int, bytes] | None:
    files = sorted((root / "commitlog").iterdir())
    if files and not files[-1].stat().st_size and release >= (5, 1, 3):
        files.pop()
    if any(path.stat().st_size != size for path in files):
        return None
    return {int(path.name): path.read_bytes() for path in files}


def _load_queues(root: Path, size: int) -> dict[Key, _Queue] | None:
    queues: dict[Key, _Queue] = {}
    for directory in sorted((root / "consumequeue").glob("*/*")):
        files = sorted(directory.iterdir())
        if any(path.stat().st_size != size for path in files):
            return None
        units: list[tuple[int, int]] = []
        for number, path in enumerate(files):
            own = [unit[:2] for unit in CQ_UNIT.iter_unpack(path.read_bytes())]
            written = next((n for n, unit in enumerate(own) if unit[1] <= 0), len(own))
            if number < len(files) - 3:
                written = len(own)
            units += own[:written]
            if written < len(own):
                break
        if files:
            queues[directory.parent.name, int(directory.name)] = _Queue(int(files[0].name) // CQ_UNIT.size, units)
    return queues


def _after_stop(bases: list[int], furthest: int, release: Release) -> int:
    if release < (5, 3, 2):
        return bases[max(len(bases) - 3, 0)]
    at = len(bases) - 1
    most = _MOST_SEGMENTS if release >= (5, 4) else len(bases)
    while at > 0 and bases[at] > furthest:
        most -= 1
        if most <= 0:
            break
        at -= 1
    return bases[at]


def _after_crash(root: Path, segments: dict[int, bytes], release: Release) -> int:
    page = (root / "checkpoint").read_bytes() if (root / "checkpoint").exists() else bytes(48)
    physic, logics = struct.unpack_from(">qq", page)
    limit = max(min(physic, logics) - 3000, 0)
    bases = sorted(segments)
    most = _MOST_SEGMENTS if release >= (5, 4) else len(bases)
    for number, base in enumerate(reversed(bases), 1):
        time = int.from_bytes(segments[base][56:64], "big")
        if time and time <= (logics if release >= (5, 5) else limit):
            return base
        if number >= most:
            return base
    return bases[0]


# -------------------------------------------------------------------------------------------------------- random stores
SETTINGS = BrokerSettings(mapped_file_size_commit_log=SEGMENT, mapped_file_size_consume_queue=QUEUE_FILE)
RELEASES: tuple[tuple[str, Release], ...] = (
    ("4.9", (4, 9, 8)), ("5.1", (5, 1, 4)), ("5.3", (5, 3, 1)), ("5.3", (5, 3, 3)), ("5.5", (5, 4, 0)),
    ("5.5", (5, 5, 0)),
)  # fmt: skip
TOPICS = ("Orders", "Stock", "%RETRY%readers")
LOSING_CONFIGS = ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "delayOffset.json")
CONTENTS = {"sound": None, "absent": None, "empty": b"", "torn": b'{"offsetTable":{', "zeros": bytes(64)}


class Trial:
    """One store: made healthy, then damaged by what the seed draws."""

    def __init__(self, root: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.version, self.release = self.random.choice(RELEASES)
        self.log = LogBuilder(SEGMENT)
        for _ in range(self.random.randint(1, 90)):
            topic, queue_id = self.random.choice(TOPICS), self.random.randrange(3)
            self.log.message(topic=topic, queue_id=queue_id, body=bytes(self.random.randrange(300)),
                             store_timestamp=self.log.clock + self.random.randrange(9000))  # fmt: skip
        self.expected = {
            record.offset: (str(record.message.topic), record.message.queue_id) for record in self.log.records
        }
        self.dispatched = len(self.log.records)
        kinds = [self.lag, self.drop_queue, self.drop_queue_file, self.spoil_unit, self.cut_log, self.crash, self.flip,
                 self.tear, self.stray, self.resize, self.configure, self.commit, self.expire]  # fmt: skip
        chosen = [] if self.random.random() < 0.3 else self.random.sample(kinds, self.random.randint(1, 3))
        self.healthy, self.names = not chosen, [kind.__name__ for kind in chosen]
        if self.lag in chosen:
            self.dispatched = self.random.randrange(len(self.log.records))
        self.store = finished(root, self.log, self.version, self.dispatched)
        entry = {"readQueueNums": 3, "writeQueueNums": 3}
        self.store.write_config("topics.json", {"topicConfigTable": dict.fromkeys(TOPICS, entry)})
        self.offsets = {
            (str(topic), queue): self.random.randint(0, end) for (topic, queue), end in self.log.queue_offsets.items()
        }
        self.forgotten = self.torn_twice = False
        self.untouched = True
        self.expired = 0
        self.write_offsets()
        for kind in chosen:
            kind()
        self.expired = max(min(self.expired, len(list((self.store.root / "commitlog").glob("0*"))) - 1), 0)
        self.store.age(100, self.expired)  # only now: what is written is young

    # ------------------------------------------------------------------------------------------------------- damages
    def lag(self) -> None:
        """Made with the store."""

    def drop_queue(self) -> None:
        found = sorted((self.store.root / "consumequeue").glob("*/*"))
        if found:
            shutil.rmtree(self.random.choice(found))

    def drop_queue_file(self) -> None:
        found = sorted((self.store.root / "consumequeue").glob("*/*/0*"))
        if found:
            self.random.choice(found).unlink()

    def spoil_unit(self) -> None:
        """Zeros, or another message's; the last one of a file may be the queue's last."""
        found = sorted((self.store.root / "consumequeue").glob("*/*/0*"))
        if found:
            path = self.random.choice(found)
            data = path.read_bytes()
            count = max(len(data.rstrip(b"\0")) // 20, 1)
            at = self.random.randrange(count) * 20
            other = self.random.choice(self.log.records)
            unit = self.random.choice([bytes(20), struct.pack(">qiq", other.offset, other.size, 0)])
            path.write_bytes((data[:at] + unit + data[at + 20 :])[: len(data)])

    def cut_log(self) -> None:
        """The log is that of an older copy; the queues are not."""
        cut = self.random.choice(self.log.records).offset
        for path in (self.store.root / "commitlog").glob("0*"):
            base = int(path.name)
            if base >= cut and base:
                path.unlink()
            elif path.stat().st_size == SEGMENT and base <= cut < base + SEGMENT:
                path.write_bytes(path.read_bytes()[: cut - base].ljust(SEGMENT, b"\0"))
        self.expected = {offset: key for offset, key in self.expected.items() if offset < cut}

    def crash(self) -> None:
        (self.store.root / "abort").touch()
        if self.random.random() < 0.7:
            first, last = self.log.records[0].message.store_timestamp, self.log.clock
            time = self.random.randint(first or 0, last + 9000)
            (self.store.root / "checkpoint").write_bytes(struct.pack(">qq", time, time).ljust(4096, b"\0"))

    def flip(self) -> None:
        record = self.random.choice([record for record in self.log.records if record.message.body] or self.log.records)
        path = self.store.root / "commitlog" / f"{record.offset // SEGMENT * SEGMENT:020d}"
        if path.exists():
            if record.offset % SEGMENT + 8 < path.stat().st_size:
                flip(path, record.offset % SEGMENT + 11)
            self.expected.pop(record.offset, None)

    def tear(self) -> None:
        end = self.log.end_offset
        path = self.store.root / "commitlog" / f"{end // SEGMENT * SEGMENT:020d}"
        if path.exists() and path.stat().st_size == SEGMENT:
            torn = (struct.pack(">iI", 200, 0xDAA320A7) + b"\x01" * 60)[: SEGMENT - end % SEGMENT]
            overwrite_log(path.parent, end, torn)

    def stray(self) -> None:
        (self.store.root / "commitlog" / "notes").write_text("x")

    def resize(self) -> None:
        kind = self.random.choice(["commitlog", "consumequeue"])
        found = sorted(path for path in (self.store.root / kind).rglob("*") if path.is_file())
        if found:
            path = self.random.choice(found)
            path.write_bytes(path.read_bytes()[: -self.random.choice([20, 1, 300])])

    def configure(self) -> None:
        name = self.random.choice(LOSING_CONFIGS)
        main, backup = self.random.choice(sorted(CONTENTS)), self.random.choice(sorted(CONTENTS))
        path = self.store.config(name)
        sound = path.read_bytes()
        for place, content in ((path, main), (path.with_name(name + ".bak"), backup)):
            place.unlink(missing_ok=True)
            if content != "absent":
                place.write_bytes(sound if content == "sound" else CONTENTS[content] or b"")
        if main != "sound" and backup != "sound":
            self.torn_twice = backup in ("torn", "zeros")
            # delayOffset.json is absent where nothing was ever delayed
            self.forgotten = name != "delayOffset.json"
            if name == "consumerOffset.json":
                self.offsets = {}
        self.untouched = name != "consumerOffset.json"

    def commit(self) -> None:
        if self.untouched:
            for key in list(self.offsets):
                self.offsets[key] += self.random.choice([0, 0, 1, 30])
            self.write_offsets()

    def expire(self) -> None:
        count = len(list((self.store.root / "commitlog").glob("0*")))
        self.expired = self.random.randrange(count) if count else 0

    def write_offsets(self) -> None:
        table: dict[str, dict[int, int]] = {}
        for (topic, queue_id), offset in self.offsets.items():
            table.setdefault(f"{topic}@readers", {})[queue_id] = offset
        self.store.commit(table)

    # --------------------------------------------------------------------------------------------------------- model
    def losses(self) -> list[str]:
        """What the start of the model's broker does that nobody wants."""
        found = start(self.store.root, self.release, SETTINGS)
        if not found.loaded or self.torn_twice:
            return ["does not start"]
        lost = [offset for offset, key in self.expected.items() if offset not in found.served.get(key, ())]
        said = [f"{len(lost)} messages not served"] if lost else []
        said += ["configuration forgotten"] if self.forgotten else []
        skipped = {key: at for key, at in self.offsets.items() if at > found.ends.get(key, 0)}
        said += [f"skipped: {skipped}"] if skipped else []
        return said + self.deleted(found)

    def deleted(self, found: Start) -> list[str]:
        """Messages that expire before the group, which has committed an offset in their queue, has read them."""
        bases = sorted(int(path.name) for path in (self.store.root / "commitlog").glob("0*"))
        begin = bases[self.expired] if self.expired < len(bases) else 0
        unread = [
            record
            for record in self.log.records
            if record.offset < begin
            and record.offset in found.served.get((str(record.message.topic), record.message.queue_id), ())
            and (record.message.queue_offset or 0)
            >= self.offsets.get((str(record.message.topic), record.message.queue_id), 1 << 62)
        ]
        return [f"{len(unread)} messages expire unread"] if unread else []


def run(directory: Path, seeds: range) -> Counter[str]:
    tally: Counter[str] = Counter()
    for seed in seeds:
        root = directory / str(seed)
        trial = Trial(root, seed)
        losses, answer = trial.losses(), trial.store.answer()
        what = (seed, trial.version, trial.release, trial.names, losses, answer.lines())
        if trial.healthy:
            assert losses == [], what
            assert answer.safe, what
        if losses:
            assert not answer.safe, what
        tally["healthy" if trial.healthy else "lossy" if losses else "harmless"] += 1
        tally["harmless, and said to be unsafe"] += not losses and not answer.safe
        shutil.rmtree(root)
    return tally


def test_some(tmp_path: Path) -> None:
    tally = run(tmp_path, range(100))
    assert min(tally["healthy"], tally["lossy"], tally["harmless"]) > 5, tally


@pytest.mark.slow
def test_ten_thousand(tmp_path: Path) -> None:
    tally = run(tmp_path, range(10_000, 20_000))
    print(dict(tally))  # noqa: T201
    assert tally["harmless, and said to be unsafe"] < tally["harmless"] // 8, tally
