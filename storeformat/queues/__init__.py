"""Consume queues: units and files.

Units: ``consume_queue`` (20 bytes), ``batch_consume_queue`` (46 bytes), ``consume_queue_ext``.
Pairs of a database: ``rocksdb_queues``. Runs of units of a whole log: ``queue_runs``. Checks: ``queue_check``.
Selection: ``topic_filter``.
"""
