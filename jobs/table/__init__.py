"""The table ``messages``, and reading a log without a table (``datasource``, ``stream``).

``load`` reads a ``load_window`` of a log that continues the table (``continuation``), and tasks write ``drafts``. The
Delta table is ``messages_table``, its log ``commits``, its storage ``table_places``. ``deliveries`` checks delay
levels, ``salvaged_rows`` replaces rows read past damage, ``consumer_offsets`` is a table beside it.
"""
