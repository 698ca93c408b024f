"""What SQL's GROUP BY and window functions do, for Arrow tables: groups, medians, places in an order.

A NULL is a key like any other, as in GROUP BY; texts are ordered by their UTF-8 bytes, as Spark orders them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storeformat.arrays import Bools, Int64s

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_TRIMMED = "".join(map(chr, range(33))) + "\x7f"
_WHOLE = re.compile(r"[+-]?[0-9]+")

Hashes = npt.NDArray[np.uint64]


def run_starts(values: npt.NDArray[Any]) -> Int64s:
    """Returns where runs of equal values begin."""
    if not len(values):
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))


def group_numbers(rows: pa.Table, keys: Sequence[str]) -> Int64s:
    """Returns a number for each row: the same for rows with the same keys, from 0 on."""
    numbers = np.zeros(len(rows), np.int64)
    for key in keys:
        column = rows[key].combine_chunks()
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode("encode")
        codes = np.asarray(encoded.indices.fill_null(len(encoded.dictionary)).cast(pa.int64()))
        numbers = np.unique(numbers * (len(encoded.dictionary) + 1) + codes, return_inverse=True)[1].reshape(-1)
    return numbers


def turns(groups: Int64s, *order: npt.NDArray[Any]) -> Int64s:
    """Returns the place of each row in its group, from 0 on, where rows are ordered by ``order``, the first first."""
    placed = np.lexsort((*reversed(order), groups))
    starts = run_starts(groups[placed])
    found = np.empty(len(groups), np.int64)
    found[placed] = np.arange(len(groups)) - np.repeat(starts, np.diff([*starts, len(groups)]))
    return found


def medians(groups: Int64s, values: npt.NDArray[np.float64], valid: Bools) -> pa.Array:
    """Returns the median of each group's valid values, NULL where there is none."""
    count = int(groups.max()) + 1 if len(groups) else 0
    of, kept = groups[valid], values[valid]
    order = np.lexsort((kept, of))
    kept = np.append(kept[order], 0.0)
    sizes = np.bincount(of, minlength=count)
    starts = np.cumsum(sizes) - sizes
    last = len(kept) - 1
    low, high = (kept[np.minimum(starts + at, last)] for at in (np.maximum(sizes - 1, 0) // 2, sizes // 2))
    return pa.array(0.5 * low + 0.5 * high, mask=sizes == 0)


def summed(rows: pa.Table, keys: Sequence[str], /, **made: tuple[str | None, str]) -> pa.Table:
    """Returns a row for each group: its keys, and for each name what (column, function) gives.

    Functions are those of Arrow's GROUP BY (without a column: ``count_all``), and ``median``, of numbers.
    """
    texts: dict[str, pa.Array] = {}
    given: dict[str, Any] = {f"key {key}": rows[key] for key in keys}
    aggregates: list[Any] = []
    if any(how == "median" for _, how in made.values()):
        numbers = given["group"] = group_numbers(rows, keys)
        aggregates.append(("group", "min"))
    for column, how in made.values():
        if column is None:
            aggregates.append(([], how))
        elif how != "median":
            given[column] = rows[column]
            if how in ("min", "max") and pa.types.is_string(rows[column].type):
                given[column], texts[column] = _ranks(rows[column])
            aggregates.append((column, how))
    found = pa.table(given).group_by([f"key {key}" for key in keys], use_threads=False).aggregate(aggregates)
    columns = {key: found[f"key {key}"] for key in keys}
    for name, (column, how) in made.items():
        if column is None:
            columns[name] = found[how]
        elif how == "median":
            values = rows[column].combine_chunks()
            plain = np.asarray(values.cast(pa.float64()).fill_null(0.0))
            columns[name] = medians(numbers, plain, np.asarray(values.is_valid())).take(found["group_min"])
        else:
            result = found[f"{column}_{how}"]
            columns[name] = texts[column].take(result) if column in texts else result
    return pa.table(columns)


def _ranks(texts: pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    """Returns for each text its place in the order of all, and the texts in that order."""
    distinct = texts.unique().drop_null()
    distinct = distinct.take(pc.sort_indices(distinct))
    return pc.index_in(texts, value_set=distinct).combine_chunks(), distinct


def in_order(rows: pa.Table, *keys: str, most: int | None = None) -> pa.Table:
    """Returns rows as SQL orders them, the first ``most`` of them: by keys, downwards by those
    with a minus before them. NULL is below every value.
    """
    order = []
    sorting = rows
    for key in keys:
        name, direction = key.lstrip("-"), "descending" if key.startswith("-") else "ascending"
        sorting = sorting.append_column(f"has {name}", pc.is_valid(rows[name]))
        order += [(f"has {name}", direction), (name, direction)]
    return rows.take(pc.sort_indices(sorting, order)[:most])


def whole_number(text: str | None, bits: int = 64) -> int | None:
    """Returns a text as a number, as ``try_cast`` to BIGINT (INT: 32 bits) does; None where it is none."""
    if text is None:
        return None
    trimmed = text.strip(_TRIMMED)
    if _WHOLE.fullmatch(trimmed) is None or len(trimmed) > 4000:
        return None
    number = int(trimmed)
    return number if -1 << bits - 1 <= number < 1 << bits - 1 else None


def whole_numbers(texts: Iterable[str | None]) -> pa.Array:
    """Returns texts as 64-bit numbers, NULL where one is none."""
    return pa.array(map(whole_number, texts), pa.int64())


def milliseconds(times: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Returns ``unix_millis`` of times, NULL where there is none."""
    micros = times.cast(pa.int64())
    numbers = np.asarray(micros.fill_null(0)) // 1000
    return pa.array(numbers, mask=np.asarray(micros.is_null()))


def text_hashes(texts: pa.Array, seeds: Hashes) -> Hashes:
    """Returns a hash of each text: equal ones, with equal seeds, have equal hashes."""
    data = np.zeros(8, np.uint8)
    starts = np.zeros(len(texts) + 1, np.int64)
    if len(texts):
        _, offsets, content = texts.buffers()
        starts = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
        data = np.concatenate([np.frombuffer(content, np.uint8)[: starts[-1]] if content else data[:0], data])
    words: Hashes = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))  # one from each byte on
    lengths = np.diff(starts)
    found: Hashes = seeds.copy()
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        value = (found[rows] ^ np.uint64(length)) * _FACTOR
        for at in range(0, length, 8):
            word = words[starts[rows] + at]
            if length - at < 8:
                word = word & np.uint64((1 << 8 * (length - at)) - 1)
            value = (value ^ word) * _FACTOR
            value ^= value >> np.uint64(31)
        found[rows] = value
    return found
