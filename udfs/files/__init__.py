"""Make files of the store from slices of staged runs (``build``, ``rocksdb_pairs``), and compare existing ones with
them (``verify``, ``rocksdb_pairs``). Builders yield batches of ``build.SCHEMA``, one row per file, read back after
writing; they raise TotalsDisagree if a file differs from its plan and the staged runs.
"""
