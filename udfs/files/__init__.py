"""Slices of staged runs made into files of the store, and compared with files that are there.

=================  ===================================================================================================
``build``          consume-queue and index files; ``queue_ext`` extended units
``rocksdb_pairs``  the pairs of RocksDB queues; ``rocksdb_tables`` as files that a database takes in
``verify``         files that are there against what the log says
``output_files``   how a file gets its place; ``file_rows`` what a task says of each
=================  ===================================================================================================

What makes files of an output yields batches of ``file_rows.SCHEMA``, a row a file, which was read back; it raises
TotalsDisagree where a file holds anything but its plan and the staged runs. What compares files returns what differs.
"""
