"""Checkpoints: fields, page and versions, and those of real brokers."""

from __future__ import annotations

import pytest
from support import golden
from support.rebuilding import rules_of_release

from storeformat.errors import NotAStore
from storeformat.store.broker_rules import rules_of
from storeformat.store.checkpoint import PAGE_SIZE, StoreCheckpoint, for_rebuilt_store, is_plausible, parse_checkpoint

FULL = StoreCheckpoint(1, 2, 3, 4, 5, 6)


def test_page() -> None:
    page = FULL.to_bytes()
    assert len(page) == PAGE_SIZE == 4096
    assert page[:48].hex() == "".join(f"{value:016x}" for value in range(1, 7))
    assert not any(page[48:])
    assert parse_checkpoint(page) == FULL


def test_short_files_read_as_if_zeros_followed() -> None:
    assert parse_checkpoint(FULL.to_bytes()[:24]) == StoreCheckpoint(1, 2, 3)
    assert parse_checkpoint(FULL.to_bytes()[:12]) == StoreCheckpoint(1)
    with pytest.raises(NotAStore, match=r"the checkpoint is empty: found 0, expected 4096 bytes"):
        parse_checkpoint(b"")


@pytest.mark.parametrize(
    ("position", "byte", "plausible"),
    [
        (0, 0x80, False),
        (2, 0x08, False),
        (2, 0x07, True),
        (24, 0x80, False),
        (40, 0x01, False),
        (42, 0x01, True),
        (48, 0x01, False),
        (4095, 0x01, False),
    ],
)
def test_what_no_broker_writes_is_not_plausible(position: int, byte: int, plausible: bool) -> None:
    page = bytearray(FULL.to_bytes())
    page[position] = byte
    assert is_plausible(page) == plausible


def test_fields_that_are_not_known_yet_are_plausible() -> None:
    assert is_plausible(StoreCheckpoint(master_flushed_offset=-1, confirm_phy_offset=-1).to_bytes())
    assert not is_plausible(b"")


@pytest.mark.parametrize(
    ("field", "least", "most"),
    [
        ("physic_msg_timestamp", 0, (1 << 43) - 1),
        ("index_msg_timestamp", 0, (1 << 43) - 1),
        ("confirm_phy_offset", -1, (1 << 50) - 1),
        ("logics_physical_offset", -1, (1 << 50) - 1),
    ],
)
def test_ends_of_what_is_plausible(field: str, least: int, most: int) -> None:
    """Times up to the year 2248, offsets up to 2^50; -1 where there is no offset yet."""
    values = (least - 1, least, most, most + 1)
    assert [is_plausible(StoreCheckpoint(**{field: value}).to_bytes()) for value in values] == [
        False,
        True,
        True,
        False,
    ]


def test_checkpoint_beside_a_rebuilt_store() -> None:
    ends = {"last_store_timestamp": 70_000, "last_index_end_timestamp": 69_000, "last_queued_phy_offset": 4_321}
    assert for_rebuilt_store(**ends) == StoreCheckpoint(70_000, 70_000, 69_000, 0, 0, 4_321)


@pytest.mark.golden
@pytest.mark.parametrize("store", golden.stores(), ids=str)
def test_checkpoints_of_real_brokers(store: golden.GoldenStore) -> None:
    content = (golden.unpack(store) / "checkpoint").read_bytes()
    checkpoint = parse_checkpoint(content)
    expected = store.entry["checkpoint"]
    assert checkpoint == StoreCheckpoint(
        expected["physicMsgTimestamp"],
        expected["logicsMsgTimestamp"],
        expected["indexMsgTimestamp"],
        expected["masterFlushedOffset"],
        expected["confirmPhyOffset"],
        expected["logicsPhysicalOffset"],
    )
    if not rules_of(rules_of_release(store.version)).checkpoint_queue_offset:
        assert checkpoint.logics_physical_offset == 0
    assert checkpoint.to_bytes() == content
    assert is_plausible(content)
