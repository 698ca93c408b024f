"""What a broker makes of ``timerlog/`` and ``timercheck`` when it starts without a wheel: a slow model of its recovery
and of the delivery of slots, in the words of TimerMessageStore (5.3.3). Nothing here comes from this program.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

UNIT_SIZE = 52
BLANK = 0xBBCCDDEE ^ (1880681586 + 8)


@dataclass
class TimerStart:
    """``files`` are those of the timer log by their first position, ``check`` is timercheck."""

    files: Mapping[int, bytes]
    check: bytes
    file_size: int
    precision: int = 1000
    slots: dict[int, int] = field(default_factory=dict)
    process_offset: int = 0
    last_message: int = -1

    def recover(self) -> None:
        """TimerMessageStore#recoverAndRevise from the first file on."""
        assert struct.unpack_from(">q", self.check, 8)[0] == 0
        for base, data in sorted(self.files.items()):
            assert len(data) == self.file_size
            position, stop = 0, False
            while position + UNIT_SIZE <= len(data):
                size, _, magic, written, delay, offset, _ = struct.unpack_from(">iqIqiqi", data, position)
                if magic == BLANK & 0xFFFFFFFF:
                    break
                if magic | 0xF != 0xF or size != UNIT_SIZE:
                    stop = True
                    break
                self.slots[self._index(written + delay)] = base + position
                self.last_message = offset
                position += UNIT_SIZE
            self.process_offset = base + position
            if stop:
                break

    def _index(self, time: int) -> int:
        return time // self.precision % (7 * 24 * 3600 * 2)

    def unit(self, position: int) -> tuple[int, int, int, int]:
        """Previous position, magic, slot time, offset in the log."""
        base = position // self.file_size * self.file_size
        _, previous, magic, written, delay, offset, _ = struct.unpack_from(
            ">iqIqiqi", self.files[base], position - base
        )
        return previous, magic, written + delay, offset

    def delivered(self, until: int) -> list[tuple[int, int]]:
        """Offsets and magic of what the slots before a time deliver, in their order, from timercheck's time on."""
        found, time = [], struct.unpack_from(">q", self.check, 0)[0]
        while time < until:
            position = self.slots.get(self._index(time), -1)
            if position >= 0 and self.unit(position)[2] // self.precision == time // self.precision:
                chain = []
                while position != -1:
                    previous, magic, _, offset = self.unit(position)
                    chain.append((offset, magic))
                    position = previous
                found += reversed(chain)
            time += self.precision
        return found
