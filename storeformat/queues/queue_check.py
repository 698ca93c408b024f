"""One consume-queue file against the log's units. A healthy file has up to three parts, in this order.

=======================  =====================================================================================
places                   allowed content
=======================  =====================================================================================
before the queue's       pre-blank units, and units of messages that retention took from the log
first unit in the log
between first and last   exactly the units that follow from the log; where dispatch lags after a kill, zeros
after the last unit      zeros; old units that a truncation or a deleted topic left; or units of
                         records after the part of the log that was read
=======================  =====================================================================================

Not faults although the bytes differ: a ``consumequeue_ext`` address instead of the tags code, the tags' hash instead
of a delivery time where a broker recovered a schedule queue itself (4.9.2 to 4.9.8), and anything in the place of a
unit whose message is damaged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from storeformat.arrays import Bools, Int64s, LogExtent, Structs, as_fields
from storeformat.limits import LISTED
from storeformat.queues import batch_consume_queue
from storeformat.queues.consume_queue import PRE_BLANK, UNIT, is_pre_blank, is_valid
from storeformat.queues.consume_queue_ext import is_address

_FURTHER_FIELDS = {
    "msg_base_offset": "wrong_offset",
    "batch_size": "wrong_size",
    "store_timestamp": "wrong_entry",
    "compacted_offset": "wrong_entry",
    "reserved": "wrong_entry",
}  # cause of each wrong field of a batch queue's unit

_PRE_BLANK_UNIT: Structs = np.frombuffer(PRE_BLANK, dtype=UNIT)


@dataclass(frozen=True)
class UnitFault:
    """A wrong unit; ``position`` is its byte in the file, the sides are the unit's fields or None."""

    position: int
    cause: str
    expected: dict[str, int] | None
    found: dict[str, int] | None


@dataclass(frozen=True)
class UnitsAfterEnd:
    """Valid units after the queue's last one; columns for the first ``LISTED`` that point into the log."""

    places: Int64s
    phy_offsets: Int64s
    sizes: Int64s
    count: int  # all that point below the end of the log read
    below_log: int  # those that point below the log's start
    taken: int  # those that follow the queue's end without a hole
    beyond_log: int  # units that point after the log read


@dataclass(frozen=True)
class UnitComparison:
    """Result of checking one file. All counts are units."""

    faults: tuple[UnitFault, ...]
    counts: dict[str, int]
    compared: int  # units that equal the log's
    lagging: int  # units of records not yet dispatched
    last_present: int  # commit-log offset of the last correct unit, -1 for none
    old: int  # units before the queue's first one that point below the log
    after_end: UnitsAfterEnd
    ext_places: Int64s  # places whose tags code is a consumequeue_ext address
    delivery_hashes: Int64s  # places whose tags code may be the tags' hash instead of a delivery time
    unproven: int  # places of damaged messages
    last_is_pre_blank: bool  # of the last valid unit
    all_zero: bool


@dataclass(frozen=True)
class Expectation:
    """What the log says about one file. Places are units in the file; the queue's own are [begin, end), ``fillers``
    those of damaged messages. ``dispatched``: log offset up to which units must exist (None: all). ``schedule``:
    delivery times.
    """

    units: Structs
    begin: int
    end: int
    fillers: Bools
    log: LogExtent
    dispatched: int | None = None
    schedule: bool = False
    ext: bool = False


def compare_units(expectation: Expectation, found: Structs) -> UnitComparison:
    """Compare a file's units with the log's; both have one unit a place."""
    begin, end = expectation.begin, _dispatched_end(expectation)
    valid, faults = _is_valid(found), _Faults(found)
    old = _check_head(expectation, found, faults)
    own = np.zeros(len(found), bool)
    own[begin:end] = ~expectation.fillers[begin:end]
    absent = own & _is_zero(found)
    holes = expectation.fillers & ~valid
    holes[end:] = False
    faults.add("missing_unit", np.flatnonzero(absent | holes), expectation.units)
    present = own & ~absent
    differing = np.flatnonzero(present & (found != expectation.units))
    ext, hashes = _judge(differing, expectation, found, faults)
    present[differing] = False
    present[ext] = True
    present[hashes] = True
    matched = np.flatnonzero(present)
    last_valid = np.flatnonzero(valid)[-1:]
    return UnitComparison(
        faults=tuple(faults.listed()),
        counts=faults.counts,
        compared=len(matched),
        lagging=expectation.end - end,
        last_present=int(expectation.units["phy_offset"][matched[-1]]) if len(matched) else -1,
        old=old,
        after_end=_after_end(
            np.flatnonzero(valid[end:] & ~_is_pre_blank(found[end:])) + end, end, found, expectation.log
        ),
        ext_places=ext,
        delivery_hashes=hashes,
        unproven=int(expectation.fillers[begin:end].sum()),
        last_is_pre_blank=bool(len(last_valid)) and bool(_is_pre_blank(found[last_valid])[0]),
        all_zero=bool(_is_zero(found).all()),
    )


