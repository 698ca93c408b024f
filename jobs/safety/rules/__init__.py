"""Rules: each module judges what ``evidence`` read, and gives a reason for each thing a start would lose.

=====================  ==========================================================
``files_and_space``    files as such: who may open them, space for the next
``configuration``      the files of ``config/``, and the storeType
``queues_and_log``     queues against the log, and how the log ends
``rocksdb_queues``     queues in RocksDB: what the start dispatches again
``offsets``            offsets that lie outside of their queues
``retention``          what the broker deletes soon after its start
``timers_and_epochs``  timer state, and the history of a controller's group
=====================  ==========================================================
"""
