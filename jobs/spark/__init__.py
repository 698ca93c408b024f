"""Spark: ``environment`` sets it up, ``launch`` starts it, ``session`` holds it for the length of a job, ``runner``
runs tasks
in it or here, ``packing`` packs Python for executors, ``transforms`` are DataFrames of the log.
"""
