"""What records become: units, index entries, light queues."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import java_rules
from support.java_rules import hash_code, math_abs
from support.store_builder import Message, encode_record

from storeformat import message as m
from storeformat.errors import WrongSettings
from storeformat.kernels import PADDING
from storeformat.record import dispatch
from storeformat.record.decode import DISPATCH_PROPERTIES, DecodeRules, RecordBlock, decode
from storeformat.record.dispatch import (
    DispatchRules,
    MultiDispatchRules,
    Pending,
    belongs_to,
    light_units,
    may_hold,
    parse_delay_levels,
    pending,
)
from storeformat.store.broker_rules import DEFAULTS

# ------------------------------------------------------------------------------------------------------ dispatch
RULES = DispatchRules(parse_delay_levels("1s 5s 10m"))
"""Three levels of delay."""
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
NONE, PREPARED, COMMIT, ROLLBACK = 0x0, 0x4, 0x8, 0xC


LIGHT_PROPERTIES = (*DISPATCH_PROPERTIES, m.INNER_MULTI_DISPATCH, m.INNER_MULTI_QUEUE_OFFSET)


def block_of(*messages: Message, properties: tuple[bytes, ...] = DISPATCH_PROPERTIES) -> RecordBlock:
    data, positions = b"", []
    for message in messages:
        positions.append(len(data))
        data += encode_record(message, len(data))
    buffer = np.frombuffer(data + bytes(PADDING), np.uint8)
    block, fault = decode(buffer, 0, np.array(positions, np.int64), DecodeRules(properties=properties))
    assert fault is None
    return block


def offsets_of(block: RecordBlock, *rows: int) -> list[int]:
    return block.positions[list(rows)].tolist()


def index_hash(text: str) -> int:
    return math_abs(hash_code(text))


def test_delay_levels_are_parsed_as_the_broker_does() -> None:
    assert parse_delay_levels(DEFAULTS["messageDelayLevel"])[:5] == (1_000, 5_000, 10_000, 30_000, 60_000)
    assert parse_delay_levels("2d 3h 4m +5s") == (172_800_000, 10_800_000, 240_000, 5_000)
    for text, word in (("", ""), ("1s  2s", ""), ("1s 5", "5"), ("s", "s"), ("1x", "1x"), ("1.5s", "1.5s")):
        with pytest.raises(WrongSettings, match=f"messageDelayLevel cannot be parsed: found {word}"):
            parse_delay_levels(text)


def test_tags_codes() -> None:
    texts = {None: 0, "": 0, "polygenelubricants": -(1 << 31), "\U0001f600": 1772899, "a||b": hash_code("a||b")}
    block = block_of(*(Message(tags=text) for text in texts))
    assert dispatch.tags_codes(block, RULES).tolist() == list(texts.values())


@pytest.mark.parametrize(
    ("level", "code"),
    [("1", 2_000), ("2", 6_000), ("3", 601_000), ("4", 601_000), ("99", 601_000), ("+2", 6_000), ("0", 97), ("-1", 97),
     (None, 97)],
)  # fmt: skip
def test_times_of_delivery(level: str | None, code: int) -> None:
    properties = {} if level is None else {"DELAY": level}
    delayed = Message(topic=SCHEDULE, tags="a", properties=properties, store_timestamp=1_000)
    elsewhere = Message(topic="T", tags="a", properties={"DELAY": "2"}, store_timestamp=1_000)
    block = block_of(elsewhere, delayed, elsewhere)
    assert dispatch.tags_codes(block, RULES).tolist() == [97, code, 97]
    assert dispatch.queue_units(block, RULES).columns.tags_codes.tolist() == [97, code, 97]
    assert dispatch.tags_codes(block, DispatchRules(())).tolist() == [97] * 3, "without levels it has its tags"


def test_transaction_types() -> None:
    """PREPARED goes to the index alone, ROLLBACK nowhere."""
    kinds = (NONE, PREPARED, COMMIT, ROLLBACK)
    block = block_of(*(Message(keys=f"k{kind}", sys_flag=kind) for kind in kinds))
    assert dispatch.dispatched(block).tolist() == [True, False, True, False]
    assert dispatch.queue_units(block, RULES).columns.offsets.tolist() == offsets_of(block, 0, 2)
    entries = dispatch.index_entries(block, RULES)
    assert entries.offsets.tolist() == offsets_of(block, 0, 1, 2)
    assert entries.key_hashes.tolist() == [index_hash(f"TopicTest#k{kind}") for kind in kinds[:3]]


def test_foreign_records_become_nothing() -> None:
    block = block_of(Message(keys="k"), Message(keys="k", physical_offset=7), Message(keys="k"))
    assert dispatch.queue_units(block, RULES).columns.offsets.tolist() == offsets_of(block, 0, 2)
    assert dispatch.index_entries(block, RULES).offsets.tolist() == offsets_of(block, 0, 2)


def test_a_unit_is_what_its_record_says() -> None:
    first = Message(topic="A", queue_id=3, queue_offset=1 << 40, tags="t", body=b"12", store_timestamp=5)
    second = Message(topic="B", queue_id=65_535, queue_offset=0, store_timestamp=6)
    block = block_of(first, second)
    found = dispatch.queue_units(block, RULES)
    units = found.columns
    assert [found.topics[code] for code in units.topic_codes] == [b"A", b"B"]
    assert units.queue_ids.tolist() == [3, 65_535]
    assert units.queue_offsets.tolist() == [1 << 40, 0]
    assert units.offsets.tolist() == offsets_of(block, 0, 1)
    assert units.sizes.tolist() == [len(encode_record(first, 0)), len(encode_record(second, 0))]
    assert units.tags_codes.tolist() == [116, 0]
    assert units.store_timestamps.tolist() == [5, 6]
    assert not found.light.any()


@pytest.mark.parametrize("count", [1, 50])
def test_units_of_light_queues_follow_their_record(count: int) -> None:
    """Every second record goes to two of them; one has the name of a topic of the block, and the record's queue id."""
    light = {"INNER_MULTI_DISPATCH": "%LMQ%a,U", "INNER_MULTI_QUEUE_OFFSET": "70,80"}
    plain = Message(topic="U", queue_id=4, queue_offset=5, properties={})
    shared = Message(topic="T", queue_id=3, queue_offset=9, properties=light, store_timestamp=6)
    block = block_of(*[plain, shared] * count, properties=LIGHT_PROPERTIES)
    found = dispatch.queue_units(block, DispatchRules((), multi_dispatch=MultiDispatchRules(True)))
    units = found.columns
    assert [found.topics[code] for code in units.topic_codes] == [b"U", b"T", b"%LMQ%a", b"U"] * count
    assert len(set(found.topics)) == len(found.topics)
    assert units.queue_ids.tolist() == [4, 3, 0, 3] * count
    assert units.queue_offsets.tolist() == [5, 9, 70, 80] * count
    assert units.offsets.tolist() == [block.positions[2 * pair + at] for pair in range(count) for at in (0, 1, 1, 1)]
    assert units.store_timestamps.tolist() == [0, 6, 6, 6] * count
    assert found.light.tolist() == [False, False, True, True] * count
    assert len(dispatch.queue_units(block, RULES).columns.offsets) == 2 * count


