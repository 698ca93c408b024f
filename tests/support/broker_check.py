"""How a broker reads one record: ``CommitLog#checkMessageAndReturnSize``, line by line.

Mirrors apache/rocketmq 4.6.1 to 5.5.0; what changed between releases carries the release. A ``CheckResult`` is read as
the broker's callers do:

====================  =======================================================
success and size > 0  a record, with its ``DispatchRequest``
success and size = 0  a BLANK: the segment ends here
no success, size > 0  the length does not match what was parsed
no success, size -1   no record
====================  =======================================================
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from support import java_rules
from support.broker_settings import BrokerSettings

MESSAGE_MAGIC_CODE = -626843481
MESSAGE_MAGIC_CODE_V2 = -626843477
BLANK_MAGIC_CODE = -875286124

BORN_HOST_V6_FLAG = 0x10
STORE_HOST_V6_FLAG = 0x20
TRANSACTION_NOT_TYPE = 0x0
TRANSACTION_COMMIT_TYPE = 0x8
TRANSACTION_ROLLBACK_TYPE = 0xC

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
CRC32_RESERVED_LEN = 20


@dataclass(frozen=True)
class DispatchRequest:
    """``org.apache.rocketmq.store.DispatchRequest``, the fields that reach a file."""

    topic: str
    queue_id: int
    commit_log_offset: int
    msg_size: int
    tags_code: int
    store_timestamp: int
    consume_queue_offset: int
    keys: str | None
    uniq_key: str | None
    sys_flag: int
    prepared_transaction_offset: int
    properties: Mapping[str, str] | None
    msg_base_offset: int
    batch_size: int

    @property
    def transaction_type(self) -> int:
        return self.sys_flag & 0xC


@dataclass(frozen=True)
class CheckResult:
    size: int
    success: bool
    request: DispatchRequest | None = None
    reason: str = ""


class JavaError(Exception):
    """Any exception that ``checkMessageAndReturnSize`` catches."""


class RejectedError(Exception):
    """A ``return new DispatchRequest(-1, false)``."""


class ByteBuffer:
    """A big-endian ``java.nio.ByteBuffer`` over ``[position, limit)`` of some bytes."""

    def __init__(self, data: bytes, position: int, limit: int) -> None:
        self.data, self.position, self.limit = data, position, limit

    @property
    def remaining(self) -> int:
        return self.limit - self.position

    def get(self, length: int) -> bytes:
        if length > self.remaining:
            raise JavaError(f"BufferUnderflowException: {length} of {self.remaining} bytes")
        self.position += length
        return self.data[self.position - length : self.position]

    def get_into_array(self, length: int, array_length: int) -> bytes:
        if not 0 <= length <= array_length:
            raise JavaError(f"IndexOutOfBoundsException: {length} of {array_length}")
        return self.get(length)

    def get_number(self, length: int) -> int:
        return int.from_bytes(self.get(length), "big", signed=True)

    def skip(self, length: int) -> None:
        if length > self.remaining:
            raise JavaError(f"IllegalArgumentException: position {self.position + length} beyond {self.limit}")
        self.position += length


@dataclass(frozen=True)
class Checks:
    """The flags of ``checkMessageAndReturnSize``."""

    crc: bool
    dup_info: bool
    read_body: bool


REPUT = Checks(crc=False, dup_info=False, read_body=False)
RECOVERY = Checks(crc=True, dup_info=False, read_body=True)


def check_message_and_return_size(buffer: ByteBuffer, settings: BrokerSettings, checks: Checks) -> CheckResult:
    """The result for the bytes at the buffer's position, which moves as far as the broker reads."""
    try:
        return _check(buffer, settings, checks)
    except (JavaError, RejectedError, java_rules.NumberFormatError) as error:
        return CheckResult(-1, False, reason=f"{type(error).__name__}: {error}")


