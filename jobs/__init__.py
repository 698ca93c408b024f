"""Plans and entry points: the only layer that sees a SparkSession. A job is a module with ``run(options, reporter) ->
Report``, which knows no other job; what two of them need has a module that is named for it.

==========================  ==========================================================================================
a new job                   ``config`` (options), ``job_arguments``, ``arguments``, ``command_line``, and its module
a store and its log         ``opening``, ``storelog``, ``logscan``, ``provenlog``
past damage                 ``damage``, ``olderlog``, ``losses``, ``logrepair``
rebuild                     ``rebuilding``, ``planning``, ``queueruns``, ``manifest``, ``rocksdbexport``
publish, restore            ``backups``
verify                      ``verifying``, ``queue_checks``, ``queue_verdicts``, ``index_checks``, ``verdicts``
query, inspect              ``offline``, ``explaining``
load                        ``loading``, ``transforms``, ``tables``, ``commits``
report                      ``findings``, ``page``, ``plots``, ``views`` and ``functions`` (``sql/``)
spark.read, readStream      ``datasource``, ``logstream``
Spark                       ``environment`` (set-up), ``launch``, ``session``, ``running``, ``packing``
what a person sees          ``reporting``
==========================  ==========================================================================================
"""
