"""Limits on files, so that a large or damaged one cannot exhaust the program."""

from __future__ import annotations

READ_WHOLE = 256 << 20  # bytes of a file that is parsed whole: no broker, Delta table or rebuild has a larger one
MAPPED_FILE = (1 << 31) - 1  # bytes of a queue file: a broker maps its files with an int length
LISTED = 1_000  # rows of a list in a report; counts are complete
