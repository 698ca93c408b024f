"""Rows as a person sees them."""

from __future__ import annotations

import zlib

import pytest

from jobs.query.offline_store import plain_row


@pytest.mark.parametrize(
    ("stored", "flag", "shown"),
    [
        (b"order 4711", 0x0, "order 4711"),
        (zlib.compress(b"order 4711"), 0x1, "order 4711"),
        (b"no zlib", 0x1, "no zlib"),
        (None, 0x1, None),
    ],
)
def test_a_body_is_shown_as_the_producer_had_it(stored: bytes | None, flag: int, shown: str | None) -> None:
    assert plain_row({"store_timestamp": None, "sys_flag": flag, "body": stored})["body"] == shown
