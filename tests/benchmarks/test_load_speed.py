"""The benchmark of ``load``, small: it runs, and both tables have the same rows, whatever the speed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks import load_speed
from support.uniform_log import PHYSICAL_OFFSET_AT, TEMPLATES, uniform_log

pytestmark = [pytest.mark.benchmark, pytest.mark.spark]


_KEY = b"UNIQ_KEY\x01"
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_PIECE = 256 << 20


def write_distinct_log(segment: Path, size: int, *, message_bytes: int = 1000) -> int:
    """Writes a segment of nearly ``size`` bytes and returns its records; half of a UNIQ_KEY is the record's number."""
    written = messages = 0
    with segment.open("wb") as file:
        while size - written >= 2 * TEMPLATES * message_bytes:
            data, count = _piece(min(_PIECE, size - written), message_bytes, written, messages)
            file.write(data.data)
            written, messages = written + len(data), messages + count
        file.truncate(min(written + (100 << 20), (1 << 31) - 1))
    return messages


def _piece(
    size: int, message_bytes: int, base: int, first: int
) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint8]], int]:
    """Returns records for the log offsets from ``base`` on, the first of them with the number ``first``."""
    log = uniform_log(size, message_bytes=message_bytes)
    data = np.frombuffer(bytearray(log.data), np.uint8)
    copies = log.messages // TEMPLATES
    pattern = len(data) // copies
    records, keys, at = [], [], 0
    while at < pattern:
        records.append(at)
        keys.append(log.data.index(_KEY, at) + len(_KEY) + 16)
        at += int.from_bytes(log.data[at : at + 4], "big")
    repeats = np.arange(copies)[:, np.newaxis] * pattern
    places, starts = (repeats + np.array(keys)).ravel(), (repeats + np.array(records)).ravel()
    numbers = np.arange(first, first + log.messages)
    for digit in range(16):
        data[places + digit] = _HEX[(numbers >> 4 * (15 - digit)) & 15]
    offsets = (starts + base).astype(">i8").view(np.uint8).reshape(-1, 8)
    for byte in range(8):
        data[starts + PHYSICAL_OFFSET_AT + byte] = offsets[:, byte]
    return data, log.messages


def test_load_and_the_plain_decoder_make_the_same_rows(tmp_path: Path) -> None:
    segment = tmp_path / "store" / "commitlog" / f"{0:020d}"
    segment.parent.mkdir(parents=True)
    messages = write_distinct_log(segment, 20_000_000)
    (tmp_path / "work").mkdir()
    found = load_speed.measure(tmp_path / "store", tmp_path / "work")
    print("\n" + "\n".join(found.lines()))
    assert found.messages == messages
    assert 0 < found.table_bytes < found.log_bytes
