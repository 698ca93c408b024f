"""Spark, from its set-up to its end.

=================  ===================================================================================================
``environment``    the set-up, at the first start: packages, jars (``delta_jars``), compiled kernels
``s3_jars``        what Spark itself reads S3 with, when the set-up is asked for it
``setup_steps``    steps of it, several at once; ``bundle`` is all that they fetch, for machines without a network
``launch``         what goes to spark-submit, with which defaults
``jvm``            the start and the end of Spark's JVM
``session``        a SparkContext or a SparkSession for the length of a job; ``data_size`` fits it to its data
``isolation``      keeps other users of the machine out
``signals``        signals wait while the JVM starts, and unwind the stack
``spark_errors``   what Spark raises, as exceptions of this program
``runner``         runs tasks, in Spark or in this process
``transforms``     DataFrames of the log
``packing``        Python packages for executors
=================  ===================================================================================================
"""
