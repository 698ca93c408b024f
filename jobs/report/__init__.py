"""``report`` is the job; ``facts`` asks the table through ``views`` and ``functions`` (``sql/``), ``plain_facts`` does
without Spark; ``page`` and ``plots`` show the answers.
"""
