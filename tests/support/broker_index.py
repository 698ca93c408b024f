"""The model's index: ``index/IndexService#buildIndex`` and ``index/IndexFile#putKey``, one key after the other.

A file is a header of 40 bytes, a table of slots of 4, and entries of 20 of which number 0 stays empty; see
``IndexFile.to_bytes``. Mirrors apache/rocketmq 4.6.1 to 5.5.0.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from support import java_rules
from support.broker_check import TRANSACTION_ROLLBACK_TYPE, DispatchRequest
from support.broker_settings import BrokerSettings


@dataclass
class IndexFile:
    """``index/IndexFile``: a header, a table of slots, entries from number 1 on."""

    slots: list[int]
    max_index_num: int
    counts_every_put: bool
    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_phy_offset: int = 0
    end_phy_offset: int = 0
    hash_slot_count: int = 0
    entries: list[bytes] = field(default_factory=list)

    @property
    def index_count(self) -> int:
        return len(self.entries) + 1

    def is_write_full(self) -> bool:
        return self.index_count >= self.max_index_num

    def put_key(self, key: str, phy_offset: int, store_timestamp: int) -> bool:
        return self.put_hash(index_key_hash(key), phy_offset, store_timestamp)

    def put_hash(self, key_hash: int, phy_offset: int, store_timestamp: int) -> bool:
        if self.is_write_full():
            return False
        slot = key_hash % len(self.slots)
        slot_value = self.slots[slot]
        if slot_value <= 0 or slot_value > self.index_count:
            slot_value = 0
        elapsed = store_timestamp - self.begin_timestamp
        time_diff = elapsed // 1000 if elapsed >= 0 else -(-elapsed // 1000)
        if self.begin_timestamp <= 0:
            time_diff = 0
        time_diff = max(0, min(time_diff, 0x7FFFFFFF))
        number = self.index_count
        self.entries.append(struct.pack(">iqii", key_hash, phy_offset, time_diff, slot_value))
        self.slots[slot] = number
        if number <= 1:
            self.begin_phy_offset = phy_offset
            self.begin_timestamp = store_timestamp
        if slot_value == 0 or self.counts_every_put:
            self.hash_slot_count += 1
        self.end_phy_offset = phy_offset
        self.end_timestamp = store_timestamp
        return True

    def to_bytes(self) -> bytes:
        places = (self.begin_timestamp, self.end_timestamp, self.begin_phy_offset, self.end_phy_offset)
        header = struct.pack(">qqqqii", *places, self.hash_slot_count, self.index_count)
        table = struct.pack(f">{len(self.slots)}i", *self.slots)
        entries = (bytes(20) + b"".join(self.entries)).ljust(20 * self.max_index_num, b"\0")
        return header + table + entries


def index_key_hash(key: str) -> int:
    """``IndexFile#indexKeyHashMethod``."""
    return max(java_rules.math_abs(java_rules.hash_code(key)), 0)


@dataclass
class IndexService:
    """``index/IndexService``: files in order of creation."""

    settings: BrokerSettings
    files: list[IndexFile] = field(default_factory=list)

    def build_index(self, request: DispatchRequest) -> None:
        if request.commit_log_offset < self._get_and_create_last_index_file().end_phy_offset:
            return
        if request.transaction_type == TRANSACTION_ROLLBACK_TYPE:
            return
        if request.uniq_key is not None:
            self._put_key(request, f"{request.topic}#{request.uniq_key}")
        for key in java_rules.split(request.keys, " ") if request.keys else ():
            if key:
                self._put_key(request, f"{request.topic}#{key}")
        tags = (request.properties or {}).get("TAGS")
        if self.settings.version >= (5, 4, 0) and tags:
            self._put_key(request, f"{request.topic}#T#{tags}")

    def _put_key(self, request: DispatchRequest, key: str) -> None:
        while True:
            file = self._get_and_create_last_index_file()
            if file.put_key(key, request.commit_log_offset, request.store_timestamp):
                return

    def _get_and_create_last_index_file(self) -> IndexFile:
        last = self.files[-1] if self.files else None
        if last is not None and not last.is_write_full():
            return last
        settings = self.settings
        new = IndexFile([0] * settings.max_hash_slot_num, settings.max_index_num, settings.version <= (4, 7, 0))
        if last is not None and last.end_phy_offset > 0:
            new.begin_phy_offset = new.end_phy_offset = last.end_phy_offset
        if last is not None and last.end_timestamp > 0:
            new.begin_timestamp = new.end_timestamp = last.end_timestamp
        self.files.append(new)
        return new
