"""What runs inside a Spark task: storeformat and pyarrow, no SparkSession. Mappers are frozen dataclasses: their fields
are their configuration, and tests call them without a JVM.

==========================  ==========================================================================================
the log -> staged runs      ``scan``, which leaves them by ``runs`` and ``batchruns``; behind damage ``survey``
staged runs -> files        ``build``, ``batchruns``, ``extbuild``, ``rocksdbpairs``, which read them with ``readers``;
                            what they say of each file ``filerows``
staged runs == files?       ``verify``
the log -> rows             ``ranges``, ``rows``, ``schemas``; into a table's files ``tablefiles``, into a data source
                            ``datasource``, of one message ``finding``
SQL functions               ``scalar``, ``tracing``
Python workers              ``worker_daemon``; what their tasks cost ``costs``
==========================  ==========================================================================================
"""