def _after_end(places: Int64s, end: int, found: Structs, log: LogExtent) -> UnitsAfterEnd:
    offsets = found["phy_offset"][places].astype(np.int64)
    inside = places[offsets < log.end]
    shown = inside[:LISTED]
    return UnitsAfterEnd(
        shown,
        found["phy_offset"][shown].astype(np.int64),
        found["size"][shown].astype(np.int64),
        count=len(inside),
        below_log=int((offsets < log.begin).sum()),
        taken=int((np.append(inside, -1) != np.arange(end, end + len(inside) + 1)).argmax()),
        beyond_log=len(places) - len(inside),
    )


def _dispatched_end(expectation: Expectation) -> int:
    if expectation.dispatched is None:
        return expectation.end
    ahead = expectation.units["phy_offset"][expectation.begin : expectation.end] >= expectation.dispatched
    return expectation.begin + int(ahead.argmax()) if ahead.any() else expectation.end


def _check_head(expectation: Expectation, found: Structs, faults: _Faults) -> int:
    """Count units of deleted messages before the queue's own, and note faults there."""
    head = found[: expectation.begin]
    valid, zero, negative = _is_valid(head), _is_zero(head), head["phy_offset"] < 0
    pre_blank, below = _is_pre_blank(head), valid & (head["phy_offset"] < expectation.log.begin)
    below |= valid & expectation.log.lost(head["phy_offset"])
    faults.add("missing_unit", np.flatnonzero(zero), blank=True)
    faults.add("extra_unit", np.flatnonzero(valid & ~pre_blank & ~below))
    faults.add("wrong_offset", np.flatnonzero(negative), blank=True)
    faults.add("wrong_size", np.flatnonzero(~negative & ~valid & ~zero), blank=True)
    return int((below & ~pre_blank).sum())


def _is_zero(units: Structs) -> Bools:
    zero = np.ones(len(units), bool)
    for name in units.dtype.names or ():
        zero &= units[name] == 0
    return zero


def _is_valid(units: Structs) -> Bools:
    return batch_consume_queue.is_valid(units) if units.dtype == batch_consume_queue.UNIT else is_valid(units)


def _is_pre_blank(units: Structs) -> Bools:
    return np.zeros(len(units), bool) if units.dtype == batch_consume_queue.UNIT else is_pre_blank(units)


def _judge(places: Int64s, expectation: Expectation, found: Structs, faults: _Faults) -> tuple[Int64s, Int64s]:
    """Note differing units by first wrong field. Returns allowed ones: ext addresses, hashes of delivery times."""
    want, have = expectation.units[places], found[places]
    offset = want["phy_offset"] != have["phy_offset"]
    size = ~offset & (want["size"] != have["size"])
    tags = ~offset & ~size
    ext = tags & (want["tags_code"] != have["tags_code"]) & is_address(have["tags_code"]) & expectation.ext
    hashes = np.zeros(len(places), bool)
    if expectation.schedule:
        codes, expected = have["tags_code"], want["tags_code"]
        hashes = tags & ~ext & (codes == codes.astype(np.int32)) & (expected != expected.astype(np.int32))
    faults.add("wrong_offset", places[offset], expectation.units)
    faults.add("wrong_size", places[size], expectation.units)
    tags = tags & ~ext & ~hashes
    for field, cause in _FURTHER_FIELDS.items():
        if field in (want.dtype.names or ()):
            other = tags & (want["tags_code"] == have["tags_code"]) & (want[field] != have[field])
            faults.add(cause, places[other], expectation.units)
            tags = tags & ~other
    faults.add("wrong_tags_code", places[tags], expectation.units)
    return places[ext], places[hashes]


def with_wrong_tags_codes(
    comparison: UnitComparison, places: Int64s, expected: Structs, found: Structs
) -> UnitComparison:
    """Make places that were taken for addresses or hashes faults."""
    if not len(places):
        return comparison
    faults = _Faults(found)
    faults.add("wrong_tags_code", places, expected)
    counts = dict(comparison.counts)
    counts["wrong_tags_code"] = counts.get("wrong_tags_code", 0) + len(places)
    return replace(
        comparison,
        faults=(*comparison.faults, *faults.listed())[:LISTED],
        counts=counts,
        compared=comparison.compared - len(places),
        ext_places=np.setdiff1d(comparison.ext_places, places),
        delivery_hashes=np.setdiff1d(comparison.delivery_hashes, places),
    )


class _Faults:
    """Collects faults by cause: complete counts, and the first of each cause."""

    def __init__(self, found: Structs) -> None:
        self._found = found
        self._faults: list[UnitFault] = []
        self.counts: dict[str, int] = {}

    def add(
        self, cause: str, places: npt.NDArray[np.intp], expected: Structs | None = None, *, blank: bool = False
    ) -> None:
        if not len(places):
            return
        self.counts[cause] = self.counts.get(cause, 0) + len(places)
        for place in places[:LISTED].tolist():
            want = _PRE_BLANK_UNIT[0] if blank else None if expected is None else expected[place]
            unwritten = cause == "missing_unit" and bool(_is_zero(self._found[place : place + 1])[0])
            have = None if unwritten else self._found[place]
            self._faults.append(UnitFault(place * self._found.dtype.itemsize, cause, as_fields(want), as_fields(have)))

    def listed(self) -> list[UnitFault]:
        return sorted(self._faults, key=lambda fault: fault.position)[:LISTED]
