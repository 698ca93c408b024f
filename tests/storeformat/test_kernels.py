"""The compiled kernels against the numpy ones: the same columns for any bytes, and no read outside a buffer."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import golden
from support.entry_log import encode_entry
from support.strategies import ODD_PIECES, apply_damages, damages, logs, texts

from storeformat import javacompat, kernels
from storeformat import message as m
from storeformat.errors import RecordDefect
from storeformat.index.index_file import ENTRY
from storeformat.kernels import PADDING, Spans, numpy_kernels
from storeformat.record.decode import DISPATCH_PROPERTIES

numba_kernels: Any = pytest.importorskip("storeformat.kernels.numba_kernels", exc_type=ImportError)

NAMES = (*DISPATCH_PROPERTIES, m.INNER_MULTI_DISPATCH, m.INNER_MULTI_QUEUE_OFFSET)
ROOT = Path(__file__).parents[2]


def padded(data: bytes) -> np.ndarray[Any, Any]:
    """A buffer as callers of kernels make it, but the bytes behind the data are not zero: what they decide, shows."""
    return np.frombuffer(data + b"\x02\xff" * (PADDING // 2), np.uint8)


def columns(kernels: ModuleType, data: bytes, base: int, split_parser: bool) -> dict[str, Any]:
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


def value_columns(kernels: ModuleType, buffer: np.ndarray[Any, Any], values: Spans) -> dict[str, Any]:
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
    elif isinstance(expected, tuple):
        assert len(found) == len(expected), what
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_same(one, other, f"{what}, part {number}")
    else:
        assert found == expected, what


def assert_kernels_agree(data: bytes, base: int, split_parser: bool = False) -> Mapping[str, Any]:
    expected = columns(numpy_kernels, data, base, split_parser)
    found = columns(numba_kernels, data, base, split_parser)
    assert found.keys() == expected.keys()
    for name, column in expected.items():
        assert_same(found[name], column, name)
    return expected


@pytest.mark.golden
@pytest.mark.parametrize("store", golden.stores("all"), ids=str)
def test_kernels_agree_on_real_logs(store: golden.GoldenStore) -> None:
    root = golden.unpack(store)
    records = 0
    for path in sorted((root / "commitlog").iterdir()):
        found = assert_kernels_agree(path.read_bytes(), int(path.name), split_parser=store.name.endswith("4.6.1"))
        records += len(found["crc"])
    assert records >= len(golden.chain(root, store)) > 0


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data(), st.booleans())
def test_kernels_agree_on_damaged_logs(data: st.DataObject, split_parser: bool) -> None:
    log = data.draw(logs())
    segments = apply_damages(log.segments, data.draw(damages(log)))
    for base, content in segments.items():
        assert_kernels_agree(content, base, split_parser)


@st.composite
def random_records(draw: Any) -> bytes:
    """Random bytes with sizes that lead through them, magics and lengths that are sometimes right."""
    data = b""
    for _ in range(draw(st.integers(1, 6))):
        content = bytearray(draw(st.binary(min_size=m.BLANK_SIZE, max_size=160)))
        content[4:8] = draw(st.sampled_from([m.MAGIC_V1_BYTES, m.MAGIC_V2_BYTES, bytes(content[4:8])]))
        if len(content) > 92:
            content[36:40] = draw(st.sampled_from([0, 0x10, 0x20, 0x30])).to_bytes(4, "big")
            content[84:88] = draw(st.integers(-2, len(content) - 86)).to_bytes(4, "big", signed=True)
            content[88] = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
            content[-2:] = draw(st.sampled_from([b"\0\0", b"\xff\xff", bytes(content[-2:])]))
        size = draw(st.sampled_from([len(content)] * 8 + [len(content) + 1, 8, 0x7FFFFFFF, 1 << 31]))
        data += (size % (1 << 32)).to_bytes(4, "big") + content[4:]
    return data


@settings(max_examples=300, deadline=None)
@given(random_records(), st.sampled_from([0, 1 << 40]))
def test_kernels_agree_on_random_records(data: bytes, base: int) -> None:
    found = assert_kernels_agree(data, base)
    assert found["reached"] <= len(data)


@settings(max_examples=300, deadline=None)
@given(st.data(), st.lists(st.integers(0, 40), min_size=1, max_size=12))
def test_sizes_lead_up_to_stop_and_within_limit(data: st.DataObject, sizes: list[int]) -> None:
    log = b"".join(size.to_bytes(4, "big") + bytes(max(size - 4, 0)) for size in sizes)
    limit = data.draw(st.integers(0, len(log)))
    stop = data.draw(st.integers(0, limit))
    expected, at = [], 0
    for size in sizes:
        if at >= stop or at + 4 > limit or size < 8 or at + size > limit:
            break
        expected.append(at)
        at += size
    for implementation in (numpy_kernels, numba_kernels):
        positions, reached = implementation.walk_sizes(padded(log), 0, stop, limit)
        assert (positions.tolist(), reached) == (expected, at)


PROPERTY_WORDS = [*ODD_PIECES, *NAMES, b"\x01", b"\x02", b"\0", b" ", b"v"]
PROPERTY_BLOCKS = st.lists(
    st.lists(st.sampled_from(PROPERTY_WORDS) | st.binary(max_size=9), max_size=8).map(b"".join),
    max_size=6,
)


@settings(max_examples=500, deadline=None)
@given(PROPERTY_BLOCKS, st.booleans())
def test_property_spans_agree_on_any_block(blocks: list[bytes], split_parser: bool) -> None:
    buffer, spans = laid_out(blocks)
    expected = numpy_kernels.property_spans(buffer, *spans, NAMES, split_parser)
    found = numba_kernels.property_spans(buffer, *spans, NAMES, split_parser)
    assert_same(tuple(map(tuple, found)), tuple(map(tuple, expected)), "spans")
    for values in expected:
        one, other = (
            value_columns(implementation, buffer, values) for implementation in (numba_kernels, numpy_kernels)
        )
        assert_same(tuple(one.values()), tuple(other.values()), "values")


@settings(max_examples=200, deadline=None)
@given(st.lists(texts(40).map(str.encode) | st.binary(max_size=40), max_size=20))
def test_hashes_are_javas(values: list[bytes]) -> None:
    buffer, spans = laid_out(values)
    for implementation in (numpy_kernels, numba_kernels):
        hashes, lengths = implementation.hash_spans(buffer, spans)
        assert hashes.tolist() == [javacompat.java_hash(value) for value in values]
        units = [len(javacompat.decode_java_utf8(value).encode("utf-16-le")) // 2 for value in values]
        assert lengths.tolist() == units


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(0, 300), st.sampled_from([1, 7, 100]), st.sampled_from([-1, 0, 1, 1_700_000_000_000]))
def test_index_entries_are_linked_and_packed_alike(data: st.DataObject, count: int, slots: int, begin: int) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    key_hashes = rng.choice(np.array([0, 5, 0x7FFFFFFF, 12, 1 << 20], np.int32), count)
    phy_offsets = rng.integers(0, 1 << 62, count)
    timestamps = begin + rng.choice(np.array([-1, 0, 999, 1000, 1 << 41, 1 << 42]), count)
    results = []
    for implementation in (numpy_kernels, numba_kernels):
        table, packed = np.zeros(slots, np.int32), np.zeros(count, ENTRY)
        for part in (slice(0, count // 3), slice(count // 3, count)):
            columns = (key_hashes[part], phy_offsets[part], timestamps[part])
            implementation.put_entries(*columns, begin, part.start + 1, table, packed[part])
        results.append((packed.tobytes(), table.tolist()))
    assert results[0] == results[1]
    assert np.frombuffer(results[0][0], ENTRY)["prev_index"].max(initial=0) < max(count, 1)


@pytest.mark.parametrize("distinct", [1, 127, 128, 129, 5000])
def test_dictionary_numbers_values_in_order_of_appearance(distinct: int) -> None:
    values = [b"value %d" % (number * number % distinct) for number in range(3 * distinct)]
    buffer, spans = laid_out(values)
    for implementation in (numpy_kernels, numba_kernels):
        codes, words = implementation.dictionary(buffer, spans)
        assert words == list(dict.fromkeys(values))
        assert [words[code] for code in codes.tolist()] == values


@pytest.mark.parametrize("carryless", [True, False])
def test_crc_is_zlibs_at_every_length(carryless: bool) -> None:
    from storeformat.kernels.numba_crc import TABLES, crc32

    data = np.random.default_rng(6).integers(0, 256, 5000, np.uint8)
    for length in (*range(300), 4096, 4999):
        assert crc32(TABLES, data, 1, 1 + length, carryless) == zlib.crc32(data[1 : 1 + length]), length


def laid_out(values: list[bytes]) -> tuple[np.ndarray[Any, Any], Spans]:
    """The values one after the other with gaps between them, the last one at the very end of the data."""
    lengths = np.array([len(value) for value in values], np.int32)
    starts = np.cumsum(lengths + np.int64(3)) - lengths
    data = b"".join(b"gap" + value for value in values)
    return padded(data), Spans(starts.astype(np.int64), lengths)


def test_a_kernel_that_reads_outside_is_caught_by_bounds_checks() -> None:
    """The tests of this module once more, every read of the compiled kernels checked."""
    if os.environ.get("NUMBA_BOUNDSCHECK"):
        from storeformat.kernels.machine_words import CHECKED, load64

        assert CHECKED
        with pytest.raises(IndexError, match="outside"):
            load64(np.zeros(16, np.uint8), 9)
        return
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment |= {"NUMBA_BOUNDSCHECK": "1", "ROCKETMQ_STORE_SPARK_KERNELS": "numba"}
    again = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not real_logs or 5.5.0", __file__],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert again.returncode == 0, again.stdout[-4000:]
    assert " passed" in again.stdout


def test_the_implementation_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_STORE_SPARK_KERNELS", "numpy")
    kernels.active.cache_clear()
    assert kernels.active() is numpy_kernels
    monkeypatch.setenv("ROCKETMQ_STORE_SPARK_KERNELS", "numba")
    kernels.active.cache_clear()
    assert kernels.active() is numba_kernels
    monkeypatch.delenv("ROCKETMQ_STORE_SPARK_KERNELS")
    monkeypatch.setitem(sys.modules, "storeformat.kernels.numba_kernels", None)  # as if numba were not installed
    kernels.active.cache_clear()
    assert kernels.active() is numpy_kernels
    kernels.active.cache_clear()


def test_compiled_code_is_kept_where_it_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", "/proc/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    directory = kernels.cache_directory()
    assert directory is not None
    assert Path(directory).is_dir()
    assert tmp_path in Path(directory).parents
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    assert kernels.cache_directory() is None


def test_what_was_compiled_is_found_wherever_the_sources_lie(tmp_path: Path) -> None:
    """An executor gets this program as a zip, in another directory for every application."""
    root, archive = Path(kernels.__file__).parents[2], tmp_path / "program.zip"
    with zipfile.ZipFile(archive, "w") as program:
        for path in (root / "storeformat").rglob("*.py"):
            program.write(path, path.relative_to(root))
    asked = (
        "from storeformat.kernels import numba_kernels as k, numba_values as v\n"
        "print(k.__file__, *v._put_entries.stats.cache_hits.values(), len(v._put_entries.stats.cache_misses))"
    )
    settings = {**os.environ, "PYTHONPATH": str(archive)}
    said = subprocess.run([sys.executable, "-c", asked], env=settings, cwd=tmp_path, capture_output=True, check=True)
    assert said.stdout.decode() == f"{archive}/storeformat/kernels/numba_kernels.py 1 0\n"


@st.composite
def random_entries(draw: Any) -> bytes:
    """DLedger entries whose heads are mostly right: each field lies now and then."""
    data = b""
    index, term = draw(st.sampled_from([0, 5, (1 << 63) - 3])), 1
    for _ in range(draw(st.integers(1, 6))):
        record = bytearray(draw(st.binary(min_size=88, max_size=140)))
        record[:4] = len(record).to_bytes(4, "big")
        entry = bytearray(encode_entry(bytes(record), index, term, len(data)))
        if draw(st.integers(0, 9)) == 0:
            at = draw(st.sampled_from([0, 3, 4, 7, 8, 15, 16, 23, 24, 31, 44, 47, 48, 51]))
            entry[at] = draw(st.integers(0, 255))
        data += entry
        index, term = min(index + 1, (1 << 63) - 1), term + draw(st.sampled_from([0, 0, 0, 1, -1]))
    return data


@settings(max_examples=300, deadline=None)
@given(st.data(), random_entries())
def test_walks_over_entries_agree(data: st.DataObject, entries: bytes) -> None:
    limit = data.draw(st.integers(0, len(entries)))
    stop = data.draw(st.integers(0, limit))
    offset = data.draw(st.sampled_from([0, 0, 0, 1]))
    number = data.draw(st.sampled_from([(-1, -1), (4, 1), (5, 1), (4, 2), ((1 << 63) - 1, 0)]))
    committed = data.draw(st.sampled_from([-1, 2, 7, 1 << 62]))
    arguments = (padded(entries[:limit]), 0, stop, limit, offset, *number, committed)
    expected = numpy_kernels.walk_entries(*arguments)
    assert_same(numba_kernels.walk_entries(*arguments), expected, "entries")
    assert expected[1] <= limit
