"""Survivors of damage, and repair of a damaged log. Bad bytes never raise.

``survey`` reads on after damage, ``evidence`` tells survivors from leftovers by ``queue_offsets``, ``second_pass``
judges rejected chains again, ``repair`` makes a log that a broker reads through. Offsets are log offsets, times
milliseconds.
"""
