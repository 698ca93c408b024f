"""Consume queues: units, files, and what a broker answers from them.

``consume_queue`` has the 20-byte unit, ``batch_consume_queue`` the 46-byte unit, ``consume_queue_ext`` the extended
unit, ``rocksdb_pairs`` keys and values; ``queue_search`` and ``batch_queue_search`` answer; ``queue_check`` and
``rocksdb_check`` compare; ``topic_filter`` selects.
"""
