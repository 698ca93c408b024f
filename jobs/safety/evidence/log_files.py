"""All files in the directories of a commit log, good and bad: the first bad one does not end the listing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from storeformat.log.dledger import DATA, is_of_group
from storeformat.log.segments import Segment
from storeformat.storage import local_status, locations
from storeformat.storage.files import read_range
from storeformat.storage.local_status import FileStatus
from storeformat.store.broker_conf import BrokerConf
from storeformat.store.layout import COMMIT_LOG, is_file_name
from storeformat.store.log_directories import group_directories

DEFAULT_SIZE = 1 << 30


@dataclass(frozen=True)
class LogFiles:
    """What lies in the log's directories. ``files`` are those with the name of a segment, in order; ``segments`` those
    of the right length, ``size``, in one row without a gap up to the last.
    """

    directories: tuple[str, ...]
    size: int
    files: tuple[FileStatus, ...] = ()
    stray: tuple[FileStatus, ...] = ()
    folders: tuple[FileStatus, ...] = ()
    segments: tuple[Segment, ...] = ()
    of_group: bool = False
    twice: tuple[tuple[FileStatus, FileStatus], ...] = ()
    """Segments that are in two paths, the copy with messages first; ``files`` has only that one."""

    @property
    def wrong_size(self) -> list[FileStatus]:
        """Segments of another length, but not an empty last one."""
        return [file for file in self.files if file.size != self.size and file is not self.empty_last]

    @property
    def empty_last(self) -> FileStatus | None:
        """A last segment of no length: a broker was making it when it died."""
        return self.files[-1] if self.files and self.files[-1].size == 0 else None

    @property
    def gaps(self) -> list[tuple[FileStatus, FileStatus]]:
        """Pairs of neighbours between which a segment is missing."""
        return [(one, two) for one, two in pairwise(self.files) if int(two.name) != int(one.name) + self.size]

    @property
    def begin(self) -> int:
        return int(self.files[0].name) if self.files else 0


def read_log_files(root: str, settings: BrokerConf) -> LogFiles:
    """Returns the files of a store's log, where its settings or its own folders say that they are."""
    directories = _directories(root, settings)
    entries = [entry for directory in directories for entry in local_status.statuses_in(directory)]
    folders = tuple(entry for entry in entries if entry.is_directory)
    plain = [entry for entry in entries if not entry.is_directory]
    named = [entry for entry in plain if is_file_name(entry.name)]
    times = Counter(entry.name for entry in named)
    named.sort(key=lambda entry: (entry.name, times[entry.name] > 1 and _is_blank(entry)))
    twice = tuple((one, other) for one, other in pairwise(named) if one.name == other.name)
    segments = [entry for entry in named if entry not in {other for _, other in twice}]
    stray = tuple(entry for entry in plain if not is_file_name(entry.name))
    size = _segment_size(settings, segments)
    of_group = any(is_of_group(path) for path in directories)
    return LogFiles(
        tuple(directories), size, tuple(segments), stray, folders, tuple(_last_row(segments, size)), of_group, twice
    )


def _directories(root: str, settings: BrokerConf) -> list[str]:
    """Returns the directories of the log; the store's own where none that is named is there."""
    if settings.flag("enableDLegerCommitLog", default=False):
        group = settings.text("storePathDLedgerCommitLog", "")
        groups = group_directories(root, settings.text("dLegerSelfId", ""))
        found = [group] if group else [locations.join(path, DATA) for path in groups]
        return found or [locations.join(root, COMMIT_LOG)]
    named = settings.paths("storePathCommitLog") + settings.paths("readOnlyCommitLogStorePaths")
    there = [path for path in dict.fromkeys(named) if local_status.status_of(path) is not None]
    return there or [locations.join(root, COMMIT_LOG)]


def _is_blank(file: FileStatus) -> bool:
    return not any(read_range(file.path, 0, min(8, file.size)))


def _segment_size(settings: BrokerConf, segments: Sequence[FileStatus]) -> int:
    if settings.from_file or "mappedFileSizeCommitLog" in settings.given:
        return settings.number("mappedFileSizeCommitLog", DEFAULT_SIZE)
    lengths = Counter(segment.size for segment in segments if segment.size > 0)
    return lengths.most_common(1)[0][0] if lengths else DEFAULT_SIZE


def _last_row(segments: Sequence[FileStatus], size: int) -> list[Segment]:
    """Returns the segments from the end back to the first that does not join."""
    row: list[Segment] = []
    for file in reversed(segments):
        if file.size == 0 and not row:
            continue
        if file.size != size or (row and int(file.name) + size != row[-1].base):
            break
        row.append(Segment(file.path, int(file.name), size))
    return row[::-1]
