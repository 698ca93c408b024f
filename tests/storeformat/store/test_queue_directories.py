"""The directories of queues in a store."""

from __future__ import annotations

from pathlib import Path

from storeformat.store.queue_directories import queue_directories


def test_directories_and_their_files(tmp_path: Path) -> None:
    for path in ("A/0/" + "0" * 20, "A/0/notes", "A/x/" + "0" * 20, "B/1/" + "0" * 18 + "20", "B/1/" + "0" * 20):
        file = tmp_path / "consumequeue" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (tmp_path / "consumequeue" / "CURRENT").touch()
    (tmp_path / "consumequeue" / "B" / "stray").touch()
    found = list(queue_directories(str(tmp_path), "consumequeue"))
    assert [(one.topic, one.queue_id) for one in found] == [("A", 0), ("A", None), ("B", 1)]
    assert [[int(file.name) for file in one.files()] for one in found] == [[0], [0], [0, 20]]
    assert len(found[0].entries()) == 2
    assert [one.topic for one in queue_directories(str(tmp_path), "consumequeue", {"B"})] == ["B"]
    assert list(queue_directories(str(tmp_path), "batchconsumequeue")) == []
