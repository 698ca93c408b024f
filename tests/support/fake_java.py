"""Programs made of a few lines of shell, in the place of a Java or a Python."""

from __future__ import annotations

import stat
from pathlib import Path


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def java_that_says(path: Path, version: str) -> Path:
    return executable(path, f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
