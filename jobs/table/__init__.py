"""The table ``messages``, and reading a log without a table.

==================  ==================================================================================================
the job             ``load``; ``load_window``: what it reads; ``continuation``: whether the log goes on from the table
Delta               ``messages_table``; ``commits`` is what a load writes into Delta's log
without a table     ``datasource`` (batch), ``stream``
==================  ==================================================================================================
"""
