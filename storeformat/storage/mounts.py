"""Mounts: what lies on a file system of its own, or is mounted from elsewhere, so that no rename reaches it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from storeformat.storage import files, locations


def device_of(path: str) -> int:
    """Returns the file system a name lies on; of a link, that of the link itself."""
    with files.reading(path):
        return os.lstat(locations.local_path(path)).st_dev


def mount_points() -> frozenset[str]:
    """Returns where file systems are mounted, as far as this system tells: parts of one file system, too."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
            return parse_mount_points(lines)
    except OSError:
        return frozenset()


def parse_mount_points(lines: Iterable[str]) -> frozenset[str]:
    """Returns the mount points of ``mountinfo``: the fifth word of a line, blanks in it as octal escapes."""
    points = (line.split(" ")[4] for line in lines)
    return frozenset(re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), point) for point in points)


def lies_apart(root: str, path: str) -> bool:
    """Returns whether something is mounted between a directory and a path below it, so that no rename crosses. The
    directory itself may be a link to another file system.
    """
    base = os.path.realpath(locations.local_path(root))
    if device_of(path) != device_of(base):
        return True
    mounted = mount_points()
    parts = os.path.relpath(locations.local_path(path), locations.local_path(root)).split(os.sep)
    return any(os.path.join(base, *parts[: count + 1]) in mounted for count in range(len(parts)))
