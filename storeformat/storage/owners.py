"""Who owns the files of a store: the user that its broker runs as."""

from __future__ import annotations

import os

from storeformat.storage import files, locations
from storeformat.storage.durable import tree


def can_give_to_owner_of(model: str) -> bool:
    """Returns whether new files can have the owner of ``model``: it is this user, or this user is root."""
    return os.geteuid() in (0, os.stat(locations.local_path(model)).st_uid)


def give_to_owner_of(model: str, path: str) -> None:
    """Gives a tree to the user and group that own ``model``, where this process is root and may.

    A broker opens its files for writing: one that does not run as root could not start on files that root made.
    """
    if os.geteuid() != 0:
        return
    with files.writing(path):
        owner = os.stat(locations.local_path(model))
        for one in (name for names in tree(path) for name in names):
            os.chown(one, owner.st_uid, owner.st_gid, follow_symlinks=False)
