"""Spark, from its start to its end.

=================  ===================================================================================================
``execution``      how a job executes: one value, made from the command line
``spark_options``  what a user tells Spark
``launch``         what goes to spark-submit, with which defaults
``jvm``            the start and the end of Spark's JVM
``session``        what runs a job's tasks; Spark for the length of a job
``isolation``      keeps other users of the machine out
``signals``        signals wait while the JVM starts, and unwind the stack
``spark_errors``   what Spark raises, as exceptions of this program
``runner``         runs tasks, in Spark or here
=================  ===================================================================================================
"""
