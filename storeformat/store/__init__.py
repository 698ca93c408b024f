"""A store as a whole: settings, release rules, and the files beside log, queues and index.

``store`` is the value every job takes, and what its files show of settings. Settings: ``settings``, ``setting_names``,
``layout`` (directories). Releases: ``broker_rules``, ``recovery`` (what a start dispatches, and what is
deleted soon after it). Files: ``checkpoint``, ``config/``. Log: ``segment_files``. Queues: ``queue_places``,
``queue_ends``, ``rocksdb_queues``.
"""
