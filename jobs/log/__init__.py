"""From a store to its proven log. Tasks run through a ``jobs.spark.runner``; no other Spark.

``opening``         a store's settings, segments and rules, and its log read as the options of a job say
``restored_log``    missing segments filled and damaged ones healed, from other copies of the log
``healing``         which bytes come from which copy
``log_scan``        scans splits, proves the chain, accounts for every byte
``verified_chain``  what the chain proves, and which segments begin with an older log
``damage``          what a broken chain means, and what survived
``queue_runs``      what the queues are made of
``stray_records``   records in a wrong place of a queue
``losses``          which messages are lost, bounded by ``damaged_bytes``
"""
