"""What of a queue file is compared at all: up to the last byte that is not zero, and what the log makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from udfs.files.verify import _FileBuffer, _used_units


@pytest.mark.parametrize("unit", [20, 46])
@pytest.mark.parametrize("units", [1, 5])
def test_a_file_is_used_up_to_its_last_byte_that_is_not_zero(unit: int, units: int) -> None:
    """Wherever that byte lies: the words that are looked at begin and end within units."""
    content = bytearray(unit * units)
    for at_least in range(units + 1):
        assert _used_units(content, at_least, unit) == at_least
        for position in range(len(content)):
            content[position] = 1
            assert _used_units(content, at_least, unit) == max(at_least, position // unit + 1), position
            content[position] = 0


def test_a_file_takes_the_place_of_a_longer_one(tmp_path: Path) -> None:
    """Nothing of the one before it is left where the next one has a hole."""
    buffer = _FileBuffer(100_000)
    for number, data in enumerate([b"\1" * 100_000, b"\2" * 50_000, b"", b"\3"]):
        path = tmp_path / str(number)
        path.write_bytes(data)
        with path.open("r+b") as file:
            file.truncate(100_000)
        loaded = bytes(buffer.load(str(path)))
        assert bytes(buffer.content) == loaded.ljust(100_000, b"\0") == path.read_bytes()
