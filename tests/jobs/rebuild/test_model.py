"""Drawn logs, rebuilt for any split size, against the sequential model of the broker; with each kernels those that
consist of boundaries.
"""

from __future__ import annotations

import struct
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support import broker_model
from support.broker_settings import BrokerSettings
from support.java_rules import hash_code
from support.rebuilding import rebuild_here, rules_of_release
from support.store_builder import LogBuilder, Message
from support.strategies import BATCH_TOPIC, LogShape, broker_settings, logs, split_sizes

from storeformat.errors import DamagedLog

SHAPE = LogShape(odd_blanks=False, light_queues=True, inner_batches=True)


@st.composite
def cases(draw: st.DrawFn) -> tuple[LogBuilder, BrokerSettings, int]:
    log = draw(logs(SHAPE))
    rules = replace(
        draw(broker_settings(log)),
        enable_consume_queue_ext=draw(st.booleans()),
        mapped_file_size_consume_queue_ext=draw(st.sampled_from([24, 45, 100, 1000])),
    )
    return log, rules, draw(split_sizes(log.segment_size))


def files_below(root: Path, part: str) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in (root / part).rglob("*") if path.is_file()}


@settings(max_examples=settings.default.max_examples, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_files_are_those_of_the_model(case: tuple[LogBuilder, BrokerSettings, int]) -> None:
    log, rules, split_size = case
    # Releases before 5.0 know no batch queues.
    assume(rules.version >= (5,) or all(placed.message.topic != BATCH_TOPIC for placed in log.records))
    assert_as_the_model(log, rules, split_size)


def assert_as_the_model(log: LogBuilder, rules: BrokerSettings, split_size: int) -> None:
    if not log.segments:
        return
    model = broker_model.dispatch(log.segments, rules)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        log.write(root / "store")
        sizes = {
            "mappedFileSizeConsumeQueue": rules.mapped_file_size_consume_queue,
            "maxHashSlotNum": rules.max_hash_slot_num,
            "maxIndexNum": rules.max_index_num,
            "mapperFileSizeBatchConsumeQueue": rules.mapper_file_size_batch_consume_queue,
            "enableConsumeQueueExt": str(rules.enable_consume_queue_ext).lower(),
            "mappedFileSizeConsumeQueueExt": rules.mapped_file_size_consume_queue_ext,
            "enableLmq": str(rules.enable_lmq).lower(),
            "enableMultiDispatch": str(rules.enable_multi_dispatch).lower(),
        }
        version = rules_of_release(".".join(map(str, rules.version)))
        topics = tuple(sorted(rules.batch_topics)) if rules.version >= (5,) else ()
        try:
            built = rebuild_here(
                root / "store", root / "work", sizes, broker_version=version, split_size=split_size, batch_topics=topics
            )
        except DamagedLog as refusal:
            # Old records after the true end that are not older (the clock was set back) may as well be survivors:
            # refusing is right, and only there.
            if log.stale_records and refusal.offset == log.end_offset:
                return
            # Light queues of the drawn log are counted as such. Read without enableLmq, by the queues of their
            # messages, they have gaps, and a foreign record before a gap may be the message that is missing.
            light = [one.message for one in log.records if "INNER_MULTI_DISPATCH" in str(one.message.properties)]
            if not rules.enable_lmq and "FOREIGN_OFFSET" in str(refusal) and any(one.queue_id for one in light):
                return
            raise
        made = Path(built.directory)
        # No broker starts with a nested queue.
        expected = {name: data for name, data in model.files.items() if name.count("/") == 3}
        for part in ("consumequeue", "consumequeue_ext", "batchconsumequeue"):
            modelled = {name: data for name, data in expected.items() if name.split("/")[0] == part}
            assert files_below(made, part) == modelled
        index = [data for _, data in sorted(files_below(made, "index").items())]
        if built.reading.foreign_records and len(index) == len(model.index_files) + 1:
            # A foreign record is dispatched by its old offset and skipped, but a full last file has its successor
            # by then. The model steps over foreign records altogether.
            assert int.from_bytes(index.pop()[36:40], "big") == 1
        assert index == model.index_files
    assert built.reading.records == len(log.records)
    stale = {placed.offset for placed in log.stale_records}
    assert not stale & {placed.offset for placed in log.records}


def test_a_light_queue_with_a_gap_and_a_foreign_record_before_it_is_refused(tmp_path: Path) -> None:
    log = LogBuilder(2048)
    log.multi_dispatched(Message(topic="A"), ["%LMQ%a"])
    log.foreign_record(log.records[0])
    log.multi_dispatched(Message(topic="A", queue_id=1), ["%LMQ%a"])
    log.write(tmp_path / "store")
    settings = {"enableMultiDispatch": "true", "mappedFileSizeCommitLog": 2048}
    store, rules = tmp_path / "store", {"broker_version": rules_of_release("4.9.8")}
    assert rebuild_here(store, tmp_path / "a", {**settings, "enableLmq": "true"}, **rules).reading.records == 2
    with pytest.raises(DamagedLog, match="FOREIGN_OFFSET") as caught:
        rebuild_here(store, tmp_path / "b", {**settings, "enableLmq": "false"}, **rules)
    assert caught.value.advice == "--on-damage salvage fills the place of the message"


@pytest.mark.parametrize("split_size", [200, 65536])
def test_producers_that_raced_for_a_light_queue(tmp_path: Path, split_size: int) -> None:
    """Two of them got offset 0, as with 5.1.4 (apache/rocketmq#7511): the broker has all four messages in its queue."""
    log = LogBuilder(65536)
    for number, offset in enumerate((0, 0, 2, 3)):
        light = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": str(offset)}
        log.message(topic="A", queue_id=number % 2, properties=light)
    log.write(tmp_path / "store")
    settings = {"enableMultiDispatch": "true", "enableLmq": "true", "mappedFileSizeCommitLog": 65536}
    rules = {"broker_version": rules_of_release("5.1.4"), "split_size": split_size}
    built = rebuild_here(tmp_path / "store", tmp_path / "built", settings, **rules)
    found = files_below(Path(built.directory), "consumequeue")
    units = found[f"consumequeue/%LMQ%a/0/{0:020d}"]
    assert units[:80] == b"".join(struct.pack(">qiq", one.offset, one.size, 0) for one in log.records)
    assert not any(units[80:])


# ----------------------------------------------------------------------------------------------------------- boundaries
def key_with_hash(prefix: str, wanted: int) -> str:
    """A key for which Java's hash of ``prefix`` and the key is ``wanted``: seven letters, as digits of base 31."""
    rest = (wanted - hash_code(prefix) * 31**7 - sum(33 * 31**place for place in range(7))) % (1 << 32)
    return "".join(chr(33 + rest // 31**place % 31) for place in reversed(range(7)))


HASHES = (0, 1, -1, -(1 << 31), (1 << 31) - 1, 6, 7, 8, -7)
KEYS = tuple(key_with_hash("A#", wanted) for wanted in HASHES)
STEPS = (0, 0, 0, 1, -1, 999, 1000, 1001, -1000, 0x7FFFFFFF * 1000, 0x80000000 * 1000, -(1 << 40))


@st.composite
def boundaries(draw: st.DrawFn) -> tuple[LogBuilder, BrokerSettings, int]:
    """Hashes, times, ends of segments, of queue and of index files, of splits: all just at an edge, or one beside."""
    log = LogBuilder(draw(st.sampled_from([1024, 2048])))
    time = 1_700_000_000_000
    for _ in range(draw(st.integers(1, 24))):
        time = max(time + draw(st.sampled_from(STEPS)), 1)
        fields = {"topic": "A", "queue_id": draw(st.integers(0, 1)), "store_timestamp": time}
        fields["keys"] = draw(st.sampled_from([None, "", *KEYS, f"{KEYS[3]} {KEYS[0]}"]))
        if draw(st.integers(0, 4)):
            log.message(**fields)
        else:  # 8 bytes hold a BLANK, and are the least that a record leaves
            log.fill(draw(st.sampled_from([8, 9, 98, 99, 100])), Message(**fields))
    if draw(st.booleans()) and 8 <= log.remaining < log.segment_size:
        log.blank()
    if draw(st.booleans()):
        log.preallocate()
    units = len([placed for placed in log.records if placed.message.queue_id == 0])
    rules = BrokerSettings(
        version=draw(st.sampled_from([(4, 6, 1), (4, 9, 8), (5, 3, 3), (5, 5, 0)])),
        mapped_file_size_commit_log=log.segment_size,
        mapped_file_size_consume_queue=20 * max(units + draw(st.sampled_from([-1, 0, 1])), 1),
        max_hash_slot_num=draw(st.sampled_from([1, 7])),
        max_index_num=max(len(log.records) + draw(st.integers(0, 3)), 2),
    )
    edges = [edge for placed in log.records for edge in (placed.offset, placed.end)]
    return log, rules, max(draw(st.sampled_from(edges)) + draw(st.sampled_from([-1, 0, 1])), 16)


def test_keys_have_the_hashes_that_are_wanted() -> None:
    assert [hash_code(f"A#{key}") for key in KEYS] == list(HASHES)


@pytest.mark.usefixtures("each_kernels")
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(boundaries())
def test_boundaries_are_those_of_the_model(case: tuple[LogBuilder, BrokerSettings, int]) -> None:
    assert_as_the_model(*case)
