"""What a broker's start makes of a small store: a slow model of load, recovery and dispatch, one release at a time.

It shares nothing with ``jobs.preflight`` and ``storeformat``: files are read here, records by ``broker_model``.

=====================  ==========================================================================
``Start.loaded``       whether the broker comes up (MappedFileQueue#doLoad, ConfigManager#load)
``Start.served``       commit-log offsets in each queue after recovery and dispatch
``Start.ends``         the queue offset that the next message of each queue gets
=====================  ==========================================================================

From CommitLog#recoverNormally, #recoverAbnormally, ConsumeQueue#recover, #truncateDirtyLogicFiles and
#putMessagePositionInfo, DefaultMessageStore#start of 4.9.8, 5.1.4, 5.3.3 and 5.5.0.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

from support.broker_check import DispatchRequest
from support.broker_model import CQ_UNIT, walk
from support.broker_settings import BrokerSettings

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
