"""The hot functions on buffers: ``numpy_kernels`` is the general way, ``numba_kernels`` (extra ``fast``) does the bulk
of a sound log faster, with the same result. ``ROCKETMQ_STORE_SPARK_KERNELS=numpy`` does without, ``numba`` insists.

Shapes and units: a buffer is ``uint8`` in native memory with at least ``PADDING`` bytes after its data; starts and
positions are int64 places in it, lengths int32 bytes; all columns that go in or come out of one call have one row a
record (or span). No function raises on bad bytes, and none reads outside the buffer.
"""

from __future__ import annotations

import os
import pkgutil
import sys
import zlib
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from storeformat.kernels import numpy_kernels

_WITH_CONSTANTS = ("message.py", "kernels/columns.py")
"""Modules whose values go into compiled code: numba does not see that they change."""
_preferred = "auto"


def prefer_numpy() -> None:
    """Lets this process use numpy where the user named nothing: for little work, loading compiled code takes longer."""
    global _preferred  # noqa: PLW0603  (a process has one implementation)
    _preferred = "numpy"
    compiled.cache_clear()


def active() -> ModuleType:
    """The module to take ``walk_sizes``, ``crc32_spans``, ``property_spans`` and ``property_pieces`` from."""
    return compiled() or numpy_kernels


@lru_cache(maxsize=1)
def compiled() -> ModuleType | None:
    """The module of compiled functions, None where this process uses numpy alone.

    Raises ImportError where ``ROCKETMQ_STORE_SPARK_KERNELS`` asks for numba and it is not installed.
    """
    choice = os.environ.get("ROCKETMQ_STORE_SPARK_KERNELS", _preferred)
    if choice == "numpy":
        return None
    is_ours = sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK)
    digest = 0
    for name in _WITH_CONSTANTS:
        digest = zlib.crc32(pkgutil.get_data("storeformat", name) or b"", digest)
    try:
        home = Path(sys.prefix if is_ours else "~/.cache/rocketmq-store-spark").expanduser()
        os.environ.setdefault("NUMBA_CACHE_DIR", str(home / "kernels" / f"{digest:08x}"))
        import storeformat.kernels.numba_kernels as made  # noqa: PLC0415 - it may be missing
    except (ImportError, RuntimeError, OSError):  # without numba, a home directory, or a place for its cache
        if choice == "numba":
            raise
        return None
    return made
