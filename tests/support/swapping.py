"""Small files in a store and in a source, and journals of their swap: no commit log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from storeformat.store.swap import SwapJournal, SwapLog, SwapPath

QUEUES, INDEX = SwapPath("consumequeue", old=True, new=True), SwapPath("index", old=True, new=True)
ABORT_GOES, ABORT_COMES = SwapPath("abort", old=True, new=False), SwapPath("abort", old=False, new=True)
OLD = {"abort": "old", "consumequeue/T/0/0": "old queue", "index/1": "old index"}
NEW = {"consumequeue/T/0/0": "new queue", "index/2": "new index", "manifest.json": "paper"}


def write(directory: Path, names: dict[str, str]) -> None:
    for name, text in names.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


def read(directory: Path) -> dict[str, str]:
    """Every file with its text, and every empty directory; of a store without its backups."""
    paths = [path for path in directory.rglob("*") if path.is_file() or not any(path.iterdir())]
    found = {path.relative_to(directory).as_posix(): path.read_text() if path.is_file() else "empty" for path in paths}
    return {name: text for name, text in found.items() if name.partition("/")[0] != "backup"}


def journal(source: Path | str, *places: SwapPath, **more: Any) -> SwapJournal:
    log = SwapLog(0, 100, (str(source),), "5.3")
    return SwapJournal("publish", 1, str(source), places or (QUEUES, INDEX, ABORT_GOES), log, **more)
