"""Pairs of RocksDB queues, byte by byte as documented."""

from __future__ import annotations

import numpy as np

from storeformat.queues import consume_queue, rocksdb_pairs


def test_a_unit_is_a_pair() -> None:
    keys = rocksdb_pairs.unit_keys("主题".encode(), 3, np.array([0, 258]))
    assert [bytes(key) for key in keys] == [
        bytes.fromhex("00000006 01 e4b8bbe9a298 01 00000003 01 0000000000000000"),
        bytes.fromhex("00000006 01 e4b8bbe9a298 01 00000003 01 0000000000000102"),
    ]
    units = consume_queue.pack_units([377, 1 << 40], [181, 2], [-1, 1795167552993])
    values = rocksdb_pairs.unit_values(units, np.array([1, 1795167542993]))
    assert [value.tobytes() for value in values] == [
        bytes.fromhex("0000000000000179 000000b5 ffffffffffffffff 0000000000000001"),
        bytes.fromhex("0000010000000000 00000002 000001a1f85305e1 000001a1f852ded1"),
    ]


def test_the_ends_of_a_queue_are_pairs() -> None:
    assert rocksdb_pairs.end_key(b"T", 1, "max") == bytes.fromhex("000000010154016d61780100000001")
    assert rocksdb_pairs.end_key(b"T", 1, "min") == bytes.fromhex("000000010154016d696e0100000001")
    assert rocksdb_pairs.checkpoint_key() == bytes.fromhex("00000010 01") + b"CHECKPOINT_TOPIC\x01max\x01" + bytes(4)
    assert rocksdb_pairs.end_value(5, 6) == bytes.fromhex("00000000000000050000000000000006")


def test_keys_are_parsed() -> None:
    key = rocksdb_pairs.unit_key(b"T\x01", 7, 258)
    assert key == rocksdb_pairs.unit_keys(b"T\x01", 7, np.array([258]))[0].tobytes()
    assert rocksdb_pairs.parse_queue(key) == (b"T\x01", 7)
    assert rocksdb_pairs.queue_head(b"T\x01", 7) < key < rocksdb_pairs.after_queue(b"T\x01", 7)
    assert rocksdb_pairs.after_queue(b"T\x01", 7) < rocksdb_pairs.unit_key(b"T\x01", 8, 0)
    assert rocksdb_pairs.parse_end(rocksdb_pairs.end_key(b"T", 1, "min")) == (b"T", 1, "min")
    assert rocksdb_pairs.parse_ends(rocksdb_pairs.end_value(5, 6)) == (5, 6)
    assert rocksdb_pairs.parse_offset(rocksdb_pairs.checkpoint_value(9)) == 9


def test_what_is_no_key_is_none() -> None:
    key = rocksdb_pairs.unit_key(b"T", 1, 2)
    for wrong in (b"", b"\0\0\0\1", key[:-1], key + b"\0", key[:4] + b"\2" + key[5:]):
        assert rocksdb_pairs.parse_queue(wrong) is None
    assert rocksdb_pairs.parse_end(key) is None
    assert rocksdb_pairs.parse_end(rocksdb_pairs.end_key(b"T", 1, "mid")) is None
    assert rocksdb_pairs.parse_ends(rocksdb_pairs.checkpoint_value(9)) is None
    assert rocksdb_pairs.parse_offset(b"") is None


def test_queues_sort_as_their_keys() -> None:
    queues = [(b"B", 0), (b"A", 256), (b"A", 1), (b"AA", 0), (b"\xff", 2)]
    by_key = sorted(queues, key=lambda queue: rocksdb_pairs.queue_head(*queue))
    assert sorted(queues, key=lambda queue: rocksdb_pairs.key_order(*queue)) == by_key
