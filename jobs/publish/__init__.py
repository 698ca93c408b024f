"""``publish`` and ``restore``, and ``backups``, which both use."""
