"""Light queues: all records at once, against one after the other as the broker goes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import java_rules
from support.store_builder import Message, encode_record

from storeformat import message as m
from storeformat.record.decode import DISPATCH_PROPERTIES, DecodeRules, RecordBlock, decode
from storeformat.record.light_queues import MultiDispatchRules, light_units

NAMES = ("%LMQ%a", "%LMQ%b", "other", "%LMQ%\u6807\u7b7e", "Topic", " ", "", "a/b", "..", "%LMQ%" + "x" * 260)
OFFSETS = ("0", "17", "007", "123456789012345678", f"{(1 << 63) - 1}", f"{1 << 63}", "+5", "-1", "", " ", "x")
TOPICS = ("Topic", "%RETRY%g", "rmq_sys_x", "%LMQ%a")
RULES = MultiDispatchRules(True, excluded_prefixes=("%RETRY%", "rmq_sys_"))

lists = st.lists(st.sampled_from(NAMES), max_size=4)
numbers = st.lists(st.sampled_from(OFFSETS), max_size=4)
alike = st.integers(1, 4).flatmap(
    lambda size: st.tuples(
        st.lists(st.sampled_from(NAMES[:5]), min_size=size, max_size=size),
        st.lists(st.integers(0, 99).map(str), min_size=size, max_size=size),
    )
)
records = st.tuples(st.sampled_from(TOPICS), st.integers(0, 2), st.one_of(alike, st.tuples(lists, numbers)))


def block_of(drawn: list[tuple[str, int, tuple[list[str], list[str]]]]) -> RecordBlock:
    content, places = b"", []
    for topic, queue_id, (names, offsets) in drawn:
        lists_of = {"INNER_MULTI_DISPATCH": ",".join(names), "INNER_MULTI_QUEUE_OFFSET": ",".join(offsets)}
        properties = {name: text for name, text in lists_of.items() if text}
        places.append(len(content))
        content += encode_record(
            Message(topic, queue_id, queue_offset=0, store_timestamp=1, properties=properties), len(content)
        )
    wanted = (*DISPATCH_PROPERTIES, m.INNER_MULTI_DISPATCH, m.INNER_MULTI_QUEUE_OFFSET)
    buffer = np.frombuffer(content + bytes(64), np.uint8)
    block, fault = decode(buffer, 0, np.array(places, np.int64), DecodeRules(properties=wanted))
    assert fault is None
    return block


def one_by_one(
    drawn: list[tuple[str, int, tuple[list[str], list[str]]]], rules: MultiDispatchRules
) -> list[tuple[int, str, int, int]]:
    units = []
    for row, (topic, queue_id, (names, offsets)) in enumerate(drawn):
        texts = [",".join(names), ",".join(offsets)]
        if topic.startswith(rules.excluded_prefixes) or any(java_rules.is_blank(text) for text in texts):
            continue
        pairs = [java_rules.split(text, ",") for text in texts]
        if len(pairs[0]) != len(pairs[1]):
            continue
        seen = {(topic, queue_id)}
        for name, offset in zip(*pairs, strict=True):
            try:
                number = java_rules.parse_integer(offset, 64)
            except ValueError:
                break
            place = (name, 0 if rules.enable_lmq and name.startswith("%LMQ%") else queue_id)
            usable = name not in ("", ".", "..") and "/" not in name and len(name.encode()) <= 255
            if usable and place not in seen:
                seen.add(place)
                units.append((row, *place, number))
    return units


@settings(deadline=None, max_examples=300)
@given(st.lists(records, max_size=12), st.booleans())
def test_all_at_once_is_one_by_one(drawn: list[tuple[str, int, tuple[list[str], list[str]]]], enable_lmq: bool) -> None:
    rules = MultiDispatchRules(enable_lmq, excluded_prefixes=RULES.excluded_prefixes)
    if not drawn:
        return
    units = light_units(block_of(drawn), np.arange(len(drawn)), rules)
    names = [units.names[code].decode() for code in units.name_codes]
    found = list(zip(units.rows.tolist(), names, units.queue_ids.tolist(), units.queue_offsets.tolist(), strict=True))
    assert found == one_by_one(drawn, rules)


@pytest.mark.parametrize("queued", [[], [1]])
def test_only_queued_records_count(queued: list[int]) -> None:
    pair = (["%LMQ%a", "%LMQ%b"], ["3", "4"])
    units = light_units(block_of([("T", 0, pair), ("T", 1, pair)]), np.array(queued, np.int64), RULES)
    assert units.rows.tolist() == [row for row in queued for _ in range(2)]
    assert units.queue_offsets.tolist() == [3, 4] * len(queued)


AWKWARD = (
    ("a,,b", "1,2"), ("a,b", "1,,2"), ("a,,b", "1,,2"), (",a", "1"), (",a", "1,2"), ("a,", "1"), ("a", "1,"),
    ("a,b", "1"), ("a", "1,2"), (",", "1"), ("a", ","), ("a, ", "1,2"), (" ", "1"), ("a,a", "1,2"), ("a,b,a", "1,x,3"),
    ("a,b,c", "1,2,"), ("a", "9"), ("a,b", "10,11"),
)  # fmt: skip


@pytest.mark.parametrize("beside", [(), (("Topic", 1, (["%LMQ%c"], ["12"])),)], ids=["alone", "beside another"])
@pytest.mark.parametrize("pair", AWKWARD, ids="/".join)
def test_lists_that_no_broker_writes_are_split_as_java_does(pair: tuple[str, str], beside: tuple[Any, ...]) -> None:
    drawn = [*beside, ("Topic", 2, (pair[0].split(","), pair[1].split(","))), *beside]
    units = light_units(block_of(drawn), np.arange(len(drawn)), RULES)
    found = [
        (row, units.names[code].decode(), queue, offset)
        for row, code, queue, offset in zip(
            units.rows.tolist(), units.name_codes, units.queue_ids.tolist(), units.queue_offsets.tolist(), strict=True
        )
    ]
    assert found == one_by_one(drawn, RULES)


@pytest.mark.parametrize(
    ("rules", "rows"),
    [
        (MultiDispatchRules(True), [0, 1, 2]),
        (MultiDispatchRules(True, excluded_topics=("T",)), [1, 2]),
        (MultiDispatchRules(True, excluded_prefixes=("T",)), [2]),
        (MultiDispatchRules(True, excluded_topics=("TU", "none"), excluded_prefixes=("%",)), [0]),
    ],
)
def test_records_of_excluded_topics_go_nowhere_else(rules: MultiDispatchRules, rows: list[int]) -> None:
    block = block_of([(topic, 0, (["%LMQ%a"], ["3"])) for topic in ("T", "TU", "%U")])
    assert light_units(block, np.arange(3), rules).rows.tolist() == rows
