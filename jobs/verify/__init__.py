"""``verify``: the job is ``verify``, its work ``verification``; ``queue_checks`` and ``index_checks`` compare,
``queue_verdicts`` says what it means, ``differences`` gathers it.
"""
