"""The hot functions on buffers, each with one signature and two implementations that must agree on every input.

``numpy_kernels`` is the reference and always there; ``numba_kernels`` (extra ``fast``) is the same functions compiled.
Everything above this package is written once and asks ``active()`` for the implementation.
``ROCKETMQ_STORE_SPARK_KERNELS`` may name one (``numpy`` or ``numba``); by default numba is taken where it can be
imported.
"""

from __future__ import annotations

import importlib
import os
from functools import lru_cache
from types import ModuleType

from storeformat.kernels import numpy_kernels
from storeformat.kernels.columns import PADDING, Bytes, Heads, Int32s, Int64s, Spans

__all__ = ["PADDING", "Bytes", "Heads", "Int32s", "Int64s", "Spans", "active"]


@lru_cache(maxsize=1)
def active() -> ModuleType:
    """Returns the implementation that this process uses."""
    choice = os.environ.get("ROCKETMQ_STORE_SPARK_KERNELS", "auto")
    if choice == "numpy":
        return numpy_kernels
    try:
        return importlib.import_module("storeformat.kernels.numba_kernels")
    except ImportError:
        if choice == "numba":
            raise
        return numpy_kernels
