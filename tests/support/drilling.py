"""What a drill with a real broker needs beside the broker: the command line, and fingerprints of a store's files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DERIVED = ("consumequeue", "index", "checkpoint")
_TIMEOUT = 240


@dataclass(frozen=True)
class Done:
    """How a command ended: ``report`` is what ``--json`` printed, ``said`` its standard error."""

    code: int
    report: dict[str, Any]
    said: str


def run_job(*arguments: object) -> Done:
    """Runs the command line as a user does, in a process of its own."""
    line = [sys.executable, "-m", "jobs", *map(str, arguments), "--json"]
    ran = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_TIMEOUT)
    assert ran.stdout.strip(), f"{line} said nothing on stdout: {ran.stderr[-3000:]}"
    return Done(ran.returncode, json.loads(ran.stdout), ran.stderr)


def wipe(store: Path) -> None:
    """Removes everything that the broker derived from its log."""
    for name in DERIVED:
        path = store / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def copy_store(source: Path, target: Path) -> Path:
    """Returns ``target``, a copy of a store at rest, with its holes."""
    subprocess.run(["cp", "-a", "--sparse=always", source, target], check=True)
    return target


def queue_files(store: Path) -> dict[str, str]:
    """Path to SHA-256 of every consume queue file."""
    return _digests(store, "consumequeue")


def index_files(store: Path) -> dict[str, str]:
    """Path to SHA-256 of every index file."""
    return _digests(store, "index")


def log_files(store: Path) -> dict[str, str]:
    """Name to SHA-256 of every segment; a segment that is only allocated counts as none."""
    found = {}
    for path in sorted((store / "commitlog").iterdir()):
        data = path.read_bytes()
        if data.strip(b"\0"):
            found[path.name] = hashlib.sha256(data).hexdigest()
    return found


def overwrite(store: Path, begin: int, end: int, data: bytes = b"") -> None:
    """Overwrites ``[begin, end)`` of the log, inside one segment, with ``data`` over and over (default: noise)."""
    segment = max(path for path in (store / "commitlog").iterdir() if int(path.name) <= begin)
    size = end - begin
    with segment.open("r+b") as file:
        file.seek(begin - int(segment.name))
        file.write((data * (size // len(data) + 1))[:size] if data else hashlib.shake_256(b"noise").digest(size))
        file.flush()
        os.fsync(file.fileno())


def _digests(store: Path, part: str) -> dict[str, str]:
    return {
        path.relative_to(store).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((store / part).rglob("*"))
        if path.is_file()
    }
