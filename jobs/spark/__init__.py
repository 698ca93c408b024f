"""Spark, from its start to its end.

================  ====================================================================================================
``launch``        what its JVM is started with
``session``       Spark for the length of a job, and what runs the job's tasks
``spark_errors``  what Spark raises, as exceptions of this program
``runner``        runs tasks, in Spark or here
================  ====================================================================================================
"""
