"""``rebuild``: consume queues, index and checkpoint out of the log alone.

====================  =================================================================================================
``rebuild``           the job: options in, report out; where the output may lie
``build_store``       the work: scan, plan, write, check, finish
``planning``          which staged runs make which files, and how much disk these take: pure functions on small tables
``staging``           the directories in which it works, and the claim on an object store
``manifest``          what was built, for ``publish``
``rocksdb_database``  the database of RocksDB queues: which units it holds, and its files
``timers``            which timer messages still wait, and the files that make the broker deliver each of them once
``log_repair``        ``--repair-log``: repaired copies of damaged segments
====================  =================================================================================================
"""
