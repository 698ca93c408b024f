"""``verify``: does a store hold what its log says? Tasks compare (``udfs.files.verify``). ``compare_queues`` says which
queue files are compared with what, ``judge_*`` what differences mean; ``differences`` collects them, ``earlier_life``
finds a log that continues into old records.
"""
