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
from storeformat.arrays import Bytes, Int64s
from storeformat.kernels import PADDING, Spans
from storeformat.record import light_queues
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
    buffer = np.frombuffer(content + bytes(PADDING), np.uint8)
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


@settings(deadline=None, max_examples=3 * settings.default.max_examples)
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


PLAIN = ("0", "9", "10", "019", "9" * 18)
NOT_PLAIN = ("1" + "0" * 18, "+5", "-1", " 1", "1 ", "1x", "/", ":", "1/", ":1")
"""Java takes some of these, too; they are read one by one. ``/`` and ``:`` are the neighbours of the digits."""


def spans_of(*texts: str) -> tuple[Bytes, Spans]:
    """Texts side by side, from the first byte of a buffer on."""
    content = "".join(texts).encode()
    lengths = np.array([len(text) for text in texts], np.int64)
    starts = np.cumsum(lengths) - lengths
    return np.frombuffer(content + bytes(PADDING), np.uint8), Spans(starts, lengths.astype(np.int32))


def test_plain_numbers_are_read_all_at_once_and_others_told_apart() -> None:
    values, proper = light_queues._decimals(*spans_of(*PLAIN, *NOT_PLAIN))
    assert proper.tolist() == [True] * len(PLAIN) + [False] * len(NOT_PLAIN)
    assert values[: len(PLAIN)].tolist() == [int(text) for text in PLAIN]


def test_records_as_brokers_write_them_need_no_second_look() -> None:
    regular = [("a", "1"), ("a,b", "1,2"), ("b,a,c", "07,8,9")]
    odd = [
        ("a,,b", "1,2"), ("a,", "1"), (",a", "1"), ("a", "1,"), ("a,b", "1"), ("a", "1,2"), ("a,b", "1,x"),
        ("a,b", "+1,2"), (" ", "1"), ("a, ", "1,2"),
    ]  # fmt: skip
    lists_of = regular + odd
    buffer, spans = spans_of(*(text for pair in lists_of for text in pair))
    names, offsets = (Spans(spans.starts[side::2].copy(), spans.lengths[side::2].copy()) for side in (0, 1))
    pairs = light_queues._regular_pairs(buffer, names, offsets)
    assert pairs.owners.tolist() == [0, 1, 1, 2, 2, 2]
    assert [pairs.names[code] for code in pairs.name_codes] == ["a", "a", "b", "b", "a", "c"]
    assert pairs.queue_offsets.tolist() == [1, 1, 2, 7, 8, 9]


def test_only_odd_records_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []
    read = light_queues._odd_pairs

    def spy(block: RecordBlock, names: Spans, offsets: Spans, rows: Int64s) -> tuple[Int64s, list[str], list[int]]:
        looked_at.extend(rows.tolist())
        return read(block, names, offsets, rows)

    monkeypatch.setattr(light_queues, "_odd_pairs", spy)
    block = block_of(
        [
            ("Topic", 0, (["%LMQ%a"], ["1"])),
            ("Topic", 0, (["%LMQ%a"], ["+1"])),
            ("Topic", 0, (["%LMQ%a"], [])),
            ("Topic", 0, ([], ["1"])),
            ("Topic", 0, ([], [])),
            ("%RETRY%g", 0, (["%LMQ%a"], ["+1"])),
        ]
    )
    units = light_units(block, np.arange(6), RULES)
    assert looked_at == [1]
    assert units.rows.tolist() == [0, 1]


def test_a_block_without_records_has_no_units() -> None:
    assert len(light_units(block_of([]), np.arange(0), RULES).rows) == 0
