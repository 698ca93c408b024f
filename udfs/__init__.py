"""What runs inside a Spark task: storeformat and pyarrow, no SparkSession. Mappers are frozen dataclasses: their fields
are their configuration, and tests call them without a JVM.

==========================  ==========================================================================================
the log -> staged runs      ``scan``, which leaves them by ``staged_runs`` and ``batch_queues``; topics of messages that
                            wait ``real_topics``; who read what ``consumption``; timers ``timers``; after damage
                            ``survey``
a log == its copies?        ``log_copies``
staged runs -> files        ``build``, ``queue_ext``, ``rocksdb_pairs``, ``rocksdb_tables``: slices of ``staged_files``
                            made into ``output_files``; what they say of each file ``file_rows``
staged runs == files?       ``verify``
the log -> rows             ``table/``
SQL functions               ``functions/``
Python workers              ``worker_daemon``; what their tasks cost ``task_metrics``
==========================  ==========================================================================================
"""
