"""Timer state as it lies there."""

from __future__ import annotations

import struct
from pathlib import Path

from storeformat.store.config.timer_files import TimerCheck, read_timer_files


def test_nothing(tmp_path: Path) -> None:
    found = read_timer_files(str(tmp_path))
    assert (found.check, found.wheel_size, found.log_sizes) == (None, None, ())


def test_everything(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "timerlog").mkdir()
    (tmp_path / "timerwheel").write_bytes(bytes(64))
    (tmp_path / "timerlog" / f"{0:020d}").write_bytes(bytes(52))
    (tmp_path / "config" / "timercheck").write_bytes(struct.pack(">4q", 1, 2, 9, 4).ljust(4096, b"\0"))
    found = read_timer_files(str(tmp_path))
    assert (found.check, found.wheel_size, found.log_sizes) == (TimerCheck(1, 2, 9, 4), 64, (52,))
    assert found.check is not None
    assert found.check.queued_up_to == 4


def test_a_short_page_goes_on_with_zeros(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "timercheck").write_bytes(struct.pack(">qq", 1, 2))
    assert read_timer_files(str(tmp_path)).check == TimerCheck(1, 2, 0, 0)
