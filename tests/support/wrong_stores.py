"""Stores with one thing wrong, each with the rule of ``preflight`` that is to find it, and its cure.

The stores are real ones, written with ``SETTINGS``; ``said_of`` asks ``preflight``, ``served`` what a broker serves.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from support.planting import flip
from support.real_store import Opened
from support.rebuilding import preflight_here, rebuild_here
from support.start_damages import NO_QUEUES, NO_SEGMENTS, Damage, folder, put, without
from support.store_builder import LogBuilder, overwrite_log
from support.store_to_start import StoreToStart

from jobs.preflight.stopped_store import Answer

SEGMENT, QUEUE_FILE = 65_536, 400
SETTINGS = {"mappedFileSizeCommitLog": SEGMENT, "mappedFileSizeConsumeQueue": QUEUE_FILE, "maxHashSlotNum": 100,
            "maxIndexNum": 400, "messageIndexEnable": True}  # fmt: skip
UNIT = struct.Struct(">qiq")
LAG = 5
FILLERS = 7


@dataclass(frozen=True)
class Facts:
    """The healthy store: where its records lie that a queue serves, by (topic, queue id), and where the log ends."""

    root: Path
    served: Mapping[tuple[str, int], list[int]]
    end: int

    @property
    def offsets(self) -> list[int]:
        return sorted(offset for offsets in self.served.values() for offset in offsets)

    @property
    def largest_queue(self) -> tuple[str, int]:
        return max(self.served, key=lambda queue: len(self.served[queue]))


Change = Callable[[Path, Facts], object]


def said_of(root: Path, release: str) -> Answer:
    return preflight_here(root, {**SETTINGS, "fileReservedTime": 999_999, "cleanFileForciblyEnable": False}, release)


def served(opened: Opened) -> dict[tuple[str, int], list[int]]:
    return {(queue["topic"], queue["queueId"]): queue["commitLogOffsets"] for queue in opened.answers.get("queues", ())}


# --------------------------------------------------------------------------------------------------------------- damage
def same(damage: Damage) -> Change:
    """What is done to the small stores of ``start_cases``, to a real one."""
    return lambda root, facts: damage(StoreToStart(root, LogBuilder(SEGMENT)))


def queue_units(root: Path) -> list[Path]:
    return sorted(path for path in (root / "consumequeue").rglob("*") if path.is_file())


def cut_units(root: Path, log_offset: int) -> None:
    """Takes the units from a log offset on, and files and queues that have none left."""
    for path in queue_units(root):
        data = path.read_bytes()
        kept = [data[at : at + 20] for at in range(0, len(data), 20) if UNIT.unpack_from(data, at)[1] > 0]
        kept = [unit for unit in kept if UNIT.unpack(unit)[0] < log_offset]
        if kept:
            path.write_bytes(b"".join(kept).ljust(len(data), b"\0"))
        else:
            path.unlink()
            if not list(path.parent.iterdir()):
                path.parent.rmdir()


def lag(root: Path, facts: Facts) -> None:
    cut_units(root, facts.offsets[-LAG])


def lag_after_crash(root: Path, facts: Facts) -> None:
    lag(root, facts)
    (root / "checkpoint").unlink()
    (root / "abort").touch()


def one_queue(root: Path, facts: Facts) -> None:
    topic, queue_id = facts.largest_queue
    shutil.rmtree(root / "consumequeue" / topic / str(queue_id))


def segment_size(root: Path, facts: Facts) -> None:
    os.truncate(sorted((root / "commitlog").iterdir())[0], SEGMENT - 100)


def queue_file_size(root: Path, facts: Facts) -> None:
    os.truncate(queue_units(root)[0], QUEUE_FILE - 20)


def stray_queue_file(root: Path, facts: Facts) -> None:
    """As long as a queue file, so that its name alone is wrong."""
    topic, queue_id = facts.largest_queue
    (root / "consumequeue" / topic / str(queue_id) / "notes").write_bytes(bytes(QUEUE_FILE))


def fillers_alone(root: Path, facts: Facts) -> None:
    """What a broker leaves that dies when it has filled a queue up to its first message, before it writes that."""
    directory = root / "consumequeue" / facts.largest_queue[0] / str(facts.largest_queue[1])
    shutil.rmtree(directory)
    directory.mkdir()
    (directory / f"{QUEUE_FILE:020d}").write_bytes((UNIT.pack(0, 0x7FFFFFFF, 0) * FILLERS).ljust(QUEUE_FILE, b"\0"))


def damaged_log(root: Path, facts: Facts) -> None:
    """One bit of a body, in the last segment that has some records after it."""
    offset = facts.offsets[-LAG]
    flip(root / "commitlog" / f"{offset // SEGMENT * SEGMENT:020d}", offset % SEGMENT + 8)  # of the CRC


def damaged_before(root: Path, facts: Facts) -> None:
    """The same in the first segment, to which no start after a clean stop goes back."""
    flip(root / "commitlog" / f"{0:020d}", facts.offsets[LAG] + 8)


def torn_tail(root: Path, facts: Facts) -> None:
    source = facts.offsets[0]
    record = (root / "commitlog" / f"{source // SEGMENT * SEGMENT:020d}").read_bytes()[source % SEGMENT :][:90]
    overwrite_log(root / "commitlog", facts.end, record)


def segment_missing(root: Path, facts: Facts) -> None:
    sorted((root / "commitlog").iterdir())[1].unlink()


def empty_last(root: Path, facts: Facts) -> None:
    last = sorted((root / "commitlog").iterdir())[-1]
    last.with_name(f"{int(last.name) + SEGMENT:020d}").touch()


def queue_with_a_hole(root: Path, facts: Facts) -> None:
    """The last unit of the second-last file of a queue."""
    topic, queue_id = facts.largest_queue
    path = sorted((root / "consumequeue" / topic / str(queue_id)).iterdir())[-2]
    path.write_bytes(path.read_bytes()[:-20].ljust(QUEUE_FILE, b"\0"))


def log_cut(root: Path, facts: Facts) -> None:
    """A copy that is older than its queues."""
    cut = facts.offsets[-LAG]
    for path in sorted((root / "commitlog").iterdir()):
        base = int(path.name)
        path.write_bytes(path.read_bytes()[: max(cut - base, 0)].ljust(SEGMENT, b"\0"))


def nothing(root: Path, facts: Facts) -> None:
    pass


# ----------------------------------------------------------------------------------------------------------------- cure
def rebuilt(root: Path, facts: Facts) -> None:
    """Rebuild and publish, as far as queues go."""
    work = root.parent / f"{root.name}-work"
    work.mkdir()
    built = rebuild_here(root, work, SETTINGS)
    shutil.rmtree(root / "consumequeue", ignore_errors=True)
    shutil.copytree(Path(built.directory) / "consumequeue", root / "consumequeue")


def segments_put_back(root: Path, facts: Facts) -> None:
    shutil.rmtree(root / "commitlog")
    shutil.copytree(facts.root / "commitlog", root / "commitlog")


def stray_queue_file_moved(root: Path, facts: Facts) -> None:
    topic, queue_id = facts.largest_queue
    (root / "consumequeue" / topic / str(queue_id) / "notes").unlink()


def empty_removed(root: Path, facts: Facts) -> None:
    sorted((root / "commitlog").iterdir())[-1].unlink()


CASES: dict[str, tuple[Change, str, Change]] = {
    "healthy": (nothing, "", nothing),
    "lag": (lag, "messages_not_served", rebuilt),
    "lag_after_crash": (lag_after_crash, "messages_not_served", nothing),
    "queues_wiped": (same(NO_QUEUES), "messages_not_served", rebuilt),
    "one_queue": (one_queue, "messages_not_served", rebuilt),
    "stray_file": (same(put("commitlog/notes.txt", "x")), "stray_file", same(without("commitlog/notes.txt"))),
    "segment_size": (segment_size, "segment_size", segments_put_back),
    "queue_file_size": (queue_file_size, "queue_files", rebuilt),
    "stray_queue_file": (stray_queue_file, "queue_files", stray_queue_file_moved),
    "fillers_alone": (fillers_alone, "queue_files", rebuilt),
    "damaged_log": (damaged_log, "log_damaged", segments_put_back),
    "damaged_before": (damaged_before, "log_damaged", segments_put_back),
    "torn_tail": (torn_tail, "torn_tail", nothing),
    "log_gone": (same(NO_SEGMENTS), "log_missing", segments_put_back),
    "segment_missing": (segment_missing, "segment_missing", segments_put_back),
    "empty_last": (empty_last, "segment_size", empty_removed),
    "folder": (same(folder("commitlog/old")), "stray_file", same(without("commitlog/old"))),
    "queue_with_a_hole": (queue_with_a_hole, "queue_files", rebuilt),
    "log_cut": (log_cut, "units_beyond_log", segments_put_back),
}
