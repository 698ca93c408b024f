"""The model of the broker gives the files that real brokers wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import golden
from support.broker_model import Broker, dispatch, read_segments
from support.broker_settings import BrokerSettings


def settings_of(store: golden.GoldenStore) -> BrokerSettings:
    return BrokerSettings.of(
        store.version,
        store.settings,
        batch_topics=frozenset(store.entry.get("batch_topics", ())),
        filter_bitmap_bytes=store.entry.get("filter_bitmap_bytes", 0),
    )


def model_of(store: golden.GoldenStore, *, index_from: int = 0) -> Broker:
    segments = read_segments(golden.unpack(store))
    return dispatch(segments, settings_of(store), until=store.dispatched_up_to, index_from=index_from)


@pytest.mark.golden
@pytest.mark.parametrize("store", golden.stores(), ids=str)
def test_the_model_agrees_with_the_broker(store: golden.GoldenStore, tmp_path: Path) -> None:
    model = model_of(store)
    root = model.write(tmp_path / "whole")
    assert golden.compare_queues(golden.unpack(store), root, store) == []
    assert golden.compare_index(golden.unpack(store), root, store) == []
    if store.index_begins_at is not None:
        root = model_of(store, index_from=store.index_begins_at).write(tmp_path / "from")
        assert golden.compare_index(golden.unpack(store), root, store, from_begin=False) == []
