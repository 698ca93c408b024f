"""The hot functions on buffers, each with one signature and two implementations that must agree on every input.

``numpy_kernels`` is the reference and always there; ``numba_kernels`` (extra ``fast``) is the same functions compiled.
Everything above this package is written once and asks ``active()`` for the implementation.
``ROCKETMQ_STORE_SPARK_KERNELS`` may name one (``numpy`` or ``numba``); by default numba is taken where it can be
imported.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import zlib
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from storeformat import __version__
from storeformat.kernels import numpy_kernels
from storeformat.kernels.columns import PADDING, Heads, Spans

__all__ = ["PADDING", "Heads", "Spans", "active"]

_COMPILED = (
    "cache.py", "columns.py", "errors.py", "machine_words.py", "message.py", "numba_crc.py", "numba_records.py",
    "numba_values.py",
)  # fmt: skip


@lru_cache(maxsize=1)
def active() -> ModuleType:
    """Returns the implementation that this process uses."""
    choice = os.environ.get("ROCKETMQ_STORE_SPARK_KERNELS", "auto")
    if choice == "numpy":
        return numpy_kernels
    if "NUMBA_CACHE_DIR" not in os.environ and (directory := cache_directory()) is not None:
        os.environ["NUMBA_CACHE_DIR"] = directory
    try:
        return importlib.import_module("storeformat.kernels.numba_kernels")
    except (ImportError, RuntimeError):  # the second is numba's, when it finds no place for its cache
        if choice == "numba":
            raise
        return numpy_kernels


@lru_cache(maxsize=1)
def source_name() -> str:
    """Returns a name for the sources of the compiled kernels, and how they are compiled."""
    digest = 0
    for name in _COMPILED:
        package = "storeformat" if name in ("errors.py", "message.py") else "storeformat.kernels"
        digest = zlib.crc32(pkgutil.get_data(package, name) or b"", digest)
    checked = "-checked" if os.environ.get("NUMBA_BOUNDSCHECK", "0") != "0" else ""
    return f"{__version__}-{digest:08x}{checked}"


def cache_directory() -> str | None:
    """Returns a writable place for compiled kernels, or None: in the virtual environment, else in the user's cache.

    numba sees only that a function's own file changed, so the name holds the version and a digest of all the sources.
    """
    name = source_name()
    homes = [Path(os.environ.get("XDG_CACHE_HOME") or Path("~", ".cache"), "rocketmq-store-spark", "kernels")]
    if sys.prefix != sys.base_prefix:
        homes.insert(0, Path(sys.prefix, "kernels"))
    for home in homes:
        try:
            directory = home.expanduser() / name
            directory.mkdir(parents=True, exist_ok=True)
        except (OSError, RuntimeError):  # no home directory
            continue
        if os.access(directory, os.W_OK):
            return str(directory)
    return None
