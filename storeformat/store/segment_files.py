"""Directories and segments of a store's commit log: ``storePathCommitLog`` (several paths with commas: each new segment
in the next), ``readOnlyCommitLogStorePaths`` and ``storePathDLedgerCommitLog`` (or ``dledger-<dLegerSelfId>/data``).

Mirrors ``MultiPathMappedFileQueue#load`` and ``DLedgerCommitLog`` of rocketmq-all-4.9.8 to 5.5.0, except where these
lose messages silently: a missing path is an error here, and read-only paths are read (with a note) even if
``storePathCommitLog`` has no comma (constructor of ``CommitLog``), because queues and index still refer to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, starmap

from storeformat.errors import LISTED, MissingInput, NotAStore, WrongSettings
from storeformat.log import dledger
from storeformat.log.dledger import ENTRIES, Committed, EntryFraming
from storeformat.log.segments import PLAIN, Framing, Segment
from storeformat.storage import files, locations
from storeformat.storage.files import FileStatus
from storeformat.store.layout import COMMIT_LOG, DATA, GROUP_PREFIX, file_name, is_file_name
from storeformat.store.settings import SEGMENT_SIZE, Settings

_MOST_STRAY = 20  # names in an error
_SWITCH = "enableDLegerCommitLog"
_PATHS = ("storePathCommitLog", "readOnlyCommitLogStorePaths")


def find_segments(directories: Sequence[str], size: int | None, *, with_missing: bool = False) -> list[Segment]:
    """Segments of the commit log in order; raises MissingInput or NotAStore unless they form one log.

    An empty last file (the broker stopped while creating it) is ignored, as from 5.1.3 on. A directory's first segment
    shows the framing. ``with_missing``: short and missing segments are allowed; ``Segment.missing`` counts their bytes.
    """
    segments: list[Segment] = []
    stray: list[FileStatus] = []
    for directory in directories:
        entries = _entries_in(directory)
        stray += [entry for entry in entries if not is_file_name(entry.name) and not entry.is_directory]
        own = [entry for entry in entries if is_file_name(entry.name)]
        framing = _framing_shown(own) or (ENTRIES if _is_of_group(directory) else PLAIN)
        segments += [Segment(entry.path, int(entry.name), entry.size, framing) for entry in own]
    _refuse_stray(stray)
    segments.sort(key=lambda segment: segment.base)
    if segments and segments[-1].size == 0:
        segments.pop()
    if not any(segment.size for segment in segments):
        raise NotAStore("the commit log is empty", path=", ".join(directories))
    size = _shown_size(segments) if size is None else size
    if with_missing:
        segments = list(_with_missing(segments, size))
    _check_segments(segments, size)
    return segments


def _is_of_group(directory: str) -> bool:
    """True for the default entry directory of a group member."""
    above = locations.name_of(locations.parent_of(directory))
    return locations.name_of(directory) == DATA and above.startswith(GROUP_PREFIX)


def _entries_in(directory: str) -> list[FileStatus]:
    entries = files.list_directory(directory)
    if entries is None:
        advice = "--store must be the broker's storePathRootDir"
        raise MissingInput("there is no commit log", path=directory, advice=advice)
    for entry in entries:
        if entry.leads_nowhere:
            raise MissingInput("a link in the commit log is broken", path=entry.path, advice="mount its target")
    named = [entry for entry in entries if is_file_name(entry.name)]
    for entry in entries if not named else ():
        if not entry.is_directory:
            raise NotAStore("this is not a commit log: it has no segments", path=directory, found=entry.name)
    for entry in named:
        if entry.size < 0:
            raise NotAStore("this is not a regular file", path=entry.path)
    return entries


def _refuse_stray(stray: Sequence[FileStatus]) -> None:
    if not stray:
        return
    what, path, found, them = "there is a stray file in the commit log", stray[0].path, None, "it"
    if len(stray) > 1:
        what, path, them = f"there are {len(stray)} stray files in the commit log", locations.parent_of(path), "them"
        found = ", ".join(entry.name for entry in stray[:_MOST_STRAY])
        found += f" and {len(stray) - _MOST_STRAY} more" if len(stray) > _MOST_STRAY else ""
    raise NotAStore(what, path=path, found=found, advice=f"no broker starts with {them}; move {them} away")


def _with_missing(segments: Sequence[Segment], size: int) -> Iterator[Segment]:
    """The segments in their full length, and those missing between them."""
    end: int | None = None
    for segment in segments:
        fits = end is not None and segment.base % size == 0 and segment.base - end <= LISTED * size
        while fits and end is not None and end < segment.base:
            path = locations.join(locations.parent_of(segment.path), file_name(end))
            yield Segment(path, end, size, segment.framing, missing=size)
            end += size
        yield replace(segment, size=size, missing=size - segment.size) if segment.size < size else segment
        end = segment.base + size


def _shown_size(segments: Sequence[Segment]) -> int:
    """The length of most segments, and distance of most names."""
    lengths = Counter(segment.size for segment in segments if segment.size)
    steps = Counter(after.base - before.base for before, after in pairwise(segments))
    return max(lengths, key=lambda length: lengths[length] + steps[length])


def _framing_shown(entries: Sequence[FileStatus]) -> Framing | None:
    heads = (
        (files.read_range(entry.path, 0, min(dledger.HEAD_SIZE, entry.size)), int(entry.name)) for entry in entries
    )
    return next((framing for framing in starmap(dledger.framing_of, heads) if framing is not None), None)


def _check_segments(segments: Sequence[Segment], size: int) -> None:
    for segment in segments:
        if segment.size != size:
            raise NotAStore(
                "a segment has the wrong length", path=segment.path, found=segment.size, expected=size,
                advice="all have mappedFileSizeCommitLog bytes; a shorter one was truncated or is still being copied:"
                " fetch it again, name a copy that has it (--replica ROOT), or --on-damage salvage",
            )  # fmt: skip
        if segment.base % size:
            what = "a segment's name is not a multiple of the segment size"
            raise NotAStore(what, path=segment.path, found=segment.base, expected=size)
    for before, segment in pairwise(segments):
        if segment.base == before.base:
            raise NotAStore(
                "the commit log has a segment twice", path=f"{before.path} and {segment.path}",
                advice="--commitlog PATH[,PATH] names the directories that hold the log",
            )  # fmt: skip
        if segment.base != before.end:
            raise NotAStore(
                "a segment is missing in the commit log", path=segment.path, found=segment.base, expected=before.end,
                advice=f"the file {file_name(before.end)} should come before it: put it back, name a copy that has it"
                " (--replica ROOT), or --on-damage salvage",
            )  # fmt: skip


@dataclass(frozen=True)
class LogFiles:
    """Files in the log's directories with segment names, in order. ``twice``: segments in two paths, the copy with
    messages first; ``files`` has only that one.
    """

    directories: tuple[str, ...]
    size: int
    files: tuple[FileStatus, ...] = ()
    stray: tuple[FileStatus, ...] = ()
    folders: tuple[FileStatus, ...] = ()
    twice: tuple[tuple[FileStatus, FileStatus], ...] = ()

    @property
    def of_group(self) -> bool:
        return any(_is_of_group(path) for path in self.directories)

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The last row without a gap: from the end back to the first that does not join."""
        row: list[Segment] = []
        for file in reversed(self.files):
            if file.size == 0 and not row:
                continue
            if file.size != self.size or (row and int(file.name) + self.size != row[-1].base):
                break
            row.append(Segment(file.path, int(file.name), self.size, ENTRIES if self.of_group else PLAIN))
        return tuple(reversed(row))

    @property
    def wrong_size(self) -> list[FileStatus]:
        """Segments of another length, except an empty last one."""
        return [file for file in self.files if file.size != self.size and file is not self.empty_last]

    @property
    def empty_last(self) -> FileStatus | None:
        """An empty last segment: the broker stopped while creating it."""
        return self.files[-1] if self.files and self.files[-1].size == 0 else None

    @property
    def gaps(self) -> list[tuple[FileStatus, FileStatus]]:
        """Pairs of neighbours between which a segment is missing."""
        return [(one, two) for one, two in pairwise(self.files) if int(two.name) != int(one.name) + self.size]

    @property
    def begin(self) -> int:
        return int(self.files[0].name) if self.files else 0


