"""The commit log: how records lie in segments, and which bytes are records.

``framing`` leads from one record to the next; ``commit_log`` has segments and the chain; ``dledger`` the entries of a
DLedger group; ``log_end`` where a log ends.
"""
