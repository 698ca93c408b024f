"""The command line: ``command_line`` has the table of jobs and the exit codes, ``arguments`` the options of each job.

What the texts of options mean is in ``jobs.contract.option_values``: the data source reads its options with it, too.
"""
