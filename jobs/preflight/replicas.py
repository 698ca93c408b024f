"""Another copy of the log, of a slave or a member of the group: which is longer, and what is lost with this start.

Replicated logs are alike up to a point and differ from there on, for records carry the time when they were stored: the
last record that both have is compared first. Damage in the middle of a copy is for ``inspect --replica``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jobs.contract.report import quoted
from jobs.preflight.stopped_store import Reason, StoppedStore
from storeformat.errors import MissingInput
from storeformat.log.log_tail import LogTail, read_tail
from storeformat.log.segments import Segment
from storeformat.record.decode import DecodeRules
from storeformat.storage import files, locations
from storeformat.store.config.config_files import Offsets, read_config
from storeformat.store.segment_files import log_files

_OWN_PATHS = ("storePathCommitLog", "readOnlyCommitLogStorePaths", "storePathDLedgerCommitLog", "dLegerSelfId")
_HEAD = 128
_BLOCK = 4 << 20


@dataclass(frozen=True)
class Replica:
    """A copy of the log. ``differs_at`` is the first offset at which it holds other bytes; None where it is alike as
    far as both go.
    """

    root: str
    begin: int
    tail: LogTail
    differs_at: int | None
    offsets: Offsets = field(default_factory=dict)
    """What its groups have committed; empty without a readable consumerOffset.json."""

    def facts(self) -> dict[str, Any]:
        return {"replica": self.root, "begin": self.begin, "end": self.tail.end, "differs_at": self.differs_at}


def read_replica(store: StoppedStore, root: str) -> Replica:
    """A replica's log beside that of the store. Raises MissingInput without one."""
    root = locations.absolute(root)
    own = {name: value for name, value in store.settings.given.items() if name not in _OWN_PATHS}
    log = log_files(root, replace(store.settings, given=own))
    if not log.segments:
        what = "there is no segment in the log of this replica"
        raise MissingInput(what, path=log.directories[0], advice="ROOT is its storePathRootDir")
    tail = read_tail(log.segments, -1, DecodeRules(split_parser=store.rules.split_parser, as_broker=True))
    end = min(tail.end, store.tail.end)
    before = store.tail.offsets[store.tail.ends <= end]
    last = int(before[-1]) if len(before) else end - _BLOCK
    differs_at = _first_difference(store.log.segments, log.segments, last, end)
    offsets = read_config(root, store.offsets_file.name).value or {}
    return Replica(root, log.begin, tail, differs_at, offsets)


def replicas_compared(store: StoppedStore, replica: Replica) -> Iterator[Reason]:
    """A replica that has messages which this store lacks, or others in their place; and a shorter one.

    Mirrors DefaultHAClient#dispatchReadRequest (5.0.0 to 5.5.0; HAClient of 4.9.8): a slave whose log does not end
    where its master goes on replicates no more. AutoSwitchHAClient#doTruncate (5.0.0 to 5.5.0) cuts it to its master's.
    """
    own, other = store.tail, replica.tail
    named: dict[str, Any] = {"root": replica.root, "start": quoted(replica.root)}
    if replica.begin < store.log.begin and store.log.segments:
        # a log whose first record is younger than the time that messages are kept has lost nothing to retention
        case = "replica_begins_earlier.young" if store.begins_young else "replica_begins_earlier.old"
        hours = store.settings.reserved_hours
        yield Reason.of(case, theirs=replica.begin, begin=store.log.begin, hours=hours, **named)
    ends: dict[str, Any] = {"end": other.end, "own": own.end}
    if replica.differs_at is not None:
        at = replica.differs_at
        yield Reason.of("replica_differs", at=at, theirs=_after(other, at), ours=_after(own, at), **named)
    elif other.end > own.end:
        fetched = store.is_slave
        yield Reason.of("replica_longer", unsafe=not fetched, messages=_after(other, own.end), **ends, **named)
    elif other.end < own.end:
        yield Reason.of("replica_shorter", messages=_after(own, other.end), **ends, **named)


def _after(tail: LogTail, offset: int) -> str:
    count = int((tail.ends > offset).sum())
    return f"{'at least ' if tail.begin > offset else ''}{count:,} messages"


def _first_difference(own: tuple[Segment, ...], other: tuple[Segment, ...], last: int, end: int) -> int | None:
    """The first offset below ``end`` at which two logs hold other bytes; ``last`` is where the last record
    before it begins.
    """
    begin = max(own[0].base, other[0].base) if own and other else end
    if begin >= end:
        return None
    if _differs(own, other, max(last, begin), end) is None:
        return None
    for base in [begin, *(segment.base for segment in own if begin < segment.base < end)]:
        if _differs(own, other, base, min(base + _HEAD, end)) is not None:
            break
        begin = base
    parts = (_differs(own, other, at, min(at + _BLOCK, end)) for at in range(begin, end, _BLOCK))
    return next((at for at in parts if at is not None), None)


def _differs(own: tuple[Segment, ...], other: tuple[Segment, ...], begin: int, end: int) -> int | None:
    """The first offset in [begin, end) at which two logs hold other bytes."""
    own_bytes, other_bytes = (np.frombuffer(_bytes(log, begin, end), np.uint8) for log in (own, other))
    return begin + int(np.argmax(own_bytes != other_bytes)) if (own_bytes != other_bytes).any() else None


def _bytes(segments: tuple[Segment, ...], begin: int, end: int) -> bytes:
    """The bytes [begin, end) of a log; zeros where it has no segment."""
    data = bytearray(end - begin)
    for segment in segments:
        first, stop = max(begin, segment.base), min(end, segment.end)
        if first < stop:
            data[first - begin : stop - begin] = files.read_range(segment.path, first - segment.base, stop - first)
    return bytes(data)
