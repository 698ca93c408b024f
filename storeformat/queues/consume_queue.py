"""Consume queues: one 20-byte unit a message, and its position in the queue's files (FORMAT.md, Unit).

The unit of queue offset n is at byte 20 * n of its queue; files have one size and are named with the byte offset of
their first unit, in 20 digits. A queue that does not begin at 0 fills the head of its first file with pre-blank units;
unwritten bytes are zero, and no file is all zeros.

Mirrors ConsumeQueue#putMessagePositionInfo and #fillPreBlank (4.5.1 to 5.5.0) for whole *runs*: units of one queue with
consecutive queue offsets, in commit-log order, so that the files do not depend on how the log was split. Rules, for
a unit with queue offset q when the queue ends at position p:

- nothing written yet: the queue begins at q
- q = 0: the topic was created again or the units from 0 to q are lost; the queue begins again, and only its last life
  is kept (a live broker deleted the earlier ones with the topic). Where the broker only lost the queue's counter,
  the unit is written at p
- q < p: dropped, the first one written wins
- q > p: written at p, a broker leaves no gap; unless the log is damaged in between: then the gap is filled, because the
  queue offsets of surviving messages must not move
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from storeformat.arrays import Bools, Int64s, Structs, cut_ranges, leading, narrow

UNIT = np.dtype([("phy_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
UNIT_SIZE = UNIT.itemsize
PRE_BLANK_SIZE = 0x7FFFFFFF
PRE_BLANK = np.array([(0, PRE_BLANK_SIZE, 0)], dtype=UNIT).tobytes()

MAX_QUEUE_OFFSET = ((1 << 63) - 1) // UNIT_SIZE - (1 << 31)  # from here on, byte offsets do not fit 64 bits


def pack_units(phy_offsets: npt.ArrayLike, sizes: npt.ArrayLike, tags_codes: npt.ArrayLike) -> Structs:
    """Units from three columns of equal length.

    >>> pack_units([377], [181], [0x1A1F85305E1]).tobytes().hex()
    '0000000000000179000000b5000001a1f85305e1'
    """
    offsets = np.asarray(phy_offsets)
    units = np.empty(len(offsets), dtype=UNIT)
    units["phy_offset"] = offsets
    units["size"] = sizes
    units["tags_code"] = tags_codes
    return units


RUN_PLACE = np.dtype(
    [
        ("queue", "i8"),  # its row in the table of queues
        ("position", "i8"),  # of the first kept unit
        ("skip", "i8"),  # units of the run before the first kept one
        ("count", "i8"),  # kept units
        ("fill", "i8"),  # units before ``position`` that stand for damaged messages
        ("in_last_life", "?"),  # the queue was not created again after it
    ]
)
QUEUE = np.dtype(
    [
        ("key", "i8"),
        ("first", "i8"),  # its units are at [first, end)
        ("end", "i8"),
        ("earlier_lives", "i8"),  # units omitted because the topic was created again
        ("dropped", "i8"),  # units omitted because their queue offset was taken or invalid
        ("shifted", "i8"),  # units stored before their own queue offset
    ]
)
FILE = np.dtype(
    [
        ("key", "i8"),  # of its queue
        ("base", "i8"),  # byte offset of its first unit
        ("pre_blanks", "i4"),
        ("slices", "i4"),  # number of slices
        ("closed", "?"),  # another file of the queue follows
    ]
)
SLICE = np.dtype(
    [
        ("source", "i4"),
        ("begin", "i4"),
        ("count", "i4"),
        ("filler", "?"),  # ``count`` copies of the unit at ``begin``
    ]
)


class Places(NamedTuple):
    """The place of each run, rows of ``RUN_PLACE`` in the given order, and the queues, rows of ``QUEUE`` by key."""

    runs: Structs
    queues: Structs


def place_runs(
    queue_of_run: npt.ArrayLike,
    first_queue_offsets: npt.ArrayLike,
    counts: npt.ArrayLike,
    after_damage: npt.ArrayLike | None = None,
    begins_anew: npt.ArrayLike | None = None,
    counter_lost: npt.ArrayLike | None = None,
) -> Places:
    """Place every run by the rules in the module docstring. Runs are sorted by queue, then in commit-log order.

    A run is ``counts`` units with consecutive queue offsets from ``first_queue_offsets`` on. ``after_damage``: the log
    is damaged since the queue's previous run (first run: since queue offset 0); ``begins_anew``: and a new life began
    there. ``counter_lost``: units of queue offset 0 that begin no life, each a run of its own.
    """
    owner = np.asarray(queue_of_run, dtype=np.int64)
    given_offsets = np.ascontiguousarray(first_queue_offsets, dtype=np.int64)
    given_counts = np.ascontiguousarray(counts, dtype=np.int64)
    damaged = np.zeros(len(owner), dtype=bool) if after_damage is None else np.asarray(after_damage, dtype=bool)
    appended = (given_offsets == 0) & (False if counter_lost is None else np.asarray(counter_lost, dtype=bool))
    if np.any(np.diff(owner) < 0):
        raise ValueError("runs must be sorted by queue")

    starts = np.flatnonzero(np.diff(owner, prepend=owner[:1] - 1))
    queue = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(owner)))
    # Negative queue offsets have no place, nor have those beyond 64-bit addresses.
    skip = np.clip(-given_offsets, 0, given_counts)
    offsets = given_offsets + skip
    usable = np.clip(given_counts - skip, 0, np.maximum(MAX_QUEUE_OFFSET - offsets, 0))
    dropped = _sum_by(queue, given_counts - usable, len(starts))

    births = np.where((offsets == 0) & (usable > 0) & ~appended, np.arange(len(owner)), -1)
    if begins_anew is not None:
        births = np.where(np.asarray(begins_anew, dtype=bool), np.arange(len(owner)), births)
    last_birth = np.maximum.reduceat(births, starts) if len(starts) else births
    in_last_life = np.arange(len(owner)) >= last_birth[queue]
    earlier_lives = _sum_by(queue, np.where(in_last_life, 0, usable), len(starts))

    live = np.flatnonzero(in_last_life & (usable > 0))
    position, late, fill = _place(queue[live], offsets[live], usable[live], damaged[live], appended[live])
    heads = np.flatnonzero(np.diff(queue[live], prepend=-1))
    fill[heads] = np.where(damaged[live][heads], position[heads], 0)
    kept = usable[live] - late
    skip[live] += late
    runs = np.zeros(len(owner), RUN_PLACE)
    runs["queue"], runs["skip"], runs["in_last_life"] = queue, skip, in_last_life
    runs["position"][live], runs["count"][live], runs["fill"][live] = position, kept, fill
    queues = np.zeros(len(starts), QUEUE)
    queues["key"] = owner[starts]
    queues["first"][queue[live][heads]] = position[heads] - fill[heads]
    np.maximum.at(queues["end"], queue[live], position + kept)
    queues["earlier_lives"] = earlier_lives
    queues["dropped"] = dropped + _sum_by(queue[live], late, len(starts))
    queues["shifted"] = _sum_by(queue[live], np.where(position < offsets[live] + late, kept, 0), len(starts))
    return Places(runs, queues)


def append_runs(queue_of_run: Int64s, counts: Int64s) -> Places:
    """Place runs, sorted by queue, one after the other from 0 on: in batch queues, and in consumequeue_ext."""
    keys, starts, queue = np.unique(queue_of_run, return_index=True, return_inverse=True)
    before = np.cumsum(counts) - counts
    runs, queues = np.zeros(len(queue), RUN_PLACE), np.zeros(len(keys), QUEUE)
    runs["queue"], runs["position"], runs["count"] = queue, before - before[starts][queue], counts
    queues["key"] = keys
    queues["end"] = _sum_by(queue, counts, len(keys))
    return Places(runs, queues)


def without_races(
    queue_of_run: Int64s, first_queue_offsets: Int64s, counts: Int64s, light: Bools, after_damage: Bools | None = None
) -> Int64s:
    """First queue offsets for ``place_runs`` where producers raced for a new light queue.

    Each gets queue offset 0 (LmqConsumeQueue counters of 5.0.0 to 5.1.4, apache/rocketmq#7511), and the broker appends
    all their messages, because ConsumeQueue#putMessagePositionInfo does not compare offset 0. The next message has
    their number as its offset, where the second message of a recreated queue has 1.
    """
    alone = light & (first_queue_offsets == 0) & (counts == 1)
    after = light[1:] & (first_queue_offsets[1:] > 1) & alone[:-1] & (queue_of_run[1:] == queue_of_run[:-1])
    if after_damage is not None:
        after &= ~after_damage[1:]
    offsets = first_queue_offsets
    for row in (np.flatnonzero(after) + 1).tolist():
        first = row - int(first_queue_offsets[row])
        if first >= 0 and queue_of_run[first] == queue_of_run[row] and alone[first:row].all():
            offsets = offsets.copy() if offsets is first_queue_offsets else offsets
            offsets[first:row] = np.arange(row - first)
    return offsets


def _place(
    queue: Int64s, offsets: Int64s, counts: Int64s, damaged: Bools, appended: Bools
) -> tuple[Int64s, Int64s, Int64s]:
    """Position, units dropped at the head, and fillers before, of each run of the last lives. Nearly every queue is
    regular: each run begins where the one before ended. Irregular ones are walked run by run, all queues at once.
    """
    position, late, fill = offsets.copy(), np.zeros_like(offsets), np.zeros_like(offsets)
    starts = np.flatnonzero(np.diff(queue, prepend=-1))
    lengths = np.diff(starts, append=len(queue))
    broken = (offsets[1:] != offsets[:-1] + counts[:-1]) & (queue[1:] == queue[:-1])
    irregular = np.unique(np.searchsorted(starts, np.flatnonzero(broken), side="right") - 1)
    irregular = irregular[np.argsort(-lengths[irregular], kind="stable")]
    if not len(irregular):
        return position, late, fill
    ends = offsets[starts[irregular]].copy()
    expected = ends.copy()  # the queue offset after the highest one seen: runs ahead of the end in a shifted queue
    for step in range(int(lengths[irregular[0]])):
        active = int(np.searchsorted(-lengths[irregular], -step, side="left"))
        runs = starts[irregular[:active]] + step
        end = ends[:active]
        ahead = np.where(appended[runs], 0, offsets[runs] - end)
        late[runs] = np.clip(-ahead, 0, counts[runs])
        fill[runs] = np.where((ahead > 0) & damaged[runs], np.maximum(offsets[runs] - expected[:active], 0), 0)
        position[runs] = end + fill[runs]
        ends[:active] = position[runs] + counts[runs] - late[runs]
        expected[:active] = np.maximum(expected[:active], offsets[runs] + counts[runs])
    return position, late, fill


def _sum_by(group: Int64s, values: Int64s, groups: int) -> Int64s:
    sums = np.zeros(groups, dtype=np.int64)
    np.add.at(sums, group, values)
    return sums


def plan_files(places: Places, units_per_file: int, file_size: int) -> tuple[Structs, Structs]:
    """The files up to each queue's last unit, rows of ``FILE``, and their slices in order, rows of ``SLICE``: the
    ``source`` of a slice is its run, ``begin`` its first unit there.
    """
    runs, queues = places
    kept, filled = np.flatnonzero(runs["count"]), np.flatnonzero(runs["fill"])
    run = np.concatenate([filled, kept])
    order = np.argsort(run, kind="stable")  # the fillers of a run before its units
    run = run[order]
    filler = (np.arange(len(run)) < len(filled))[order]
    position = runs["position"][run]
    begin = np.where(filler, position - runs["fill"][run], position)
    end = np.where(filler, position, position + runs["count"][run])
    source, number, piece_begin, piece_end = cut_ranges(begin, end, units_per_file)
    slices = np.zeros(len(source), SLICE)
    slices["source"], slices["filler"] = run[source], filler[source]
    slices["begin"] = narrow(runs["skip"][run[source]] + np.where(filler[source], 0, piece_begin - begin[source]))
    slices["count"] = narrow(piece_end - piece_begin)

    queue = runs["queue"][run[source]]
    heads = np.flatnonzero((np.diff(queue, prepend=-1) != 0) | (np.diff(number, prepend=-1) != 0))
    queue, number = queue[heads], number[heads]
    files = np.zeros(len(heads), FILE)
    files["key"], files["base"] = queues["key"][queue], number * file_size
    files["pre_blanks"] = np.maximum(queues["first"][queue] - number * units_per_file, 0)
    files["slices"] = np.diff(heads, append=len(source))
    files["closed"][:-1] = queue[1:] == queue[:-1]
    return files, slices


def parse_units(content: bytes | bytearray | memoryview) -> Structs:
    """``UNIT`` view over the bytes of a file, without a cut last unit.

    >>> parse_units(bytes.fromhex("0000000000000179000000b5000001a1f85305e1") + b"cut").tolist()
    [(377, 181, 1795167552993)]
    """
    return np.frombuffer(content, dtype=UNIT, count=len(content) // UNIT_SIZE)


def is_valid(units: Structs) -> Bools:
    """Which units recovery accepts (ConsumeQueue#recover): pre-blank ones too, unwritten ones not."""
    return (units["phy_offset"] >= 0) & (units["size"] > 0)


def is_pre_blank(units: Structs) -> Bools:
    """Which units only fill the head of a queue's first file."""
    return (units["phy_offset"] == 0) & (units["size"] == PRE_BLANK_SIZE) & (units["tags_code"] == 0)


def written_units(units: Structs) -> int:
    """Number of units before the first that recovery does not accept."""
    return leading(is_valid(units))