INNER = {"INNER_NUM": "3", "INNER_BASE": "40"}


def test_topics_of_batch_queues_have_batch_units_and_no_others() -> None:
    messages = (
        Message(topic="B", queue_offset=9, properties=INNER, tags="a", store_timestamp=77, queue_id=2),
        Message(topic="T", queue_offset=10, properties=INNER),
        Message(topic="B", queue_offset=43),
        Message(topic="B", queue_offset=44, properties={"INNER_NUM": "3"}),
        Message(topic="B", queue_offset=45, properties={"INNER_BASE": "3"}),
        Message(topic="B", properties={"INNER_NUM": "-1", "INNER_BASE": "46"}),
        Message(topic="B", properties={"INNER_NUM": "1", "INNER_BASE": "-1"}),
        Message(topic="B", queue_offset=46, sys_flag=PREPARED),
        Message(topic="B", queue_offset=46, sys_flag=COMMIT),
    )
    block = block_of(*messages)
    rules = DispatchRules((), batch_topics=frozenset({b"B", b"another"}))
    assert dispatch.queue_units(block, rules).columns.offsets.tolist() == offsets_of(block, 1)
    batches = dispatch.batch_units(block, rules)
    units = batches.units
    assert units["phy_offset"].tolist() == offsets_of(block, 0, 2, 3, 4, 8)
    assert units["msg_base_offset"].tolist() == [40, 43, 44, 45, 46]
    assert units["batch_size"].tolist() == [3, 1, 1, 1, 1]
    assert units["size"].tolist() == [len(encode_record(messages[row], 0)) for row in (0, 2, 3, 4, 8)]
    assert units["tags_code"].tolist() == [97, 0, 0, 0, 0]
    assert units["store_timestamp"][0] == 77
    assert units["compacted_offset"].tolist() == [-1] * 5
    assert units["reserved"].tolist() == [0] * 5
    assert batches.queue_ids.tolist() == [2, 0, 0, 0, 0]
    assert {block.topics[code] for code in batches.topic_codes} == {b"B"}
    assert len(dispatch.batch_units(block, RULES).units) == 0
    assert len(dispatch.queue_units(block, RULES).columns.offsets) == len(messages) - 1


