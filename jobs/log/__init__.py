"""From a store to its proven log. Tasks run through a ``jobs.spark.runner``.

``opening`` opens a store and reads its log; ``log_scan`` proves the chain and accounts for every byte,
``verified_chain`` holds what is proven, ``damage`` says what a broken chain means. ``restored_log`` and ``healing``
take bytes from replicas. ``queue_runs``, ``stray_records``, ``losses`` (bounded by ``damaged_bytes``) and
``losses_beside`` judge the queues.
"""
