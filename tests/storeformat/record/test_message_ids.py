"""Message ids: ids that real brokers and clients made, and both directions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storeformat.record.message_ids import (
    OffsetMessageId,
    UniqueKey,
    offset_message_ids,
    parse_offset_message_id,
    parse_unique_key,
)

V4_HOST = bytes([192, 168, 0, 9]) + (10911).to_bytes(4, "big")
V6_HOST = bytes.fromhex("fe800000000000000000000000000002") + (2).to_bytes(4, "big")
# Made by a 4.9.8 broker for its records at 0 (v4) and 939 (v6).
V4_ID = "C0A8000900002A9F0000000000000000"
V6_ID = "FE8000000000000000000000000000020000000200000000000003AB"


def test_ids_of_a_real_broker() -> None:
    ids = offset_message_ids(pa.array([V4_HOST, V6_HOST, None, b"short"], pa.binary()), [0, 939, 5, 6])
    assert ids.to_pylist() == [V4_ID, V6_ID, None, None]
    assert ids.type == pa.string()
    ids.validate(full=True)
    v4, v6 = parse_offset_message_id(V4_ID), parse_offset_message_id(V6_ID.lower())
    assert v4 == OffsetMessageId(bytes([192, 168, 0, 9]), 10911, 0)
    assert v6 == OffsetMessageId(V6_HOST[:16], 2, 939)
    assert (v4.address, v6.address) == ("192.168.0.9", "fe80::2")


@given(
    st.lists(
        st.one_of(st.none(), st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20), st.just(b"")),
        max_size=20,
    ),
    st.integers(0, 3),
    st.data(),
)
def test_columns_equal_single_ids(hosts: list[bytes | None], skipped: int, data: st.DataObject) -> None:
    hosts_kept = hosts[skipped:]
    offsets = data.draw(
        st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=len(hosts_kept), max_size=len(hosts_kept))
    )
    ids = offset_message_ids(pa.array(hosts, pa.binary())[skipped:], np.array(offsets, dtype=np.int64)).to_pylist()
    for host, offset, found in zip(hosts_kept, offsets, ids, strict=True):
        if not host:
            assert found is None
            continue
        expected = OffsetMessageId(host[:-4], int.from_bytes(host[-4:], "big", signed=True), offset)
        assert found == str(expected)
        assert parse_offset_message_id(found) == expected


def test_fixed_size_hosts() -> None:
    assert offset_message_ids(pa.array([V4_HOST], pa.binary(8)), [0]).to_pylist() == [V4_ID]


@pytest.mark.parametrize("text", ["", "C0A8", V4_ID[:-1], V4_ID + "00", V4_ID[:-1] + "G", V4_ID[:-2] + " 1", "١" * 32])
def test_text_that_is_no_id(text: str) -> None:
    assert parse_offset_message_id(text) is None
    assert parse_unique_key(text) is None


# 2023-11-14 22:13:20.000 UTC is 1,203,200,000 ms after 2023-11-01 00:00 UTC.
BORN = 1_700_000_000_000
SPAN = 1_203_200_000


def test_unique_key_of_a_client() -> None:
    text = "0A010203" + "1A2B" + "18B4AAC2" + f"{SPAN:08X}" + "FFFE"
    key = parse_unique_key(text)
    assert key == UniqueKey(bytes([10, 1, 2, 3]), 0x1A2B, 0x18B4AAC2, SPAN, 0xFFFE)
    assert str(key) == text
    assert (key.ip, key.is_grpc) == ("10.1.2.3", False)
    assert key.timestamp(BORN + 20) == BORN
    assert key.timestamp(BORN, utc_offset_ms=8 * 3600 * 1000) == BORN - 8 * 3600 * 1000


def test_month_is_the_one_that_brings_the_id_closest() -> None:
    last_of_october = UniqueKey(bytes(4), 0, 0, 31 * 86_400_000 - 5, 0)
    first_of_november = 1_698_796_800_000
    assert last_of_october.timestamp(first_of_november + 3) == first_of_november - 5
    january = 1_704_067_200_000
    assert UniqueKey(bytes(4), 0, 0, 31 * 86_400_000 - 1, 0).timestamp(january + 1) == january - 1
    assert UniqueKey(bytes(4), 0, 0, 5, 0).timestamp(1 << 62) is None
    assert UniqueKey(bytes(4), 0, 0, 5, 0).timestamp(-(1 << 50)) is None


def test_span_above_31_bits_is_not_negative() -> None:
    key = parse_unique_key("0A0102031A2B18B4AAC2" + "9A7EC800" + "0001")
    assert key is not None
    assert key.span == 0x9A7EC800


def test_unique_key_on_ipv6() -> None:
    text = "FE800000000000000000000000000002" + "0001" + "00000002" + "00000003" + "0004"
    key = parse_unique_key(text)
    assert key == UniqueKey(V6_HOST[:16], 1, 2, 3, 4)
    assert (key.ip, str(key)) == ("fe80::2", text)


def test_unique_key_of_a_grpc_client() -> None:
    text = "01" + "0242AC110003" + "0A1B" + "05700000" + "00000007"
    key = parse_unique_key(text)
    assert key == UniqueKey(bytes.fromhex("0242AC110003"), 0x0A1B, 0, 0x05700000, 7)
    assert (key.ip, key.is_grpc, str(key)) == (None, True, text)
    assert key.timestamp(0) == (1_609_459_200 + 0x05700000) * 1000
    assert parse_unique_key("02" + text[2:]) is None


@given(st.one_of(st.binary(min_size=16, max_size=16), st.binary(min_size=28, max_size=28)))
def test_any_bytes_of_the_right_length_come_back(raw: bytes) -> None:
    text = raw.hex().upper()
    assert str(parse_unique_key(text)) == text
    assert str(parse_offset_message_id(text)) == text


def test_the_largest_numbers_of_a_grpc_client() -> None:
    text = "01" + "FF" * 6 + "FFFF" + "FFFFFFFE" + "FFFFFFFF"
    key = parse_unique_key(text)
    assert key == UniqueKey(b"\xff" * 6, 0xFFFF, 0, 0xFFFFFFFE, 0xFFFFFFFF)
    assert str(key) == text


@pytest.mark.parametrize("hours", [0, 8, -8])
def test_a_month_that_begins_between_the_id_and_the_message(hours: int) -> None:
    december = 1_796_083_200_000 - hours * 3_600_000  # 2026-12-01 where the client is
    made_after = UniqueKey(b"\x0a\x01\x02\x03", 1, 1, 5, 1)
    assert made_after.timestamp(december - 1000, hours * 3_600_000) == december + 5
    assert type(made_after.timestamp(december, 0)) is int
    made_before = UniqueKey(b"\x0a\x01\x02\x03", 1, 1, 30 * 86_400_000 - 5, 1)
    assert made_before.timestamp(december + 1000, hours * 3_600_000) == december - 5
