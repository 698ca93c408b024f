"""Bodies that producers compressed (``CompressionType``, ``MessageSysFlag``).

=====================  ============================================================================================
bits of SYSFLAG        body
=====================  ============================================================================================
0x001 not set          as the producer had it
0x001, 0x000 or 0x300  zlib; clients before 5.0 set no type
0x001, 0x100           LZ4 frames (``Lz4Compressor``)
0x001, 0x200           Zstandard (``ZstdCompressor``)
=====================  ============================================================================================
"""

from __future__ import annotations

import zlib

import pyarrow as pa

from storeformat import message as m

COMPRESSION_TYPE = 0x700
_CODECS = {0x000: "zlib", 0x100: "lz4", 0x200: "zstd", 0x300: "zlib"}


def uncompressed(body: bytes, sys_flag: int, most: int | None = None) -> bytes | None:
    """Decompress a body; None if its bytes contradict the flags or exceed ``most``: 4 MiB, or 16 times as much.

    >>> uncompressed(zlib.compress(b"order 4711"), 0x1)
    b'order 4711'
    """
    if not sys_flag & m.COMPRESSED:
        return body
    most = max(4 << 20, 16 * len(body)) if most is None else most
    codec = _CODECS.get(sys_flag & COMPRESSION_TYPE)
    try:
        if codec == "zlib":
            stream = zlib.decompressobj()
            plain = stream.decompress(body, most + 1)  # 0 would be no bound
            return plain if stream.eof and len(plain) <= most else None
        if codec:
            with pa.CompressedInputStream(pa.BufferReader(body), codec) as source:
                plain = source.read_buffer(most)  # read() loses its bytes where the body is damaged
                return plain.to_pybytes() if not source.read_buffer(1).size else None
    except (zlib.error, OSError):
        pass
    return None
