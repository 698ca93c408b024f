"""What a store's own files show of its settings."""

from __future__ import annotations

from pathlib import Path

from support.store_builder import LogBuilder

from jobs.config import LogOptions
from jobs.opening import open_store


def test_a_stray_file_shows_no_size_of_queue_files(tmp_path: Path) -> None:
    log = LogBuilder()
    log.message(topic="T")
    root = log.write(tmp_path)
    queue = root / "consumequeue" / "T" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(bytes(200))
    (queue / ".nfs0001").write_bytes(bytes(17))
    assert open_store(LogOptions(store=str(root))).layout.consume_queue_file_size == 200
