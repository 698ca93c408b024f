"""Is it safe to start a broker on a store? What lies there, what the next start makes of it, and a cure for each loss.

``evidence`` reads (ends of queues, configuration, the last part of the log), each module of ``rules/`` judges one kind
of thing in what was read, ``answer`` puts them together. Nothing is changed, no Spark is started.

``log_files``, ``log_tail``  files of the log, and its last part as recovery reads it
``start_settings``           what broker.conf says of a start
``recovery``                 what a release dispatches again by itself
``replicas``                 another copy of the log beside this one
``reason``                   reasons, and the answer that they add up to
"""
