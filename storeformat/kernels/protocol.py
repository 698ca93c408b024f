"""The seam: the functions that every implementation of the kernels has, and what they mean.

Shapes and units: a buffer is ``uint8`` in native memory with at least ``PADDING`` bytes after its data; starts and
positions are int64 places in it, lengths int32 bytes; all columns that go in or come out of one call have one row a
record (or span). No function raises on bad bytes, and none reads outside the buffer.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storeformat.arrays import Bools, Bytes, Int32s, Int64s, Structs
from storeformat.kernels.columns import Heads, Spans
from storeformat.kernels.plain_pass import PlainRules, TopicTable, UnitColumns


class Kernels(Protocol):
    """A module with these functions; all of them return the same for the same input, whatever the module."""

    NAME: str
    """What reports call the implementation."""

    def walk_sizes(self, buffer: Bytes, start: int, stop: int, limit: int) -> tuple[Int64s, int]:
        """Returns the positions reached from ``start`` by following TOTALSIZE, and the position after the last of them.

        A position p is taken while p < stop and [p, p + TOTALSIZE) lies below ``limit``; TOTALSIZE below ``BLANK_SIZE``
        ends the walk.
        """

    def walk_entries(
        self, buffer: Bytes, start: int, stop: int, limit: int, buffer_offset: int, index: int, term: int,
        committed: int,
    ) -> tuple[Int64s, int]:  # fmt: skip
        """Returns the positions of DLedger entries reached from ``start`` by following their sizes, and the position
        after the last of them.

        An entry at p is taken while p < stop, its head says that it lies at ``buffer_offset`` + p, its size agrees with
        the record in it and ends below ``limit``, its index follows the one before and its term is no older, unless its
        index is at most ``committed``. ``index`` and ``term`` are those of the entry before the first; -1 where they
        are not known.
        """

    def decode_heads(self, buffer: Bytes, positions: Int64s, buffer_offset: int) -> Heads:
        """Returns the fixed head of each record and where its parts lie; ``defect`` holds the first check of the frame
        that failed.

        Precondition: ``[p, p + TOTALSIZE)`` lies inside the data for every position p, as ``walk_sizes`` guarantees.
        """

    def crc32_spans(self, buffer: Bytes, starts: Int64s, lengths: Int32s) -> npt.NDArray[np.uint32]:
        """Returns the CRC-32 (zlib's) of each span, top bit cleared as ``UtilAll#crc32`` does."""

    def property_spans(
        self, buffer: Bytes, starts: Int64s, lengths: Int32s, names: tuple[bytes, ...], split_parser: bool
    ) -> list[Spans]:
        """Returns for each name where its value lies in each property block; length -1 where the property is absent.

        A name that occurs twice has its last value. ``split_parser`` selects the grammar of releases up to 4.9.0
        (Java's ``split``), otherwise ``MessageDecoder#string2messageProperties`` of 4.9.1 and later: pieces between
        0x02, cut at the first 0x01, dropped when name or value is empty.
        """

    def property_pieces(
        self, buffer: Bytes, starts: Int64s, lengths: Int32s, split_parser: bool
    ) -> tuple[Int64s, Spans, Spans]:
        """Returns every property that the parser keeps, in order: its row, and where its name and its value lie.

        A name that occurs twice in a row is there twice; the grammar is that of ``property_spans``.
        """

    def split_spans(self, buffer: Bytes, spans: Spans, separator: int) -> tuple[Int64s, Spans]:
        """Returns the non-empty parts of each span between ``separator`` bytes, in order, with the row each one comes
        from.
        """

    def hash_spans(self, buffer: Bytes, spans: Spans) -> tuple[Int32s, Int32s]:
        """Returns Java's ``String.hashCode`` of each span, and its length in UTF-16 units (to append it to another
        string's hash).
        """

    def index_keys(
        self, buffer: Bytes, indexable: Bools, whole: tuple[Spans, ...], keys: Spans, topic_codes: Int32s,
        joined_topics: Int32s,
    ) -> tuple[Int64s, Int32s]:  # fmt: skip
        """Returns the entries that records make in an index, in the broker's order: the row of each, and its stored
        hash.

        A row makes one entry of its value in ``whole[0]`` (also an empty one), one of each part of ``keys`` that is not
        empty, between spaces, and one of its value in ``whole[1]`` if that is given and not empty.
        ``joined_topics[k, c]`` is the hash of topic c with what stands between it and the keys (k = 0) or the value of
        ``whole[1]`` (k = 1).
        """

    def dispatch_plain(
        self, buffer: Bytes, positions: Int64s, buffer_offset: int, rules: PlainRules, topics: TopicTable,
        units: UnitColumns, entries: Bytes, tally: Int64s,
    ) -> int:  # fmt: skip
        """Checks records from the first position on and appends what they become to ``units`` and ``entries`` (rows of
        ``index.entries.ROW``, as bytes); returns how many. ``tally`` (``Tally``) is kept up and says why it stopped.

        Plain are records that the general functions (``decode``, ``queue_units``, ``index_entries``) find sound, that
        go to no light or batch queue and have no property CRC, and whose topic, tags and keys are ASCII. An
        implementation may stop at any record: what it takes is as the general functions have it.

        Precondition: that of ``decode_heads``.
        """

    def group_units(self, units: UnitColumns, light: Bools, packed: Structs) -> tuple[Int64s, Bools]:
        """Fills ``packed`` (of ``consume_queue.UNIT``) with units grouped by topic code and queue id, otherwise in
        their order; returns the row that each comes from, and whether it begins a run: the first of its queue, one
        whose queue offset does not follow, or one that differs in ``light`` from the one before.

        Topic codes and queue ids are not negative.
        """

    def put_entries(
        self, key_hashes: Int32s, phy_offsets: Int64s, store_timestamps: Int64s, begin_timestamp: int,
        first_number: int, slot_table: Int32s, packed: Structs,
    ) -> None:  # fmt: skip
        """Fills ``packed`` (of ``index_file.ENTRY``) with entries numbered from ``first_number`` on, and links them.

        ``slot_table`` (int32, one a slot, 0 for empty) holds the newest entry of each slot and is changed in place, so
        a file can be made in pieces of any size. ``begin_timestamp`` (milliseconds) is what time differences count
        from: whole seconds, clamped to [0, 2**31 - 1]. Key hashes and offsets are not negative.
        """

    def dictionary(self, buffer: Bytes, spans: Spans) -> tuple[Int32s, list[bytes]]:
        """Returns a code for each span and the distinct values in the order of their first occurrence."""

    def gather_spans(self, buffer: Bytes, spans: Spans) -> pa.BinaryArray:
        """Returns the spans as a packed Arrow binary array. They must be ascending and must not overlap."""