def log_files(root: str, settings: Settings) -> LogFiles:
    """Files of a store's log, in the directories of its settings or its own."""
    directories = _directories(root, settings)
    entries = [entry for directory in directories for entry in files.statuses_in(directory)]
    folders = tuple(entry for entry in entries if entry.is_directory)
    plain = [entry for entry in entries if not entry.is_directory]
    named = [entry for entry in plain if is_file_name(entry.name)]
    times = Counter(entry.name for entry in named)

    def is_blank_twin(file: FileStatus) -> bool:
        return times[file.name] > 1 and not any(files.read_range(file.path, 0, min(8, file.size)))

    named.sort(key=lambda entry: (entry.name, is_blank_twin(entry)))
    twice = tuple((one, other) for one, other in pairwise(named) if one.name == other.name)
    segments = [entry for entry in named if entry not in {other for _, other in twice}]
    stray = tuple(entry for entry in plain if not is_file_name(entry.name))
    lengths = Counter(segment.size for segment in segments if segment.size > 0)
    size = settings.number(SEGMENT_SIZE)
    if lengths and not settings.from_file and SEGMENT_SIZE not in settings.given:
        size = lengths.most_common(1)[0][0]
    return LogFiles(tuple(directories), size, tuple(segments), stray, folders, twice)


