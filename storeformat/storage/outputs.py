"""Outputs: places where something new may go, and drafts, which get their names when they are whole."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pyarrow.fs import FileType

from storeformat.errors import Refused, WriteFailed
from storeformat.storage import files, local_files, locations


def resolved(path: str) -> str:
    """Returns where a local path leads when all links are followed, also if nothing is there yet; URIs as they are."""
    return os.path.realpath(locations.local_path(path)) if locations.is_local(path) else path


def make_private_directory(path: str) -> None:
    """Makes a local directory that nobody else may enter, and those above it; it must not be there yet."""
    if locations.is_local(path):
        with files.writing(path):
            os.makedirs(os.path.dirname(locations.local_path(path)), exist_ok=True)
            os.mkdir(locations.local_path(path), 0o700)


def lies_inside(path: str, directory: str) -> bool:
    """Returns whether a path is a directory or lies in it, links followed."""
    return locations.is_inside(resolved(path), resolved(directory))


def refuse_directory(path: str) -> None:
    """Raises WriteFailed where a directory is in the place of a file that is to be written."""
    if locations.is_local(path) and os.path.isdir(locations.local_path(path)):
        raise WriteFailed("cannot be written: this is a directory", path=path)


def refuse_used_directory(path: str) -> None:
    """Raises Refused unless a directory is absent or empty."""
    entries = files.list_directory(path)
    if entries:
        raise Refused(
            "the output directory is not empty", path=path, found=entries[0].name, expected="nothing",
            advice="choose another directory, or empty this one",
        )  # fmt: skip


def refuse_missing_bucket(path: str) -> None:
    """Raises WriteFailed where an object store has no such bucket."""
    if not locations.is_local(path):
        scheme, _, rest = path.partition("://")
        bucket = f"{scheme}://{rest.partition('/')[0]}" + locations.split_settings(path)[1]
        with files.writing(path):
            filesystem, inner = files.resolve(bucket)
            if filesystem.get_file_info(inner).type == FileType.NotFound:
                raise WriteFailed("there is no such bucket", path=bucket)


def missing_parents(path: str) -> list[str]:
    """Returns the directories, the innermost first, that are not there yet above a local path."""
    parents = list(Path(locations.local_path(path)).parents) if locations.is_local(path) else []
    return [str(parent) for parent in parents if not parent.exists()]


def remove_empty(directories: Sequence[str]) -> None:
    """Removes local directories, in this order, up to the first that is not empty."""
    with suppress(OSError):
        for directory in directories:
            os.rmdir(directory)


def draft_of(path: str, drafts: str) -> str:
    """Returns where to write what will be ``path``: a name of its own in the local directory ``drafts``, so that a
    task that is done twice, or killed, leaves nothing half done under the name; an object has that of itself.
    """
    return locations.join(drafts, uuid.uuid4().hex) if locations.is_local(path) else path


def settle(draft: str, path: str) -> None:
    """Gives a draft its name; whoever had it before has gone."""
    if draft != path:
        with files.writing(path):
            os.makedirs(os.path.dirname(locations.local_path(path)), exist_ok=True)
            os.replace(locations.local_path(draft), locations.local_path(path))


def replace_bytes(path: str, data: bytes) -> None:
    """Writes a file whole, in the place of one that is there (``local_files``); raises WriteFailed."""
    if not locations.is_local(path):
        files.write_bytes(path, data)
        return
    with files.writing(path):
        local_files.replace_bytes(locations.local_path(path), data)
