"""Questions to one store.

====================  =================================================================================================
``query``             the job: one function a kind of question
``offline_store``     what a broker looks up: records by offset, queues in files or in RocksDB, the index; read
                      without Spark
``explain``           why the index does not find a key
``pending_messages``  what messages wait for that lie under a topic of the broker's own
``queue_listing``     the messages of a topic in the order of its queues; ``export`` writes them into a file
``inspection``        the job ``inspect``: what is in this log
====================  =================================================================================================
"""
