"""The segments of a commit log as they lie in its directories: found, put in order, and checked against each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, starmap

from storeformat.errors import MissingInput, NotAStore
from storeformat.log.dledger import ENTRIES, HEAD_SIZE, framing_of, is_of_group
from storeformat.log.framing import PLAIN, Framing
from storeformat.log.segments import Segment
from storeformat.storage import files, locations
from storeformat.store.layout import file_name, is_file_name

_MOST_MISSING = 1_000
"""Segments in a row that may be missing: more are a file of another log."""
_MOST_STRAY = 20
"""So many names an error shows."""


def find_segments(
    directories: Sequence[str], expected_size: int | None, *, with_missing: bool = False
) -> list[Segment]:
    """Returns the segments of the commit log in order. Raises MissingInput if there is no such directory or a link is
    broken, NotAStore, with the path and the two values, if these are not the segments of one log.

    All files must be segments of one length, each 20-digit name a multiple of that length, no gap, no name twice. A
    file of length 0 at the end is one that a broker was creating when it died, and is left out, as it is from 5.1.3 on.
    A directory's first segment shows how all of them are framed. ``with_missing`` bytes of short segments, and whole
    segments between others, are not an error: the segments returned say how many no file holds.
    """
    found: list[files.Entry] = []
    stray: list[files.Entry] = []
    framings: dict[str, Framing] = {}
    for directory in directories:
        entries = files.list_directory(directory)
        if entries is None:
            raise MissingInput(
                "there is no commit log", path=directory, advice="--store must be the broker's storePathRootDir"
            )
        if (link := files.first_dead_link(directory)) is not None:
            raise MissingInput("a link in the commit log is broken", path=link, advice="mount its target")
        has_segments = any(is_file_name(entry.name) for entry in entries)
        for entry in entries:
            if entry.is_directory:
                continue  # tolerated by brokers from 5.1.0 on
            if not has_segments:
                raise NotAStore("this is not a commit log: it has no segments", path=directory, found=entry.name)
            if not is_file_name(entry.name):
                stray.append(entry)
                continue
            if entry.size < 0:
                raise NotAStore("this is not a regular file", path=entry.path)
            found.append(entry)
            framings[entry.path] = PLAIN
        own = sorted((entry for entry in entries if entry.path in framings), key=lambda entry: entry.name)
        framing = _framing_shown(own) or (ENTRIES if is_of_group(directory) else PLAIN)
        framings |= dict.fromkeys((entry.path for entry in own), framing)
    _refuse_stray(stray)
    found.sort(key=lambda entry: entry.name)
    if found and found[-1].size == 0:
        found.pop()
    if not any(entry.size for entry in found):
        raise NotAStore("the commit log is empty", path=", ".join(directories))
    segments = [Segment(entry.path, int(entry.name), entry.size, framings[entry.path]) for entry in found]
    size = _shown_size(segments) if expected_size is None else expected_size
    if with_missing:
        segments = list(_with_missing(segments, size))
    _check_segments(segments, size)
    return segments


def _refuse_stray(stray: Sequence[files.Entry]) -> None:
    """Raises NotAStore for files that are not segments, and names all of them."""
    if len(stray) == 1:
        raise NotAStore(
            "there is a stray file in the commit log",
            path=stray[0].path,
            advice="no broker starts with it; move it away",
        )
    if stray:
        rest = f" and {len(stray) - _MOST_STRAY} more" if len(stray) > _MOST_STRAY else ""
        raise NotAStore(
            f"there are {len(stray)} stray files in the commit log", path=locations.parent_of(stray[0].path),
            found=", ".join(entry.name for entry in stray[:_MOST_STRAY]) + rest,
            advice="no broker starts with them; move them away",
        )  # fmt: skip


def _with_missing(segments: Sequence[Segment], size: int) -> Iterator[Segment]:
    """Yields the segments in their full length, and those that are missing between them."""
    end: int | None = None
    for segment in segments:
        fits = end is not None and segment.base % size == 0 and segment.base - end <= _MOST_MISSING * size
        while fits and end is not None and end < segment.base:
            path = locations.join(locations.parent_of(segment.path), file_name(end))
            yield Segment(path, end, size, segment.framing, missing=size)
            end += size
        yield replace(segment, size=size, missing=size - segment.size) if segment.size < size else segment
        end = segment.base + size


def refuse_missing_bytes(segments: Sequence[Segment]) -> None:
    """Raises NotAStore for the first segment that lacks bytes."""
    held = [replace(item, size=item.size - item.missing) for item in segments if item.missing < item.size]
    _check_segments(held, max(item.size for item in segments))


def _shown_size(segments: Sequence[Segment]) -> int:
    """Returns the length that segments should have: what most of them have, and what their names are apart."""
    lengths = Counter(segment.size for segment in segments if segment.size)
    steps = Counter(after.base - before.base for before, after in pairwise(segments))
    return max(lengths, key=lambda length: lengths[length] + steps[length])


def _framing_shown(entries: Sequence[files.Entry]) -> Framing | None:
    """Returns the framing of the first of some segments that shows one; None where none does."""
    heads = ((files.read_range(entry.path, 0, min(HEAD_SIZE, entry.size)), int(entry.name)) for entry in entries)
    return next((framing for framing in starmap(framing_of, heads) if framing is not None), None)


def _check_segments(segments: Sequence[Segment], size: int) -> None:
    for segment in segments:
        if segment.size != size:
            raise NotAStore(
                "a segment has the wrong length",
                path=segment.path,
                found=segment.size,
                expected=size,
                advice="all have mappedFileSizeCommitLog bytes; a shorter one was truncated or is still being copied:"
                " fetch it again, name a copy that has it (--replica ROOT), or --on-damage salvage",
            )
        if segment.base % size:
            raise NotAStore(
                "a segment's name is not a multiple of the segment size",
                path=segment.path,
                found=segment.base,
                expected=size,
            )
    for before, segment in pairwise(segments):
        if segment.base == before.base:
            raise NotAStore(
                "the commit log has a segment twice",
                path=f"{before.path} and {segment.path}",
                advice="--commitlog PATH[,PATH] names the directories that hold the log",
            )
        if segment.base != before.end:
            raise NotAStore(
                "a segment is missing in the commit log",
                path=segment.path,
                found=segment.base,
                expected=before.end,
                advice=f"the file {file_name(before.end)} should come before it: put it back, name a copy that has it"
                " (--replica ROOT), or --on-damage salvage",
            )
