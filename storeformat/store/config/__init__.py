"""``config/`` of a store: the files that a broker writes about topics, groups and timers.

``config_files`` reads each as the broker does, with its ``.bak``; ``fastjson`` is how lenient its parser is;
``topic_config`` is topics.json, ``consumer_offsets`` consumerOffset.json; ``timer_files`` are the timer's wheel, log
and check file.
"""
