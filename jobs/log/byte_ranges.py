"""Sorted ranges [begin, end) of a log that do not overlap: joined, cut out of each other, what two have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

ByteRange = tuple[int, int]


def joined(ranges: Iterable[ByteRange]) -> list[ByteRange]:
    """Returns ranges in any order as sorted ones, those that touch or overlap made one, and none of no bytes."""
    found: list[ByteRange] = []
    for begin, end in sorted(ranges):
        if begin >= end:
            continue
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def common(one: Sequence[ByteRange], other: Sequence[ByteRange]) -> list[ByteRange]:
    """Returns the bytes that are in both."""
    found: list[ByteRange] = []
    left = right = 0
    while left < len(one) and right < len(other):
        begin, end = max(one[left][0], other[right][0]), min(one[left][1], other[right][1])
        if begin < end:
            found.append((begin, end))
        if one[left][1] < other[right][1]:
            left += 1
        else:
            right += 1
    return found


def without(ranges: Sequence[ByteRange], taken: Sequence[ByteRange]) -> list[ByteRange]:
    """Returns the bytes of ``ranges`` that are not in ``taken``."""
    found: list[ByteRange] = []
    at = 0
    for first, end in ranges:
        begin = first
        while at < len(taken) and taken[at][1] <= begin:
            at += 1
        number = at
        while number < len(taken) and taken[number][0] < end:
            if begin < taken[number][0]:
                found.append((begin, taken[number][0]))
            begin = max(begin, taken[number][1])
            number += 1
        if begin < end:
            found.append((begin, end))
    return found