def test_a_batch_that_says_it_holds_nothing_has_a_unit() -> None:
    """The broker's dispatch refuses negative counts alone; its recovery ends the queue at this unit."""
    block = block_of(Message(topic="B", properties={"INNER_NUM": "0", "INNER_BASE": "7"}))
    units = dispatch.batch_units(block, DispatchRules((), batch_topics=frozenset({b"B"}))).units
    assert (units["batch_size"].tolist(), units["msg_base_offset"].tolist()) == ([0], [7])


def test_index_keys_in_the_brokers_order() -> None:
    block = block_of(
        Message(uniq_key="u", keys=" k1  k2 ", tags="x", store_timestamp=5),
        Message(topic="T2", uniq_key="", keys="k1", tags="", store_timestamp=6),
        Message(topic="T2", tags="a||b", store_timestamp=7),
    )
    texts = ["TopicTest#u", "TopicTest#k1", "TopicTest#k2", "T2#k1"]
    entries = dispatch.index_entries(block, RULES)
    assert entries.key_hashes.tolist() == [index_hash(text) for text in texts]
    assert entries.offsets.tolist() == offsets_of(block, 0, 0, 0, 1)
    assert entries.store_timestamps.tolist() == [5, 5, 5, 6]
    assert not dispatch.from_tags(block, entries)[3]

    with_tags = dispatch.index_entries(block, DispatchRules((), index_tags=True))
    texts = ["TopicTest#u", "TopicTest#k1", "TopicTest#k2", "TopicTest#T#x", "T2#k1", "T2#T#a||b"]
    assert with_tags.key_hashes.tolist() == [index_hash(text) for text in texts]
    assert with_tags.offsets.tolist() == offsets_of(block, 0, 0, 0, 0, 1, 2)
    assert dispatch.from_tags(block, with_tags).tolist() == [False, False, False, True, False, True]

    nothing = dispatch.index_entries(block, DispatchRules((), message_index_enable=False))
    assert len(nothing.key_hashes) == len(nothing.offsets) == len(nothing.store_timestamps) == 0


# -------------------------------------------------------------------------------------------------- light queues
NAMES = ("%LMQ%a", "%LMQ%b", "other", "%LMQ%\u6807\u7b7e", "Topic", " ", "", "a/b", "..", "%LMQ%" + "x" * 260)
OFFSETS = ("0", "17", "007", "123456789012345678", f"{(1 << 63) - 1}", f"{1 << 63}", "+5", "-1", "", " ", "x", "9" * 18,
           "1" + "0" * 18, "/", ":", "1/", ":1")  # fmt: skip
TOPICS = ("Topic", "%RETRY%g", "rmq_sys_x", "%LMQ%a")
LIGHT_RULES = MultiDispatchRules(True, excluded_prefixes=("%RETRY%", "rmq_sys_"))

lists = st.lists(st.sampled_from(NAMES), max_size=4)
numbers = st.lists(st.sampled_from(OFFSETS), max_size=4)
alike = st.integers(1, 4).flatmap(
    lambda size: st.tuples(
        st.lists(st.sampled_from(NAMES[:5]), min_size=size, max_size=size),
        st.lists(st.integers(0, 99).map(str) | st.sampled_from(OFFSETS), min_size=size, max_size=size),
    )
)
records = st.tuples(st.sampled_from(TOPICS), st.integers(0, 2), st.one_of(alike, st.tuples(lists, numbers)))


