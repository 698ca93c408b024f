"""A store as a whole: settings, release rules, and the files beside log, queues and index.

``store`` is the value every job takes. Settings: ``broker_conf``, ``layout`` (sizes and names), ``setting_names``.
Releases: ``broker_rules``, ``recovery``. Files: ``checkpoint``, ``config/``. Log: ``segment_files``.
Queues: ``queue_places``, ``queue_ends``, ``rocksdb_queues``. Settings derived from a store's files:
``store``, ``delay_levels``. ``not_rebuilt`` lists what a rebuild omits; ``swap`` replaces artefacts atomically.
"""
