"""Timer state as it lies there, and the timer log and timercheck as they are made."""

from __future__ import annotations

import struct
from pathlib import Path

from storeformat.store.config.timer_files import (
    DEFAULT,
    DELETE,
    TimerUnit,
    read_timer_files,
    timer_check,
    timer_log,
)


def test_nothing(tmp_path: Path) -> None:
    found = read_timer_files(str(tmp_path))
    assert (found.queued_up_to, found.wheel_size, found.log_sizes) == (None, None, ())


def test_everything(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "timerlog").mkdir()
    (tmp_path / "timerwheel").write_bytes(bytes(64))
    (tmp_path / "timerlog" / f"{0:020d}").write_bytes(bytes(52))
    (tmp_path / "config" / "timercheck").write_bytes(struct.pack(">4q", 1, 2, 9, 4).ljust(4096, b"\0"))
    found = read_timer_files(str(tmp_path))
    assert (found.queued_up_to, found.wheel_size, found.log_sizes) == (4, 64, (52,))


def test_a_short_page_goes_on_with_zeros(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "timercheck").write_bytes(struct.pack(">qqq", 1, 2, 9))
    assert read_timer_files(str(tmp_path)).queued_up_to == 0


UNITS = [TimerUnit(5_000, 2_000, DEFAULT, 700, 120, 17), TimerUnit(6_000, 2_000, DEFAULT | DELETE, 900, 130, -1),
         TimerUnit(5_000, 2_000, DEFAULT, 1100, 140)]  # fmt: skip


def test_a_unit_field_by_field() -> None:
    ((base, data),) = timer_log(UNITS, 4096)
    assert (base, len(data)) == (0, 3 * 52)
    assert data[:52].hex(" ", 4) == (
        "00000034 ffffffff ffffffff 00000001 00000000 000007d0 00000bb8 00000000 000002bc 00000078 00000011 00000000"
        " 00000000"
    )
    assert data[56:64].hex() == "ff" * 8
    assert data[64:68].hex() == "00000005"
    assert int.from_bytes(data[108:116], "big") == 0, "the unit before it in its slot is the first"


def test_a_blank_ends_a_file() -> None:
    files = list(timer_log(UNITS, 2 * 52 + 40))
    assert [(base, len(data)) for base, data in files] == [(0, 2 * 52 + 16), (144, 52)]
    assert files[0][1][104:].hex(" ", 4) == "00000028 00000000 00000000 cbd43194"


def test_a_check() -> None:
    data = timer_check(7, 9)
    assert len(data) == 4096
    assert data[:56].hex(" ", 8) == (
        "0000000000000007 0000000000000000 0000000000000009 0000000000000009" + " 0000000000000000" * 3
    )
    assert not any(data[56:])


def test_nothing_makes_no_file() -> None:
    assert list(timer_log([], 4096)) == []
