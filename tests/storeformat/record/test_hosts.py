from __future__ import annotations

import pytest

from storeformat.record.hosts import host_bytes, host_text


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        ("c0a8000900002a9f", "192.168.0.9:10911"),
        ("7f000001ffffffff", "127.0.0.1:-1"),  # the port is any i32
        ("fe800000000000000000000000000001" + "00002a9f", "[fe80::1]:10911"),
    ],
)
def test_there_and_back(stored: str, text: str) -> None:
    assert host_text(bytes.fromhex(stored)) == text
    assert host_bytes(text) == bytes.fromhex(stored)


@pytest.mark.parametrize("text", ["", "192.168.0.9", "host:10911", "192.168.0.9:x", "192.168.0.9:4294967296"])
def test_what_is_no_host(text: str) -> None:
    assert host_bytes(text) is None


def test_other_lengths_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match=r"^7 bytes are not a host address$"):
        host_text(bytes(7))
