"""The record of the commit log: fixed head, magic codes, flags, separators and property names.

Mirrors ``CommitLog#checkMessageAndReturnSize``, ``MessageExtEncoder#calMsgLength``, ``MessageSysFlag`` and
``MessageConst`` of rocketmq-all-4.9.8 to 5.5.0. FORMAT.md has the fields in their order.
"""

from __future__ import annotations

from functools import cache
from typing import overload

import numpy as np

from storeformat.arrays import Bools, Int32s

MAGIC_V1 = -626843481  # 0xDAA320A7
MAGIC_V2 = -626843477  # 0xDAA320AB, since 5.1.0: two-byte topic length
MAGIC_BLANK = -875286124  # 0xCBD43194: the rest of the segment holds no record

MAGIC_V1_BYTES = b"\xda\xa3\x20\xa7"
MAGIC_V2_BYTES = b"\xda\xa3\x20\xab"
LONGEST_V1_TOPIC = 127  # bytes: the length is a signed byte, and a longer topic makes a record V2

BLANK_SIZE = 8  # TOTALSIZE and MAGICCODE; every record leaves at least this much room after it in its segment

FIXED_HEAD = 72  # bytes up to and including BODYLEN, without the two host fields
HOST_V4, HOST_V6 = 8, 20
MIN_RECORD_SIZE = FIXED_HEAD + 2 * HOST_V4 + 1 + 2
MAX_HEAD_SIZE = FIXED_HEAD + 2 * HOST_V6
MAGIC_POSITION = 4
BODY_CRC_POSITION = 8
PHYSICAL_OFFSET_POSITION = 28
SYS_FLAG_POSITION = 36
BORN_HOST_POSITION = 48
CERTIFICATE_SIZE = PHYSICAL_OFFSET_POSITION + 8  # bytes of a head that certify it: magic and own offset

MAX_RECORD_SIZE = 256 << 20  # a larger TOTALSIZE is damage: a task holds a record whole (brokers: 4 MiB a body)

# MessageSysFlag
COMPRESSED = 0x1
TRANSACTION_MASK = 0xC
TRANSACTION_PREPARED = 0x4
TRANSACTION_ROLLBACK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20

# MessageDecoder: name 0x01 value 0x02 name 0x01 value [0x02], no escaping
NAME_VALUE_SEPARATOR = 1
PROPERTY_SEPARATOR = 2

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

# MessageConst
KEYS = b"KEYS"
TAGS = b"TAGS"
UNIQ_KEY = b"UNIQ_KEY"
DELAY = b"DELAY"
TIMER_OUT_MS = b"TIMER_OUT_MS"
REAL_TOPIC = b"REAL_TOPIC"
INNER_NUM = b"INNER_NUM"
INNER_BASE = b"INNER_BASE"
INNER_MULTI_DISPATCH = b"INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = b"INNER_MULTI_QUEUE_OFFSET"
PROPERTY_CRC = b"__CRC32#"

CRC_MASK = 0x7FFFFFFF
DUP_INFO = b"DUP_INFO"
PROPERTY_CRC_SIZE = len(PROPERTY_CRC) + 1 + 10 + 1  # CRC32_RESERVED_LEN: name, 0x01, ten digits, lowest first, 0x02


@overload
def is_queued(sys_flag: int) -> bool: ...


@overload
def is_queued(sys_flag: Int32s) -> Bools: ...


def is_queued(sys_flag: int | Int32s) -> bool | Bools:
    """True if records with these flags go to a consume queue: all but PREPARED and ROLLBACK, which have bit 0x4."""
    return (sys_flag & TRANSACTION_PREPARED) == 0


def body_position(sys_flag: int) -> int:
    """Position of the body, after BODYLEN, in a record with these flags."""
    born_host = HOST_V6 if sys_flag & BORN_HOST_V6 else HOST_V4
    return FIXED_HEAD + born_host + (HOST_V6 if sys_flag & STORE_HOST_V6 else HOST_V4)


@cache
def head_dtype(born_host: int, store_host: int) -> np.dtype[np.void]:
    """Big-endian dtype of a record head with these host field sizes, padded to ``MAX_HEAD_SIZE``."""
    packed = np.dtype(
        [
            ("total_size", ">i4"),
            ("magic_code", ">i4"),
            ("body_crc", ">u4"),
            ("queue_id", ">i4"),
            ("flag", ">i4"),
            ("queue_offset", ">i8"),
            ("physical_offset", ">i8"),
            ("sys_flag", ">i4"),
            ("born_timestamp", ">i8"),
            ("born_host", f"V{born_host}"),
            ("store_timestamp", ">i8"),
            ("store_host", f"V{store_host}"),
            ("reconsume_times", ">i4"),
            ("prepared_transaction_offset", ">i8"),
            ("body_length", ">i4"),
        ]
    )
    places = dict(packed.fields or {})
    kinds, offsets = [place[0] for place in places.values()], [place[1] for place in places.values()]
    return np.dtype({"names": list(places), "formats": kinds, "offsets": offsets, "itemsize": MAX_HEAD_SIZE})
