"""The process that Spark forks its Python workers from, with everything already imported that our tasks need.

Spark starts ``pyspark.daemon``, which imports next to nothing, and every worker then imports numpy, pyarrow and the
compiled kernels anew. Here it happens once, and workers share the memory. Set by ``spark.python.daemon.module``; only
where this package can be imported when Spark starts it.
"""

from __future__ import annotations

import gc

from pyspark.daemon import manager

from storeformat.kernels import active
from udfs import build, scan  # noqa: F401  (for the workers)

if __name__ == "__main__":
    active()
    gc.freeze()  # what is here now stays: collections in the workers need not touch (and so copy) its pages
    manager()
