"""What kernels say of bytes, as columns that two implementations can be compared by."""

from __future__ import annotations

from typing import Any

import numpy as np

from storeformat import javacompat
from storeformat import message as m
from storeformat.errors import RecordDefect
from storeformat.kernels import PADDING, Kernels, Spans
from storeformat.record.decode import DISPATCH_PROPERTIES

NAMES = (*DISPATCH_PROPERTIES, m.INNER_MULTI_DISPATCH, m.INNER_MULTI_QUEUE_OFFSET)


def implementations() -> list[Kernels]:
    """Every implementation that can be imported, the reference first."""
    from storeformat.kernels import numpy_kernels

    try:
        from storeformat.kernels import numba_kernels
    except ImportError:
        return [numpy_kernels]
    return [numpy_kernels, numba_kernels]


def padded(data: bytes) -> np.ndarray[Any, Any]:
    """A buffer as callers of kernels make it, but the bytes after the data are not zero: what they decide, shows."""
    return np.frombuffer(data + b"\x02\xff" * (PADDING // 2), np.uint8)


def laid_out(values: list[bytes]) -> tuple[np.ndarray[Any, Any], Spans]:
    """The values one after the other with gaps between them, the last one at the very end of the data."""
    lengths = np.array([len(value) for value in values], np.int32)
    starts = np.cumsum(lengths + np.int64(3)) - lengths
    data = b"".join(b"gap" + value for value in values)
    return padded(data), Spans(starts.astype(np.int64), lengths)


def columns(kernels: Kernels, data: bytes, base: int, split_parser: bool) -> dict[str, Any]:
    """Everything that kernels say of the records in ``data``, which begin with its first byte."""
    buffer = padded(data)
    positions, reached = kernels.walk_sizes(buffer, 0, len(data), len(data))
    heads = kernels.decode_heads(buffer, positions, base)
    found = {"positions": positions, "reached": reached, **heads._asdict()}
    rows = np.flatnonzero((heads.defect == RecordDefect.OK) | (heads.defect == RecordDefect.FOREIGN_OFFSET))
    found["crc"] = kernels.crc32_spans(buffer, heads.body_start[rows], heads.body_length[rows])
    found["topics"] = kernels.dictionary(buffer, Spans(heads.topic_start[rows], heads.topic_length[rows]))
    spans = (heads.properties_start[rows], heads.properties_length[rows])
    for name, values in zip(NAMES, kernels.property_spans(buffer, *spans, NAMES, split_parser), strict=True):
        found[f"{name!r}"] = values
        found |= {f"{name!r} {key}": value for key, value in value_columns(kernels, buffer, values).items()}
    found["pieces"] = kernels.property_pieces(buffer, *spans, split_parser)
    uniq_key, keys, tags = (found[f"{name!r}"] for name in (m.UNIQ_KEY, m.KEYS, m.TAGS))
    topic_codes, topics = found["topics"]
    joined = np.array([[javacompat.java_hash(topic + joint) for topic in topics] for joint in (b"#", b"#T#")], np.int32)
    indexable = heads.queue_id[rows] % 3 != 2
    found["index"] = kernels.index_keys(buffer, indexable, (uniq_key, tags), keys, topic_codes, joined)
    found["index without tags"] = kernels.index_keys(buffer, indexable, (uniq_key,), keys, topic_codes, joined)
    return found


def value_columns(kernels: Kernels, buffer: np.ndarray[Any, Any], values: Spans) -> dict[str, Any]:
    there = np.flatnonzero(values.lengths >= 0)
    present = Spans(values.starts[there], values.lengths[there])
    parts = kernels.split_spans(buffer, values, ord(" "))
    return {
        "hashes": kernels.hash_spans(buffer, present),
        "values": kernels.dictionary(buffer, present),
        "parts": parts,
        "part hashes": kernels.hash_spans(buffer, parts[1]),
        "gathered": kernels.gather_spans(buffer, present).to_pylist() if len(there) else [],
    }


def assert_same(found: Any, expected: Any, what: str) -> None:
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype, what
        np.testing.assert_array_equal(found, expected, err_msg=what)
    elif isinstance(expected, tuple | list):
        assert len(found) == len(expected), what
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_same(one, other, f"{what}, part {number}")
    else:
        assert found == expected, what
