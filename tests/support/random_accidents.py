"""Random accidents to stores of real brokers: what ``preflight`` says, and what the broker's own store then serves.

    PYTHONPATH=.:tests python -m support.random_accidents --seed S [--trials N | --only NUMBER...] [--keep DIRECTORY]

A trial copies a healthy store and plants one to three accidents. Harm to the store is a start that fails, a message
whose record the accidents left as it was and that a consumer does not get at its place, or a new message at no right
place. Harm to ``config/`` follows from its files: one that the broker reads is torn and has no sound ``.bak``.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from answers.accidents import ACCIDENTS, INDEX, LOG, QUEUES, STATE, Store
from support.real_store import FEATURES, RELEASES, Pulled, RealStore
from support.store_to_start import configure
from support.wrong_stores import UNIT, queue_units

from jobs.preflight.preflight import safe_to_start
from storeformat.store.settings import Settings

CONFIG_RULES = frozenset({
    "config_absent", "config_torn", "config_backup", "config_lost", "queue_type", "topics_not_configured",
    "queues_not_read", "queues_fewer_than_configured", "no_offsets", "committed_beyond_queue", "committed_before_queue",
    "delay_offset_ahead", "delay_offset_beyond_queue", "delay_offset_behind", "delay_level_absent",
})  # fmt: skip
LOSS_RULES = frozenset({"segment_missing", "segment_misplaced", "units_beyond_log"})
HOLE_RULES = LOSS_RULES | {"log_damaged", "log_begins_late"}
"""Rightly unsafe without harm where records are gone, or gone before others: a copy or another name may have them."""
CONFIG_FILES = ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "delayOffset.json")
BATCH = 64

# ------------------------------------------------------------------------------------------------------------ accidents
_CONFIG = "config"
_WEIGHTS = {LOG: 3, QUEUES: 4, INDEX: 1, STATE: 2, _CONFIG: 1}
_NOT_HERE = ("none", "settings", "config", "log_settings")
_LAST = ("queue_file_bak", "queue_file_directory", "queue_file_empty", "log_stray")
"""Other accidents do not expect the files of these."""
Change = Callable[[Store], object]
CHANGES: dict[str, dict[str, Change]] = {kind: {} for kind in _WEIGHTS}
for _name, (_kind, _accident) in ACCIDENTS.items():
    if not _name.startswith(_NOT_HERE):
        CHANGES[_kind][_name] = _accident


def _queue_file(store: Store) -> Path:
    return store.draw.choice(queue_units(store.root))


def _beside(store: Store, path: Path, *steps: int) -> Path:
    return path.with_name(f"{int(path.name) + store.draw.choice(steps):020d}")


def _next_name(path: Path) -> str:
    return f"{int(path.name) + path.stat().st_size:020d}"


def _elsewhere(store: Store, path: Path) -> Path:
    size = path.stat().st_size
    return _beside(store, path, 20 * size, size, 10 * size)


def _zeroed(*patterns: str) -> Change:
    def zero(store: Store) -> None:
        path = store.draw.choice(store.files(*patterns))
        store.write(path, bytes(path.stat().st_size))

    return zero


def _swapped(store: Store) -> None:
    one, other = store.draw.sample(queue_units(store.root), 2)
    first, second = one.read_bytes(), other.read_bytes()
    store.write(one, second)
    store.write(other, first)


def _cut_at_record(store: Store) -> None:
    record = store.draw.choice([record for record in store.records if record.segment == store.segments[-1]])
    data = record.segment.read_bytes()
    store.write(record.segment, data[: record.position].ljust(len(data), b"\0"))


def _renamed_segment(store: Store) -> None:
    path, last = store.draw.choice(store.segments), store.segments[-1]
    size = store.segments[0].stat().st_size
    path.rename(_beside(store, last, 1, size, 2 * size))


def units_of(path: Path) -> list[bytes]:
    data = path.read_bytes()
    return [data[at : at + UNIT.size] for at in range(0, len(data) - UNIT.size + 1, UNIT.size)]


def _overwritten(unit: Callable[[Store], bytes]) -> Change:
    def overwrite(store: Store) -> None:
        path = _queue_file(store)
        used = [number for number, one in enumerate(units_of(path)) if any(one)] or [0]
        store.change(path, store.draw.choice(used) * UNIT.size, unit(store))

    return overwrite


def _older(store: Store) -> None:
    """All queues of one older copy."""
    files = {path: [UNIT.unpack(unit) for unit in units_of(path)] for path in queue_units(store.root)}
    cut = store.draw.choice(sorted(unit[0] for units in files.values() for unit in units if unit[1]))
    for path, units in files.items():
        kept = b"".join(UNIT.pack(*unit) for unit in units if unit[1] and unit[0] < cut)
        store.write(path, kept.ljust(path.stat().st_size, b"\0"))
        if not kept:
            path.unlink()


def _old_checkpoint(store: Store) -> None:
    time = store.draw.choice(store.records).number("store_timestamp")
    store.change(store.root / "checkpoint", 0, struct.pack(">qqq", time, time, time))


def _config(store: Store) -> None:
    """A file torn, empty or lost, beside a ``.bak`` that is sound, torn or not there."""
    path = store.root / "config" / store.draw.choice(CONFIG_FILES)
    data = path.read_bytes()
    contents = {"sound": data, "torn": data[: len(data) // 2], "empty": b"", "absent": None}
    for name, states in ((path.name, ["torn", "empty", "absent"]), (f"{path.name}.bak", ["sound", "torn", "absent"])):
        path.with_name(name).unlink(missing_ok=True)
        if (content := contents[store.draw.choice(states)]) is not None:
            path.with_name(name).write_bytes(content)


CHANGES[LOG] |= {
    "log_cut_at_record": _cut_at_record,
    "log_segment_copied_over": lambda store: shutil.copyfile(*store.draw.sample(store.segments, 2)[::-1]),
    "log_segment_renamed": _renamed_segment,
    "log_next_segment_empty": lambda store: (store.root / "commitlog" / _next_name(store.segments[-1])).touch(),
    "log_segment_zeroed": _zeroed("commitlog/0*"),
}
CHANGES[QUEUES] |= {
    "queue_file_zeroed": _zeroed("consumequeue/*/*/0*", "batchconsumequeue/*/*/0*"),
    "unit_zeroed": _overwritten(lambda store: bytes(UNIT.size)),
    "unit_noise": _overwritten(lambda store: store.draw.randbytes(UNIT.size)),
    "unit_of_another": _overwritten(lambda store: units_of(_queue_file(store))[0]),
    "queue_files_swapped": _swapped,
    "queue_file_renamed": lambda store: (path := _queue_file(store)).rename(_elsewhere(store, path)),
    "queue_file_doubled": lambda store: shutil.copyfile(path := _queue_file(store), _elsewhere(store, path)),
    "queue_file_bak": lambda store: shutil.copyfile(path := _queue_file(store), path.with_name(f"{path.name}.bak")),
    "queue_file_directory": lambda store: ((path := _queue_file(store)).unlink(), path.mkdir()),
    "queues_older": _older,
    "light_queue_lost": lambda store: shutil.rmtree(store.draw.choice(sorted(store.root.glob("consumequeue/%LMQ%*")))),
}
CHANGES[INDEX] |= {
    "index_file_zeroed": _zeroed("index/*"),
    "index_file_cut": lambda store: os.truncate(
        path := store.draw.choice(store.files("index/*")), store.draw.randrange(path.stat().st_size)
    ),
}
CHANGES[STATE] |= {
    "checkpoint_garbled": lambda store: (store.root / "checkpoint").write_bytes(
        store.draw.choice([bytes(4096), store.draw.randbytes(4096), b""])
    ),
    "checkpoint_old": _old_checkpoint,
    "abort_removed": lambda store: (store.root / "abort").unlink(),
}
CHANGES[_CONFIG]["config_damaged"] = _config


def plant(root: Path, draw: random.Random) -> list[str]:
    """Plant one to three accidents and name them; one that finds nothing to draw from is left out."""
    kinds = draw.choices(list(_WEIGHTS), list(_WEIGHTS.values()), k=draw.choice([1, 1, 2, 3]))
    names: list[str] = []
    for name, kind in sorted(
        ((draw.choice(sorted(CHANGES[kind])), kind) for kind in kinds), key=lambda one: one[0].startswith(_LAST)
    ):
        with suppress(ValueError, IndexError, struct.error, FileNotFoundError, shutil.SameFileError):
            planted = CHANGES[kind][name](Store(root, draw))
            names += [name] if planted is not None or name not in ACCIDENTS else []
    return names


# ---------------------------------------------------------------------------------------------------------------- judge
Place = tuple[str, int, int]
"""Topic, queue id, and the queue offset after the message."""


@dataclass(frozen=True)
class Healthy:
    """A store as its broker left it; the record at each place as (commit-log offset, bytes)."""

    root: Path
    settings: dict[str, str]
    records: dict[Place, tuple[int, bytes]]

    def record(self, log: dict[int, bytes], offset: int) -> bytes:
        size = int(self.settings["mappedFileSizeCommitLog"])
        data = log.get(offset - offset % size, b"")[offset % size :]
        return data[: int.from_bytes(data[:4], "big")]

    def sound(self, root: Path) -> dict[Place, int]:
        log = read_log(root)
        return {place: offset for place, (offset, data) in self.records.items() if self.record(log, offset) == data}


def read_log(root: Path) -> dict[int, bytes]:
    return {int(path.name): path.read_bytes() for path in (root / "commitlog").glob("0*") if path.is_file()}


def places(pulled: Pulled) -> dict[Place, int]:
    return {(*queue, end): offset for queue, records in (pulled.queues or {}).items() for end, offset in records}


def write_healthy(release: str, directory: Path, seed: int) -> list[Healthy]:
    """Four stores stopped and four killed, with the kinds of queues that the release has."""
    judge, kinds, found = RealStore(release), ((), (), ("lmq",), ("batch_cq", "lmq")), []
    for halt in (False, True):
        own = [[kind for kind in one if kind in FEATURES[release]] for one in kinds]
        place = directory / ("killed" if halt else "stopped")
        for store in judge.write(place, 4, 100 * seed + 10 * halt, features=own.__getitem__, messages=400, halt=halt):
            configure(store.root)
            settings = {name: str(value).lower() for name, value in store.settings.items() if name != "batch_topics"}
            settings |= {"fileReservedTime": "999999", "cleanFileForciblyEnable": "false"}
            found.append(Healthy(store.root, settings, {}))
    copies = [shutil.copytree(one.root, one.root.parent / f"{one.root.name}-asked") for one in found]
    for healthy, pulled in zip(found, judge.pull(copies), strict=True):
        assert pulled.queues, pulled.failure
        log = read_log(healthy.root)
        healthy.records.update({place: (at, healthy.record(log, at)) for place, at in places(pulled).items()})
    return found


def harm_of(healthy: Healthy, sound: dict[Place, int], pulled: Pulled) -> str:
    """What a start did to the store; empty where it serves what its log holds."""
    if pulled.queues is None:
        return f"no start: {pulled.failure[:100]}"
    now, harm = places(pulled), []
    lost = sorted(place for place, offset in sound.items() if now.get(place) != offset)
    if lost:
        kinds = Counter("not served" if place not in now else "another served" for place in lost)
        harm.append(f"{dict(kinds)} of {len(sound)}, first {lost[0]}")
    for put in pulled.puts:
        topic, queue, got = put["topic"], put["queueId"], put["queueOffset"]
        ends = [place[2] for place in healthy.records if place[:2] == (topic, queue)]
        least = max((place[2] for place in sound if place[:2] == (topic, queue)), default=0)
        if ends and not (least <= got <= max(ends) and put["served"]):
            harm.append(f"new message of {topic}:{queue} at {got}, right from {least} to {max(ends)}")
    return "; ".join(harm[:2])


def config_harm(root: Path, healthy: Healthy) -> str:
    """``harmed``, ``unjudged`` for a file that is lost or empty or a matter of delay levels, else empty."""
    found = set()
    for name in CONFIG_FILES:
        if name == "consumerOffset.json" and healthy.settings.get("enableLmq") == "true":
            continue  # such a broker reads lmqConsumerOffset.json
        files = [root / "config" / name, root / "config" / f"{name}.bak"]
        contents = [path.read_bytes() if path.exists() else b"" for path in files]
        if (healthy.root / "config" / name).read_bytes() not in contents:
            found.add("harmed" if any(contents) and name != "delayOffset.json" else "unjudged")
    return min(found, default="")


@dataclass
class Trial:
    """A store after accidents: its unsafe rules, records ``gone`` (``hole``: before others), and the harm."""

    number: int
    store: str
    accidents: list[str]
    rules: set[str]
    config: str
    gone: int
    hole: bool
    harm: str = ""

    @property
    def verdict(self) -> str:
        """Log and queues are judged apart from ``config/``: what is said of one does not excuse the other."""
        of_store, of_config = self.rules - CONFIG_RULES, self.rules & CONFIG_RULES
        if self.harm.startswith("no start: does not load") and of_config:
            return "unsafe"
        if (self.harm and not of_store) or (self.config == "harmed" and not of_config):
            return "FALSE SAFE"
        if of_store and not self.harm:
            lost = (self.gone and of_store & LOSS_RULES) or (self.hole and of_store & HOLE_RULES)
            return "unsafe for lost records" if lost else "FALSE ALARM"
        return "FALSE ALARM" if of_config and not self.config and not self.harm else "unsafe" if self.rules else "safe"

    @property
    def group(self) -> str:
        return f"{self.verdict}: {' + '.join(sorted(self.accidents))}; {', '.join(sorted(self.rules)) or 'no rule'}"

    def line(self) -> str:
        return f"{self.number:4} {self.store} {self.group}; {self.harm or 'no harm'}; config {self.config or 'sound'}"


def trials_of(release: str, seed: int, numbers: Iterable[int], directory: Path, *, keep: bool) -> list[Trial]:
    """The trials of one release: every fourth number is its own."""
    own = [number for number in numbers if RELEASES[number % len(RELEASES)] == release]
    stores, found = write_healthy(release, directory / release, seed) if own else [], []
    for begin in range(0, len(own), BATCH):
        batch: dict[Path, tuple[Trial, Healthy, dict[Place, int]]] = {}
        for number in own[begin : begin + BATCH]:
            draw, root = random.Random(f"{seed}:{number}"), directory / release / f"trial-{number}"
            healthy = draw.choice(stores)
            shutil.copytree(healthy.root, root)
            accidents, sound = plant(root, draw), healthy.sound(root)
            answer = safe_to_start(str(root), Settings(healthy.settings), release)
            rules = {reason.rule for reason in answer.reasons if reason.unsafe}
            gone = [healthy.records[place][0] for place in healthy.records.keys() - sound]
            name, hole = "/".join(healthy.root.parts[-3:]), min(gone, default=1 << 62) < max(sound.values(), default=0)
            batch[root] = (
                Trial(number, name, accidents, rules, config_harm(root, healthy), len(gone), hole),
                healthy,
                sound,
            )
            if keep:
                shutil.copytree(root, root.with_name(f"{root.name}-before"))
                (root.with_name(f"{root.name}-answer")).write_text("\n".join(answer.lines()), encoding="utf-8")
        judged = RealStore(release).pull(list(batch))
        for (root, (trial, healthy, sound)), pulled in zip(batch.items(), judged, strict=True):
            trial.harm = harm_of(healthy, sound, pulled)
            found.append(trial)
            sys.stdout.write(f"{trial.line()}\n")
            if not keep:
                shutil.rmtree(root)
    return found


def run(seed: int, numbers: Sequence[int], directory: Path, *, keep: bool = False) -> list[Trial]:
    """The trials of these numbers, two releases at a time; a seed and a number always name the same one."""
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda release: trials_of(release, seed, numbers, directory, keep=keep), RELEASES)
        return sorted((trial for trials in found for trial in trials), key=lambda trial: trial.number)


def summary(trials: Sequence[Trial]) -> list[str]:
    """Counts of verdicts, then of accidents and rules where the two sides differ."""
    groups = Counter(trial.group for trial in trials if trial.verdict.startswith("FALSE"))
    verdicts = Counter(trial.verdict for trial in trials)
    return [f"{count:5} {name}" for counts in (verdicts, groups) for name, count in sorted(counts.items())]


def main() -> None:
    parser = argparse.ArgumentParser(description="Random accidents: preflight against the real store.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--only", type=int, nargs="+", help="numbers of trials")
    parser.add_argument("--keep", type=Path, help="directory that keeps the stores, before and after, and the answers")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="accidents-") as scratch:
        numbers = options.only or range(options.trials)
        trials = run(options.seed, numbers, options.keep or Path(scratch), keep=bool(options.keep))
    sys.stdout.write("\n".join(summary(trials)) + "\n")


if __name__ == "__main__":
    main()