def light_block_of(drawn: list[tuple[str, int, tuple[list[str], list[str]]]]) -> RecordBlock:
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
    rules = MultiDispatchRules(enable_lmq, excluded_prefixes=LIGHT_RULES.excluded_prefixes)
    if not drawn:
        return
    units = light_units(light_block_of(drawn), np.arange(len(drawn)), rules)
    names = [units.names[code].decode() for code in units.name_codes]
    found = list(zip(units.rows.tolist(), names, units.queue_ids.tolist(), units.queue_offsets.tolist(), strict=True))
    assert found == one_by_one(drawn, rules)


def test_only_queued_records_count() -> None:
    pair = (["%LMQ%a", "%LMQ%b"], ["3", "4"])
    for queued in ([], [1]):
        units = light_units(light_block_of([("T", 0, pair), ("T", 1, pair)]), np.array(queued, np.int64), LIGHT_RULES)
        assert units.rows.tolist() == [row for row in queued for _ in range(2)]
        assert units.queue_offsets.tolist() == [3, 4] * len(queued)
    assert len(light_units(light_block_of([]), np.arange(0), LIGHT_RULES).rows) == 0


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
    block = light_block_of([(topic, 0, (["%LMQ%a"], ["3"])) for topic in ("T", "TU", "%U")])
    assert light_units(block, np.arange(3), rules).rows.tolist() == rows


# ------------------------------------------------------------------------------------------------------- pending
REAL = {"REAL_TOPIC": "T", "REAL_QID": "3"}


@pytest.mark.parametrize(
    ("topic", "tags_code", "properties", "expected"),
    [
        ("SCHEDULE_TOPIC_XXXX", 1_000, {**REAL, "DELAY": "4"}, Pending("delayed", ("T",), 3, 1_000)),
        ("SCHEDULE_TOPIC_XXXX", 77, REAL, Pending("delayed", ("T",), 3)),
        ("SCHEDULE_TOPIC_XXXX", 5, {"REAL_TOPIC": "%RETRY%g", "REAL_QID": "0", "RETRY_TOPIC": "T", "DELAY": "3"},
         Pending("retried", ("%RETRY%g", "T"), 0, 5)),
        ("rmq_sys_wheel_timer", 9, {**REAL, "TIMER_OUT_MS": "2000"}, Pending("timer", ("T",), 3, 2_000)),
        ("RMQ_SYS_TRANS_HALF_TOPIC", None, REAL, Pending("half", ("T",), 3)),
        ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", None, REAL, Pending("half", ("T",), 3)),
        ("%RETRY%g", None, {"RETRY_TOPIC": "T"}, Pending("retried", ("T",))),
        ("%DLQ%g", None, {"RETRY_TOPIC": "T", "DLQ_ORIGIN_TOPIC": "T"}, Pending("dead", ("T",))),
        ("%DLQ%g", None, {"DLQ_ORIGIN_TOPIC": "T", "RETRY_TOPIC": "U", "REAL_TOPIC": "V"},
         Pending("dead", ("T", "U", "V"))),
        ("%DLQ%g", None, {"REAL_TOPIC": "%DLQ%g", "RETRY_TOPIC": ""}, Pending("dead", ())),
        ("%DLQ%g", None, {}, Pending("dead", ())),
        ("T", None, {**REAL, "DELAY": "4"}, None),
        ("SCHEDULE_TOPIC_XXXX", 77, {}, None),
        ("rmq_sys_wheel_timer", 9, {**REAL, "TIMER_DEL_UNIQKEY": "T+1"}, None),
        ("rmq_sys_wheel_timer", 9, {**REAL, "REAL_QID": "x", "TIMER_OUT_MS": "-1"}, Pending("timer", ("T",))),
    ],
)  # fmt: skip
def test_what_a_message_waits_for(
    topic: str, tags_code: int | None, properties: dict[str, str], expected: Pending | None
) -> None:
    assert pending(topic, tags_code, properties) == expected
    assert may_hold(topic) == (topic != "T")


@pytest.mark.parametrize(
    ("topic", "properties", "asked", "belongs"),
    [
        ("%RETRY%g", {"RETRY_TOPIC": "T"}, "T", True),
        ("%RETRY%g", {"RETRY_TOPIC": "T"}, "U", False),
        ("%RETRY%g+T", {}, "T", True),
        ("%RETRY%g_T", {}, "T", True),
        ("%RETRY%gT", {}, "T", False),
    ],
)
def test_to_which_topic_it_belongs(topic: str, properties: dict[str, Any], asked: str, belongs: bool) -> None:
    waiting = pending(topic, None, properties)
    assert waiting is not None
    assert belongs_to(topic, waiting, asked) == belongs
