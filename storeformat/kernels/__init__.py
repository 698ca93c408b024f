"""The hot functions on buffers, each with one signature (``protocol.Kernels``) and two implementations that agree.

``numpy_kernels`` is the reference and always there; ``numba_kernels`` (extra ``fast``) is the same functions compiled.
Everything above this package is written once and asks ``active()`` for the implementation.
``ROCKETMQ_STORE_SPARK_KERNELS`` may name one (``numpy`` or ``numba``); by default numba is taken where it can be
imported.

=================  ===================================================================================================
``columns``        the types of columns; ``plain_pass`` those of the pass over plain records
``numba_records``  the compiled part for records; ``numba_values`` for values in them, ``numba_dispatch`` for what they
                   become, ``numba_crc`` for CRCs; ``machine_words`` is what all of these need of the processor
``cache``          where compiled code is kept; ``compile`` fills it
=================  ===================================================================================================
"""

from __future__ import annotations

import os
from functools import lru_cache

from storeformat.kernels import numpy_kernels
from storeformat.kernels.columns import PADDING, Heads, Spans
from storeformat.kernels.plain_pass import ENTRY_SIZE, PlainRules, PlainStop, Tally, TopicKind, TopicTable, UnitColumns
from storeformat.kernels.protocol import Kernels

__all__ = [
    "ENTRY_SIZE",
    "PADDING",
    "Heads",
    "Kernels",
    "PlainRules",
    "PlainStop",
    "Spans",
    "Tally",
    "TopicKind",
    "TopicTable",
    "UnitColumns",
    "active",
    "prefer_numpy",
]


_preferred = "auto"


def prefer_numpy() -> None:
    """Lets this process use numpy where the user named nothing: for little work, loading compiled code takes longer."""
    global _preferred  # noqa: PLW0603  (a process has one implementation)
    _preferred = "numpy"
    active.cache_clear()


@lru_cache(maxsize=1)
def active() -> Kernels:
    """Returns the implementation that this process uses.

    Raises ImportError where ``ROCKETMQ_STORE_SPARK_KERNELS`` asks for numba and there is none.
    """
    choice = os.environ.get("ROCKETMQ_STORE_SPARK_KERNELS", _preferred)
    if choice == "numpy":
        return numpy_kernels
    try:
        import storeformat.kernels.numba_kernels as numba_kernels  # noqa: PLC0415, PLR0402 - it may be missing
    except (ImportError, RuntimeError):  # the second is numba's, when it finds no place for its cache
        if choice == "numba":
            raise
        return numpy_kernels
    return numba_kernels
