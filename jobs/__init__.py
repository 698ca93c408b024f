"""Plans and entry points: the only layer that sees a SparkSession. A job is a module with ``run(options, reporter) ->
Report``, which knows no other job. It raises the classes of ``storeformat.errors``, each with an exit code of its own,
and SparkError; ``contract/report`` makes the report of a failed run.

==============================  ======================================================================================
what changes                    where
==============================  ======================================================================================
an option                       ``contract/`` (its text, value and default)
the report, an exit code        ``contract/``
how Spark is run                ``spark/``
a store, its log, its damage    ``log/``
what groups have committed      ``consumer_offsets/``
a job                           ``rebuild/``, ``publish/`` (and restore), ``verify/``, ``query/`` (and inspect),
                                ``table/`` (load, the data source), ``report/``
whether a broker may start      ``preflight/``
several jobs in one             ``cli/demo``
==============================  ======================================================================================
"""
