"""Message ids: upper-case hexadecimal of big-endian bytes (FORMAT.md).

Three kinds: the offset message id, derived from STOREHOST and PHYSICALOFFSET, and the unique keys of remoting and of
gRPC clients. The first two have one length and are indistinguishable. Users may set any text as unique key. Mirrors
MessageDecoder#createMessageId and #decodeMessageId, MessageClientIDSetter, and MessageIdCodec of rocketmq-clients.

BORNHOST and STOREHOST of a record: stored bytes (big-endian) and text.

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
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storeformat.javacompat import EPOCH, binary_buffers
from storeformat.message import HOST_V4, HOST_V6

_HEX_PAIRS = np.frombuffer(bytes(range(256)).hex().upper().encode(), dtype=np.uint16)
_HEX_CHARACTERS = frozenset("0123456789abcdefABCDEF")
_GRPC_EPOCH_MS = 1_609_459_200_000
_GRPC_VERSION = 1


@dataclass(frozen=True)
class OffsetMessageId:
    """A broker's address and a commit-log offset."""

    host: bytes
    port: int
    commit_log_offset: int

    @property
    def address(self) -> str:
        """Host as text, IPv6 without brackets."""
        return str(ipaddress.ip_address(self.host))

    def __str__(self) -> str:
        return (self.host + struct.pack(">iq", self.port, self.commit_log_offset)).hex().upper()


def parse_offset_message_id(text: str) -> OffsetMessageId | None:
    """Parse an offset message id.

    >>> found = parse_offset_message_id("C0A8000900002A9F0000000000000179")
    >>> found.address, found.port, found.commit_log_offset
    ('192.168.0.9', 10911, 377)
    >>> str(found)
    'C0A8000900002A9F0000000000000179'
    """
    raw = _unhex(text, (32, 56))
    if raw is None:
        return None
    port, commit_log_offset = struct.unpack(">iq", raw[-12:])
    return OffsetMessageId(raw[:-12], port, commit_log_offset)


@dataclass(frozen=True)
class UniqueKey:
    """The parts of a client's UNIQ_KEY. ``address``: the client's, for gRPC its MAC (6 bytes). ``span``: milliseconds
    since the month began in the client's time zone, for gRPC seconds since 2021-01-01. ``pid``: its low 16 bits (4.6.0
    and 4.6.1: the high ones). ``class_loader``: 0 for gRPC.
    """

    address: bytes
    pid: int
    class_loader: int
    span: int
    counter: int

    @property
    def is_grpc(self) -> bool:
        return len(self.address) == 6

    @property
    def ip(self) -> str | None:
        """Client address as text, None for gRPC. May be invented if the client could not find its own."""
        return None if self.is_grpc else str(ipaddress.ip_address(self.address))

    def __str__(self) -> str:
        if self.is_grpc:
            raw = struct.pack(">B6sHII", _GRPC_VERSION, self.address, self.pid, self.span, self.counter)
        else:
            raw = self.address + struct.pack(">HIIH", self.pid, self.class_loader, self.span, self.counter)
        return raw.hex().upper()

    def timestamp(self, near: int, utc_offset_ms: int = 0) -> int | None:
        """Milliseconds since the epoch when the client made this id. The id lacks the month: the month that brings it
        closest to ``near`` is taken (best: the message's BORNTIMESTAMP). ``utc_offset_ms``: the client's time zone.
        """
        if self.is_grpc:
            return _GRPC_EPOCH_MS + self.span * 1000
        try:
            local = EPOCH + timedelta(milliseconds=near + utc_offset_ms)
            months = [local.year * 12 + local.month - 1 + step for step in (-1, 0, 1)]
            begins = [datetime(month // 12, month % 12 + 1, 1, tzinfo=timezone.utc) for month in months]
        except (OverflowError, ValueError):  # no date of this calendar
            return None
        candidates = [(begin - EPOCH) // timedelta(milliseconds=1) - utc_offset_ms + self.span for begin in begins]
        return min(candidates, key=lambda candidate: abs(candidate - near))


def parse_unique_key(text: str) -> UniqueKey | None:
    """Parse a UNIQ_KEY; None for an unknown form. Any 16 or 28 bytes are accepted."""
    raw = _unhex(text, (32, 34, 56))
    if raw is None:
        return None
    if len(raw) == 17:
        version, mac, pid, seconds, sequence = struct.unpack(">B6sHII", raw)
        return UniqueKey(mac, pid, 0, seconds, sequence) if version == _GRPC_VERSION else None
    return UniqueKey(raw[:-12], *struct.unpack(">HIIH", raw[-12:]))


def offset_message_ids(store_hosts: pa.Array, commit_log_offsets: npt.ArrayLike) -> pa.StringArray:
    """Offset message ids from a binary array of STOREHOST (8 or 20 bytes); null for other sizes."""
    data, begins = binary_buffers(store_hosts.cast(pa.binary()))
    sizes = np.diff(begins)
    offsets = np.asarray(commit_log_offsets).astype(">i8").view(np.uint8).reshape(-1, 8)
    text_sizes = np.select([sizes == 8, sizes == 20], [32, 56], 0)
    text_begins = np.zeros(len(sizes) + 1, dtype=np.int32)
    np.cumsum(text_sizes, out=text_begins[1:])
    text = np.empty(int(text_begins[-1]), dtype=np.uint8)
    for size in (8, 20):
        rows = np.flatnonzero(sizes == size)
        if not len(rows):
            continue
        uniform = len(rows) == len(sizes)  # then values and texts are contiguous
        raw = np.empty((len(rows), size + 8), dtype=np.uint8)
        raw[:, :size] = (
            data[begins[0] : begins[-1]].reshape(-1, size) if uniform else data[begins[rows, None] + np.arange(size)]
        )
        raw[:, size:] = offsets if uniform else offsets[rows]
        digits = _HEX_PAIRS[raw].view(np.uint8)
        if uniform:
            text = digits.reshape(-1)
        else:
            text[text_begins[rows, None] + np.arange(2 * size + 16)] = digits
    valid = pa.array(text_sizes > 0)
    return pa.StringArray.from_buffers(len(sizes), pa.py_buffer(text_begins), pa.py_buffer(text), valid.buffers()[1])


def _unhex(text: str, lengths: tuple[int, ...]) -> bytes | None:
    if len(text) not in lengths or not set(text) <= _HEX_CHARACTERS:
        return None
    return bytes.fromhex(text)


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
