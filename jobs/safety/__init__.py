"""Is it safe to start a broker on a store? What lies there, what the next start makes of it, and a cure for each loss.

``evidence`` reads (ends of queues, configuration, the last part of the log), each module of ``rules/`` judges one kind
of thing in what was read, ``answer`` puts them together. Nothing is changed, no Spark is started.
"""
