"""Bodies as producers had them."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest

from storeformat.record.bodies import uncompressed

PLAIN = b"body " * 1000


def compressed(plain: bytes, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(plain)
    return bytes(memoryview(sink.getvalue()))


ZLIB, LZ4, ZSTD = zlib.compress(PLAIN), compressed(PLAIN, "lz4"), compressed(PLAIN, "zstd")


@pytest.mark.parametrize(
    ("stored", "flag", "expected"),
    [
        (PLAIN, 0x0, PLAIN),
        (PLAIN, 0x300, PLAIN),
        (ZLIB, 0x1, PLAIN),
        (ZLIB, 0x301, PLAIN),
        (LZ4, 0x101, PLAIN),
        (ZSTD, 0x20D, PLAIN),
        (ZLIB[:-1], 0x1, None),
        (b"", 0x1, None),
        (LZ4, 0x201, None),
        (PLAIN, 0x401, None),
    ],
)
def test_a_body_as_its_flags_say(stored: bytes, flag: int, expected: bytes | None) -> None:
    assert uncompressed(stored, flag) == expected


def test_lz4_is_the_frame_format() -> None:
    """As LZ4FrameOutputStream of lz4-java writes it."""
    assert LZ4[:4] == bytes.fromhex("04224d18")


@pytest.mark.parametrize(("stored", "flag"), [(ZLIB, 0x1), (LZ4, 0x101), (ZSTD, 0x201)])
def test_a_body_cannot_ask_for_all_memory(stored: bytes, flag: int) -> None:
    assert uncompressed(stored, flag, most=len(PLAIN) - 1) is None
    assert uncompressed(stored, flag, most=0) is None
    assert uncompressed(stored, flag, most=len(PLAIN)) == PLAIN


def test_what_is_shown_grows_with_what_is_stored() -> None:
    assert uncompressed(zlib.compress(bytes(4 << 20)), 0x1) == bytes(4 << 20)
    assert uncompressed(zlib.compress(bytes((4 << 20) + 1)), 0x1) is None
