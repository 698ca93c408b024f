"""BORNHOST and STOREHOST of a record: stored bytes (big-endian) and text.

======  =====================  ==========================================================================
bytes   parts                  text
======  =====================  ==========================================================================
8       address 4, port i32    ``192.168.0.9:10911``
20      address 16, port i32   ``[fe80::1]:10911``
======  =====================  ==========================================================================

Mirrors MessageExt#socketAddress2ByteBuffer and its inverse in MessageDecoder.
"""

from __future__ import annotations

import ipaddress
import struct
from functools import lru_cache

from storeformat.message import HOST_V4, HOST_V6

_PORT = struct.Struct(">i")


@lru_cache(maxsize=1 << 16)
def host_text(stored: bytes) -> str:
    """``address:port`` of a stored host, IPv6 in brackets. Raises ValueError for another number of bytes."""
    if len(stored) not in (HOST_V4, HOST_V6):
        raise ValueError(f"{len(stored)} bytes are not a host address")
    address, (port,) = ipaddress.ip_address(stored[: -_PORT.size]), _PORT.unpack(stored[-_PORT.size :])
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


@lru_cache(maxsize=1 << 12)
def host_bytes(text: str) -> bytes | None:
    """Stored form of ``address:port``."""
    address, colon, port = text.rpartition(":")
    try:
        return ipaddress.ip_address(address.strip("[]")).packed + _PORT.pack(int(port)) if colon else None
    except (ValueError, struct.error):
        return None
