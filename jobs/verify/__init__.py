"""``verify``: does a store hold what its log says? Tasks compare (``udfs.files.verify``), ``judge_*`` say what
differences mean, ``differences`` collects them.
"""
