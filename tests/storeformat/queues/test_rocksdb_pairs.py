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
    assert rocksdb_pairs.end_value(5, 6) == bytes.fromhex("00000000000000050000000000000006")
