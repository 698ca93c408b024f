"""The kernels of ``numpy_kernels``, compiled by numba: the same functions with the same results on every input.

Each public function allocates columns and calls a compiled loop, which reads a record's bytes while they are in the
cache. What needs Java's rules for text beyond ASCII is left to ``javacompat``, for the few rows that have it. Compiled
code is kept in ``NUMBA_CACHE_DIR`` (``cache`` chooses it) and every loop has one signature, so a worker
never compiles. Helpers are inlined by force: a call that passes an array counts its references, atomically, which took
half the time of short loops.
"""

from __future__ import annotations

from storeformat.kernels.cache import import_compiled

import_compiled()
from storeformat.kernels.numba_dispatch import dispatch_plain, group_units  # noqa: E402
from storeformat.kernels.numba_records import (  # noqa: E402
    crc32_spans,
    decode_heads,
    property_pieces,
    property_spans,
    split_spans,
    walk_entries,
    walk_sizes,
)
from storeformat.kernels.numba_values import (  # noqa: E402
    dictionary,
    gather_spans,
    hash_spans,
    index_keys,
    put_entries,
)

NAME = "numba"
__all__ = [
    "NAME",
    "crc32_spans",
    "decode_heads",
    "dictionary",
    "dispatch_plain",
    "gather_spans",
    "group_units",
    "hash_spans",
    "index_keys",
    "property_pieces",
    "property_spans",
    "put_entries",
    "split_spans",
    "walk_entries",
    "walk_sizes",
]
