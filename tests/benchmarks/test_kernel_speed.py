"""What each stage of a scan costs on one core, in both implementations, with its result checked.

    python -m pytest tests/benchmarks/test_kernel_speed.py -m benchmark -s

Figures are the best of many rounds, in process CPU time: other programs on the machine disturb them little.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support.kernel_columns import assert_same
from support.uniform_log import UniformLog, uniform_log

from storeformat import javacompat
from storeformat import message as m
from storeformat.arrays import Bytes, Int64s
from storeformat.index import index_file
from storeformat.kernels import ENTRY_SIZE, PADDING, Spans, Tally, UnitColumns, active, numpy_kernels
from storeformat.log.block_window import BlockWindow
from storeformat.log.segments import Segment
from storeformat.queues.consume_queue import UNIT, pack_units
from storeformat.record.decode import DISPATCH_PROPERTIES, DecodeRules
from storeformat.record.dispatch import DispatchRules, PlainDispatch
from storeformat.storage.files import RangeReader

pytestmark = pytest.mark.benchmark
BLOCK = 4 << 20
SLOTS, ENTRIES = 5_000_000, 3_000_000


def best(stage: Callable[[], Any], rounds: int = 15) -> float:
    """CPU seconds of the fastest round."""
    fastest = float("inf")
    for _ in range(rounds):
        begun = time.process_time()
        stage()
        fastest = min(fastest, time.process_time() - begun)
    return fastest


def stages(kernels: ModuleType, log: UniformLog) -> dict[str, Callable[[], Any]]:
    """The stages of a scan over one block in memory, each with the input that the stage before it made; compiled, those
    that are.
    """
    buffer = np.frombuffer(log.data + bytes(PADDING), np.uint8)
    positions, reached = kernels.walk_sizes(buffer, 0, len(log.data), len(log.data))
    assert (len(positions), reached) == (log.messages, len(log.data))
    heads = numpy_kernels.decode_heads(buffer, positions, 0)
    assert not heads.defect.any()
    assert np.array_equal(kernels.crc32_spans(buffer, heads.body_start, heads.body_length), heads.body_crc)
    names = DISPATCH_PROPERTIES
    spans = heads.properties_start, heads.properties_length
    columns = numpy_kernels.property_spans(buffer, *spans, names, False)
    found = {
        "chain": lambda: kernels.walk_sizes(buffer, 0, len(log.data), len(log.data)),
        "body CRC": lambda: kernels.crc32_spans(buffer, heads.body_start, heads.body_length),
        "properties": lambda: kernels.property_spans(buffer, *spans, names, False),
    }
    if kernels is not numpy_kernels:
        return found | plain_pass(buffer, positions, log)
    topic_spans = Spans(heads.topic_start, heads.topic_length)
    codes, topics = numpy_kernels.dictionary(buffer, topic_spans)
    assert len(topics) == log.topics
    uniq_key, keys, tags = (columns[names.index(name)] for name in (m.UNIQ_KEY, m.KEYS, m.TAGS))
    joined = np.array([[javacompat.java_hash(topic + joint) for topic in topics] for joint in (b"#", b"#T#")], np.int32)
    everyone = np.ones(log.messages, bool)
    rows, key_hashes = numpy_kernels.index_keys(buffer, everyone, (uniq_key,), keys, codes, joined)
    assert len(rows) == len(key_hashes) == 3 * log.messages
    return found | {
        "heads": lambda: numpy_kernels.decode_heads(buffer, positions, 0),
        "topics": lambda: numpy_kernels.dictionary(buffer, topic_spans),
        "tags": lambda: numpy_kernels.hash_spans(buffer, tags),
        "index keys": lambda: numpy_kernels.index_keys(buffer, everyone, (uniq_key,), keys, codes, joined),
        "pack units": lambda: pack_units(heads.physical_offset, heads.total_size, heads.queue_offset),
    }


def plain_pass(buffer: Bytes, positions: Int64s, log: UniformLog) -> dict[str, Callable[[], Any]]:
    """What does most of these at once for a sound log, and the grouping after it."""
    codes: dict[bytes, int] = {}
    plain = PlainDispatch(
        DecodeRules(), DispatchRules(delay_millis=()), lambda topic: codes.setdefault(topic, len(codes)),
        lambda topic: False, with_units=True, with_entries=True,
    )  # fmt: skip
    units, light, packed = UnitColumns.of(log.messages), np.zeros(log.messages, bool), np.empty(log.messages, UNIT)

    def dispatch() -> None:
        done, tally = 0, Tally.start()
        while done < log.messages:  # there is room for the entries of some thousand messages
            taken = plain.take(buffer, positions[done:], 0, units, tally)
            assert len(plain.entries(tally)) == 3 * taken * ENTRY_SIZE > 0
            done += taken
        assert tally[Tally.UNITS] == log.messages

    dispatch()
    return {"plain records": dispatch, "group units": lambda: numpy_kernels.group_units(units, light, packed)}


IMPLEMENTATIONS = list(dict.fromkeys((numpy_kernels, active())))


@pytest.mark.parametrize("message_bytes", [1000, 220])
@pytest.mark.parametrize("kernels", IMPLEMENTATIONS)
def test_stages_of_a_scan(kernels: ModuleType, message_bytes: int, tmp_path: Any) -> None:
    log = uniform_log(BLOCK, message_bytes=message_bytes)
    seconds = {"read": best(_reading(log, tmp_path))}
    reference = stages(numpy_kernels, log)
    for name, stage in stages(kernels, log).items():
        if name in reference:
            assert_same(stage(), reference[name](), name)
        seconds[name] = best(stage)
    crc = best(lambda: zlib.crc32(log.data))
    print(f"\n{kernels.__name__}, {message_bytes} bytes a message; zlib at {len(log.data) / crc / 1e9:.1f} GB/s")
    for name, cost in (*seconds.items(), ("all", sum(seconds.values()))):
        rate, speed = log.messages / cost, len(log.data) / cost
        print(f"{name:13} {cost / log.messages * 1e6:7.3f} us a message {rate / 1e6:8.2f} M/s {speed / 1e6:9.0f} MB/s")


def _reading(log: UniformLog, directory: Any) -> Callable[[], None]:
    path = directory / "segment"
    path.write_bytes(log.data)
    window = BlockWindow(RangeReader(str(path)), Segment(str(path), 0, len(log.data)))
    window.load(0, len(log.data))

    def read() -> None:
        window.bytes[:8] = 0
        window.load(0, len(log.data))
        assert window.bytes[:8].tobytes() == log.data[:8]

    assert window.bytes[: len(log.data)].tobytes() == log.data
    return read


def test_index_entries() -> None:
    rng = np.random.default_rng(1)
    key_hashes = rng.integers(0, 1 << 31, ENTRIES, dtype=np.int32)
    offsets, times = np.arange(ENTRIES) * 333, 1_700_000_000_000 + np.arange(ENTRIES)
    table, packed = np.zeros(SLOTS, np.int32), np.zeros(ENTRIES, index_file.ENTRY)

    def put() -> None:
        table[:] = 0
        for begin in range(0, ENTRIES, index_file.ENTRIES_AT_ONCE):
            part = slice(begin, begin + index_file.ENTRIES_AT_ONCE)
            numpy_kernels.put_entries(key_hashes[part], offsets[part], times[part], 1, begin + 1, table, packed[part])

    cost = best(put, 5)
    newest = {key % SLOTS: number for number, key in enumerate(key_hashes[:1000].tolist(), 1)}
    numpy_kernels.put_entries(key_hashes[:1000], offsets[:1000], times[:1000], 1, 1, table := table * 0, packed[:1000])
    assert {slot: int(table[slot]) for slot in newest} == newest
    print(f"\n{cost / ENTRIES * 1e9:.1f} ns an index entry, {ENTRIES / cost / 1e6:.1f} M/s")
