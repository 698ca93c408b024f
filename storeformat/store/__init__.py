"""A store as a whole: settings, the rules of each release, and the files beside log, queues and index.

``layout`` has sizes and names; ``broker_rules`` what releases do; ``checkpoint``, ``topics_json`` and ``topic_config``
are files; ``log_directories`` says where the log is; ``not_rebuilt`` what a rebuild leaves out; ``swap_journal``
replaces artefacts, all or nothing.
"""
