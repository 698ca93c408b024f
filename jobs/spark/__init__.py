"""Spark, from its start to its end.

=================  ===================================================================================================
``launch``         what goes to spark-submit, with which defaults
``jvm``            the start and the end of Spark's JVM
``session``        a SparkContext or a SparkSession for the length of a job; ``data_size`` fits it to its data
``isolation``      keeps other users of the machine out
``hidden_pandas``  keeps pyarrow from importing pandas where nothing needs it
``signals``        signals wait while the JVM starts, and unwind the stack
``spark_errors``   what Spark raises, as exceptions of this program
``runner``         runs tasks, in Spark or in this process
``transforms``     DataFrames of the log
=================  ===================================================================================================
"""
