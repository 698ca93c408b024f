"""The end of a damaged record, as its own bytes prove it.

A record has its length twice, in TOTALSIZE and in the lengths of its parts, and its body has a CRC, so one damaged
field leaves enough to find the next record. A proven body is never searched: it can hold perfect copies of records.

==============================================  ===========================================================
proof                                           what it proves
==============================================  ===========================================================
TOTALSIZE is the sum of the parts               the whole record (body, CRC or a name is damaged)
the body has its CRC at BODYLEN                 the body; and the end, if a record begins at an end that is named
BODYLEN and BODYCRC are 0                       the whole record, if one begins at the sum of the parts
the body has its CRC where TOTALSIZE puts it    the whole record (BODYLEN or SYSFLAG is damaged)
==============================================  ===========================================================
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from storeformat import message as m
from storeformat.arrays import Bytes

_MOST_GUESSES = 64
_BODY_LENGTH_POSITIONS = (84, 96, 108)  # after two short hosts, one long one, two
_MOST_BESIDE_BODY = m.MAX_HEAD_SIZE + 2 * (2 + (1 << 15))


class Follower(IntEnum):
    """What begins at the claimed end of a record."""

    NONE = 0  # nothing that can follow a record
    NOTHING = 1  # the end of the data, or only zeros up to there
    RECORD = 2  # a certified record or a BLANK


@dataclass(frozen=True)
class Frame:
    """What the bytes prove at a place where a record must begin; sizes are relative to it.

    ``size``: the record's, None if not proven. ``body_end``: minimum extent of the record (0: nothing proven).
    ``hints``: sizes that only one field claims. ``certified``: magic and own offset are right. ``is_blank``: more
    likely a BLANK with one damaged field. ``sizes_alone``: the body's CRC is wrong, so the body depends on the size.
    """

    size: int | None
    body_end: int
    hints: tuple[int, ...] = ()
    certified: bool = False
    is_blank: bool = False
    sizes_alone: bool = False

    def refuted(self) -> Frame:
        """The proof without its size, when another record begins before that end."""
        return replace(self, size=None, body_end=0 if self.sizes_alone else self.body_end, sizes_alone=False)


def claimed_size(head: bytes, room: int) -> int:
    """Bytes that ``judge_frame`` needs of a record with this head, at most ``room``."""
    most = m.MAX_HEAD_SIZE
    size = _int(head, 0, 4)
    if size <= room:
        most = max(most, size)
    for at in _BODY_LENGTH_POSITIONS:
        length = _int(head, at, 4)
        if length <= room:
            most = max(most, length + _MOST_BESIDE_BODY)
    return min(most, room)


def judge_frame(data: Bytes, offset: int, rest: int, follower: Callable[[int], Follower]) -> Frame:
    """Judge the damaged record that begins with ``data[0]`` at log offset ``offset``. ``data``: as ``claimed_size``
    asks. ``rest``: bytes left in the segment. ``follower(size)``: what follows a record of that size.
    """
    room = len(data)
    head = data[: m.MAX_HEAD_SIZE].tobytes()
    size, magic = _int(head, 0, 4), _int(head, m.MAGIC_POSITION, 4)
    if room < m.MIN_RECORD_SIZE:
        return Frame(None, 0)
    known_magic = magic in (m.MAGIC_V1, m.MAGIC_V2)
    certified = known_magic and _int(head, m.PHYSICAL_OFFSET_POSITION, 8) == offset
    if magic == m.MAGIC_BLANK or (size == rest and not certified):  # every record leaves 8 bytes after it
        return Frame(None, 0, is_blank=True)
    crc = int.from_bytes(head[m.BODY_CRC_POSITION : m.BODY_CRC_POSITION + 4], "big")
    said = size if m.MIN_RECORD_SIZE <= size <= room else None
    widths = {m.MAGIC_V1: (1,), m.MAGIC_V2: (2,)}.get(magic, (1, 2))
    sums: list[int] = []
    body_end = 0
    for width in widths:
        body_at, length, total = _sum_of_parts(data, head, room, width)
        if total is not None and total == said:
            checked = _crc(data, body_at, length) == crc
            body_end = body_at + length if certified or checked else 0
            return Frame(said, body_end, certified=certified, sizes_alone=not checked)
        if total is not None:
            sums.append(total)
        if 0 < length <= room - body_at - width - 2 and _crc(data, body_at, length) == crc:
            body_end = max(body_end, body_at + length)
    followed = {end: follower(end) for end in (said, *sums) if end is not None and end >= body_end}
    if certified and not crc and not length and total is not None and followed.get(total) == Follower.RECORD:
        return Frame(total, body_at, certified=True)
    certain = sorted(end for end, what in followed.items() if what == Follower.RECORD)
    if body_end:  # only topic and properties follow, which hold no records: take the nearer of two ends
        return Frame(certain[0] if certain else None, body_end, tuple(certain), certified)
    if said is not None and followed[said] and any(_body_fits(data, crc, said, width) for width in widths):
        return Frame(said, said, certified=certified)
    return Frame(None, 0, tuple(certain), certified)


def parts_end(data: Bytes) -> int | None:
    """End of the record's parts by their lengths; None if outside ``data``."""
    head = data[: m.MAX_HEAD_SIZE].tobytes()
    return _sum_of_parts(data, head, len(data), 2 if _int(head, m.MAGIC_POSITION, 4) == m.MAGIC_V2 else 1)[2]


def _int(head: bytes, position: int, size: int) -> int:
    return int.from_bytes(head[position : position + size], "big", signed=True)


def _crc(data: Bytes, start: int, length: int) -> int:
    return zlib.crc32(data[start : start + length].data) & m.CRC_MASK


def _sum_of_parts(data: Bytes, head: bytes, room: int, width: int) -> tuple[int, int, int | None]:
    """Start and length of the body, and the sum of the parts (None if larger than ``room``)."""
    body_at = m.body_position(_int(head, m.SYS_FLAG_POSITION, 4))
    length = max(_int(head, body_at - 4, 4), 0)
    at = body_at + length
    if at + width + 2 > room:
        return body_at, length, None
    topic = _int(data[at : at + width].tobytes(), 0, width)
    at += width + topic
    if topic < 0 or at + 2 > room:
        return body_at, length, None
    at += 2 + max(_int(data[at : at + 2].tobytes(), 0, 2), 0)
    return body_at, length, at if at <= room else None


def _body_fits(data: Bytes, crc: int, size: int, width: int) -> bool:
    """True if a body length and host sizes exist for which a record of this size has a body with this CRC."""
    guesses = 0
    for hosts in {m.HOST_V4 + m.HOST_V4, m.HOST_V4 + m.HOST_V6, m.HOST_V6 + m.HOST_V6}:
        body_at = m.FIXED_HEAD + hosts
        for length in _possible_lengths(data, body_at, size, width):
            guesses += 1
            if length and _crc(data, body_at, length) == crc:
                return True
            if guesses >= _MOST_GUESSES:
                return False
    return False


def _possible_lengths(data: Bytes, body_at: int, size: int, width: int) -> Iterator[int]:
    """Body lengths for which topic and properties end exactly at ``size``."""
    at = np.arange(body_at, size - width - 1)
    topic = data[at].astype(np.int64)
    if width == 2:
        topic = (topic << 8) | data[at + 1]
    properties = at + width + topic
    inside = (topic < (1 << (8 * width - 1))) & (properties + 2 <= size)
    at, properties = at[inside], properties[inside]
    length = (data[properties].astype(np.int64) << 8) | data[properties + 1]
    length[length >= 1 << 15] = 0
    yield from (at[properties + 2 + length == size] - body_at).tolist()
