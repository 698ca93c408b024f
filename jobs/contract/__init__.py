"""What users and their schedulers rely on: the options of jobs, and their reports.

=============  ===========================================================================================
options        what a command line says, as frozen values with their texts and defaults
option_values  how the text of an option becomes its value
report         the report, for people and as JSON; exit codes; errors in a line or two
commands       what a person is to paste
metrics        the report for Prometheus
reporter       one run of a job: its clock, notes, progress, and the report that it ends with
=============  ===========================================================================================
"""
