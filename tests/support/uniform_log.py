"""A large log of ordinary messages, made fast: a few hundred records encoded once, repeated with their own offsets."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
from support.store_builder import Message, encode_record

TOPICS, QUEUES = 40, 8
TEMPLATES = TOPICS * QUEUES
QUEUE_OFFSET_AT, PHYSICAL_OFFSET_AT = 20, 28


@dataclass(frozen=True)
class UniformLog:
    """``data`` is one run of ``messages`` records from log offset 0; each makes three index entries and one unit."""

    data: bytes
    messages: int
    topics: int
    queues: int


def uniform_log(
    size: int, *, message_bytes: int = 1000, topics: int = TOPICS, queues: int = QUEUES, seed: int = 1
) -> UniformLog:
    """At most ``size`` bytes of records with UNIQ_KEY, two KEYS and TAGS, as many in each queue."""
    rng = random.Random(seed)
    templates = topics * queues
    records = [encode_record(_message(number, message_bytes, topics, queues, rng), 0) for number in range(templates)]
    pattern = np.frombuffer(b"".join(records), np.uint8)
    copies = size // len(pattern)
    if copies < 1:
        raise ValueError(f"{size} bytes are too few for {templates} messages of {message_bytes}")
    data = np.tile(pattern, copies)
    begins = np.cumsum([0, *map(len, records[:-1])])
    starts = (np.arange(copies)[:, np.newaxis] * len(pattern) + begins).ravel()
    queue_offsets = np.repeat(np.arange(copies), templates)
    for at, values in ((PHYSICAL_OFFSET_AT, starts), (QUEUE_OFFSET_AT, queue_offsets)):
        data[(starts + at)[:, np.newaxis] + np.arange(8)] = values.astype(">i8").view(np.uint8).reshape(-1, 8)
    return UniformLog(data.tobytes(), len(starts), topics, queues)


def _message(number: int, message_bytes: int, topics: int, queues: int, rng: random.Random) -> Message:
    message = Message(
        topic=f"bench-topic-{number % topics}",
        queue_id=number // topics % queues,
        uniq_key=f"{rng.getrandbits(128):032X}",
        keys=f"order-{number} user-{rng.randrange(1_000_000)}",
        tags=f"Tag{number % 17}",
        store_timestamp=1_700_000_000_000 + number,
    )
    room = message_bytes - len(encode_record(message, 0)) + rng.randrange(-8, 9)
    return Message(**{**message.__dict__, "body": rng.randbytes(max(room, 1))})
