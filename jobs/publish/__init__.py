"""``publish`` and ``restore``, with ``backups`` and the atomic ``swap`` for both."""