def _directories(root: str, settings: Settings) -> list[str]:
    """The configured directories that exist, else the store's own."""
    if settings.flag(_SWITCH):
        group = settings.text("storePathDLedgerCommitLog")
        groups = group_directories(root, settings.text("dLegerSelfId"))
        found = [group] if group else [locations.join(path, DATA) for path in groups]
    else:
        there: dict[str, str] = {}
        for path in settings.paths(*_PATHS):
            if files.status_of(path) is not None:
                there.setdefault(files.resolved(path), path)
        found = list(there.values())
    return found or [locations.join(root, COMMIT_LOG)]


def commit_log_directories(root: str, settings: Settings, named: Sequence[str] = ()) -> list[str]:
    """Log directories by command line, settings, or the store itself, if no configured path exists (another machine's
    conf). A group's folder counts unless the settings disable it.
    """
    if named:
        return [locations.absolute(path) for path in named]
    plain = _configured(settings.paths(*_PATHS)) or [locations.join(root, COMMIT_LOG)]
    if _SWITCH in settings.given and not settings.flag(_SWITCH):
        return plain
    entries = [path for path in _entry_directories(root, settings) if _holds_files(path)]
    return [path for path in plain if not entries or _holds_files(path)] + entries


def paths_unread_by_broker(settings: Settings) -> str | None:
    """Note about a path that is read here, but not by a broker with these settings."""
    own, read_only = (settings.text(name) for name in _PATHS)
    if "," in own or not _configured(settings.paths(_PATHS[1])) or settings.flag(_SWITCH):
        return None
    return (
        f"a broker with these settings does not serve what lies in {read_only}: it looks at readOnlyCommitLogStorePaths"
        " only where storePathCommitLog has a comma (one at its end will do)"
    )


def group_directories(root: str, self_id: str = "") -> list[str]:
    """Folders of DLedger groups in a store root, or of one member."""
    prefix = GROUP_PREFIX + self_id
    names = sorted(entry.name for entry in files.list_directory(root) or [] if entry.is_directory)
    return [locations.join(root, name) for name in names if name == prefix or (not self_id and name.startswith(prefix))]


def groups_of(directories: Sequence[str]) -> list[str]:
    """Folders of the groups whose entries are in log directories."""
    return [locations.parent_of(path) for path in directories if _is_of_group(path)]


def with_committed(segments: Sequence[Segment], groups: Sequence[str]) -> tuple[list[Segment], Committed]:
    """Segments with the committed index, and how far the log is committed; ``groups``: its possible group folders."""
    if not isinstance(segments[-1].framing, EntryFraming):
        return list(segments), Committed()
    index = dledger.committed_index(locations.join(groups[0], dledger.CHECKPOINT)) if len(groups) == 1 else None
    if index is None:
        note = "no checkpoint of the group was found: nothing shows how far its log is committed"
        return list(segments), Committed(None, note)
    framing = EntryFraming(index)
    known = [replace(item, framing=framing) if item.framing == ENTRIES else item for item in segments]
    return known, dledger.committed_end(known, index)


def _entry_directories(root: str, settings: Settings) -> list[str]:
    own, configured = settings.text("dLegerSelfId"), _configured(settings.paths("storePathDLedgerCommitLog"))
    if configured:
        return configured
    there = [path for group in group_directories(root) if _holds_files(path := locations.join(group, DATA))]
    wanted = set(group_directories(root, own))
    found = [path for path in there if locations.parent_of(path) in wanted]
    if not found and (there or settings.flag(_SWITCH)):
        raise WrongSettings(
            "the settings name a DLedger member whose entries are not in the store", path=root,
            found=" and ".join(there) or "no dledger-ID/data", expected=f"{GROUP_PREFIX}{own or 'ID'}/{DATA}",
            advice=f"--set {_SWITCH}=false reads commitlog/ alone; --set dLegerSelfId=ID names another member",
        )  # fmt: skip
    if len(found) > 1:
        raise WrongSettings(
            "the store holds the logs of several members of a DLedger group", path=root,
            found=" and ".join(found), expected="one", advice="--set dLegerSelfId=ID chooses one",
        )  # fmt: skip
    return found


def _configured(paths: Sequence[str]) -> list[str]:
    """Existing directories of settings. Raises MissingInput if only some exist."""
    there = [path for path in paths if files.exists(path)]
    missing = [path for path in paths if path not in there]
    if there and missing:
        advice = "mount it, or name those that hold the log with --commitlog PATH[,PATH]"
        raise MissingInput("a directory of the commit log is missing", path=missing[0], advice=advice)
    return [locations.absolute(path) for path in there]


def _holds_files(directory: str) -> bool:
    return any(not entry.is_directory for entry in files.list_directory(directory) or [])
