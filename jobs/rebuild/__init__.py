"""``rebuild``: the job is ``rebuild``, its work ``build_store``, its plan ``planning``; ``manifest`` says what was
built,
``rocksdb_pairs`` exports pairs, ``log_repair`` writes repaired segments.
"""
