"""``decode`` and ``dispatch`` of plain records in one pass, without their columns: the hot loop of a sound log's scan.

A record that is not plain (``numba_kernels.dispatch_plain``) ends the pass; the general functions take its block.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from storeformat import message as m
from storeformat.arrays import Bytes, Int64s
from storeformat.javacompat import java_hash
from storeformat.kernels import ENTRY_SIZE, PlainRules, PlainStop, Tally, TopicKind, TopicTable, UnitColumns, compiled
from storeformat.record.decode import DecodeRules, is_directory_name
from storeformat.record.dispatch import DispatchRules

_MOST_TOPICS, _NAME_BYTES = 1 << 17, 1 << 22  # further topics go to the general functions
_ENTRY_ROOM = 1 << 15  # buffered index entries: more than one record makes, few enough for the processor's cache


class PlainDispatch:
    """A pass over the plain records of a split. Topics with ``is_odd`` go to the general functions."""

    def __init__(
        self,
        decode_rules: DecodeRules,
        dispatch_rules: DispatchRules,
        code_of: Callable[[bytes], int],
        is_odd: Callable[[bytes], bool],
        *,
        with_units: bool,
        with_entries: bool,
    ) -> None:
        self._rules = PlainRules(
            decode_rules.check_crc,
            decode_rules.split_parser,
            with_units,
            with_entries and dispatch_rules.message_index_enable,
            dispatch_rules.index_tags,
            np.array(dispatch_rules.delay_millis, np.int64),
        )
        self._code_of, self._is_odd = code_of, is_odd
        self._topics = TopicTable.of(_MOST_TOPICS, _NAME_BYTES)
        self._entries = np.empty(ENTRY_SIZE * _ENTRY_ROOM, np.uint8)

    @staticmethod
    def serves(rules: DispatchRules) -> bool:
        """True if records can be plain under these rules: no light, batch or unqueued topics, and compiled code."""
        if compiled() is None:
            return False
        return rules.multi_dispatch is None and not rules.batch_topics and not rules.unqueued_topics

    def take(self, buffer: Bytes, positions: Int64s, buffer_offset: int, units: UnitColumns, tally: Int64s) -> int:
        """Take records from the front until one is not plain or a buffer is full; updates ``tally``."""
        taken, made = 0, compiled()
        while made is not None and taken < len(positions):
            taken += made.dispatch_plain(
                buffer, positions[taken:], buffer_offset, self._rules, self._topics, units, self._entries, tally
            )
            if tally[Tally.STOP] != PlainStop.NEW_TOPIC:
                break
            self._fill_in(int(tally[Tally.TOPICS]) - 1)
        return taken

    def entries(self, tally: Int64s) -> Bytes:
        """Index entries since the last call, rows of ``index.entries.ROW``; valid until the next ``take``."""
        count = int(tally[Tally.ENTRIES])
        tally[Tally.ENTRIES] = 0
        return self._entries[: ENTRY_SIZE * count]

    def _fill_in(self, row: int) -> None:
        topics, name = self._topics, self._topics.name(row)
        if not name.isascii() or not is_directory_name(name) or self._is_odd(name):
            return
        topics.kinds[row] = TopicKind.SCHEDULE if name == m.SCHEDULE_TOPIC.encode() else TopicKind.PLAIN
        topics.codes[row] = self._code_of(name)
        topics.joined_topics[:, row] = [java_hash(name.decode() + joint) for joint in ("#", "#T#")]
