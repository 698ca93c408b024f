"""Status of local files without opening them: length, owner, mode, modification time, free space, mounts.

A broker's start depends on these: it opens files for writing as one user, maps whole segments, and deletes by
modification time and disk usage.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from storeformat.storage import files, locations


@dataclass(frozen=True)
class Space:
    """A file system: bytes in all, free, and free for users that are not root; whether it is mounted for writing."""

    total: int
    free: int
    available: int
    takes_files: bool = True

    @property
    def used_percent(self) -> int:
        """Share in use, rounded up (UtilAll#getDiskPartitionSpaceUsedPercent)."""
        used = self.total - self.free
        return -(-used * 100 // max(used + self.available, 1))


def space_of(path: str) -> Space:
    """Space of the file system that holds a path."""
    with files.reading(path):
        found = os.statvfs(locations.local_path(path))
    total, free, available = (count * found.f_frsize for count in (found.f_blocks, found.f_bfree, found.f_bavail))
    return Space(total, free, available, takes_files=not found.f_flag & os.ST_RDONLY)


def free_space(path: str) -> int | None:
    """Bytes that can be written below an existing local directory, None if unknown."""
    return space_of(path).available if locations.is_local(path) else None


def device_of(path: str) -> int:
    """Device of a path; of a link itself."""
    with files.reading(path):
        return os.lstat(locations.local_path(path)).st_dev


def mount_points() -> frozenset[str]:
    """Mount points of this system, bind mounts included."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
            return parse_mount_points(lines)
    except OSError:
        return frozenset()


def parse_mount_points(lines: Iterable[str]) -> frozenset[str]:
    """Mount points in ``mountinfo``: the fifth word of a line, with octal escapes."""
    points = (line.split(" ")[4] for line in lines)
    return frozenset(re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), point) for point in points)


def crosses_mount(root: str, path: str) -> bool:
    """True if a mount between a directory and a path below it prevents renames. The directory may be a link."""
    base = os.path.realpath(locations.local_path(root))
    if device_of(path) != device_of(base):
        return True
    mounted = mount_points()
    parts = os.path.relpath(locations.local_path(path), locations.local_path(root)).split(os.sep)
    return any(os.path.join(base, *parts[: count + 1]) in mounted for count in range(len(parts)))
