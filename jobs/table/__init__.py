"""The table ``messages``, and reading a log without a table (``datasource``).

``load`` reads the part of a log that continues the table, and tasks write drafts. The Delta table is
``messages_table``, its log ``commits``.
"""
