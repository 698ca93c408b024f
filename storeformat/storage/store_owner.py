"""The user that a store belongs to, as whom ``publish`` and ``restore`` change it, whoever starts them.

Whoever owns a directory can make any path in it lead elsewhere, at any moment. So root, who often runs these jobs,
gives a rebuild of its own to the owner of the store, takes the rights of that user, and has none to be abused.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from storeformat.errors import Refused
from storeformat.storage import files, locations, trusted_paths


@contextmanager
def acting(root: str) -> Iterator[None]:
    """Within it this process has the rights of the user that owns a directory, if it is root's; also on a file system
    where root has none. Raises Refused where it cannot be that user, and as ``trusted_paths.opened``.
    """
    owner = _owner_of(root)
    before = (os.getgroups(), os.getegid(), os.geteuid())
    if before[2] != 0 or owner.st_uid == 0:
        yield
        return
    try:
        try:
            os.setgroups(_groups_of(owner))
            os.setegid(owner.st_gid)
            os.seteuid(owner.st_uid)
        except OSError as error:
            raise Refused(
                f"root cannot act for user {owner.st_uid}, who owns the store: {files.first_line(error)}", path=root,
                advice="run this as that user",
            ) from error  # fmt: skip
        yield
    finally:
        os.seteuid(before[2])
        os.setegid(before[1])
        with suppress(PermissionError):  # as it was not given up
            os.setgroups(before[0])


def is_owner_of(root: str) -> bool:
    """Returns whether new files of this process belong to the user that owns a directory."""
    return _owner_of(root).st_uid == os.geteuid()


def _owner_of(root: str) -> os.stat_result:
    """Returns the status of a directory, which root alone can exchange if it is root's."""
    with files.reading(root), trusted_paths.opened(locations.local_path(root)) as handle:
        status = os.fstat(handle)
    if status.st_uid == 0:
        refuse_foreign(root)
    return status


def _groups_of(owner: os.stat_result) -> list[int]:
    with suppress(KeyError):  # a user without a name has no other groups
        user = pwd.getpwuid(owner.st_uid)
        return os.getgrouplist(user.pw_name, user.pw_gid)
    return [owner.st_gid]


def refuse_foreign(directory: str) -> None:
    """Raises Refused for a directory that this user cannot move or change, and for one of root's own that somebody else
    can.
    """
    path = locations.local_path(directory)
    with files.reading(directory), trusted_paths.opened(path, alone=True) as handle:
        owner = os.fstat(handle).st_uid
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
        user = os.geteuid()
        raise Refused(
            f"user {user}, who owns the store, may not move or change this directory", path=directory,
            found=f"user {owner}", expected=f"user {user}",
            advice="give it to that user, with all that is in it (chown -R), where that user can reach it",
        )  # fmt: skip


def give(directory: str, root: str) -> None:
    """Gives what root itself made in a directory to the owner of a store, if this process is root's: a broker opens its
    files for writing. Raises Refused where somebody else could have put in something that is not root's to give.
    """
    owner = _owner_of(root)
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    path = locations.local_path(directory)
    with acting(root):
        reachable = os.access(os.path.dirname(path), os.X_OK, effective_ids=True)
    if not reachable:
        raise Refused(
            f"user {owner.st_uid}, who owns the store, cannot reach this rebuild", path=directory,
            advice="move it to where that user can enter each directory above it",
        )  # fmt: skip
    with files.writing(directory), trusted_paths.opened(path) as handle:
        given = os.fstat(handle).st_uid == owner.st_uid
    if not given:
        with files.writing(directory), trusted_paths.opened(path, alone=True) as handle:
            _give(os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=handle), path, owner)


def _give(handle: int, path: str, owner: os.stat_result) -> None:
    """Gives a directory after all that is in it, so that its new owner cannot change what is not given yet."""
    try:
        if os.fstat(handle).st_uid == owner.st_uid:
            return  # by a run that was killed, and so was all that is in it
        trusted_paths.refuse_exchangeable(handle, path)
        for name in os.listdir(handle):
            status, inner = os.stat(name, dir_fd=handle, follow_symlinks=False), os.path.join(path, name)
            if stat.S_ISDIR(status.st_mode):
                below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
                _give(below, inner, owner)
            elif status.st_nlink > 1 or not stat.S_ISREG(status.st_mode):
                raise Refused("this is not a file that has this name alone", path=inner)
            elif status.st_uid == 0:
                os.chown(name, owner.st_uid, owner.st_gid, dir_fd=handle, follow_symlinks=False)
        os.fchown(handle, owner.st_uid, owner.st_gid)
    finally:
        os.close(handle)
