"""Units of batch queues, written by hand from the broker's layout: 46 bytes, big-endian."""

from __future__ import annotations

import struct

import pytest
from support.refusals import refusal

from storeformat.errors import WrongSettings
from storeformat.queues.batch_consume_queue import check_file_size, is_valid, parse_units, written_units


def unit(
    offset: int = 4096, size: int = 300, tags: int = -7, time: int = 1_700_000_000_000, base: int = 12, batch: int = 3
) -> bytes:
    return struct.pack(">qiqqqhii", offset, size, tags, time, base, batch, -1, 0)


def test_a_unit_has_its_fields_where_the_broker_puts_them() -> None:
    (parsed,) = parse_units(unit() + bytes(45))
    assert len(unit()) == 46
    assert parsed.item() == (4096, 300, -7, 1_700_000_000_000, 12, 3, -1, 0)


@pytest.mark.parametrize(
    ("changed", "valid"),
    [
        ({}, True),
        ({"offset": 0}, True),
        ({"offset": -1}, False),
        ({"size": 1}, True),
        ({"size": 0}, False),
        ({"base": 0}, True),
        ({"base": -1}, False),
        ({"batch": 1}, True),
        ({"batch": 0}, False),
        ({"batch": -1}, False),
    ],
)
def test_what_a_broker_accepts(changed: dict[str, int], valid: bool) -> None:
    units = parse_units(unit() + unit(**changed) + unit())
    assert is_valid(units).tolist() == [True, valid, True]
    assert written_units(units) == (3 if valid else 1)


def test_nothing_is_written_in_an_empty_file() -> None:
    assert written_units(parse_units(bytes(920))) == 0
    assert written_units(parse_units(b"")) == 0


@pytest.mark.parametrize("size", [46, 920, 46 * 300_000])
def test_files_hold_whole_units(size: int) -> None:
    assert check_file_size(size) == size


@pytest.mark.parametrize("size", [-46, 0, 1, 45, 47, 921])
def test_a_length_that_holds_no_whole_units_is_refused(size: int) -> None:
    said = {
        "what": "mapperFileSizeBatchConsumeQueue holds no whole units",
        "found": size,
        "expected": "a multiple of 46",
    }
    assert refusal(WrongSettings, lambda: check_file_size(size)) == said
