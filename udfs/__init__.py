"""What runs inside a Spark task: storeformat and pyarrow, no SparkSession. Mappers are frozen dataclasses: their fields
are their configuration, and tests call them without a JVM.

==========================  ==========================================================================================
the log -> staged runs      ``log/``
staged runs -> files        ``files/``; staged runs == files? there, too
the log -> rows             ``table/``
SQL functions               ``functions/``
failures as values          ``failures``
Python workers              ``daemon``
==========================  ==========================================================================================
"""
