"""``rebuild``: consume queues, index and checkpoint from the log alone, and repaired segments. ``build_store`` does the
work in a staging directory, after the ``planning`` (and ``rocksdb_database``, ``timers``); ``manifest`` describes the
result for ``publish``.
"""
