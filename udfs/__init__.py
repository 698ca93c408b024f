"""Code of Spark tasks: storeformat and pyarrow, no SparkSession. Mappers are frozen dataclasses that hold their
configuration; tests call them without a JVM.

==========================  ==========================================================================================
the log -> staged runs      ``log/``
staged runs -> files        ``files/``; staged runs == files? there, too
the log -> rows             ``table/``
SQL functions               ``functions/``
failures as values          ``failures``
Python workers              ``daemon``
==========================  ==========================================================================================
"""
