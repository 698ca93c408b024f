"""Tasks that read the log: units and index entries as staged runs, and other results of a scan.

=================  ===================================================================================================
``scan``           one split: its chain, its units and entries, and what the driver needs to know of them
``staged_runs``    units and entries packed, as a scan leaves them; ``batch_queues`` those of batch queues
``staged_files``   the files that hold them, and slices of these
``subscriptions``  which groups read which topics
``timers``         which messages wait under a topic of the broker's own, and for what
``survey``         what survived after damage
``log_copies``     the same log in several places: where they differ
=================  ===================================================================================================

Results describe damage; it raises nothing. Times are milliseconds, sums of commit-log offsets are modulo 2**64.
"""
