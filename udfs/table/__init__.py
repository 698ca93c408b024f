"""The log -> rows: ``proven_ranges``, ``rows``, ``schemas``; into a table ``parquet_files``, in the order of queues
(``ordered_rows``), also while the log is scanned; into a data source ``datasource``; of one message ``find_messages``.
"""
