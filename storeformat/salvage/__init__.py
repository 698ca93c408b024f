"""Survivors of damage, and repair of a damaged log. Bad bytes never raise.

``survey`` reads on after damage (``findings``), ``record_extent`` finds the end of a damaged record, ``evidence`` tells
survivors from leftovers by ``queue_offsets``, ``second_pass`` judges rejected chains again, ``dledger_survey`` is for
DLedger logs, ``repair`` makes a log that a broker reads through. Offsets are log offsets, times milliseconds.
"""
