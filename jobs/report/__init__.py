"""``report`` is the job; ``facts`` asks the table, through ``views`` and ``functions`` (``sql/``); ``page`` and
``plots`` show the answers.
"""
