"""Output places, and drafts that get their names when complete."""

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
    """Local path with links resolved, even if it does not exist; URIs as they are."""
    return os.path.realpath(locations.local_path(path)) if locations.is_local(path) else path


def make_private_directory(path: str) -> None:
    """Make a new local directory with mode 0700, and its parents."""
    if locations.is_local(path):
        with files.writing(path):
            os.makedirs(os.path.dirname(locations.local_path(path)), exist_ok=True)
            os.mkdir(locations.local_path(path), 0o700)


def resolves_inside(path: str, directory: str) -> bool:
    """True if a path is a directory or below it, links resolved."""
    return locations.is_inside(resolved(path), resolved(directory))


def refuse_directory(path: str) -> None:
    """Refuse a directory in place of an output file."""
    if locations.is_local(path) and os.path.isdir(locations.local_path(path)):
        raise WriteFailed("cannot be written: this is a directory", path=path)


def refuse_used_directory(path: str) -> None:
    """Refuse a directory that is not empty."""
    entries = files.list_directory(path)
    if entries:
        raise Refused(
            "the output directory is not empty", path=path, found=entries[0].name, expected="nothing",
            advice="choose another directory, or empty this one",
        )  # fmt: skip


def refuse_missing_bucket(path: str) -> None:
    """Refuse an object store without this bucket."""
    if not locations.is_local(path):
        scheme, _, rest = path.partition("://")
        bucket = f"{scheme}://{rest.partition('/')[0]}" + locations.split_settings(path)[1]
        with files.writing(path):
            filesystem, inner = files.resolve(bucket)
            if filesystem.get_file_info(inner).type == FileType.NotFound:
                raise WriteFailed("there is no such bucket", path=bucket)


def missing_parents(path: str) -> list[str]:
    """Missing directories above a local path, innermost first."""
    parents = list(Path(locations.local_path(path)).parents) if locations.is_local(path) else []
    return [str(parent) for parent in parents if not parent.exists()]


def remove_empty(directories: Sequence[str]) -> None:
    """Remove local directories in order, up to the first that is not empty."""
    with suppress(OSError):
        for directory in directories:
            os.rmdir(directory)


def draft_of(path: str, drafts: str) -> str:
    """Temporary name in local ``drafts``, so that a killed task leaves no partial ``path``; objects need none."""
    return locations.join(drafts, uuid.uuid4().hex) if locations.is_local(path) else path


def settle(draft: str, path: str) -> None:
    """Rename a draft to its name, replacing a file."""
    if draft != path:
        with files.writing(path):
            os.makedirs(os.path.dirname(locations.local_path(path)), exist_ok=True)
            os.replace(locations.local_path(draft), locations.local_path(path))


def replace_bytes(path: str, data: bytes) -> None:
    """Write a file, replacing one (``local_files``)."""
    if not locations.is_local(path):
        files.write_bytes(path, data)
        return
    with files.writing(path):
        local_files.replace_bytes(locations.local_path(path), data)
