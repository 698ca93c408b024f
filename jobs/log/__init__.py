"""From a store to its proven log: ``opening``, ``store_log``, ``log_scan``, ``verified_chain``; past damage ``damage``,
``stale_segments`` and ``losses``, which needs ``queue_runs``. Tasks run through a ``jobs.spark.runner``; no other
Spark.
"""
