"""The checkpoint: a recovery would begin too late if it is ahead of the store."""

from __future__ import annotations

from jobs.log.log_scan import LogReading
from jobs.verify.differences import Subject, Verdicts
from storeformat.storage import files, locations
from storeformat.store.checkpoint import FIELDS, StoreCheckpoint, parse_checkpoint
from storeformat.store.layout import CHECKPOINT

_SUBJECT = Subject(CHECKPOINT, CHECKPOINT)


def read_checkpoint(root: str, verdicts: Verdicts) -> StoreCheckpoint | None:
    """The store's checkpoint; None, and a difference, if it is missing or too short."""
    path = locations.join(root, CHECKPOINT)
    size = files.size_of(path)
    if size is None:
        verdicts.differ(_SUBJECT, "missing_file")
        return None
    if size < FIELDS.size:
        verdicts.differ(_SUBJECT, "wrong_size", expected=f"at least {FIELDS.size}", found=size)
        return None
    return parse_checkpoint(files.read_range(path, 0, FIELDS.size))


def judge_checkpoint(
    checkpoint: StoreCheckpoint, reading: LogReading, unit_reach: int | None, verdicts: Verdicts
) -> None:
    """Report fields ahead of the log, or of ``unit_reach``, its last dispatched record (None: all are)."""
    latest = max((scan.times.latest for scan in reading.scans), default=0)
    limits: dict[str, int] = {
        "physic_msg_timestamp": latest,
        "logics_msg_timestamp": latest,
        "index_msg_timestamp": latest,
        "logics_physical_offset": max(reading.end - 1, 0) if unit_reach is None else max(unit_reach, 0),
    }
    if reading.damaged or not reading.scans:
        return
    for number, (name, value) in enumerate(vars(checkpoint).items()):
        limit = limits.get(name)
        if limit is not None and value > limit:
            verdicts.differ(
                _SUBJECT,
                "checkpoint_ahead",
                position=8 * number,
                expected={name: f"at most {limit}"},
                found={name: value},
            )
