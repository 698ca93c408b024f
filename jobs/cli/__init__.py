"""The command line, and what runs jobs: one for each store that it names, or several to show them.

================  ===============================================================================================
``command_line``  the table of jobs, and the exit codes
``arguments``     the options of each job, as the fields of ``jobs.contract.options`` name them
``fleet``         a job on the stores of several brokers, each as if it were alone: one Spark, one exit code; what
                  ends one stops no other; their reports as one, with an entry and a line for each
``fleet_stores``  which stores these are: a file has a line for each
``demo``          a job that runs others on a bundled store
================  ===============================================================================================
"""