def _check(buffer: ByteBuffer, settings: BrokerSettings, checks: Checks) -> CheckResult:
    start, version = buffer.position, settings.version
    if version >= (5, 3, 2) and buffer.remaining <= 4:
        raise RejectedError("no room for a size")
    total_size = buffer.get_number(4)
    if version >= (5, 3, 2) and buffer.remaining < total_size - 4:
        raise RejectedError("size beyond the buffer")
    magic = buffer.get_number(4)
    if magic == BLANK_MAGIC_CODE:
        return CheckResult(0, True)
    if magic != MESSAGE_MAGIC_CODE and not (magic == MESSAGE_MAGIC_CODE_V2 and version >= (5, 1, 0)):
        raise RejectedError(f"illegal magic {magic & 0xFFFFFFFF:#x}")
    # new byte[totalSize]; before 5.3.2 a huge size is an OutOfMemoryError, which nothing catches: not played here
    if total_size < 0:
        raise JavaError("NegativeArraySizeException")
    body_crc = buffer.get_number(4)
    queue_id = buffer.get_number(4)
    buffer.get_number(4)  # flag
    queue_offset = buffer.get_number(8)
    physic_offset = buffer.get_number(8)
    sys_flag = buffer.get_number(4)
    buffer.get_number(8)  # born timestamp
    born_host_length = 20 if version >= (4, 6, 0) and sys_flag & BORN_HOST_V6_FLAG else 8
    buffer.get_into_array(born_host_length, total_size)
    store_timestamp = buffer.get_number(8)
    store_host_length = 20 if version >= (4, 6, 0) and sys_flag & STORE_HOST_V6_FLAG else 8
    buffer.get_into_array(store_host_length, total_size)
    buffer.get_number(4)  # reconsume times
    prepared_transaction_offset = buffer.get_number(8)
    body_length = buffer.get_number(4)
    _read_body(buffer, settings, checks, length=body_length, crc=body_crc, total_size=total_size)
    topic_length_bytes = 2 if magic == MESSAGE_MAGIC_CODE_V2 else 1
    topic_length = buffer.get_number(topic_length_bytes)
    topic = java_rules.new_string_utf8(buffer.get_into_array(topic_length, total_size))
    properties_length = buffer.get_number(2)
    properties: dict[str, str] | None = None
    keys: str | None = ""
    tags_code = 0
    if properties_length > 0:
        text = java_rules.new_string_utf8(buffer.get_into_array(properties_length, total_size))
        properties = string_to_message_properties(text, version)
        keys = properties.get("KEYS")
        if checks.dup_info and version >= (5, 0, 0):
            _check_dup_info(properties)
        tags_code = tags_string_to_tags_code(properties.get("TAGS"))
        if topic == SCHEDULE_TOPIC and "DELAY" in properties:
            tags_code = _deliver_timestamp(properties["DELAY"], store_timestamp, tags_code, settings)
    if checks.crc and _verifies_property_crc(settings):
        _check_property_crc(buffer.data[start : start + total_size - CRC32_RESERVED_LEN], properties, version)
    read_length = 72 + born_host_length + store_host_length + max(body_length, 0)
    read_length += topic_length_bytes + topic_length + 2 + max(properties_length, 0)
    if total_size != read_length:
        return CheckResult(total_size, False, reason=f"total size {total_size}, read {read_length}")
    msg_base_offset, batch_size = queue_offset, 1
    if version >= (5, 0, 0) and properties and "INNER_NUM" in properties and "INNER_BASE" in properties:
        batch_size = java_rules.parse_integer(properties["INNER_NUM"], 16)
        msg_base_offset = java_rules.parse_integer(properties["INNER_BASE"], 64)
    request = DispatchRequest(
        topic=topic,
        queue_id=queue_id,
        commit_log_offset=physic_offset,
        msg_size=total_size,
        tags_code=tags_code,
        store_timestamp=store_timestamp,
        consume_queue_offset=queue_offset,
        keys=keys,
        uniq_key=(properties or {}).get("UNIQ_KEY"),
        sys_flag=sys_flag,
        prepared_transaction_offset=prepared_transaction_offset,
        properties=properties,
        msg_base_offset=msg_base_offset,
        batch_size=batch_size,
    )
    return CheckResult(total_size, True, request)


def _read_body(
    buffer: ByteBuffer, settings: BrokerSettings, checks: Checks, *, length: int, crc: int, total_size: int
) -> None:
    if length <= 0:
        return
    if not checks.read_body:
        buffer.skip(length)
        return
    body = buffer.get_into_array(length, total_size)
    is_checked = checks.crc and not _verifies_property_crc(settings)
    if is_checked and zlib.crc32(body) & 0x7FFFFFFF != crc:
        raise RejectedError("CRC check failed")


def _check_dup_info(properties: Mapping[str, str]) -> None:
    dup_info = properties.get("DUP_INFO")
    if dup_info is None or len(java_rules.split(dup_info, "_")) != 2:
        raise RejectedError("DUP_INFO in properties check failed")


def _verifies_property_crc(settings: BrokerSettings) -> bool:
    return settings.force_verify_prop_crc and settings.version >= (5, 2, 0)


def _check_property_crc(covered: bytes, properties: Mapping[str, str] | None, version: tuple[int, ...]) -> None:
    digits = (properties or {}).get("__CRC32#")
    expected = -1 if digits is None else java_rules.parse_integer(digits[::-1], 32)
    if expected < (0 if version >= (5, 3, 2) else 1):
        raise RejectedError("no property CRC")
    if zlib.crc32(covered) & 0x7FFFFFFF != expected:
        raise RejectedError("property CRC check failed")


def string_to_message_properties(text: str, version: tuple[int, ...]) -> dict[str, str]:
    """``MessageDecoder#string2messageProperties``: an index scan from 4.9.1 on, ``split`` before."""
    properties: dict[str, str] = {}
    if version >= (4, 9, 1):
        index = 0
        while index < len(text):
            end = text.find("\x02", index)
            end = len(text) if end < 0 else end
            # the broker counts UTF-16 units here, but no pair of a name and a value is affected
            if end - index >= 3:
                separator = text.find("\x01", index)
                if index < separator < end - 1:
                    properties[text[index:separator]] = text[separator + 1 : end]
            index = end + 1
        return properties
    for item in java_rules.split(text, "\x02"):
        pair = java_rules.split(item, "\x01")
        if len(pair) == 2:
            properties[pair[0]] = pair[1]
    return properties


def tags_string_to_tags_code(tags: str | None) -> int:
    """``MessageExtBrokerInner#tagsString2tagsCode``: the hash of the whole string, 0 for none."""
    return java_rules.hash_code(tags) if tags else 0


def _deliver_timestamp(delay: str, store_timestamp: int, tags_code: int, settings: BrokerSettings) -> int:
    """``DefaultMessageStore#computeDeliverTimestamp`` of the level in ``DELAY``, clamped to the highest."""
    delays = settings.delays
    level = min(java_rules.parse_integer(delay, 32), max(delays))
    return store_timestamp + delays[level] if level > 0 else tags_code
