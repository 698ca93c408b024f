"""A uniform log whose unique keys differ from record to record, as a broker's do: what a table has to store."""

from __future__ import annotations

import numpy as np
from support.uniform_log import UniformLog, uniform_log

_KEY = b"UNIQ_KEY\x01"
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)


def distinct_log(size: int, *, message_bytes: int = 1000) -> UniformLog:
    """At most ``size`` bytes of records whose UNIQ_KEY ends in the record's number, 16 hexadecimal digits of it."""
    log = uniform_log(size, message_bytes=message_bytes)
    data = np.frombuffer(bytearray(log.data), np.uint8)
    first, starts = 0, []
    for _ in range(min(log.messages, 320)):
        starts.append(log.data.index(_KEY, first) + len(_KEY))
        first = starts[-1]
    pattern = len(log.data) // (log.messages // 320)
    places = (np.arange(log.messages // 320)[:, np.newaxis] * pattern + np.array(starts)).ravel()
    numbers = np.arange(log.messages, dtype=np.uint64)
    for digit in range(16):
        nibble = (numbers >> np.uint64(4 * (15 - digit))) & np.uint64(15)
        data[places + 16 + digit] = _HEX[nibble]
    return UniformLog(data.tobytes(), log.messages, log.topics, log.queues)
