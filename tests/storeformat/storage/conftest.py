"""What tests of changes on disk share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What has been synced, by name."""
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc")
    found: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: found.append(str(Path(f"/proc/self/fd/{handle}").readlink())))
    return found
