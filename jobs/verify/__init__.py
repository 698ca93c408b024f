"""``verify``: does a store hold what its log says? Tasks compare (``udfs.files.verify``), ``verify`` and
``judge_queues`` say what differences mean, ``differences`` collects them.
"""
