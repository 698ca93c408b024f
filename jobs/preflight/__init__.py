"""Is it safe to start a broker on a store? What its start would lose, and a cure for each loss.

``stopped_store`` reads the store, the rules judge it, ``answer`` collects their reasons. Nothing is changed, and Spark
is not started.

=====================  ==========================================================
``preflight``          the job: options in, report out; what the answer rests on, and what it does not say
``stopped_store``      all that the rules look at
``answer``             all rules, in the order in which a start would meet them
``reason``             reasons, and the answer that they add up to
---------------------  ----------------------------------------------------------
``store_paths``        where broker.conf says that the store is
``log_cuts``           settings that are not taken, records that are not
``files_and_space``    files as such: who may open them, space for the next
``configuration``      the files of ``config/``, and the storeType
``config_databases``   topics, groups and offsets in RocksDB
``queues_and_log``     queues against the log, and how the log ends
``rocksdb_queues``     queues in RocksDB: what the start dispatches again
``offsets``            offsets that lie outside of their queues
``retention``          what the broker deletes soon after its start
``timers_and_epochs``  timer state, and the history of a controller's group
``replicas``           another copy of the log beside this one
=====================  ==========================================================
"""
