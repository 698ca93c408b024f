"""``report``: the job; ``facts`` asks the table, ``views`` and ``functions`` (``sql/``) are its questions, ``page``
and
``plots`` show the answers.
"""
