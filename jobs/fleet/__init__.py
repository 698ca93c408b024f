"""The stores of several brokers in one start, each as if it were alone: one Spark, one report, one exit code.

======  ==============================================================================================
stores  which stores are meant: of a path with placeholders, or of a file with a line each
fleet   runs a job on each; what ends one stops no other
answer  the report of all, with an entry and a line for each
======  ==============================================================================================
"""
