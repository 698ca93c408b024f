"""Most records in one pass: what ``decode`` and ``dispatch`` make of plain records, without their columns.

A scan of a sound log spends its time here. A record that is not plain (``numba_kernels.dispatch_plain``) ends the pass,
and its block goes on through the general functions.
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

_MOST_TOPICS, _NAME_BYTES = 1 << 17, 1 << 22
"""Topics beyond these take the general way."""
_ENTRY_ROOM = 1 << 15
"""Index entries that wait to be taken: more than one record can make, few enough to stay in the processor's cache."""


class PlainDispatch:
    """A pass over the plain records of one split, block by block.

    ``code_of`` gives the scan's code of a topic; records of topics for which ``is_odd`` holds take the general way.
    """

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
        """Returns whether records can be plain under these rules: not with light queues or other kinds of topics, nor
        without compiled functions.
        """
        if compiled() is None:
            return False
        return rules.multi_dispatch is None and not rules.batch_topics and not rules.unqueued_topics

    def take(self, buffer: Bytes, positions: Int64s, buffer_offset: int, units: UnitColumns, tally: Int64s) -> int:
        """Returns how many of the records at ``positions`` it took from the front: up to the first that is not plain,
        or until there is no room in ``units`` or for entries. ``tally`` is kept up.
        """
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
        """Returns the index entries since it was asked last, rows of ``index.entries.ROW``; valid until the next call
        of ``take``.
        """
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
