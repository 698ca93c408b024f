"""What each stage of a scan costs on one core, in both implementations, with its result checked; whether one has lost
more than 15 % since; and what a survey costs beside a scan.

A stage is compared with ``zlib.crc32`` over the same block in the same process: work that no change of ours slows down.
``ratios.json`` keeps the best ratio seen for each processor and Python. The chain is followed by Python's own loop;
compiled, it is one load from memory after another, and takes 1.7 times as long where the pages of a process lie badly.
Where both are unknown the guard is wide (3 times the slowest known): ``RECORD_RATIOS=1`` adds them.
"""

from __future__ import annotations

import json
import os
import platform
import re
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support.in_memory import MemoryReader
from support.kernel_columns import assert_same
from support.uniform_log import UniformLog, uniform_log

from storeformat import javacompat
from storeformat import message as m
from storeformat.arrays import Bytes, Int64s
from storeformat.index import index_file
from storeformat.kernels import ENTRY_SIZE, PADDING, Spans, Tally, UnitColumns, active, numpy_kernels
from storeformat.log.chain_walk import BlockWindow, chain_from
from storeformat.log.segments import Segment, Split
from storeformat.queues.consume_queue import UNIT, pack_units
from storeformat.record.decode import DISPATCH_PROPERTIES, DecodeRules
from storeformat.record.dispatch import DispatchRules, PlainDispatch
from storeformat.salvage.evidence import Neighbours, Side
from storeformat.salvage.survey import Broken, Finding, survey
from storeformat.storage import files
from storeformat.storage.files import RangeReader
from udfs.log.scan import ScanTask, scan_split

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
    """The stages of a scan over a block in memory, each with what the one before it made; compiled, those that are."""
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
    key_hashes = np.random.default_rng(1).integers(0, 1 << 31, ENTRIES, dtype=np.int32)
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


RATIOS = Path(__file__).with_name("ratios.json")
ALLOWED, ALLOWED_OF_CHAIN, ALLOWED_ELSEWHERE = 1.15, 2.0, 3.0
GUARDED = (
    "chain", "heads", "body CRC", "topics", "properties", "tags", "index keys", "plain records", "group units",
)  # fmt: skip
ATTEMPTS = 60


def machine() -> str:
    """The processor with family, model and stepping (virtual ones share a name), and the version of Python."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = dict(re.findall(r"^(model name|cpu family|model|stepping)\s*: (.*)$", text, re.MULTILINE))
    python = "Python " + ".".join(platform.python_version_tuple()[:2])
    kind = ".".join(found[name] for name in ("cpu family", "model", "stepping") if name in found)
    return ", ".join(filter(None, (found.get("model name", platform.processor()), kind, platform.machine(), python)))


def ratio(stage: Callable[[], Any], data: bytes, rounds: int = 25) -> float:
    """Time of a stage over that of zlib, each the best of many rounds that take turns."""
    ours, theirs = float("inf"), float("inf")
    for _ in range(rounds):
        begun = time.perf_counter_ns()
        stage()
        between = time.perf_counter_ns()
        zlib.crc32(data)
        ours, theirs = min(ours, between - begun), min(theirs, time.perf_counter_ns() - between)
    return ours / theirs


@pytest.mark.parametrize("kernels", IMPLEMENTATIONS)
def test_no_stage_is_slower_than_it_was(kernels: Any) -> None:
    known = json.loads(RATIOS.read_text(encoding="utf-8")) if RATIOS.exists() else {}
    name = kernels.__name__.rpartition(".")[2]
    log = uniform_log(4 << 20)
    measured = {stage: run for stage, run in stages(kernels, log).items() if stage in GUARDED}
    found = {stage: round(ratio(run, log.data), 4) for stage, run in measured.items()}
    if os.environ.get("RECORD_RATIOS"):
        mine = known.setdefault(machine(), {}).setdefault(name, {})
        mine.update({stage: min(value, mine.get(stage, value)) for stage, value in found.items()})
        RATIOS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    allowed = limits(known, name)
    for stage, run in measured.items():
        # Another program can only make us slower: a stage that is as fast as it was shows it in one of the attempts.
        for _ in range(ATTEMPTS):
            if found[stage] <= allowed[stage]:
                break
            time.sleep(0.2)
            found[stage] = min(found[stage], ratio(run, log.data))
    slower = {stage: (value, allowed[stage]) for stage, value in found.items() if value > allowed[stage]}
    assert not slower, f"times of zlib.crc32, found and allowed: {slower}"


def limits(known: dict[str, Any], name: str) -> dict[str, float]:
    mine = known.get(machine(), {}).get(name, {})
    assert known, "no ratio was ever recorded: RECORD_RATIOS=1 does"
    found = {}
    for stage in GUARDED:
        seen = [ratios[name][stage] for ratios in known.values() if stage in ratios.get(name, {})]
        if seen:
            allowed = ALLOWED_OF_CHAIN if stage == "chain" else ALLOWED
            found[stage] = allowed * mine[stage] if stage in mine else ALLOWED_ELSEWHERE * max(seen)
    return found


HEAD, MOST = 88, 2
"""Bytes of a head; how many times a scan's a survey may take."""


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time, and what came of it."""
    begun = time.process_time()
    found = work()
    return time.process_time() - begun, found


@pytest.mark.parametrize("message_bytes", [1000, 217])
def test_a_survey_takes_about_as_long_as_a_scan(message_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    log = uniform_log(64 << 20, message_bytes=message_bytes)
    first = int.from_bytes(log.data[:4], "big")
    second = int.from_bytes(log.data[first : first + 4], "big")
    damaged = log.data[:first] + b"\xa5" * HEAD + log.data[first + HEAD :]
    sound, segment = (Segment(name, 0, len(log.data)) for name in ("sound", "damaged"))
    monkeypatch.setattr(files, "RangeReader", MemoryReader)
    monkeypatch.setattr(MemoryReader, "contents", {"sound": memoryview(log.data), "damaged": memoryview(damaged)})
    window = BlockWindow(files.RangeReader("damaged"), segment)
    chain = chain_from(window, 0, DecodeRules()).finish()
    near = Neighbours(Side({(b"bench-topic-0", 0): 1}, 1_700_000_000_000), whole=True)
    broken = Broken(segment, chain.position, chain.defect, segment.end, near)
    scan = ScanTask("", DecodeRules(), DispatchRules(()))
    split = Split(0, sound, 0, sound.end, sound.end, 0)

    ratios = []
    for _ in range(5):
        scanning, scanned = seconds(lambda: scan_split(split, scan, lambda block: None))
        surveying, found = seconds(lambda: survey(window, broken, DecodeRules()))
        assert scanned.records == log.messages
        assert found.pieces == ((first + second, segment.end),)
        assert [(gap.begin, gap.end, gap.finding) for gap in found.gaps] == [(first, first + second, Finding.BYTES)]
        ratios.append(surveying / scanning)
    print(f"{message_bytes} bytes a message: a survey takes {min(ratios):.2f} to {max(ratios):.2f} times a scan")
    assert min(ratios) < MOST
