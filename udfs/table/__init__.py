"""The log -> rows: ``proven_ranges``, ``rows``, ``schemas``; into a table (``parquet_files``, sorted by
``ordered_rows``), a data source (``datasource``), or single messages (``find_messages``).
"""
