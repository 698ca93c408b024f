"""The table ``messages``: ``load`` is the job, ``loading`` its work, ``messages_table`` and ``commits`` are Delta;
``datasource`` and ``stream`` read a log without a table.
"""
