"""``query`` and ``inspection``, with ``offline_store``, ``pending_messages``, ``queue_listing`` and ``export``."""
