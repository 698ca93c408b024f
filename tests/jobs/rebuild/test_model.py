"""Drawn logs, rebuilt for any split size, against the sequential model of the broker."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support import broker_model
from support.broker_settings import BrokerSettings
from support.rebuilding import rebuild_here, rules_of_release
from support.store_builder import LogBuilder
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


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_files_are_those_of_the_model(case: tuple[LogBuilder, BrokerSettings, int]) -> None:
    log, rules, split_size = case
    # Releases before 5.0 know no batch queues.
    assume(rules.version >= (5,) or all(placed.message.topic != BATCH_TOPIC for placed in log.records))
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
        topics = tuple(sorted(rules.batch_topics))
        try:
            built = rebuild_here(
                root / "store", root / "work", sizes, broker_version=version, split_size=split_size, batch_topics=topics
            )
        except DamagedLog as refusal:
            # Old records behind the true end that are not older (the clock was set back) may as well be survivors:
            # refusing is right, and only there.
            if log.stale_records and refusal.offset == log.end_offset:
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
