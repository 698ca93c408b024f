"""``verify``: does a store hold what its log says?

==========================  ==========================================================================================
``verify``                  the job: options in, report out; the order of the work
``compare_queues``          which queue files are compared with which units of the log
``judge_queues``            what the differences of queue files mean: a fault, a hazard, or what a healthy broker leaves
``judge_index``             index files, compared with the entries of the log and judged
``judge_checkpoint``        the checkpoint, which needs no comparison
``judge_rocksdb``           RocksDB queues, compared and judged
``judge_consumer_offsets``  the committed offsets of groups, against the ends of their queues
``differences``             what was found, gathered, and what the comparisons share
``earlier_life``            a log that runs on into records of an earlier life of its file
==========================  ==========================================================================================

The comparisons themselves run in tasks (``udfs.files.verify``): ``storeformat.queues.queue_check`` one queue file,
``storeformat.index.index_check`` one index file.
"""
