"""Files by themselves: what the rest of the program takes for granted of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from storeformat.storage import files


@pytest.mark.parametrize(
    ("milliseconds", "seconds"), [(0, 0), (1, 1), (999, 1), (1000, 1), (1001, 2), (1_700_000_000_001, 1_700_000_001)]
)
def test_a_time_of_last_change_is_rounded_up_to_a_second(milliseconds: int, seconds: int, tmp_path: Path) -> None:
    """Brokers up to 5.1.0 take the first file that was not changed before the time that they search."""
    (tmp_path / "file").touch()
    files.set_modified(str(tmp_path / "file"), milliseconds)
    assert (tmp_path / "file").stat().st_mtime_ns == seconds * 1_000_000_000
    assert files.modified_at(str(tmp_path / "file")) == seconds * 1000
