"""Make files of the store from slices of staged runs, and compare existing files with them.

=================  ===================================================================================================
``build``          consume-queue and index files, and extended units; what a task says of each
``rocksdb_pairs``  files of pairs that a database of RocksDB queues takes in; a database against the log
``verify``         files that are there against what the log says
=================  ===================================================================================================

Builders yield batches of ``build.SCHEMA``, a row a file, read back after writing; they raise TotalsDisagree if
a file differs from its plan and the staged runs.
"""
