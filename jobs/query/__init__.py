"""``query`` and ``inspection``, with their ``offline_store``."""
