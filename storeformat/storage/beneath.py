"""Names below a directory, reached handle by handle: no link on the way is followed, not even a new one.

A store belongs to the user that its broker runs as, and ``publish`` and ``restore`` often run as root. Whatever they
change there they change through handles that were opened one below the other, never through a path that its owner could
turn into a link in the meantime. The base itself is named by whoever runs the job, and may be a link, but none that its
owner made; it is opened once, and ``keeping`` it all that follows is done in that very directory.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from storeformat.errors import NotAStore, Refused, WriteFailed
from storeformat.storage import files, locations, trusted_paths

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # without O_NONBLOCK a pipe would wait
_kept: dict[str, int] = {}
"""Handles of the bases that are kept."""


@dataclass(frozen=True)
class Ownership:
    """Who gets files, and with which permissions: bits of directories and of files."""

    user: int
    group: int
    directory_mode: int
    file_mode: int


def ownership_of(directory: str) -> Ownership:
    """Returns that of a directory; nobody but the owner may write."""
    with files.reading(directory), opened(directory) as handle:
        status = os.fstat(handle)
    mode = stat.S_IMODE(status.st_mode) & 0o755 | 0o700
    return Ownership(status.st_uid, status.st_gid, mode, mode & 0o644)


def can_give_to_owner_of(directory: str) -> bool:
    """Returns whether new files can have the owner of a directory: it is this user, or this user is root."""
    return os.geteuid() in (0, ownership_of(directory).user)


@contextmanager
def keeping(*bases: str) -> Iterator[None]:
    """Within it names below these directories are names in the directories that have these paths now. Raises as
    ``trusted_paths.opened``, and WriteFailed if in the end another directory has one of the paths.
    """
    with ExitStack() as stack:
        for base in map(locations.local_path, bases):
            with files.reading(base):
                _kept[base] = stack.enter_context(trusted_paths.opened(base))
            stack.callback(_kept.pop, base)
        yield
        for base in map(locations.local_path, bases):
            if not _is_still(base, _kept[base]):
                raise WriteFailed(
                    "somebody exchanged this directory underway: what was done was done in the one that was here",
                    path=base, advice="stop whoever moves it, and run this again",
                )  # fmt: skip


def _is_still(path: str, handle: int) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.stat(path), os.fstat(handle))
    return False


@contextmanager
def opened(base: str) -> Iterator[int]:
    """Yields a handle of a directory, of the one that is kept under this path, if one is."""
    path = locations.local_path(base)
    handle = os.open(
        "." if path in _kept else path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=_kept.get(path)
    )
    try:
        yield handle
    finally:
        os.close(handle)


def name_of(path: str) -> str:
    """Returns a name of a path that means the same as long as a directory above it is kept."""
    path = locations.local_path(path)
    for base, handle in _kept.items():
        if locations.is_inside(path, base) and os.path.isdir(f"/proc/self/fd/{handle}"):
            return os.path.join(f"/proc/self/fd/{handle}", os.path.relpath(path, base))
    return path


@contextmanager
def directory(path: str, bases: Sequence[str], *, make: bool = False) -> Iterator[int]:
    """Yields a handle of a directory; below the first of the ``bases`` that it lies in no link is followed. With
    ``make`` it is made, and those above it. Raises OSError, and Refused for a link.
    """
    path = locations.local_path(path)
    base = next((one for one in map(locations.local_path, bases) if locations.is_inside(path, one)), path)
    if make:
        os.makedirs(base, exist_ok=True)
    with opened(base) as first:
        handle = os.dup(first)
    try:
        for part in os.path.relpath(path, base).split(os.sep):
            if part != ".":
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, 0o755, dir_fd=handle)
                below = _open(handle, part, path, _DIRECTORY)
                os.close(handle)
                handle = below
        yield handle
    finally:
        os.close(handle)


@contextmanager
def parent(path: str, bases: Sequence[str], *, make: bool = False) -> Iterator[tuple[int, str]]:
    """Yields a handle of the directory that a path lies in, see ``directory``, and the path's name there."""
    above, name = os.path.split(locations.local_path(path))
    with directory(above, bases, make=make) as handle:
        yield handle, name


def make_directory(path: str, base: str, owner: Ownership | None = None) -> None:
    """Makes a directory below a base, and those above it; root gives one of its own to ``owner``."""
    with files.writing(path), directory(path, (base,), make=True) as handle:
        if owner is not None and os.geteuid() == 0 == os.fstat(handle).st_uid:
            os.fchown(handle, owner.user, owner.group)


@contextmanager
def held(path: str, base: str) -> Iterator[str]:
    """Yields a name of a directory below a base that means this very directory as long as the context lasts, even if
    somebody moves it away and puts a link in its place; the path itself on systems that have no such names.
    """
    with files.reading(path), directory(path, (base,)) as handle:
        name = f"/proc/self/fd/{handle}"
        yield name if os.path.isdir(name) else path


def _open(above: int, name: str, path: str, flags: int = _FILE) -> int:
    """Returns a handle of what lies in a directory under a name; raises Refused for a link."""
    try:
        return os.open(name, flags, dir_fd=above)
    except OSError as error:
        if error.errno in trusted_paths.LINKS:
            what = "something that is not a directory, or a link, is in the way"
            raise Refused(what, path=path, advice="nothing was changed") from error
        raise


def open_file(path: str, bases: Sequence[str]) -> int:
    """Returns a handle of a regular file, opened to read; raises Refused for anything else."""
    with parent(path, bases) as (above, name):
        handle = _open(above, name, path)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise Refused("this is not a regular file", path=path)
    return handle


