"""What the strategies draw is what they say it is."""

from __future__ import annotations

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import strategies
from support.broker_model import dispatch, walk
from support.broker_settings import BrokerSettings
from support.store_builder import LogBuilder

pytestmark = pytest.mark.slow
quick = settings(
    max_examples=min(50, settings.default.max_examples), deadline=None, suppress_health_check=list(HealthCheck)
)


def reading(log: LogBuilder, version: tuple[int, ...] = (5, 3, 3)) -> BrokerSettings:
    return BrokerSettings(version=version, mapped_file_size_commit_log=log.segment_size)


@quick
@given(strategies.logs())
def test_the_broker_finds_the_records_of_a_log_and_no_others(log: LogBuilder) -> None:
    offsets = [placed.offset for placed in log.records]
    for version in ((5, 1, 4), (5, 3, 3), (5, 5, 0)):
        for recovery in (False, True):
            found = walk(log.segments, reading(log, version), recovery=recovery)
            assert [request.commit_log_offset for request in found] == offsets
    assert {placed.offset for placed in log.stale_records}.isdisjoint(offsets)


@quick
@given(strategies.logs(strategies.LogShape(v2=False)))
def test_old_brokers_read_logs_without_v2(log: LogBuilder) -> None:
    found = walk(log.segments, reading(log, (4, 6, 1)))
    assert [request.commit_log_offset for request in found] == [placed.offset for placed in log.records]


@quick
@given(st.data())
def test_every_record_has_its_unit_and_every_index_entry_its_record(data: st.DataObject) -> None:
    log = data.draw(strategies.logs(strategies.LogShape(deleted_topics=False, stale=False)))
    rules = data.draw(strategies.broker_settings(log))
    model = dispatch(log.segments, rules)
    units = [
        (*file.split("/")[1:3], offset)
        for file, content in model.files.items()
        for offset, size, _ in struct.iter_unpack(">qiq", content)
        if 0 < size < 0x7FFFFFFF
    ]
    expected = [p for p in log.records if p.message.takes_a_queue_offset]
    assert sorted(units) == sorted((str(p.message.topic), str(p.message.queue_id), p.offset) for p in expected)
    assert all(len(file) == 40 + 4 * rules.max_hash_slot_num + 20 * rules.max_index_num for file in model.index_files)


@quick
@given(st.data())
def test_light_queues_and_inner_batches_are_drawn_on_demand(data: st.DataObject) -> None:
    shape = strategies.LogShape(light_queues=True, inner_batches=True)
    log = data.draw(strategies.logs(shape))
    rules = data.draw(strategies.broker_settings(log))
    model = dispatch(log.segments, rules)
    assert [request.commit_log_offset for request in model.requests] == [placed.offset for placed in log.records]
    assert all(topic == strategies.BATCH_TOPIC for topic, _ in model.batch_queues)
    if not rules.enable_multi_dispatch:
        assert not any(topic.startswith("%LMQ%") for topic, _ in model.queues)


@quick
@given(st.data())
def test_damage_changes_only_what_it_says(data: st.DataObject) -> None:
    log = data.draw(strategies.logs())
    hurt = data.draw(strategies.damages(log))
    before, after = log.segments, strategies.apply_damages(log.segments, hurt)
    assert before.keys() == after.keys()
    for base, old in before.items():
        new = after[base]
        kept = min([len(old)] + [d.offset - base for d in hurt if d.cut and base <= d.offset < base + len(old)])
        assert len(new) == kept
        for position in (p for p in range(len(new)) if new[p] != old[p]):
            assert any(d.offset <= base + position < d.end for d in hurt)


@quick
@given(st.data())
def test_the_model_survives_damage(data: st.DataObject) -> None:
    """A broker that runs finds some of the records; it never raises, and recovery finds a prefix of the undamaged."""
    log = data.draw(strategies.logs())
    after = strategies.apply_damages(log.segments, data.draw(strategies.damages(log, cuts=False)))
    for version in ((4, 9, 8), (5, 3, 3)):
        list(walk(after, reading(log, version)))
        recovered = [request.commit_log_offset for request in walk(after, reading(log, version), recovery=True)]
        assert recovered == sorted(set(recovered))
