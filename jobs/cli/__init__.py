"""The command line, and a job that runs others.

================  ===============================================================================================
``command_line``  the table of jobs, and the exit codes
``arguments``     the options of each job, as the fields of ``jobs.contract.options`` name them
``demo``          a job that runs others on a bundled store
================  ===============================================================================================
"""
