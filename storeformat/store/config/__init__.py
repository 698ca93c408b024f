"""``config/`` of a store: files about topics, groups and timers.

``config_files`` reads each as a broker does, with its ``.bak``, and writes topics and offsets; ``timer_files``: wheel,
log, check file.
"""
