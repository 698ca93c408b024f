"""``query`` and ``inspection``, with ``offline_store`` and ``queue_listing``."""