def read_trusted(path: str, base: str, limit: int) -> bytes:
    """Returns a file that nobody but this user or root can have written, nor the directory that it lies in.

    Raises Refused where another user owns one of them, and NotAStore for more than ``limit`` bytes.
    """
    with files.reading(path):
        handle = open_file(path, (base,))
        with open(handle, "rb") as file, parent(path, (base,)) as (above, _):
            for status, where in ((os.fstat(above), os.path.dirname(path)), (os.fstat(handle), path)):
                if status.st_uid not in (os.geteuid(), 0) or status.st_mode & stat.S_IWOTH:
                    raise Refused(
                        "what is written here is not trusted: another user owns it, or everybody may write it",
                        path=where, found=f"user {status.st_uid}", expected=f"user {os.geteuid()} or 0",
                        advice="run this as that user, or move it out of backup/",
                    )  # fmt: skip
            refuse_other_names(os.fstat(handle), path)
            size = os.fstat(handle).st_size
            if size > limit:
                raise NotAStore("this file is too large", path=path, found=size, expected=f"at most {limit} bytes")
            return file.read()


def refuse_other_names(status: os.stat_result, path: str) -> None:
    """Raises Refused for a file that has a second name somewhere, through which it can be changed."""
    if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
        raise Refused(
            "this file has other names (hard links)", path=path, found=status.st_nlink, expected=1,
            advice="make a copy that has files of its own (cp -a), and use that",
        )  # fmt: skip


def refuse_directory_of_others(path: str, base: str) -> None:
    """Raises Refused unless this process can move and write what lies in a directory below a base: it is root's, and
    the directory too, or both are of one user.
    """
    with files.reading(path), directory(path, (base,)) as handle:
        user = os.fstat(handle).st_uid
    if user != os.geteuid():
        raise Refused(
            "another user made this directory", path=path, found=f"user {user}", expected=f"user {os.geteuid()}",
            advice="run this as that user",
        )  # fmt: skip


def replace_file(path: str, data: bytes, base: str) -> None:
    """Gives a file these bytes: after a crash it holds the old ones or the new ones, on disk when this returns."""
    with files.writing(path), parent(path, (base,)) as (above, name):
        draft = f"{name}.draft"
        with suppress(FileNotFoundError):  # a killed run left it
            os.unlink(draft, dir_fd=above)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(draft, flags, 0o644, dir_fd=above), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, name, src_dir_fd=above, dst_dir_fd=above)
        except OSError:
            with suppress(OSError):
                os.unlink(draft, dir_fd=above)
            raise
        os.fsync(above)


def remove_file(path: str, base: str) -> None:
    """Removes a file of our own making; one that is not there is fine."""
    with files.writing(path), suppress(FileNotFoundError), parent(path, (base,)) as (above, name):
        os.unlink(name, dir_fd=above)


def remove_tree(path: str, base: str) -> None:
    """Removes a directory of our own making and all in it; one that is not there is fine."""
    with files.writing(path), suppress(FileNotFoundError), parent(path, (base,)) as (above, name):
        _remove_tree(above, name, path)


def _remove_tree(above: int, name: str, path: str, *, with_files: bool = True) -> None:
    handle = _open(above, name, path, _DIRECTORY)
    try:
        for child in os.listdir(handle):
            if with_files and not _is_directory(handle, child):
                os.unlink(child, dir_fd=handle)
            else:
                _remove_tree(handle, child, os.path.join(path, child), with_files=with_files)
    finally:
        os.close(handle)
    os.rmdir(name, dir_fd=above)


def _is_directory(above: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode)


def remove_empty(path: str, base: str) -> bool:
    """Removes a directory below a base if nothing but empty directories is in it; returns whether it did."""
    with files.writing(path), suppress(FileNotFoundError), parent(path, (base,)) as (above, name):
        if _is_directory(above, name) and _is_empty(above, name, path):
            _remove_tree(above, name, path, with_files=False)  # what came in between stops it
            return True
    return False


def _is_empty(above: int, name: str, path: str) -> bool:
    handle = _open(above, name, path, _DIRECTORY)
    try:
        return all(
            _is_directory(handle, child) and _is_empty(handle, child, os.path.join(path, child))
            for child in os.listdir(handle)
        )
    finally:
        os.close(handle)


def give(path: str, base: str, to: Ownership) -> None:
    """Gives a tree below a base these permissions and, where this process is root, this user and group.

    A broker opens its files for writing: one that does not run as root could not start on files that root made. What is
    in a directory is given before the directory, so that its new owner cannot change what is not given yet. Raises
    Refused for links, pipes, and files with a second name: they may not be ours to give.
    """
    with files.writing(path), parent(path, (base,)) as (above, name):
        _give(above, name, path, to)


def _give(above: int, name: str, path: str, to: Ownership) -> None:
    handle = _open(above, name, path)
    try:
        status = os.fstat(handle)
        mode = to.directory_mode if stat.S_ISDIR(status.st_mode) else to.file_mode
        if stat.S_ISDIR(status.st_mode):
            for child in os.listdir(handle):
                _give(handle, child, os.path.join(path, child), to)
        elif not stat.S_ISREG(status.st_mode):
            raise Refused("this is not a regular file", path=path)
        refuse_other_names(status, path)
        may = os.geteuid() in (0, status.st_uid)
        if may and stat.S_IMODE(status.st_mode) != mode:
            os.fchmod(handle, mode)
        if os.geteuid() == 0 and (status.st_uid, status.st_gid) != (to.user, to.group):
            os.fchown(handle, to.user, to.group)
    finally:
        os.close(handle)
