"""Timer state of a store: ``config/timercheck``, ``timerwheel`` and ``timerlog/``, and what its broker makes of them.

``timercheck`` is one page of 4096 bytes:

======  ===========================  =====================================================================
offset  field (all i64)              meaning
======  ===========================  =====================================================================
0       last_read_time_ms            messages due before this were delivered
8       last_timer_log_flush_pos     how far ``timerlog/`` was flushed
16      last_timer_queue_offset      messages of rmq_sys_wheel_timer up to here are in wheel and log
24      master_timer_queue_offset    upper limit of the one before; 0 sends the broker back to the beginning
32      state_version, timestamp, counter of the data version
======  ===========================  =====================================================================

Mirrors TimerCheckpoint, TimerWheel and TimerMessageStore#recover (5.0.0 to 5.5.0). The wheel holds 7 days of slots,
twice, 32 bytes each; an absent wheel, or one of no length, is made again, empty. The broker refuses another length.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from storeformat.storage import files, local_status, locations
from storeformat.store.config.config_files import CONFIG

TIMER_CHECK = "timercheck"
WHEEL = "timerwheel"
LOG = "timerlog"
WHEEL_SIZE = 7 * 24 * 3600 * 2 * 32

_FIELDS = struct.Struct(">4q")


@dataclass(frozen=True)
class TimerFiles:
    """What lies there. ``check`` is None without the file, or where it is shorter than its fields; ``wheel_size`` and
    ``log_sizes`` are None and empty without them.
    """

    check: TimerCheck | None
    wheel_size: int | None
    log_sizes: tuple[int, ...]


@dataclass(frozen=True)
class TimerCheck:
    """The fields of ``timercheck`` that recovery looks at."""

    last_read_time_ms: int
    last_timer_log_flush_pos: int
    last_timer_queue_offset: int
    master_timer_queue_offset: int

    @property
    def queued_up_to(self) -> int:
        """The offset of the timer queue from which on recovery reads again, at most."""
        return min(self.last_timer_queue_offset, self.master_timer_queue_offset)


def read_timer_files(root: str) -> TimerFiles:
    """Returns the timer state in a store root."""
    wheel = local_status.status_of(locations.join(root, WHEEL))
    logs = local_status.statuses_in(locations.join(root, LOG))
    return TimerFiles(
        _read_check(locations.join(root, CONFIG, TIMER_CHECK)),
        wheel.size if wheel is not None else None,
        tuple(entry.size for entry in logs if not entry.is_directory),
    )


def _read_check(path: str) -> TimerCheck | None:
    size = files.size_of(path)
    if not size:
        return None
    head = files.read_range(path, 0, min(size, _FIELDS.size))
    return TimerCheck(*_FIELDS.unpack(head.ljust(_FIELDS.size, b"\0")))  # mmap makes a short file longer
