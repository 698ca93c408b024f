"""``config/`` of a store: files about topics, groups and timers.

``config_files`` reads each as a broker does, with its ``.bak``; ``fastjson`` is the lenient parser; ``topic_config``,
``consumer_offsets``, ``timer_files`` (wheel, log, check file).
"""
