"""The table ``messages``, and reading a log without a table.

==================  ==================================================================================================
the job             ``load``; ``load_window``: what it reads; ``continuation``: whether the log goes on
                    from the table; ``drafts``: files that tasks wrote while they read
Delta               ``messages_table``, by delta-rs; ``table_places``: local, S3, GCS, Azure, HDFS;
                    ``commits`` is what a load writes into Delta's log, and what a RESTORE leaves of it
delays              ``deliveries``: levels that are shorter than was assumed
damage              ``salvaged_rows``: rows that were read past it
offsets of groups   ``consumer_offsets``, a table beside it
without a table     ``datasource`` (batch), ``stream``
==================  ==================================================================================================
"""
