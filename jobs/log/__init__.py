"""From a store to its proven log. Tasks run through a ``jobs.spark.runner``.

``opening`` opens a store and reads its log; ``log_scan`` proves the chain, says what a break means, and accounts for
every byte, ``verified_chain`` holds what is proven. ``restored_log`` takes bytes from replicas. ``losses`` and
``losses_beside`` judge the queues.
"""
