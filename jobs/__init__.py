"""Plans and entry points: the only layer that sees a SparkSession.

A job is a module with ``run(options, reporter) -> Report``, which knows no other job. Its errors are those of
``storeformat.errors``, each with its exit code, and SparkError.

==============================  ======================================================================================
what changes                    where
==============================  ======================================================================================
an option, the report           ``contract/``
how Spark is run                ``spark/``
a store, its log, its damage    ``log/``
what groups have committed      ``consumer_offsets/``
a job                           ``rebuild/``, ``publish/`` (and restore), ``verify/``, ``query/`` (and inspect),
                                ``table/`` (load, the data source), ``report/``, ``preflight/``, ``cli/demo``
==============================  ======================================================================================
"""
