"""``publish`` and ``restore``, with ``backups`` for both."""
