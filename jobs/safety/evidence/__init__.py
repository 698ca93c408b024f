"""What lies in a store that a broker is to be started on; judges nothing.

``evidence``        everything that the rules judge, read once
``log_files``       files of the log
``log_tail``        the last part of the log, as recovery reads it
``recovery``        what a release dispatches again by itself
"""
