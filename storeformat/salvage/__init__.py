"""What survives damage, and how a damaged log is repaired.

``survey`` reads on after damage and says what it found (``findings``); ``record_extent`` says how far a damaged record
reaches; ``evidence`` tells survivors from leftovers, by ``queue_offsets``; ``second_pass`` judges rejected chains once
more; ``dledger_survey`` is for DLedger logs; ``repair`` makes a log that a broker reads through.

Offsets are those of the log unless said otherwise, times are milliseconds. Bad bytes never raise.
"""
