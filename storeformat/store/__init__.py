"""A store as a whole: settings, the rules of each release, and the files beside log, queues and index.

``store`` is the value that every job takes; ``broker_conf`` reads settings as a broker does, ``layout`` has sizes and
names, ``setting_names`` all settings of brokers; ``broker_rules`` says what releases do, ``recovery`` what a start
dispatches again;
``checkpoint`` is a file, ``config/`` a directory of files;
``log_directories`` says where the log is, ``segment_files`` finds its segments there; ``queue_places`` says where the
queues are, ``queue_ends`` where each one ends, ``rocksdb_queues`` reads those in a database; ``store_signs`` is what a
store's own files show of its settings, ``delay_levels`` what its queues show of one;
``not_rebuilt`` names what a rebuild leaves out; ``swap`` replaces artefacts, all or nothing.
"""
