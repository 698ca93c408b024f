"""The process from which a local Spark forks its Python workers, with the imports of tasks done once.

Spark puts a zip of PySpark without bytecode before the installed package, which costs 0.8 s at each start.
"""

from __future__ import annotations

import gc
import sys

if __name__ == "__main__":
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(("/pyspark.zip", "-src.zip"))]
    import pyarrow as pa
    from pyspark.daemon import manager

    from storeformat.kernels import compiled
    from udfs.log import scan  # noqa: F401  (for the workers)

    pa.array([None])  # the first array imports pandas
    compiled()
    gc.collect()
    gc.freeze()  # workers collect garbage after each task: not among a million objects of imports
    manager()
