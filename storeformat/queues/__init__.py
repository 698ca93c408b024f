"""Consume queues: units, files, and what a broker answers from them.

Units: ``consume_queue`` (20 bytes), ``batch_consume_queue`` (46 bytes), ``consume_queue_ext``, ``rocksdb_pairs``.
Answers: ``queue_search``. Checks: ``queue_check``, ``rocksdb_check``. Selection: ``topic_filter``.
"""
