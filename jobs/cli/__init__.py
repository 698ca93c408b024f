"""The command line: ``command_line`` has the table of jobs and exit codes, ``values`` the options of each job,
``values``
what their texts mean.
"""
