"""What a file may ask of this program, however large or damaged it is."""

from __future__ import annotations

READ_WHOLE = 256 << 20
"""Bytes of a file that is read and parsed whole: no broker, Delta table or rebuild has a larger one."""
MAPPED_FILE = (1 << 31) - 1
"""Bytes of a queue file: a broker maps its files with an int length."""
LISTED = 1_000
"""Rows of a list in a report. Counts are complete."""
