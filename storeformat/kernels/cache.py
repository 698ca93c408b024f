"""Where compiled kernels are kept, and how they are found again wherever the program lies.

numba keeps compiled code in ``NUMBA_CACHE_DIR`` under the path of its source file, with the file's time and size, and
sees only that this one file changed. On an executor the program is a zip in a directory of the application's own, so
every application would compile again (9 s a process) and throw the result away. So the sources with compiled
functions are copied to a directory whose name holds the program's version and a digest of all that they depend on, and
are imported from there: the same sources have the same path, whoever runs them.
"""

from __future__ import annotations

import os
import pkgutil
import shutil
import stat
import sys
import tempfile
import uuid
import zlib
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import storeformat
from storeformat.kernels import columns

_PACKAGE = columns.__name__.rpartition(".")[0]
COMPILED = ("machine_words", "numba_crc", "numba_records", "numba_values", "numba_dispatch")
"""The modules with compiled functions, each after those that it imports."""

_USED = (
    "arrays",
    "errors",
    "javacompat",
    "message",
    "kernels.columns",
    "kernels.plain_pass",
    "kernels.numpy_kernels",
    "kernels.cache",
)
"""Other modules of storeformat whose values went into the compiled code, or that load it."""


@lru_cache(maxsize=1)
def source_name() -> str:
    """Returns a name for the sources of the compiled kernels, and how they are compiled."""
    digest = 0
    for name in (*_USED, *(f"kernels.{name}" for name in COMPILED)):
        digest = zlib.crc32(_source(f"storeformat.{name}"), digest)
    checked = "-checked" if os.environ.get("NUMBA_BOUNDSCHECK", "0") != "0" else ""
    return f"{storeformat.__version__}-{digest:08x}{checked}"


def cache_directory() -> str | None:
    """Returns a writable directory for compiled kernels, None if there is none. It tries the virtual environment, the
    user's cache, and a temporary directory that only this user may enter. The last two start as a copy of the first.
    """
    own = Path(tempfile.gettempdir(), f"rocketmq-store-spark-{os.geteuid()}")
    homes = [Path(os.environ.get("XDG_CACHE_HOME") or Path("~", ".cache"), "rocketmq-store-spark", "kernels"), own]
    if sys.prefix != sys.base_prefix:
        homes.insert(0, _of_environment().parent)
    for home in homes:
        try:
            directory = home.expanduser() / source_name()
            if home == own and not _is_mine(own):
                continue
            _take_over(directory)
            directory.mkdir(parents=True, exist_ok=True)
        except (OSError, RuntimeError):  # no home directory
            continue
        if os.access(directory, os.W_OK):
            return str(directory)
    return None


def _of_environment() -> Path:
    """Returns the place in the virtual environment: whoever set it up compiled there, perhaps for users who may not."""
    return Path(sys.prefix, "kernels", source_name())


def _is_mine(directory: Path) -> bool:
    """Makes a directory that only this user may enter; returns whether it is one: others write in its parent, too."""
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _take_over(directory: Path) -> None:
    """Copies compiled code of the virtual environment to a directory that is not there yet: numba wants to write where
    it reads.
    """
    if directory.exists() or not _of_environment().exists():
        return
    draft = directory.with_name(uuid.uuid4().hex)
    try:
        shutil.copytree(_of_environment(), draft)
        with suppress(OSError):  # another process was first
            draft.rename(directory)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def import_compiled() -> None:
    """Has the modules with compiled functions imported from copies of their sources in the cache: their package looks
    there first. Compiled code is that of a path, so the copies of the virtual environment are preferred.

    Where there is no place for a cache they are imported as any other module: numba then raises RuntimeError.
    """
    if "NUMBA_CACHE_DIR" not in os.environ and (directory := cache_directory()) is not None:
        os.environ["NUMBA_CACHE_DIR"] = directory
    if home := os.environ.get("NUMBA_CACHE_DIR"):
        names = [(f"{name}.py", f"{_PACKAGE}.{name}") for name in COMPILED]
        made, own = (place / f"sources-{source_name()}" for place in (_of_environment(), Path(home)))
        if all(_is_there(made / file, module) for file, module in names):
            sys.modules[_PACKAGE].__path__.insert(0, str(made))
        elif all(_is_copied(own / file, module) for file, module in names):
            sys.modules[_PACKAGE].__path__.insert(0, str(own))


def _is_there(path: Path, module: str) -> bool:
    """Returns whether a file is a copy of a module's source."""
    with suppress(OSError):
        return path.read_bytes() == _source(module)
    return False


def _is_copied(path: Path, module: str) -> bool:
    """Writes the source of a module to a file, with one time of change for all who write it; returns whether it is
    there.
    """
    if _is_there(path, module):
        return True
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{uuid.uuid4().hex}")
        draft.write_bytes(_source(module))
        os.utime(draft, (0, 0))
        draft.replace(path)
        return True
    return False


def _source(module: str) -> bytes:
    package, _, name = module.rpartition(".")
    return pkgutil.get_data(package, f"{name}.py") or b""
