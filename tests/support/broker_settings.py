"""The settings and release of the broker that the model plays, under their broker.conf names in snake case."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class BrokerSettings:
    """What shapes the files; defaults are ``MessageStoreConfig``'s, except that files are as small as in the tests."""

    version: tuple[int, ...] = (5, 3, 3)
    mapped_file_size_commit_log: int = 65536
    mapped_file_size_consume_queue: int = 1000
    max_hash_slot_num: int = 100
    max_index_num: int = 60
    message_index_enable: bool = True
    message_delay_level: str = DELAY_LEVELS
    enable_lmq: bool = False
    enable_multi_dispatch: bool = False
    mapper_file_size_batch_consume_queue: int = 300_000 * 46
    batch_topics: frozenset[str] = frozenset()
    enable_consume_queue_ext: bool = False
    mapped_file_size_consume_queue_ext: int = 48 * 1024 * 1024
    filter_bitmap_bytes: int = 0
    force_verify_prop_crc: bool = False

    @classmethod
    def of(cls, version: str, settings: Mapping[str, Any], **more: Any) -> BrokerSettings:
        """The settings of a release from a mapping with broker.conf names; names that shape no file are left out."""
        known = {field.name for field in fields(cls)}
        named = {re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower(): value for name, value in settings.items()}
        found = {name: value for name, value in named.items() if name in known}
        return replace(cls(version=tuple(int(part) for part in version.split("."))), **found, **more)

    @property
    def consume_queue_file_size(self) -> int:
        """``MessageStoreConfig#getMappedFileSizeConsumeQueue``: whole units."""
        return -(-self.mapped_file_size_consume_queue // 20) * 20

    @property
    def delays(self) -> dict[int, int]:
        """Milliseconds of each delay level, from 1 (``DefaultMessageStore#parseDelayLevel``)."""
        return {
            level: int(text[:-1]) * _UNIT_MS[text[-1]]
            for level, text in enumerate(self.message_delay_level.split(" "), start=1)
        }
