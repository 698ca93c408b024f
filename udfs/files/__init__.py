"""Slices of staged runs made into files of the store, and compared with files that are there.

=================  ===================================================================================================
``build``          consume-queue and index files, and extended units
``rocksdb_pairs``  files of pairs that a database of RocksDB queues takes in; a database against the log
``verify``         files that are there against what the log says
``output_files``   how a file gets its place, and what a task says of each
=================  ===================================================================================================

What makes files of an output yields batches of ``output_files.SCHEMA``, a row a file, which was read back; it raises
TotalsDisagree where a file holds anything but its plan and the staged runs. What compares files returns what differs.
"""
