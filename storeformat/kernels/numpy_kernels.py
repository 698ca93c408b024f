"""The functions on buffers that decode records and make units and entries: numpy and pyarrow, always there.

Every function takes a byte buffer (``uint8``, native memory, with at least ``PADDING`` bytes after its data) and int64
positions in it and returns columns. None of them raises on bad bytes. A position outside the data never reaches an
index expression: lengths are compared before they are used, and rows that fail read position 0 instead.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view

from storeformat import javacompat
from storeformat import message as m
from storeformat.arrays import Bools, Bytes, Int32s, Int64s, Structs, stable_order
from storeformat.errors import RecordDefect
from storeformat.kernels import Heads, Spans, UnitColumns


def walk_sizes(buffer: Bytes, start: int, stop: int, limit: int) -> tuple[Int64s, int]:
    """The positions reached from ``start`` by following TOTALSIZE, and the position after the last of them.

    A position p is taken while p < stop and [p, p + TOTALSIZE) is below ``limit``; TOTALSIZE below ``BLANK_SIZE``
    ends the walk.
    """
    positions: list[int] = []
    append = positions.append
    unpack = struct.Struct(">i").unpack_from
    view = memoryview(buffer.data)
    position = start
    stop = min(stop, limit - 3)
    while position < stop:
        size = unpack(view, position)[0]
        if size < m.BLANK_SIZE or position + size > limit:
            break
        append(position)
        position += size
    return np.array(positions, dtype=np.int64), position


def decode_heads(buffer: Bytes, positions: Int64s, buffer_offset: int) -> Heads:
    """The fixed head of each record and the places of its parts; ``defect`` holds the first check of the frame
    that failed.

    Precondition: ``[p, p + TOTALSIZE)`` is inside the data for every position p, as ``walk_sizes`` guarantees.
    """
    heads = sliding_window_view(buffer, m.MAX_HEAD_SIZE)[positions]
    v4 = _fields(heads, m.HOST_V4, m.HOST_V4)
    total_size = v4["total_size"].astype(np.int32)
    magic = v4["magic_code"].astype(np.int32)
    sys_flag = v4["sys_flag"].astype(np.int32)
    tail = {name: v4[name].astype(v4.dtype[name].newbyteorder("=")) for name in _BEHIND_HOSTS}
    born_v6 = (sys_flag & m.BORN_HOST_V6) != 0
    store_v6 = (sys_flag & m.STORE_HOST_V6) != 0
    if born_v6.any() or store_v6.any():
        for born, store in ((m.HOST_V4, m.HOST_V6), (m.HOST_V6, m.HOST_V4), (m.HOST_V6, m.HOST_V6)):
            rows = np.flatnonzero((born_v6 == (born == m.HOST_V6)) & (store_v6 == (store == m.HOST_V6)))
            if rows.size:
                wide = _fields(heads[rows], born, store)
                for name, column in tail.items():
                    column[rows] = wide[name]

    host_bytes = np.where(born_v6, m.HOST_V6, m.HOST_V4) + np.where(store_v6, m.HOST_V6, m.HOST_V4)
    body_start = positions + (m.FIXED_HEAD + host_bytes)
    record_end = positions + total_size
    topic_length_size = np.where(magic == m.MAGIC_V2, 2, 1)

    defect = np.zeros(len(positions), dtype=np.uint8)
    _flag(defect, (magic != m.MAGIC_V1) & (magic != m.MAGIC_V2), RecordDefect.ILLEGAL_MAGIC)
    _flag(defect, body_start + topic_length_size + 2 > record_end, RecordDefect.SIZE_TOO_SMALL)

    body_length = np.maximum(tail["body_length"], 0)
    topic_at = body_start + body_length
    _flag(defect, topic_at + topic_length_size + 2 > record_end, RecordDefect.LENGTH_MISMATCH)
    topic_at = np.where(defect == 0, topic_at, 0)
    topic_length = np.where(topic_length_size == 2, _int16(buffer, topic_at), buffer[topic_at].view(np.int8)).astype(
        np.int32
    )
    topic_start: Int64s = topic_at + topic_length_size
    properties_at: Int64s = topic_start + topic_length.astype(np.int64)
    _flag(defect, (topic_length < 0) | (properties_at + 2 > record_end), RecordDefect.LENGTH_MISMATCH)
    properties_at = np.where(defect == 0, properties_at, 0)
    properties_length = np.maximum(_int16(buffer, properties_at), 0).astype(np.int32)
    _flag(defect, properties_at + 2 + properties_length != record_end, RecordDefect.LENGTH_MISMATCH)

    physical_offset = v4["physical_offset"].astype(np.int64)
    _flag(defect, physical_offset != positions + buffer_offset, RecordDefect.FOREIGN_OFFSET)
    return Heads(
        total_size=total_size,
        magic_code=magic,
        body_crc=v4["body_crc"].astype(np.uint32),
        queue_id=v4["queue_id"].astype(np.int32),
        flag=v4["flag"].astype(np.int32),
        queue_offset=v4["queue_offset"].astype(np.int64),
        physical_offset=physical_offset,
        sys_flag=sys_flag,
        born_timestamp=v4["born_timestamp"].astype(np.int64),
        store_timestamp=tail["store_timestamp"],
        reconsume_times=tail["reconsume_times"],
        prepared_transaction_offset=tail["prepared_transaction_offset"],
        body_start=body_start,
        body_length=body_length.astype(np.int32),
        topic_start=topic_start,
        topic_length=topic_length,
        properties_start=properties_at + 2,
        properties_length=properties_length,
        defect=defect,
    )


def crc32_spans(buffer: Bytes, starts: Int64s, lengths: Int32s) -> npt.NDArray[np.uint32]:
    """The CRC-32 (zlib's) of each span, top bit cleared as ``UtilAll#crc32`` does."""
    view, crc32, mask = memoryview(buffer.data), zlib.crc32, m.CRC_MASK
    ends = starts + lengths
    values = [crc32(view[start:end]) & mask for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    return np.array(values, dtype=np.uint32)


def property_spans(
    buffer: Bytes, starts: Int64s, lengths: Int32s, names: tuple[bytes, ...], split_parser: bool
) -> list[Spans]:
    """For each name the span of its value in each property block; length -1 where the property is absent.

    A name that occurs twice has its last value. ``split_parser`` selects the grammar of releases up to 4.9.0
    (Java's ``split``), otherwise ``MessageDecoder#string2messageProperties`` of 4.9.1 and later: pieces between
    0x02, cut at the first 0x01, dropped when name or value is empty.
    """
    rows = len(starts)
    result = [Spans(np.zeros(rows, np.int64), np.full(rows, -1, np.int32)) for _ in names]
    if rows == 0 or not lengths.any():
        return result
    block, offsets, row_of_piece, begins, cut, value_end, keep = _find_pieces(buffer, starts, lengths, split_parser)
    name_length = cut - begins
    words = sliding_window_view(block, 8)[begins].view("<u8")[:, 0]
    for name, spans in zip(names, result, strict=True):
        head = name[:8]
        mask = np.uint64((1 << (8 * len(head))) - 1)
        hit = np.flatnonzero(
            keep & (name_length == len(name)) & ((words & mask) == np.uint64(int.from_bytes(head, "little")))
        )
        if len(name) > 8 and hit.size:
            hit = hit[[block[p + 8 : p + len(name)].tobytes() == name[8:] for p in begins[hit].tolist()]]
        row = row_of_piece[hit]
        spans.starts[row] = starts[row] + (cut[hit] + 1 - offsets[row])
        spans.lengths[row] = value_end[hit] - cut[hit] - 1
    return result


def property_pieces(buffer: Bytes, starts: Int64s, lengths: Int32s, split_parser: bool) -> tuple[Int64s, Spans, Spans]:
    """Every property that the parser keeps, in order: its row, and the places of its name and value.

    A name that occurs twice in a row is there twice; the grammar is that of ``property_spans``.
    """
    if len(starts) == 0 or not lengths.any():
        none = Spans(np.zeros(0, np.int64), np.zeros(0, np.int32))
        return np.zeros(0, np.int64), none, none
    _, offsets, row_of_piece, begins, cut, value_end, keep = _find_pieces(buffer, starts, lengths, split_parser)
    row, begins, cut, value_end = row_of_piece[keep], begins[keep], cut[keep], value_end[keep]
    shift = starts[row] - offsets[row]
    names = Spans(begins + shift, (cut - begins).astype(np.int32))
    return row, names, Spans(cut + 1 + shift, (value_end - cut - 1).astype(np.int32))


def _find_pieces(
    buffer: Bytes, starts: Int64s, lengths: Int32s, split_parser: bool
) -> tuple[Bytes, Int64s, Int64s, Int64s, Int64s, Int64s, Bools]:
    """The packed blocks, their offsets, and each piece's row, begin, cut, end of value, and if it is kept."""
    # One byte more than each block, so that every block ends in a place that can be marked as a separator.
    block, offsets = _gather(buffer, starts, lengths + 1, pad=8)
    last = offsets[1:] - 1
    is_end = block[: offsets[-1]] == m.PROPERTY_SEPARATOR
    is_end[last] = True
    is_cut = block[: offsets[-1]] == m.NAME_VALUE_SEPARATOR
    is_cut[last] = False
    begins, ends, row_of_piece = _parts(is_end, last)
    cut, value_end, keep = _cut_pieces(np.flatnonzero(is_cut), begins, ends, split_parser)
    return block, offsets, row_of_piece, begins, cut, value_end, keep


def _cut_pieces(cuts: Int64s, begins: Int64s, ends: Int64s, split_parser: bool) -> tuple[Int64s, Int64s, Bools]:
    """For each piece the position of its first 0x01, the end of its value, and whether the parser keeps it."""
    index = np.searchsorted(cuts, begins)
    cut = np.append(cuts, np.iinfo(np.int64).max)[index]
    found = cut < ends
    cut = np.where(found, cut, ends)
    if not split_parser:
        return cut, ends, found & (cut > begins) & (cut + 1 < ends)
    # Java's split drops trailing empty parts: "k 0x01 v 0x01" has two parts, "k 0x01 v 0x01 w" three.
    value_end = ends.copy()
    keep = found & (cut + 1 < ends)
    inside = np.searchsorted(cuts, ends) - index
    for piece in np.flatnonzero(keep & (inside > 1)).tolist():
        own = cuts[index[piece] + 1 : index[piece] + inside[piece]].tolist()
        end = int(ends[piece])
        while own and own[-1] == end - 1:
            own.pop()
            end -= 1
        value_end[piece] = end
        keep[piece] = not own and end > cut[piece] + 1
    return cut, value_end, keep


def split_spans(buffer: Bytes, spans: Spans, separator: int) -> tuple[Int64s, Spans]:
    """The non-empty parts of each span between ``separator`` bytes, in order, with the row each one comes
    from.
    """
    rows = np.flatnonzero(spans.lengths > 0)
    if rows.size == 0:
        return np.zeros(0, np.int64), Spans(np.zeros(0, np.int64), np.zeros(0, np.int32))
    starts, lengths = spans.starts[rows], spans.lengths[rows]
    block, offsets = _gather(buffer, starts, lengths + 1, pad=0)
    is_end = block == separator
    is_end[offsets[1:] - 1] = True
    begins, ends, owner = _parts(is_end, offsets[1:] - 1)
    keep = ends > begins
    begins, ends, owner = begins[keep], ends[keep], owner[keep]
    return rows[owner], Spans(starts[owner] + begins - offsets[owner], (ends - begins).astype(np.int32))


def _parts(is_end: Bools, last: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Where the parts of packed rows begin and end, and their rows; each row ends with a part, at ``last``."""
    ends = np.flatnonzero(is_end)
    begins = np.append(0, ends[:-1] + 1)
    return begins, ends, np.repeat(np.arange(len(last)), np.diff(np.searchsorted(ends, last), prepend=-1))


def hash_spans(buffer: Bytes, spans: Spans) -> tuple[Int32s, Int32s]:
    """Java's ``String.hashCode`` of each span, and its length in UTF-16 units (to append it to another
    string's hash).
    """
    if len(spans.starts) == 0:
        return np.zeros(0, np.int32), np.zeros(0, np.int32)
    return javacompat.java_hashes_and_lengths(gather_spans(buffer, spans))


def index_keys(
    buffer: Bytes,
    indexable: Bools,
    whole: tuple[Spans, ...],
    keys: Spans,
    topic_codes: Int32s,
    joined_topics: Int32s,
) -> tuple[Int64s, Int32s]:
    """The entries that records make in an index, in the broker's order: the row of each, and its stored
    hash.

    A row makes one entry of its value in ``whole[0]`` (also an empty one), one of each part of ``keys`` that is not
    empty, between spaces, and one of its value in ``whole[1]`` if that is given and not empty.
    ``joined_topics[k, c]`` is the hash of topic c with what stands between it and the keys (k = 0) or the value of
    ``whole[1]`` (k = 1).
    """
    parts = [_whole_values(whole[0], indexable, minimum=0)]
    parts.append(split_spans(buffer, Spans(keys.starts, np.where(indexable, keys.lengths, -1)), ord(" ")))
    parts += [_whole_values(values, indexable, minimum=1) for values in whole[1:]]
    counts = [np.bincount(rows, minlength=len(topic_codes)) for rows, _ in parts]
    total = sum(counts[1:], counts[0])
    hashes, owners = np.zeros(int(total.sum()), np.int32), np.zeros(int(total.sum()), np.int64)
    begin = np.cumsum(total) - total
    for (rows, spans), count, heads in zip(parts, counts, joined_topics[[0, 0, 1]], strict=False):
        # Rows are ascending, so an entry's place is its row's start plus its number within the row.
        at = begin[rows] + np.arange(len(rows)) - (np.cumsum(count) - count)[rows]
        key_hash, length = hash_spans(buffer, spans)
        hashes[at] = javacompat.concat_hashes(heads[topic_codes[rows]], key_hash, length)
        owners[at] = rows
        begin += count
    return owners, javacompat.index_key_hashes(hashes)


def _whole_values(spans: Spans, wanted: Bools, minimum: int) -> tuple[Int64s, Spans]:
    rows = np.flatnonzero(wanted & (spans.lengths >= minimum))
    return rows, spans.rows(rows)


def _link_entries(slots: Int32s, first_number: int, slot_table: Int32s) -> Int32s:
    """``prev_index`` of each entry; ``slot_table`` then holds the newest entry of each slot.

    Entries are numbered from ``first_number`` on, in order. The table (int32, one a slot, 0 for empty) is changed in
    place, so a file can be linked in pieces of any size.
    """
    at = slots.astype(np.intp)
    numbers = np.arange(first_number, first_number + len(slots), dtype=np.int32)
    prev: Int32s = slot_table[at]
    slot_table[at] = numbers
    winners = slot_table[at]
    crowded = winners != numbers
    if crowded.any():
        # Few entries share a slot within one piece. They alone are sorted, slot above and place below, which does
        # not depend on which of them the assignment left in the table.
        crowded[winners[crowded] - np.int32(first_number)] = True
        places = np.flatnonzero(crowded)
        key = at[places] << 32 | places
        key.sort()
        slot, place = key >> 32, key & 0xFFFFFFFF
        same = slot[1:] == slot[:-1]
        prev[place[1:][same]] = numbers[place[:-1][same]]
        newest = np.append(~same, True)
        slot_table[slot[newest]] = numbers[place[newest]]
    return prev


def group_units(units: UnitColumns, light: Bools, packed: Structs) -> tuple[Int64s, Bools]:
    """Fills ``packed`` (of ``consume_queue.UNIT``) with units grouped by topic code and queue id, otherwise in
    their order; returns the row that each comes from, and whether it begins a run: the first of its queue, one
    whose queue offset does not follow, or that differs in ``light`` from the one before.

    Topic codes and queue ids are not negative.
    """
    width = int(units.queue_ids.max(initial=0)) + 1
    groups = units.topic_codes.astype(np.int64) * width + units.queue_ids
    order = stable_order(groups, (int(units.topic_codes.max(initial=0)) + 1) * width)
    packed["phy_offset"], packed["size"] = units.offsets[order], units.sizes[order]
    packed["tags_code"] = units.tags_codes[order]
    groups, queue_offsets, light = groups[order], units.queue_offsets[order], light[order]
    begins = np.ones(len(order), bool)
    begins[1:] = (groups[1:] != groups[:-1]) | (queue_offsets[1:] != queue_offsets[:-1] + 1) | (light[1:] != light[:-1])
    return order, begins


def put_entries(
    key_hashes: Int32s,
    phy_offsets: Int64s,
    store_timestamps: Int64s,
    begin_timestamp: int,
    first_number: int,
    slot_table: Int32s,
    packed: Structs,
) -> None:
    """Fills ``packed`` (of ``index_file.ENTRY``) with entries numbered from ``first_number`` on, and links them.

    ``slot_table`` (int32, one a slot, 0 for empty) holds the newest entry of each slot and is changed in place, so
    a file can be made in pieces of any size. ``begin_timestamp`` (milliseconds) is what time differences count
    from: whole seconds, clamped to [0, 2**31 - 1]. Key hashes and offsets are not negative.
    """
    packed["key_hash"] = key_hashes
    packed["phy_offset"] = phy_offsets
    packed["time_diff"] = 0
    if begin_timestamp > 0:
        packed["time_diff"] = np.clip((store_timestamps - np.int64(begin_timestamp)) // 1000, 0, 0x7FFFFFFF)
    # The quotient first: numpy divides by a constant in vector instructions, its remainder does not.
    slots = np.int32(len(slot_table))
    packed["prev_index"] = _link_entries(key_hashes - key_hashes // slots * slots, first_number, slot_table)


def dictionary(buffer: Bytes, spans: Spans) -> tuple[Int32s, list[bytes]]:
    """A code for each span and the distinct values in the order of their first occurrence."""
    if len(spans.starts) == 0:
        return np.zeros(0, np.int32), []
    encoded = gather_spans(buffer, spans).dictionary_encode()
    codes = np.frombuffer(encoded.indices.buffers()[1], np.int32, len(spans.starts))
    return codes, encoded.dictionary.to_pylist()


def gather_spans(buffer: Bytes, spans: Spans) -> pa.BinaryArray:
    """The spans as a packed Arrow binary array. They must be ascending and must not overlap."""
    count = len(spans.starts)
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = spans.starts
    bounds[1::2] = spans.starts + spans.lengths
    whole = pa.BinaryArray.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(buffer)])
    values = np.arange(0, 2 * count - 1, 2, dtype=np.int32)
    # no pa.array and no np.asarray: pyarrow imports pandas to see whether an array is from there
    return whole.take(pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(values)]))


def _gather(buffer: Bytes, starts: Int64s, lengths: Int32s, pad: int) -> tuple[Bytes, Int64s]:
    """The bytes of ascending spans in one array (``pad`` zero bytes after them) and the n + 1 offsets of the
    spans in it.
    """
    packed = gather_spans(buffer, Spans(starts, lengths))
    _, offset_buffer, data = packed.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32, len(starts) + 1).astype(np.int64)
    block = np.frombuffer(data, np.uint8, int(offsets[-1])) if offsets[-1] else np.zeros(0, np.uint8)
    if pad:
        block = np.concatenate([block, np.zeros(pad, np.uint8)])
    return block, offsets


_BEHIND_HOSTS = ("store_timestamp", "reconsume_times", "prepared_transaction_offset", "body_length")


def _fields(heads: Bytes, born_host: int, store_host: int) -> Structs:
    return np.ascontiguousarray(heads).view(m.head_dtype(born_host, store_host))[:, 0]


def _int16(buffer: Bytes, at: Int64s) -> Int32s:
    return (buffer[at].view(np.int8).astype(np.int32) << 8) | buffer[at + 1]


def _flag(defect: Bytes, failed: Bools, code: RecordDefect) -> None:
    defect[failed & (defect == 0)] = code
