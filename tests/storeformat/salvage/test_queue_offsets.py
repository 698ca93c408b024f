"""What the records of a block claim, queue by queue; how claims go on is tested in ``test_evidence.py``."""

from __future__ import annotations

import numpy as np
from support.in_memory import Bytes
from support.store_builder import LogBuilder

from storeformat.log.block_window import BlockWindow
from storeformat.log.chain_walk import chain_from
from storeformat.log.segments import Segment
from storeformat.record.decode import DecodeRules, RecordBlock
from storeformat.salvage.queue_offsets import claims_of, is_taken


def block_of(*claims: tuple[str, int, int, int]) -> RecordBlock:
    """Records of topic, queue id, queue offset and flags."""
    log = LogBuilder(8192)
    for topic, queue_id, number, sys_flag in claims:
        log.message(topic=topic, queue_id=queue_id, queue_offset=number, sys_flag=sys_flag)
    window = BlockWindow(Bytes(log.segments[0]), Segment("x", 0, 8192))  # type: ignore[arg-type]
    (block,) = chain_from(window, 0, DecodeRules(), stop=log.end_offset)
    return block


CLAIMS = [
    ("A", 0, 5, 0), ("B", 1, 9, 0), ("C", 0, 2, 0), ("A", 1, 7, 0), ("A", 0, 6, 4), ("B", 1, 10, 8), ("A", 0, 3, 0),
    ("B", 0, 1, 0), ("C", 1, 4, 0), ("C", 0, 3, 12),
]  # fmt: skip


def test_claims_are_in_order_of_their_queues() -> None:
    """Prepared and rolled back messages claim nothing."""
    claims = claims_of(block_of(*CLAIMS))
    assert claims.queues == [(b"A", 0), (b"A", 1), (b"B", 0), (b"B", 1), (b"C", 0), (b"C", 1)]
    assert claims.begins.tolist() == [0, 2, 3, 4, 6, 7]
    assert claims.sizes.tolist() == [2, 1, 1, 2, 1, 1]
    assert claims.rows.tolist() == [0, 6, 3, 7, 1, 5, 2, 8]
    assert claims.numbers.tolist() == [5, 3, 7, 1, 9, 10, 2, 4]
    assert claims.lasts.tolist() == [1, 2, 3, 5, 6, 7]
    assert dict(claims.ends()) == {(b"A", 0): 4, (b"A", 1): 8, (b"B", 0): 2, (b"B", 1): 11, (b"C", 0): 3, (b"C", 1): 5}


def test_places_before_the_next_free_one_are_taken() -> None:
    claims = claims_of(block_of(*CLAIMS))
    ends = {(b"A", 0): 4, (b"A", 1): 8, (b"B", 1): 10, (b"C", 0): 2, (b"C", 1): 1 << 63}
    assert is_taken(claims, ends).tolist() == [False, True, True, False, True, False, False, True]


def test_a_block_without_claims() -> None:
    claims = claims_of(block_of(("A", 0, 5, 4)))
    assert (claims.queues, dict(claims.ends())) == ([], {})
    assert all(len(column) == 0 for column in (claims.begins, claims.sizes, claims.rows, claims.numbers))
    assert is_taken(claims, {(b"A", 0): 4}).dtype == np.bool_
