"""The log -> rows: ``proven_ranges``, ``rows``, ``schemas``; into a table ``parquet_files``, into a data source
``datasource``, of one message ``find_messages``.
"""
